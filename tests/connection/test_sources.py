"""The hook reads the same settings from each source of a Connection: the form, JSON, a URI, a secrets backend."""

from __future__ import annotations

import json
from types import SimpleNamespace
from unittest import mock
from urllib.parse import quote, urlencode

import pytest
from cryptography.fernet import InvalidToken

from airflow_provider_loanauth.connection import lookup
from airflow_provider_loanauth.connection.lookup import get_from_task_or_database, read_connection
from airflow_provider_loanauth.connection.methods import PasswordGrant
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from tests.support.airflow_names import AirflowException, AirflowNotFoundException
from tests.support.masking import redact

COMPANY = {
    "origin": "https://lender.example",
    "client_id": "Kreditgeber é/?",
    "client_secret": 'ge:heim "%2F"&=+ ñ 🔑',
}
EXTRA = COMPANY | {"method": "jwt", "timeout": 7, "verify": False, "key_in_headers": False}
USER, PASSWORD = "zoë+o'hara@lender.example", " p%61ss & wörd=✓;/?#@: 🔑 "
CREDENTIALS = PasswordGrant(user=USER, password=PASSWORD, **COMPANY)
LOGIN = f"{quote(USER, safe='')}:{quote(PASSWORD, safe='')}"
#: A URI contains only strings.
QUERY = urlencode(EXTRA | {"verify": "false", "key_in_headers": "false"})
EXTRA_QUERY = urlencode({"__extra__": json.dumps(EXTRA)})
OF_JSON = {"conn_type": "loanauth", "login": USER, "password": PASSWORD, "host": "auth.example", "extra": EXTRA}


@pytest.mark.parametrize(
    ("value", "auth_url"),
    [
        (OF_JSON | {"port": 8443, "schema": "tenant"}, "https://auth.example:8443/tenant"),
        (f"loanauth://{LOGIN}@auth.example:8443/tenant?{QUERY}", "https://auth.example:8443/tenant"),
        (f"loanauth://{LOGIN}@auth.example/https?{EXTRA_QUERY}", "https://auth.example"),
        (f"loanauth://{LOGIN}@localhost:8461/http?{QUERY}", "http://localhost:8461"),
        # A second scheme, which Airflow reads too.
        (f"loanauth://https://{LOGIN}@auth.example:8443/tenant?{QUERY}", "https://auth.example:8443/tenant"),
        (f"loanauth://http://{LOGIN}@127.0.0.1:8461?{QUERY}", "http://127.0.0.1:8461"),
    ],
)
def test_json_and_uri(value, auth_url, define):
    define("tenant_a", value)
    found = LoanAuthHook("tenant_a").read_settings()
    assert (found.grant, found.auth_url) == (CREDENTIALS, auth_url)
    assert (found.method, found.timeout, found.verify) == ("jwt", 7.0, False)


class Undecryptable:
    """A Connection of Airflow 2.11, which decrypts a field when it is read."""

    @property
    def password(self):
        raise InvalidToken


CANARY = "made-up CANARY-password"


@pytest.mark.parametrize(
    ("found", "error", "message"),
    [
        (AirflowException(CANARY), SettingsError, r"cannot read the connection with this id \(AirflowException\)"),
        (Undecryptable(), SettingsError, r"cannot read the connection with this id \(InvalidToken\)"),
        # A secrets backend or a driver of the database raises its own. `LoanAuth` goes on with a valid credential.
        (PermissionError(CANARY), LoanAuthError, r"could not read .* \(PermissionError\): try again\."),
        # Airflow raises the same error while its API server or a secrets backend is down. Nothing was sent yet.
        (AirflowNotFoundException(CANARY), LoanAuthError, r"did not find .* with this id: .* try again\."),
    ],
)
def test_the_error_of_a_connection_that_cannot_be_read_has_no_text_of_it(found, error, message):
    with pytest.raises(error, match=message) as caught:
        read_connection(mock.Mock(side_effect=[found]), "tenant_a")
    assert type(caught.value) is error
    assert caught.value.conn_id == ("tenant_a" if error is SettingsError else "te… (8 characters)")
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize(
    ("conn_id", "shown"), [("abc", "… (3 characters)"), ("a" * 400, "aaaa… (400 characters)"), (7, "not text but int")]
)
def test_at_most_a_fourth_of_an_id_that_was_not_found_is_shown(conn_id, shown):
    """A token may have been passed in its place."""
    with pytest.raises(LoanAuthError) as caught:
        read_connection(mock.Mock(side_effect=AirflowNotFoundException("made up")), conn_id)
    assert caught.value.conn_id == shown


def test_an_id_that_cannot_be_a_token_is_shown(monkeypatch):
    """That of an operator: Airflow stores it in plaintext anyway."""
    task = LoanAuthOperator(task_id="authenticate", loanauth_conn_id="tenannt_a")
    monkeypatch.setattr(lookup, "current_task", lambda: SimpleNamespace(task=task))
    with pytest.raises(LoanAuthError, match="connection id 'tenannt_a'"):
        task.hook.read_settings()
    # One that the code of a task passes is not that of the task.
    with pytest.raises(LoanAuthError, match="connection id 'tok… "):
        LoanAuthHook("token-made-up").read_settings()


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ('{"password": "CANARY" "CANARY"}', "Correct its JSON, where"),
        ("loanauth://pat:CANARY/@a:port", "Correct its JSON, where"),
        ({"origin": "CANARY", "client_id": 1, "CANARY": 1}, 'In its JSON, move "origin", "client_id" into "extra".'),
    ],
)
def test_a_variable_that_airflow_cannot_read(value, advice, define):
    """Airflow reports it as missing. The message shows no part of its content."""
    define("tenant_a", value)
    with pytest.raises(SettingsError, match="AIRFLOW_CONN_TENANT_A is set, but Airflow cannot read it") as caught:
        LoanAuthHook("tenant_a").read_settings()
    assert advice in str(caught.value)
    assert "CANARY" not in str(caught.value)
    assert caught.value.conn_id == "tenant_a"


def test_outside_of_a_task_the_database_is_read_too(monkeypatch):
    database = SimpleNamespace(get_connection_from_secrets={"stored": "of the database"}.__getitem__)
    get = mock.Mock(side_effect=AirflowNotFoundException("made up"))
    monkeypatch.setattr(lookup, "BaseHook", SimpleNamespace(get_connection=get))
    monkeypatch.setattr(lookup, "import_module", lambda name: SimpleNamespace(Connection=database))
    assert get_from_task_or_database("stored") == "of the database"
    monkeypatch.setattr(lookup, "current_task", lambda: "a task")
    with pytest.raises(AirflowNotFoundException):
        get_from_task_or_database("stored")


#: The values that some optional fields have if they are empty.
DEFAULTS = {"method": "jwt", "credential_header": "secret", "timeout": 30, "verify": True, "key_in_headers": False}
AS_TEXT = {name: str(value).lower() for name, value in DEFAULTS.items()}
NEEDED = {"api_key": "made-up-api-key", "user_id": "user-1001"}


@pytest.mark.parametrize("extra", [NEEDED | DEFAULTS, NEEDED | AS_TEXT])
def test_defaults_that_are_written_out_mask_no_word(extra, define):
    """Airflow masks the values of fields whose names it takes for those of secrets (apache/airflow#48105)."""
    settings = []
    for one in (NEEDED, extra):
        define("tenant_a", {"conn_type": "loanauth", "host": "auth.example", "extra": one})
        settings.append(LoanAuthHook("tenant_a", method="ppe").read_settings())
    assert settings[0] == settings[1]
    # Airflow masks them when it parses the extra.
    assert get_from_task_or_database("tenant_a").extra_dejson.keys() == extra.keys()
    assert redact("made-up-api-key") == "***"
    message = f"PPE API secret: {' '.join(AS_TEXT.values())} True False"
    assert redact(message) == message
