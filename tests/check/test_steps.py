"""A check over real sockets and TLS, step by step. No text of it contains a secret."""

from __future__ import annotations

import copy
import json
import re
import socket
import ssl
import threading
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path
from urllib.parse import quote

import pytest
import trustme

from airflow_provider_loanauth.check import check_connection
from airflow_provider_loanauth.exceptions import RejectedError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from loanauth_sandbox.server import running_sandbox
from tests.support.leaks import leaks
from tests.support.loopback import Loopback, json_response
from tests.support.processes import start_new_process
from tests.support.proxy import TunnelProxy
from tests.support.secret_accounts import COMPANY, SECRETS, USER, WRONG_PASSWORD, with_wrong_password, without

CONN_ID = "checked"
PROXY_USER, PROXY_PASSWORD = "CANARY pröxy", "CANARY-p@ss/wörd✓"
PROXY_CREDENTIALS = f"{PROXY_USER}:{PROXY_PASSWORD}"
PROXY_WRITTEN = f"{quote(PROXY_USER)}:{quote(PROXY_PASSWORD, safe='')}"
WRONG_PROXY_PASSWORD = "CANARY-wrong-proxy-password"
ALL_SECRETS = [*SECRETS.values(), PROXY_PASSWORD, PROXY_CREDENTIALS, WRONG_PROXY_PASSWORD]
STEPS = [
    "settings",
    "fernet_key",
    "shared_login",
    "host_name",
    "tcp",
    "proxy",
    "tls",
    "response",
    "clock",
    "allow_list",
    "login",
]
OK = dict.fromkeys(STEPS, "ok")
WITHOUT_LOGIN = OK | {"login": "not_checked"}


def outcomes(failed, outcome="failed", **others):
    """Return the outcomes if a step fails, and those after it are not checked."""
    index = STEPS.index(failed)
    return OK | {failed: outcome} | dict.fromkeys(STEPS[index + 1 :], "not_checked") | others


@pytest.fixture(scope="module")
def plain():
    with running_sandbox(accounts=[COMPANY]) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def tls():
    with running_sandbox(accounts=[COMPANY], tls="good") as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(tls):
    tls.clear_faults()
    tls.reset()
    yield tls
    tls.clear_faults()


@pytest.fixture(autouse=True)
def issued(monkeypatch):
    """Each credential that was issued, in plaintext."""
    values = []
    from airflow_provider_loanauth.service import protocol

    def parse_response(*arguments, **options):
        parsed = parse(*arguments, **options)
        values.extend(parsed.secrets)
        return parsed

    parse = protocol.parse_response
    monkeypatch.setattr(protocol, "parse_response", parse_response)
    return values


@pytest.fixture
def check(define, monkeypatch, logs, capfd, issued, variables):
    """Check a Connection with the Python function and return its report. Nothing may contain a secret."""
    # No text may depend on Airflow's masker, which works only when a text is logged.
    monkeypatch.setattr("airflow_provider_loanauth.redaction.mask_secret", lambda _: None)
    texts = []

    def run(connection, method=None, **options):
        if connection is not None:
            define(CONN_ID, connection)
        report = check_connection(CONN_ID, method, **options)
        texts.extend([str(report), report.to_json(), repr(report)])
        return report

    yield run
    texts += [logs.text, *capfd.readouterr()]
    assert leaks("\n".join(texts), ALL_SECRETS + issued) == []


def connection_of(sandbox, method="jwt", **extra):
    """Return the Connection of a method, which also has the fields of the others."""
    connection = copy.deepcopy(sandbox.connections()[f"AIRFLOW_CONN_LOANAUTH_{method.upper()}"])
    connection["extra"] |= {"timeout": 5} | extra
    return connection


def results(report):
    return {step.name: step.outcome for step in report.steps}


def step(report, name):
    [found] = [step for step in report.steps if step.name == name]
    return found


def test_everything_is_right(check, sandbox):
    report = check(connection_of(sandbox))
    assert results(report) == WITHOUT_LOGIN
    assert report.exit_code == 0
    assert "as far as it can be checked without a login" in str(report)
    # Only one request without credentials was sent.
    [request] = sandbox.requests()
    assert (request.method, request.path) == ("GET", "/")
    assert sandbox.counters().token == 0
    details = step(report, "tls").details
    assert details["trusted"] is True
    assert details["version"] == "TLSv1.3"
    assert "trustme" in details["issuer"]
    assert datetime.fromisoformat(details["not_after"]) > datetime.now(timezone.utc)
    assert details["issuer"] in step(report, "tls").message
    assert abs(step(report, "clock").details["difference"]) <= 1


@pytest.mark.parametrize("method", ["jwt", "los", "ppe"])
def test_a_login(check, sandbox, method):
    report = check(connection_of(sandbox, method), method, login=True)
    assert results(report) == OK
    assert (report.status, report.method) == ("usable", method)
    assert str(report).endswith("\nUsable.")
    counters = sandbox.counters()
    assert counters.authentications.succeeded == 1
    login = step(report, "login")
    assert (USER.user_id if method == "ppe" else USER.username) in login.message
    assert ("expires at" in login.message) == (method != "ppe")
    assert (login.details["expires_at"] is None) == (method == "ppe")


def test_warnings_are_in_the_line_that_they_belong_to(check, sandbox):
    sandbox.set_fault("no-expires-in", where="token")
    report = check(connection_of(sandbox, made_up="any"), login=True)
    assert results(report) == OK
    [about_settings] = step(report, "settings").warnings
    assert about_settings.startswith("Extra contains 1 unknown field")
    [about_response] = step(report, "login").warnings
    assert "missing: expires_in" in about_response


def test_a_method_other_than_that_of_the_connection(check, sandbox):
    report = check(connection_of(sandbox, "jwt"), "ppe")
    assert results(report) == outcomes("settings") | {"fernet_key": "ok"}
    assert report.exit_code == 1
    assert "API key is missing" in step(report, "settings").message
    assert "User ID is missing" in step(report, "settings").message
    assert sandbox.requests() == []


def test_all_missing_fields_at_once(check, sandbox):
    connection = without(connection_of(sandbox), "client_secret") | {"login": ""}
    message = step(check(connection, login=True), "settings").message
    assert "Username is missing" in message
    assert "connection id" not in message
    assert "Client secret is missing" in message
    assert sandbox.requests() == []


def test_a_wrong_password_is_sent_once(check, sandbox):
    connection = with_wrong_password(connection_of(sandbox))
    report = check(connection, login=True)
    assert results(report) == OK | {"login": "failed"}
    assert (report.status, sandbox.counters().token) == ("not_usable", 1)
    assert "Username or Password is wrong" in step(report, "login").message
    # The same process does not send it again.
    assert "Nothing was sent this time" in step(check(connection, login=True), "login").message
    assert sandbox.counters().token == 1


def test_an_unavailable_service(check, sandbox):
    sandbox.set_fault("status", status=429)
    report = check(connection_of(sandbox), login=True)
    assert results(report) == outcomes("response", clock="ok")
    assert (report.exit_code, sandbox.counters().token) == (2, 0)
    assert "Nothing was sent" in step(report, "login").message


def test_a_service_that_is_unavailable_for_logins_only(check, sandbox):
    sandbox.set_fault("status", status=503, where="token")
    report = check(connection_of(sandbox), login=True)
    assert results(report) == OK | {"login": "failed"}
    assert (report.exit_code, sandbox.counters().token) == (2, 1)


@pytest.mark.parametrize(
    ("where", "login", "network", "exit_code"),
    [
        pytest.param("probe", False, "unknown", 2, id="without a login"),
        pytest.param("probe", True, "ok", 0, id="the login is accepted"),
        pytest.param("any", True, "failed", 1, id="the login is rejected too"),
        pytest.param("token", True, "ok", 1, id="only the login is rejected"),
    ],
)
def test_403(check, sandbox, where, login, network, exit_code):
    sandbox.set_fault("status", status=403, where=where)
    report = check(connection_of(sandbox), login=login)
    assert (results(report)["allow_list"], report.exit_code) == (network, exit_code)
    if network in ("unknown", "failed"):
        assert "allow-list" in step(report, "allow_list").message


def test_plain_http_on_loopback(check, plain):
    report = check(connection_of(plain))
    assert results(report) == WITHOUT_LOGIN
    assert step(report, "tls").message.startswith("Not used")


def test_a_different_certificate_authority(check, sandbox):
    report = check(connection_of(sandbox, verify=True), login=True)
    assert results(report) == outcomes("tls", clock="ok")
    assert (report.exit_code, sandbox.counters().token) == (1, 0)
    shown = step(report, "tls")
    assert "is not trusted" in shown.message
    assert "trustme" in shown.message
    assert "inspects TLS" in shown.message
    assert shown.details["trusted"] is False


def test_a_certificate_that_is_not_checked(check, sandbox):
    report = check(connection_of(sandbox, verify=False))
    assert results(report) == WITHOUT_LOGIN
    assert "was not checked" in step(report, "tls").message
    assert "Verify TLS is false" in str(report.steps[0].warnings)
    assert step(report, "tls").details["trusted"] is None


def test_a_ca_bundle_that_does_not_exist(check, sandbox, tmp_path):
    report = check(connection_of(sandbox, verify=str(tmp_path / "absent.pem")))
    assert results(report) == outcomes("tls", clock="ok")
    assert "The CA bundle cannot be read" in step(report, "tls").message


@pytest.fixture
def authority(tmp_path):
    made = trustme.CA()
    made.cert_pem.write_to_path(tmp_path / "ca.pem")
    made.path = str(tmp_path / "ca.pem")
    return made


def tls_server(authority, **options):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", **options).configure_cert(context)
    return Loopback(lambda connection, _: context.wrap_socket(connection, server_side=True))


def at_port(sandbox, port, **extra):
    return connection_of(sandbox, **extra) | {"host": f"https://127.0.0.1:{port}"}


@pytest.mark.parametrize(
    ("start", "end", "word"),
    [pytest.param(-9, -2, "expired", id="expired"), pytest.param(2, 9, "not yet valid", id="not yet valid")],
)
def test_a_certificate_that_is_not_valid_now(check, sandbox, authority, start, end, word):
    today = datetime.now(timezone.utc)
    options = {"not_before": today + timedelta(days=start), "not_after": today + timedelta(days=end)}
    with tls_server(authority, **options) as server:
        # The first connection shows the certificate; the client closes the second, because it does not trust it.
        server.responses = [None, json_response(b"{}", headers=date(timedelta()))]
        report = check(at_port(sandbox, server.port, verify=authority.path))
    assert results(report) == outcomes("tls", clock="ok")
    assert word in step(report, "tls").message
    assert f"valid from {options['not_before']:%Y-%m-%d %H:%M} to" in step(report, "tls").message


@pytest.mark.parametrize("issuer", [SECRETS["client_secret"], "made up \x1b[31m", "x" * 201])
def test_an_issuer_that_is_not_shown(check, sandbox, issuer):
    with tls_server(trustme.CA(organization_name=issuer)) as server:
        shown = step(check(at_port(sandbox, server.port)), "tls")
    assert shown.outcome == "failed"
    assert shown.details["issuer"] == "a name that is not shown"


def test_a_certificate_that_cannot_be_parsed(check, sandbox, monkeypatch):
    monkeypatch.setattr(ssl.SSLSocket, "getpeercert", lambda *_, **__: b"made up")
    assert step(check(connection_of(sandbox, verify=False)), "tls").details == {}


def date(difference):
    moment = datetime.now(timezone.utc) + difference
    return f"Date: {format_datetime(moment, usegmt=True)}\r\n".encode()


NOW = datetime(2026, 11, 22, 9, 0, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("date", "difference", "outcome", "words"),
    [
        ("Sun, 22 Nov 2026 09:00:00 GMT", 0, "ok", "differs from that of the service by 0 s"),
        # Date has no fractions of a second.
        ("Sun, 22 Nov 2026 08:59:58 GMT", 1, "ok", "by 1 s, at most 60 s"),
        ("Sun, 22 Nov 2026 08:58:59 -0000", 60, "ok", "by 60 s"),
        ("Sun, 22 Nov 2026 09:01:00 GMT", -60, "ok", "by 60 s"),
        ("Sun, 22 Nov 2026 08:58:58 GMT", 61, "failed", "61 s ahead of that of the service"),
        ("Sun, 22 Nov 2026 09:01:01 GMT", -61, "failed", "61 s behind that of the service"),
        ("Sun, 22 Nov 2026 07:00:00 GMT\r\nAge: 7200", None, "not_checked", "from a cache"),
        ("yesterday", None, "not_checked", "no valid Date"),
        ("Sun, 06 Nov 999999 08:49:37 GMT", None, "not_checked", "no valid Date"),
    ],
)
def test_a_clock(check, plain, loopback, monkeypatch, date, difference, outcome, words):
    monkeypatch.setattr("airflow_provider_loanauth.check.network._now", lambda: NOW)
    loopback.responses = [None, json_response(b"{}", headers=f"Date: {date}\r\n".encode())]
    report = check(connection_of(plain) | {"host": loopback.url})
    clock = step(report, "clock")
    assert (clock.outcome, clock.details.get("difference")) == (outcome, difference)
    assert words in clock.message
    assert report.exit_code == (1 if outcome == "failed" else 0)


@pytest.mark.parametrize(
    ("error", "temporary"),
    [
        pytest.param(socket.gaierror(socket.EAI_NONAME, "Name or service not known"), False, id="does not exist"),
        pytest.param(socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), True, id="no name server responds"),
        pytest.param(UnicodeError("label too long"), False, id="not a host name"),
    ],
)
def test_a_name_that_does_not_resolve(check, sandbox, monkeypatch, error, temporary):
    def getaddrinfo(*_, **__):
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    report = check(connection_of(sandbox) | {"host": "https://lender.example"}, login=True)
    assert results(report) == outcomes("host_name", proxy="ok")
    assert (report.exit_code, step(report, "host_name").temporary) == (2 if temporary else 1, temporary)
    assert "lender.example" in step(report, "host_name").message


def test_a_lookup_without_an_end(check, sandbox, monkeypatch):
    ended = threading.Event()

    def getaddrinfo(*_, **__):
        ended.wait(60)
        raise OSError

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    try:
        report = check(connection_of(sandbox, timeout=0.2) | {"host": "https://lender.example"})
    finally:
        ended.set()
    assert results(report) == outcomes("host_name", proxy="ok")
    assert report.exit_code == 2


def test_a_closed_port(check, sandbox):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    report = check(at_port(sandbox, port), login=True)
    assert results(report) == outcomes("tcp", proxy="ok")
    assert report.exit_code == 2
    assert "refused the connection" in step(report, "tcp").message


def test_a_port_that_accepts_and_never_responds(check, sandbox, plain):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        report = check(at_port(sandbox, port, timeout=0.3))
        assert results(report) == outcomes("tls")
        assert report.exit_code == 2
        unencrypted = connection_of(plain, timeout=0.3) | {"host": f"http://127.0.0.1:{port}"}
        report = check(unencrypted)
        assert results(report) == outcomes("response")
        assert report.exit_code == 2


def test_an_address_that_drops_packets(check, sandbox, monkeypatch):
    monkeypatch.setattr(socket.socket, "connect", lambda *_: (_ for _ in ()).throw(TimeoutError("timed out")))
    report = check(connection_of(sandbox))
    assert results(report) == outcomes("tcp", proxy="ok")
    assert "did not accept a connection within 5 s" in step(report, "tcp").message


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy(check, sandbox, authority, tmp_path, scheme):
    context = None
    if scheme == "https":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
    with Path(authority.path).open("ab") as bundle:
        bundle.write(Path(sandbox.ca_path).read_bytes())
    with TunnelProxy(PROXY_CREDENTIALS, context) as proxy:
        report = check(connection_of(sandbox, proxy=proxy.url(PROXY_WRITTEN), verify=authority.path), login=True)
        assert results(report) == OK
        # One to see the certificate, one for the request, one for the login.
        assert len(proxy.tunnels) == (3 if scheme == "http" else 2)
    shown = step(report, "proxy")
    assert shown.details["url"] == f"{scheme}://{proxy.address}"
    assert "Proxy in the Connection" in shown.message
    assert "(the proxy)" in step(report, "host_name").message


def test_a_proxy_that_rejects_its_password(check, sandbox):
    with TunnelProxy(PROXY_CREDENTIALS) as proxy:
        report = check(connection_of(sandbox, proxy=proxy.url(f"u:{WRONG_PROXY_PASSWORD}")), login=True)
        assert len(proxy.requests) == 1
    assert results(report) == outcomes("proxy")
    assert report.exit_code == 1
    assert "407" in step(report, "proxy").message


def test_a_proxy_without_a_trusted_certificate_gets_no_password(check, sandbox, authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with TunnelProxy(PROXY_CREDENTIALS, context) as proxy:
        report = check(connection_of(sandbox, proxy=proxy.url(PROXY_WRITTEN)))
        assert proxy.requests == []
    assert results(report) == outcomes("proxy")
    assert "The certificate of the proxy is not trusted" in step(report, "proxy").message


def test_an_inspecting_proxy(check, sandbox):
    """Its certificate authority is not in the CA bundle."""
    with TunnelProxy(PROXY_CREDENTIALS) as proxy:
        report = check(connection_of(sandbox, proxy=proxy.url(PROXY_WRITTEN), verify=True))
    assert results(report) == outcomes("tls", clock="ok")
    assert "trustme" in step(report, "tls").message


def test_a_login_response_that_repeats_the_password_of_the_proxy(check, sandbox, authority):
    """A proxy that inspects TLS can write it there."""
    # It has no part of the other secrets.
    password = "qwmx7142zj"
    body = json.dumps({"error": "access_denied", "error_description": f"not for {password}"}).encode()
    with tls_server(authority) as server, TunnelProxy(f"user:{password}") as proxy:
        server.responses = [None, json_response(b"{}"), json_response(body, "403 Forbidden")]
        connection = at_port(sandbox, server.port, verify=authority.path, proxy=proxy.url(f"user:{password}"))
        report = check(connection, login=True)
    assert password not in str(report) + report.to_json()
    assert "403 (access_denied)" in step(report, "login").message


def test_a_proxy_of_the_environment(check, sandbox, monkeypatch):
    with TunnelProxy(PROXY_CREDENTIALS) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"HTTP://CANARYuser:{WRONG_PROXY_PASSWORD}@{proxy.address}")
        report = check(connection_of(sandbox))
        assert results(report) == outcomes("proxy")
        assert step(report, "proxy").details["url"] == proxy.url()
        assert "the proxy settings of this machine" in step(report, "proxy").message
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert results(check(connection_of(sandbox))) == WITHOUT_LOGIN
        monkeypatch.delenv("NO_PROXY")
        # requests accepts an address without a scheme.
        monkeypatch.setenv("HTTPS_PROXY", f"CANARYuser:{WRONG_PROXY_PASSWORD}@{proxy.address}")
        assert step(check(connection_of(sandbox)), "proxy").details["url"] == proxy.url()


@pytest.mark.parametrize(
    ("url", "shown", "expected"),
    [
        pytest.param(
            "http://canaryuser:4711/CANARY-password@127.0.0.1:9",
            "a proxy whose address cannot be read",
            outcomes("proxy", host_name="not_checked", tcp="not_checked"),
            id="a slash in the password",
        ),
        pytest.param(
            "http://canaryuser:4711%E2%9C%93@127.0.0.1:9",
            "a proxy whose address cannot be read",
            outcomes("proxy", host_name="not_checked", tcp="not_checked"),
            id="not in Latin-1",
        ),
        pytest.param(
            "http://canarykey:4711\\@127.0.0.1:9",
            "http://127.0.0.1:9",
            outcomes("host_name"),
            id="a backslash in the password",
        ),
        pytest.param(
            f"socks5://user:{WRONG_PROXY_PASSWORD}@127.0.0.1:9",
            "a SOCKS proxy",
            outcomes("proxy", host_name="not_checked", tcp="not_checked"),
            id="SOCKS",
        ),
    ],
)
def test_an_address_of_a_proxy_that_is_not_shown(check, sandbox, monkeypatch, url, shown, expected):
    def getaddrinfo(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setenv("HTTPS_PROXY", url)
    report = check(connection_of(sandbox))
    assert results(report) == expected
    assert step(report, "proxy").details["url"] == shown
    texts = str(report) + report.to_json()
    assert "canary" not in texts.lower()
    assert "4711" not in texts


def test_a_proxy_that_blocks_the_service(check, sandbox):
    with Loopback() as server:
        server.responses = [b"HTTP/1.1 403 Forbidden\r\n\r\n"]
        report = check(connection_of(sandbox, proxy=server.url))
    assert results(report) == outcomes("proxy")
    assert (report.exit_code, step(report, "proxy").details["status"]) == (2, 403)
    assert "It responded with 403: ask who runs it to allow" in step(report, "proxy").message


def test_a_proxy_that_is_down(check, sandbox):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    report = check(connection_of(sandbox, proxy=f"http://{PROXY_WRITTEN}@127.0.0.1:{port}"))
    assert results(report) == outcomes("tcp")
    assert "(the proxy)" in step(report, "tcp").message
    assert report.exit_code == 2


def test_a_shared_login_is_shown(check, sandbox):
    report = check(connection_of(sandbox))
    assert step(report, "shared_login").message == "No task has logged in with these values yet."
    LoanAuthHook(CONN_ID).get_credential()
    line = step(check(None), "shared_login")
    assert re.fullmatch(r".+ logged in at \S+; the credential expires at \S+\.", line.message)
    assert set(line.details) == {"by", "at", "variable", "expires_at"}
    assert "Off" in step(check(connection_of(sandbox, share_logins=False)), "shared_login").message


def test_a_shared_rejection_is_shown_and_ended_by_a_login(check, sandbox, variables):
    check(connection_of(sandbox))
    sandbox.set_fault("status", where="token", status=401, times=1)
    with pytest.raises(RejectedError):
        LoanAuthHook(CONN_ID).get_credential()
    line = step(check(None), "shared_login")
    assert (line.outcome, line.details["error"]) == ("ok", "RejectedError")
    [warning] = line.warnings
    assert line.details["variable"] in warning
    assert line.details["variable"] in variables
    start_new_process()
    assert check(None, login=True).status == "usable"
    assert line.details["variable"] not in variables


def test_no_fernet_key(check, sandbox, fernet):
    fernet("")
    report = check(connection_of(sandbox))
    assert results(report) == WITHOUT_LOGIN | {"fernet_key": "failed", "shared_login": "not_checked"}
    assert report.exit_code == 1
    assert "AIRFLOW__CORE__FERNET_KEY" in step(report, "fernet_key").message


def test_no_connection(check):
    report = check(None, login=True)
    assert results(report) == outcomes("settings", "unknown", fernet_key="ok")
    assert report.conn_id == "checked"
    assert report.exit_code == 2
    message = step(report, "settings").message
    for way in ("example_dags/check_connection.py", "database", "AIRFLOW_CONN_", "secrets backend"):
        assert way in message


@pytest.mark.parametrize("value", ["not json {", "loanauth://u:CANARY-uri-password@[half"])
def test_a_connection_that_cannot_be_parsed(check, value, logs):
    report = check(value)
    assert results(report)["settings"] != "ok"
    assert report.exit_code != 0
    assert "CANARY" not in str(report) + report.to_json()


def test_an_unexpected_error_of_a_secrets_backend(check, monkeypatch):
    def fail(conn_id):
        raise RuntimeError(f"the backend says {WRONG_PASSWORD}")

    monkeypatch.setattr("airflow_provider_loanauth.check.steps.get_from_task_or_database", fail)
    report = check(None)
    assert results(report)["settings"] == "unknown"
    assert "RuntimeError" in step(report, "settings").message
    assert report.method is None


def test_nothing_of_the_response_is_shown(check, plain, loopback):
    """Whatever the service sends without having received a secret, no text of it is in the report."""
    loopback.responses = [None, json_response(b'{"text": "body-of-the-response"}', "404 reason-of-the-response")]
    report = check(connection_of(plain) | {"host": loopback.url})
    assert "of-the-response" not in str(report) + report.to_json()
