"""Objects with a plaintext secret, as a login makes them: none is stored in XCom, and none shows it."""

from datetime import datetime, timezone
from importlib import import_module
from importlib.metadata import version

import pytest

from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.exceptions import SealError
from airflow_provider_loanauth.login.credential import ActiveCredential
from airflow_provider_loanauth.login.variables import Memory, Row
from airflow_provider_loanauth.service.client import AuthenticationResult
from airflow_provider_loanauth.service.protocol import WireResponse, build_request, parse_response
from tests.support.airflow_names import serde
from tests.support.leaks import leaks
from tests.support.secret_accounts import SECRETS
from tests.support.wire_requests import settings_of

NOW = datetime(2026, 11, 21, tzinfo=timezone.utc)
BODY = b'{"access_token": "CANARY-token", "refresh_token": "CANARY-refresh", "unknown": "CANARY", "userId": "shown"}'
PROXY_CREDENTIALS = "pat:CANARY-proxy-password"
ALL_SECRETS = [*SECRETS.values(), PROXY_CREDENTIALS]
JWT = settings_of("jwt", proxy=f"http://{PROXY_CREDENTIALS}@proxy.example")
PPE = settings_of("ppe")
REQUEST, PPE_REQUEST = (build_request(settings) for settings in (JWT, PPE))
RECEIVED = WireResponse(status=200, headers={}, body=BODY)
TOKEN = parse_response(JWT, RECEIVED, now=NOW)
SECRET = parse_response(PPE, WireResponse(status=200, headers={}, body=b'{"secret": "CANARY-secret"}'), now=NOW)
ACTIVE = ActiveCredential(value=TOKEN.access_token, conn_id="c", method="jwt", issued_at=NOW)
ROW = Row(credential=ACTIVE, by="made-up host")
VALUES = (
    *(JWT, JWT.grant, JWT.proxy, PPE.grant),
    *(REQUEST, PPE_REQUEST, RECEIVED, TOKEN, SECRET),
    *(ACTIVE, ROW, Memory(credential=ACTIVE)),
    AuthenticationResult(settings=JWT, response=TOKEN, requested_at=NOW),
)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_an_object_with_a_secret_is_not_stored_and_does_not_show_it(value):
    assert leaks(f"{value} {value!r}", ALL_SECRETS) == []
    assert "CANARY" not in f"{value} {value!r}"
    with pytest.raises(SealError, match=rf"^{type(value).__name__} .* get_credential"):
        serde.serialize({"nested": [value]})


def test_no_part_shows_a_secret():
    """As a debugger, or a traceback with local variables, shows it."""
    parts = [vars(one) for one in (JWT, JWT.grant, JWT.proxy, PPE.grant, REQUEST, PPE_REQUEST)]
    parts += [JWT.secrets, JWT.proxy.headers, TOKEN.access_token, TOKEN.refresh_token, TOKEN.secrets, SECRET.secret]
    assert leaks(repr(parts), ALL_SECRETS) == []
    assert "CANARY" not in repr(parts)
    assert "http://proxy.example:80" in repr(JWT)
    assert "'shown'" in repr(TOKEN)


def test_with_pickled_xcom_a_plaintext_response_is_stored_on_2_11(monkeypatch):
    """2.11 with ``enable_xcom_pickling`` does not call ``serialize`` (``docs/security.md``). Others do not pickle."""
    monkeypatch.setenv("AIRFLOW__CORE__ENABLE_XCOM_PICKLING", "True")
    if version("apache-airflow").startswith("2."):
        serialize = import_module("airflow.models.xcom").XCom.serialize_value
        assert TOKEN.access_token.encode() in serialize(TOKEN)
    else:
        serialize = import_module("airflow.sdk.bases.xcom").BaseXCom.serialize_value
        with pytest.raises(SealError):
            serialize(TOKEN)
    sealed = AccessToken.seal("CANARY-token", method="jwt", conn_id="c", issued_at=NOW, expires_at=None)
    assert "CANARY" not in str(serialize(sealed))
