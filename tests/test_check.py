"""A check over real sockets and TLS. No text of it contains a secret."""

from datetime import datetime, timedelta, timezone

import pytest

from airflow_provider_loanauth import __version__
from airflow_provider_loanauth.check import Line, Report, check_connection
from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.metadata import PACKAGE_NAME
from airflow_provider_loanauth.service.error_responses import SENT_BY_EACH_TEST
from airflow_provider_loanauth.service.protocol import WireResponse
from airflow_provider_loanauth.system import system
from tests.support.fernet_keys import FERNET_KEY, OTHER_FERNET_KEY
from tests.support.leaks import leaks
from tests.support.processes import start_new_process
from tests.support.secret_accounts import COMPANY, SECRETS, USER, with_wrong_password

CONN_ID = "checked"
WITHOUT_LOGIN = {"Fernet key": "ok", "Settings": "ok", "Shared login": "ok", "Response": "ok"}
OK = WITHOUT_LOGIN | {"Login": "ok"}


@pytest.fixture
def sandbox(tls_sandbox):
    tls_sandbox.set_accounts([COMPANY])
    return tls_sandbox


@pytest.fixture
def check(define, monkeypatch, logs, capfd, variables):
    """Check a Connection and return its report. Nothing may contain a secret."""
    # No text may depend on Airflow's masker, which works only when a text is logged.
    monkeypatch.setattr("airflow_provider_loanauth.redaction.mask_secret", lambda _: None)
    texts = []

    def run(connection, method=None, **options):
        if connection is not None:
            define(CONN_ID, connection)
        report = check_connection(CONN_ID, method=method, **options)
        texts.extend([str(report), repr(report)])
        return report

    yield run
    texts += [logs.text, *capfd.readouterr()]
    assert leaks("\n".join(texts), SECRETS.values()) == []


def connection_of(sandbox, method="jwt", url=None, **extra):
    connection = sandbox.connections()[f"AIRFLOW_CONN_LOANAUTH_{method.upper()}"]
    connection["extra"] |= {"timeout": 5} | extra
    return connection | ({"host": url} if url else {})


def results(report):
    return {line.name: line.outcome for line in report.lines}


def message(report, name):
    return next(line.message for line in report.lines if line.name == name)


def test_everything_is_right(check, sandbox):
    report = check(connection_of(sandbox, made_up="any"))
    assert (results(report), report.status, report.exit_code) == (WITHOUT_LOGIN, "usable", 0)
    # Only one request without credentials was sent.
    [request] = sandbox.requests()
    assert (request.method, request.path) == ("GET", "/")
    assert str(report).startswith("'checked' on ")
    assert f" UTC, airflow-provider-loanauth {__version__}\n" in str(report)
    assert f"✓ Settings     Method jwt (Authen JWT), {sandbox.url}. Extra contains unknown" in str(report)
    assert str(report).endswith("\n\nUsable.")


@pytest.mark.parametrize("method", ["jwt", "los", "ppe"])
def test_a_login(check, sandbox, method):
    report = check(connection_of(sandbox, method), method, login=True)
    assert (results(report), report.status) == (OK, "usable")
    assert sandbox.counters().authentications.succeeded == 1
    assert (USER.user_id if method == "ppe" else USER.username) in message(report, "Login")


def test_a_wrong_password_is_sent_once_by_each_check(check, sandbox):
    connection = with_wrong_password(connection_of(sandbox))
    for number in (1, 2):
        report = check(connection, login=True)
        assert results(report) == OK | {"Login": "failed"}
        assert (report.status, report.exit_code, sandbox.counters().token) == ("not_usable", 1, number)
        # A check is no task.
        assert "have the user unlocked at the service. Each test sends the password once" in message(report, "Login")
        assert "clear the" not in message(report, "Login")


@pytest.mark.parametrize(
    ("where", "status", "line", "outcome", "exit_code", "logins"),
    [
        ("any", 503, "Response", "unknown", 3, 0),
        ("token", 503, "Login", "unknown", 3, 1),
        ("probe", 403, "Login", "ok", 0, 1),
        ("any", 403, "Login", "failed", 1, 1),
    ],
)
def test_statuses(check, sandbox, where, status, line, outcome, exit_code, logins):
    sandbox.set_fault("status", status=status, where=where)
    report = check(connection_of(sandbox), login=True)
    assert (results(report)[line], report.exit_code, sandbox.counters().token) == (outcome, exit_code, logins)
    # Without a login, a 403 may be that of an allow-list, or that of each request without credentials.
    report = check(None)
    assert report.exit_code == (0 if where == "token" else 3)
    assert message(report, "Response").endswith("add --login.") == (status == 403)


@pytest.mark.parametrize(("seconds", "text"), [(90, "90 s ahead of"), (-90, "90 s behind"), (58, None), (-59, None)])
def test_a_wrong_clock(check, sandbox, monkeypatch, seconds, text):
    """The clock of the service is that of this machine, and a header ``Date`` has no fractions of a second."""
    now = datetime(2026, 1, 2, 3, 4, 5, 300_000, tzinfo=timezone.utc)
    monkeypatch.setattr(
        "airflow_provider_loanauth.check.parse_http_date", lambda date: date and now.replace(microsecond=0)
    )
    monkeypatch.setattr(system, "now", lambda: now + timedelta(seconds=seconds))
    report = check(connection_of(sandbox))
    assert results(report) == WITHOUT_LOGIN | ({"Clock": "failed"} if text else {})
    if text:
        assert message(report, "Clock") == f"The clock of this machine is about {text} that of the service: set it."


def test_the_date_of_a_cached_response_is_that_of_no_clock(check, sandbox, monkeypatch):
    headers = {"date": "Fri, 02 Jan 2026 03:04:05 GMT", "age": "90"}
    response = WireResponse(status=200, headers=headers, body=b"")
    monkeypatch.setattr("airflow_provider_loanauth.check.probe", lambda *_, **__: response)
    assert results(check(connection_of(sandbox))) == WITHOUT_LOGIN


def test_addresses_in_a_report_stay_in_one_piece():
    url = f"https://auth.example/{'a-path/' * 16}"
    lines = (Line("Settings", "ok", f"Made up: {url}."), Line("Response", "failed", " ".join(["two words"] * 12)))
    assert str(Report("made-up", "worker-1", datetime(2026, 11, 21, 9, tzinfo=timezone.utc), lines)).splitlines() == [
        f"'made-up' on worker-1, 2026-11-21 09:00:00 UTC, {PACKAGE_NAME} {__version__}",
        "",
        "✓ Settings     Made up:",
        f"               {url}.",
        "✗ Response     two words two words two words two words two words two words two words two words two",
        "               words two words two words two words",
        "",
        "Not usable.",
    ]


@pytest.mark.parametrize(
    ("changed", "outcome", "words"),
    [
        ({"verify": True}, "failed", "The certificate of the service is not trusted"),
        ({"url": "https://nosuch.invalid"}, "unknown", "The host name of Auth URL does not resolve"),
        ({"proxy": "http://127.0.0.1:1"}, "unknown", "The proxy could not be reached"),
    ],
)
def test_the_message_of_a_login_says_what_is_wrong_on_the_way(check, sandbox, changed, outcome, words):
    report = check(connection_of(sandbox, **changed), login=True)
    assert results(report) == WITHOUT_LOGIN | {"Response": outcome}
    assert message(report, "Response").startswith(words)
    assert SENT_BY_EACH_TEST not in message(report, "Response")
    assert sandbox.counters().token == 0


def test_settings(check, sandbox, monkeypatch):
    report = check(connection_of(sandbox), "ppe", login=True)
    assert (results(report), report.exit_code) == ({"Fernet key": "ok", "Settings": "failed"}, 1)
    assert all(f"{field} is missing" in message(report, "Settings") for field in ("API key", "User ID"))
    assert "connection id" not in message(report, "Settings")
    monkeypatch.delenv(f"AIRFLOW_CONN_{CONN_ID.upper()}")
    report = check(None, login=True)
    assert (results(report), report.exit_code) == ({"Fernet key": "ok", "Settings": "unknown"}, 3)
    assert "Airflow did not find a connection with this id" in message(report, "Settings")
    assert "example_dags/check_connection.py" in message(report, "Settings")
    assert sandbox.requests() == []


def test_fernet_keys(check, sandbox, fernet):
    fernet("")
    report = check(connection_of(sandbox))
    assert (results(report), report.exit_code) == (WITHOUT_LOGIN | {"Fernet key": "failed"}, 1)
    assert "Variables cannot be read here (Airflow has no Fernet key)" in message(report, "Shared login")
    fernet(f"{FERNET_KEY},{OTHER_FERNET_KEY}")
    both = message(check(None), "Fernet key")
    fernet(FERNET_KEY)
    one = message(check(None), "Fernet key").partition(".")[0]
    assert both.startswith(f"{one}, ")


@pytest.mark.parametrize(("shape", "outcome"), [("oauth", "failed"), ("spring", "unknown")])
def test_a_shared_failure(check, sandbox, variables, shape, outcome):
    check(connection_of(sandbox))
    sandbox.set_fault("status", where="token", times=1, status=401, shape=shape)
    with pytest.raises(LoanAuthError):
        LoanAuthHook(CONN_ID).get_credential()
    report = check(None)
    assert results(report) == WITHOUT_LOGIN | {"Shared login": outcome}
    assert f"run `python -m airflow_provider_loanauth forget {CONN_ID}`." in message(report, "Shared login")
    start_new_process()
    assert check(None, login=True).status == "usable"
