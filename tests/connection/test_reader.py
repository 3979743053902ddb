"""What is defined is what the hook reads, whoever defined it: the form, JSON, a URI, a secrets backend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace
from urllib.parse import quote, urlencode

import pytest
from cryptography.fernet import InvalidToken

from airflow_provider_loanauth._compat import AirflowException, AirflowFailException, AirflowNotFoundException
from airflow_provider_loanauth.connection.methods import ApiKeyCredentials, PasswordCredentials
from airflow_provider_loanauth.connection.reader import read_connection
from airflow_provider_loanauth.connection.settings import load
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from tests.support.leaks import leaks, told
from tests.support.wire_cases import CASES

EXTRA = {
    "method": "jwt",
    "origin": "https://lender.example",
    "client_id": "Kreditgeber é/?",
    "client_secret": 'ge:heim "%2F"&=+ ñ 🔑',
    "timeout": 7,
    "verify": False,
    "api_key_in_headers": False,
}
USER, PASSWORD = "zoë+o'hara@lender.example", " p%61ss & wörd=✓;/?#@: 🔑 "
SENT = PasswordCredentials(
    username=USER,
    password=PASSWORD,
    origin=EXTRA["origin"],
    client_id=EXTRA["client_id"],
    client_secret=EXTRA["client_secret"],
)
LOGIN = f"{quote(USER, safe='')}:{quote(PASSWORD, safe='')}"
#: A URI carries text alone.
QUERY = urlencode({name: json.dumps(value) if not isinstance(value, str) else value for name, value in EXTRA.items()})
WHOLE_EXTRA = urlencode({"__extra__": json.dumps(EXTRA)})


def is_read(conn_id, auth_url, **more):
    settings = LoanAuthHook(conn_id).client.settings()
    assert settings.credentials == SENT
    assert settings.auth_url == auth_url
    assert (settings.method, settings.timeout, settings.verify) == ("jwt", 7.0, False)


@pytest.mark.parametrize(
    ("uri", "auth_url"),
    [
        (f"loanauth://{LOGIN}@auth.example/?{QUERY}", "https://auth.example"),
        (f"loanauth://{LOGIN}@auth.example:8443?{QUERY}", "https://auth.example:8443"),
        (f"loanauth://{LOGIN}@auth.example:8443/tenant?{QUERY}", "https://auth.example:8443/tenant"),
        (f"loanauth://{LOGIN}@auth.example:8443/tenant/7/?{QUERY}", "https://auth.example:8443/tenant/7"),
        (f"loanauth://{LOGIN}@auth.example:8443/tenant?{WHOLE_EXTRA}", "https://auth.example:8443/tenant"),
        (f"loanauth://{LOGIN}@auth.example/https?{WHOLE_EXTRA}", "https://auth.example"),
        (f"loanauth://{LOGIN}@localhost:8461/http?{QUERY}", "http://localhost:8461"),
        # The host with a protocol, percent-encoded, as Airflow's own `get_uri` writes it.
        (f"loanauth://{LOGIN}@{quote('https://auth.example:8443', safe='')}/?{QUERY}", "https://auth.example:8443"),
        (f"loanauth://{LOGIN}@{quote('https://auth.example/tenant', safe='')}?{QUERY}", "https://auth.example/tenant"),
        # And as Airflow reads a second scheme.
        (f"loanauth://https://{LOGIN}@auth.example:8443/tenant?{QUERY}", "https://auth.example:8443/tenant"),
        (f"loanauth://http://{LOGIN}@127.0.0.1:8461?{QUERY}", "http://127.0.0.1:8461"),
    ],
)
def test_uri(uri, auth_url, define):
    define("tenant_a", uri)
    is_read("tenant_a", auth_url)


@pytest.mark.parametrize("as_text", [False, True], ids=["extra as an object", "extra as text"])
@pytest.mark.parametrize(
    ("place", "auth_url"),
    [
        ({"host": "https://auth.example:8443/tenant"}, "https://auth.example:8443/tenant"),
        ({"host": "auth.example", "port": 8443, "schema": "https"}, "https://auth.example:8443"),
        ({"host": "auth.example", "port": 8443, "schema": "tenant"}, "https://auth.example:8443/tenant"),
        ({"host": "http://localhost", "port": 8461}, "http://localhost:8461"),
    ],
)
def test_json(place, auth_url, as_text, define):
    value = {"conn_type": "loanauth", "login": USER, "password": PASSWORD, **place}
    define("tenant_a", value | {"extra": json.dumps(EXTRA) if as_text else EXTRA})
    is_read("tenant_a", auth_url)


def test_json_as_the_form_saves_it(define):
    """Empty fields come as null or empty text, booleans and numbers as text, and the port as 0."""
    form = dict.fromkeys(("los_client_id", "los_client_secret", "api_key", "user_id", "company_id"))
    form |= EXTRA | {"timeout": "7", "verify": "false", "api_key_in_headers": ""}
    value = {"conn_type": "loanauth", "host": "https://auth.example", "port": 0, "schema": "", "login": USER}
    define("tenant_a", value | {"password": PASSWORD, "extra": form})
    is_read("tenant_a", "https://auth.example")


def test_the_object_that_the_form_makes():
    from airflow.models.connection import Connection

    connection = Connection(
        conn_id="tenant_a",
        conn_type="loanauth",
        host="https://auth.example",
        login=USER,
        password=PASSWORD,
        extra=json.dumps(EXTRA),
    )
    settings = load(connection)
    assert (settings.credentials, settings.conn_id) == (SENT, "tenant_a")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_airflow_exports_what_it_reads(case, define):
    """The URI that Airflow makes of a Connection (``airflow connections get``, backends) means the same."""
    from airflow.models.connection import Connection

    define("from_json", case.connection)
    connection = Connection(conn_id="x", **case.connection | {"extra": json.dumps(case.connection["extra"])})
    define("from_uri", connection.get_uri())
    first, second = LoanAuthHook("from_json").client.settings(), LoanAuthHook("from_uri").client.settings()
    assert first.credentials == second.credentials
    assert (first.auth_url, first.company_id) == (second.auth_url, second.company_id)


def test_ppe_needs_no_login(define):
    define("tenant_a", f"loanauth://auth.example/?{urlencode({'method': 'ppe', 'api_key': 'a/b+ c', 'user_id': '1'})}")
    settings = LoanAuthHook("tenant_a").client.settings()
    assert settings.credentials == ApiKeyCredentials(api_key="a/b+ c", user_id="1", in_headers=False)


READ = """
import dataclasses, json, sys
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
for conn_id in sys.argv[1:]:
    settings = LoanAuthHook(conn_id).client.settings()
    print("READ", json.dumps([conn_id, settings.auth_url, dataclasses.asdict(settings.credentials)]))
"""


def test_local_filesystem_backend(tmp_path):
    """A secrets backend, in a process that knows no other source."""
    stored = {
        "from_object": {
            "conn_type": "loanauth",
            "host": "https://auth.example/tenant",
            "login": USER,
            "password": PASSWORD,
            "extra": EXTRA,
        },
        "from_uri": f"loanauth://{LOGIN}@auth.example/tenant?{QUERY}",
    }
    path = tmp_path / "connections.json"
    path.write_text(json.dumps(stored))
    done = subprocess.run(
        [sys.executable, "-c", READ, *stored],
        env=os.environ
        | {
            "AIRFLOW__SECRETS__BACKEND": "airflow.secrets.local_filesystem.LocalFilesystemBackend",
            "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps({"connections_file_path": str(path)}),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    read = [json.loads(line.removeprefix("READ ")) for line in done.stdout.splitlines() if line.startswith("READ ")]
    sent = {
        "username": USER,
        "password": PASSWORD,
        "origin": EXTRA["origin"],
        "client_id": EXTRA["client_id"],
        "client_secret": EXTRA["client_secret"],
    }
    assert read == [[conn_id, "https://auth.example/tenant", sent] for conn_id in stored]
    assert PASSWORD not in done.stderr


class Undecrypted:
    """A Connection of Airflow 2.11, which decrypts at the first look."""

    conn_id = "made-up"

    @property
    def password(self):
        raise InvalidToken


@pytest.mark.parametrize(
    "trouble",
    [AirflowException("made-up CANARY-password"), ValueError("made-up CANARY-password"), Undecrypted()],
    ids=lambda trouble: type(trouble).__name__,
)
def test_a_connection_that_cannot_be_read_is_told_without_its_text(trouble):
    def get(conn_id):
        assert conn_id == "made-up"
        if isinstance(trouble, Exception):
            raise trouble
        return trouble

    with pytest.raises(
        SettingsError, match=r"cannot read the connection with this id \((AirflowE|ValueE|InvalidT)"
    ) as caught:
        read_connection(get, "made-up")
    assert caught.value.conn_id == "made-up"
    assert leaks(told(caught.value), ["CANARY-password"]) == []


def test_a_connection_that_is_not_there_may_be_there_at_the_next_try():
    """Airflow says so too while its API server or a secrets backend does not answer; nothing was sent yet."""

    def get(conn_id):
        raise AirflowNotFoundException(f"made-up CANARY-password {conn_id}")

    with pytest.raises(LoanAuthError, match=r"did not find a connection with this id: .* try again\.") as caught:
        read_connection(get, "made-up")
    assert not isinstance(caught.value, AirflowFailException)
    assert leaks(told(caught.value), ["CANARY-password"]) == []


def test_what_is_read_is_the_connection_itself():
    wanted = SimpleNamespace(conn_id="made-up", password=None, extra="{}")
    assert read_connection(lambda _: wanted, "made-up") is wanted
