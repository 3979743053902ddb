"""A method that is only described, and named nowhere in the code, works from the Connection to the pricing request."""

from __future__ import annotations

import logging

import pytest
import requests

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.cli import main
from airflow_provider_loanauth.connection.methods import METHODS, AuthMethod, PasswordLogin
from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.exceptions import SettingsError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.metadata import CONN_FIELDS, LABELS, METHOD_NAMES
from tests.support import masking

FIELDS = {
    "broker_client_id": {"label": "Broker client ID", "schema": {"type": ["string", "null"]}},
    "broker_client_secret": {"label": "Broker client secret", "schema": {"type": "string", "format": "password"}},
}


@pytest.fixture
def broker(monkeypatch):
    """Describe a method that sends the client credentials of a broker: its name, its form fields, what it needs."""
    monkeypatch.setitem(METHOD_NAMES, "broker", "Authen broker")
    for name, declared in FIELDS.items():
        monkeypatch.setitem(CONN_FIELDS, name, declared)
        monkeypatch.setitem(LABELS, name, declared["label"])
    method = AuthMethod(
        fields=METHODS["jwt"].fields | {"client_id": "broker_client_id", "client_secret": "broker_client_secret"},
        login=PasswordLogin,
        credential_type=AccessToken,
    )
    monkeypatch.setitem(METHODS, "broker", method)


def test_a_described_method_works(broker, sandbox, define, logs, capsys):
    connection = sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    extra = connection["extra"] | {"method": "broker"}
    extra |= {"broker_client_id": extra.pop("client_id"), "broker_client_secret": extra.pop("client_secret")}
    define("tenant_a", connection | {"extra": extra})
    credential = LoanAuthHook("tenant_a").get_credential()
    assert (type(credential), credential.method) == (AccessToken, "broker")
    assert "with Authen broker; the access token expires at" in logs.text
    loan = {"loan_id": "L-1", "amount": 300_000, "fico": 740, "ltv": 80, "term_months": 360}
    for _ in range(2):
        response = requests.post(f"{sandbox.url}/sandbox/price", json=loan, auth=LoanAuth(credential), timeout=30)
        assert response.status_code == 200
        # It is refreshed after a 401, with the same method.
        sandbox.revoke()
    # In the logs of the task.
    assert masking.redact(extra["broker_client_secret"]) == "***"
    assert main(["check", "tenant_a", "--login"]) == 0
    # The command disables logging for the rest of its program.
    logging.disable(logging.NOTSET)
    printed = capsys.readouterr().out
    assert "Method broker (Authen broker) has all fields that it needs." in printed
    assert extra["broker_client_secret"] not in printed


def test_its_missing_fields_are_named_by_their_labels(broker, sandbox, define):
    define("tenant_a", sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])
    with pytest.raises(SettingsError, match="Broker client ID is missing: method broker requires it"):
        LoanAuthHook("tenant_a", method="broker").get_credential()
