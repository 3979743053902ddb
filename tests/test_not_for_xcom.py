from __future__ import annotations

from datetime import datetime, timezone
from importlib import import_module
from importlib.metadata import version

import pytest

from airflow_provider_loanauth.auth.refresh_policy import ActiveCredential
from airflow_provider_loanauth.connection.methods import ApiKeyLogin, PasswordLogin
from airflow_provider_loanauth.connection.proxy import Proxy
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.exceptions import SealError
from airflow_provider_loanauth.models import ApiSecretResponse
from airflow_provider_loanauth.service.client import AuthenticationResult
from airflow_provider_loanauth.service.protocol import WireResponse, build_request
from tests.support.airflow_names import serde
from tests.support.wire_cases import FULL_TOKEN

NOW = datetime(2026, 11, 21, tzinfo=timezone.utc)
KEY = ApiKeyLogin(api_key="CANARY-key", user="pat", in_headers=False)
SETTINGS = Settings(
    conn_id="c", method="ppe", auth_url="https://h", login=KEY, company_id=None, timeout=1.0, verify=True
)
VALUES = (
    ActiveCredential(
        value="CANARY-token",
        conn_id="c",
        method="jwt",
        issued_at=NOW,
    ),
    build_request("https://h", KEY),
    WireResponse(status=200, headers={}, body=b"CANARY"),
    FULL_TOKEN,
    ApiSecretResponse(valid=1, secret="CANARY-secret"),
    KEY,
    PasswordLogin(user="pat", password="CANARY-password", origin="o", client_id="c", client_secret="CANARY-client"),
    SETTINGS,
    Proxy.from_url("http://pat:CANARY-password@proxy.example"),
    AuthenticationResult(settings=SETTINGS, response=FULL_TOKEN, requested_at=NOW),
)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_an_object_with_a_secret_is_not_stored(value):
    for returned in (value, {"nested": [value]}):
        with pytest.raises(SealError, match=r"get_credential\(\) from the task instead") as caught:
            serde.serialize(returned)
        assert "CANARY" not in str(caught.value)


def test_with_pickled_xcom_a_plaintext_response_is_stored_on_2_11(monkeypatch):
    """2.11 with ``enable_xcom_pickling`` does not call ``serialize`` (``docs/security.md``). Others do not pickle."""
    monkeypatch.setenv("AIRFLOW__CORE__ENABLE_XCOM_PICKLING", "True")
    if version("apache-airflow").startswith("2."):
        serialize = import_module("airflow.models.xcom").XCom.serialize_value
        assert FULL_TOKEN.access_token.encode() in serialize(FULL_TOKEN)
    else:
        serialize = import_module("airflow.sdk.bases.xcom").BaseXCom.serialize_value
        with pytest.raises(SealError):
            serialize(FULL_TOKEN)
    sealed = AccessToken.seal("CANARY-token", method="jwt", conn_id="c", issued_at=NOW, expires_at=None)
    assert "CANARY" not in str(serialize(sealed))
