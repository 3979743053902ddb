"""A check over real sockets and TLS, step by step. No text of it contains a secret."""

import copy
import dataclasses
import re
import socket
import ssl
import threading
import time
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import quote

import pytest
import trustme

from airflow_provider_loanauth.check import check_connection
from airflow_provider_loanauth.check.report import TITLES
from airflow_provider_loanauth.check.steps import AIRFLOW_VERSION
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.system import system
from tests.support.fernet_keys import FERNET_KEY, OTHER_FERNET_KEY
from tests.support.leaks import leaks
from tests.support.loopback import Loopback, endless, json_response, tls_context
from tests.support.processes import start_new_process
from tests.support.proxy import TunnelProxy
from tests.support.secret_accounts import COMPANY, SECRETS, USER, WRONG_PASSWORD, with_wrong_password

CONN_ID = "checked"
PROXY_USER, PROXY_PASSWORD = "CANARY pröxy", "CANARY-p@ss/wörd✓"
PROXY_CREDENTIALS = f"{PROXY_USER}:{PROXY_PASSWORD}"
PROXY_WRITTEN = f"{quote(PROXY_USER)}:{quote(PROXY_PASSWORD, safe='')}"
WRONG_PROXY_PASSWORD = "CANARY-wrong-proxy-password"
#: Reason and body of a response, of which nothing is shown, although the service has received no secret.
SERVED = "CANARY-of-the-response"
ALL_SECRETS = [*SECRETS.values(), PROXY_PASSWORD, PROXY_CREDENTIALS, WRONG_PROXY_PASSWORD, SERVED]
STEPS = [*TITLES]
OK = dict.fromkeys(STEPS, "ok")
WITHOUT_LOGIN = OK | {"login": "not_checked"}
NOW = datetime(2026, 11, 22, 9, 0, tzinfo=timezone.utc)


def outcomes(failed, outcome="failed", **others):
    index = STEPS.index(failed)
    return OK | {failed: outcome} | dict.fromkeys(STEPS[index + 1 :], "not_checked") | others


@pytest.fixture
def sandbox(tls_sandbox):
    tls_sandbox.set_accounts([COMPANY])
    return tls_sandbox


@pytest.fixture
def check(define, monkeypatch, logs, capfd, variables):
    """Check a Connection with the Python function and return its report. Nothing may contain a secret.

    ``integration/test_secrets.py`` searches for credentials that were issued.
    """
    # No text may depend on Airflow's masker, which works only when a text is logged.
    monkeypatch.setattr("airflow_provider_loanauth.redaction.mask_secret", lambda _: None)
    texts = []

    def run(connection, method=None, **options):
        if connection is not None:
            define(CONN_ID, connection)
        report = check_connection(CONN_ID, method=method, **options)
        assert all(one.message for one in report.steps)
        texts.extend([str(report), report.to_json(), repr(report)])
        assert ".." not in texts[-2].replace("...", "")
        return report

    yield run
    texts += [logs.text, *capfd.readouterr()]
    assert leaks("\n".join(texts), ALL_SECRETS) == []


def connection_of(sandbox, method="jwt", url=None, **extra):
    """Return the Connection of a method, which also has the fields of the others."""
    connection = copy.deepcopy(sandbox.connections()[f"AIRFLOW_CONN_LOANAUTH_{method.upper()}"])
    connection["extra"] |= {"timeout": 5} | extra
    return connection | ({"host": url} if url else {})


def tls_server(authority, name="127.0.0.1"):
    """Return a server with TLS, which keeps the names of hosts (RFC 6066 §3) that its clients ask for in ``asked``."""
    context, asked = tls_context(authority, name), []
    context.sni_callback = lambda _, asked_for, __: asked.append(asked_for)
    server = Loopback(lambda connection, _: context.wrap_socket(connection, server_side=True))
    server.url, server.asked = f"https://{name}:{server.port}", asked
    return server


def results(report):
    return {step.name: step.outcome for step in report.steps}


def step(report, name):
    [found] = [step for step in report.steps if step.name == name]
    return found


def test_everything_is_right(check, sandbox, shared_sandbox, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    report = check(connection_of(sandbox))
    assert results(report) == WITHOUT_LOGIN
    assert (report.exit_code, report.machine, report.checked_at.tzinfo) == (0, socket.gethostname(), timezone.utc)
    assert [*report.versions] == ["airflow-provider-loanauth", "apache-airflow", "Python"]
    assert "--login" in step(report, "login").message
    # Only one request without credentials was sent.
    [request] = sandbox.requests()
    assert (request.method, request.path) == ("GET", "/")
    settings = step(report, "settings")
    assert settings.message == f"Method jwt (Authen JWT) has all fields that it needs. Auth URL: {sandbox.url}."
    assert settings.details == {"auth_url": sandbox.url, "timeout": 5}
    where = {"host": "127.0.0.1", "port": sandbox.port}
    assert step(report, "host_name").details == where | {"addresses": ["127.0.0.1"]}
    assert step(report, "tcp").details == where | {"address": "127.0.0.1"}
    assert step(report, "proxy").details == {"url": None}
    assert step(report, "response").details == {"status": 200}
    assert 0 <= step(report, "clock").details["difference"] <= 2
    details = step(report, "tls").details
    assert [*details] == ["version", "issuer", "not_before", "not_after", "trusted"]
    assert (details["version"], details["trusted"]) == ("TLSv1.3", True)
    assert re.fullmatch(r"O=trustme v\S+, OU=Testing CA #\S+", details["issuer"])
    assert datetime.fromisoformat(details["not_before"]) < NOW < datetime.fromisoformat(details["not_after"])
    assert all(details[name] in step(report, "tls").message for name in ("version", "issuer"))
    assert step(report, "tls").message.endswith(f" to {details['not_after']}.")
    report = check(connection_of(sandbox, url=shared_sandbox.url))
    assert results(report) == WITHOUT_LOGIN
    assert step(report, "tls").message.startswith("Not used")
    assert step(report, "tls").details == {"version": None}


@pytest.mark.parametrize("method", ["jwt", "los", "ppe"])
def test_a_login(check, sandbox, method):
    report = check(connection_of(sandbox, method), method, login=True)
    assert results(report) == OK
    assert (report.status, report.method) == ("usable", method)
    assert sandbox.counters().authentications.succeeded == 1
    login = step(report, "login")
    assert login.details["user"] == (USER.user_id if method == "ppe" else USER.username)
    assert login.details["user"] in login.message
    assert ("expires at" in login.message) == (method != "ppe")
    assert (login.details["expires_at"] is None) == (method == "ppe")


@pytest.mark.parametrize(("company_id", "missing"), [("", ["Company ID is missing:"]), ("made-up-company", [])])
def test_warnings_are_in_the_line_that_they_belong_to(check, sandbox, company_id, missing):
    sandbox.set_fault("no-expires-in", where="token")
    report = check(connection_of(sandbox, made_up="any"), login=True)
    assert results(report) == OK
    [about_settings] = step(report, "settings").warnings
    assert about_settings.startswith("Extra contains unknown fields (1)")
    [about_response] = step(report, "login").warnings
    assert "another type: expires_in)" in about_response
    # Only pricing requests need a company.
    settings = step(check(connection_of(sandbox, "ppe", company_id=company_id, made_up="any"), "ppe"), "settings")
    assert [warning[:22] for warning in settings.warnings[1:]] == missing
    details = {"secret_header": "secret", "company_header": "companyid", "company_id": company_id or None}
    assert settings.details == details | {"auth_url": sandbox.url, "timeout": 5}


def test_a_login_that_may_soon_be_rejected(check, sandbox, authority):
    """The Connection can be used, and a program sees that a person has to act."""
    token = json_response(b'{"access_token": "t", "resetPasswordRequired": true}')
    with tls_server(authority) as server:
        server.responses = [json_response(f'{{"text": "{SERVED}"}}'.encode(), f"404 {SERVED}"), token]
        report = check(connection_of(sandbox, url=server.url, verify=authority.path), login=True)
    assert results(report)["login"] == "warning"
    assert (report.status, report.exit_code) == ("usable", 0)
    login = step(report, "login")
    assert login.message.startswith("Authenticated ")
    assert login.details["user_warnings"] == ["resetPasswordRequired"]
    assert login.warnings[-1].startswith("Ask the operator of the service about the user")
    assert str(report).endswith("Usable. A person has to act on the lines with !, before they fail.")


def test_all_missing_fields_at_once(check, sandbox):
    report = check(connection_of(sandbox), "ppe", login=True)
    assert results(report) == outcomes("settings") | {"fernet_key": "ok"}
    assert (report.exit_code, report.method) == (1, "ppe")
    message = step(report, "settings").message
    assert all(f"{field} is missing" in message for field in ("API key", "User ID"))
    assert "connection id" not in message
    assert sandbox.requests() == []


def test_a_wrong_password_is_sent_once(check, sandbox):
    connection = with_wrong_password(connection_of(sandbox))
    report = check(connection, login=True)
    assert results(report) == OK | {"login": "failed"}
    assert (report.status, sandbox.counters().token) == ("not_usable", 1)
    assert step(report, "login").details == {"status": 400}
    message = step(report, "login").message
    assert "Username or Password is wrong" in message
    assert "Each test sends the password once, and how many wrong ones lock a user is not known." in message
    assert "not sent again" not in message
    # A person asked for it.
    assert step(check(connection, login=True), "login").outcome == "failed"
    assert sandbox.counters().token == 2


@pytest.mark.parametrize(
    ("faults", "expected", "exit_code", "logins"),
    [
        ({"any": 503}, outcomes("response", clock="ok"), 3, 0),
        ({"token": 503}, OK | {"login": "failed"}, 3, 1),
        ({"probe": 403}, OK, 0, 1),
        ({"probe": 403, "token": 401}, OK | {"login": "failed"}, 1, 1),
        ({"any": 403}, OK | {"login": "failed", "allow_list": "failed"}, 1, 1),
    ],
)
def test_statuses(check, sandbox, faults, expected, exit_code, logins):
    for where, status in faults.items():
        sandbox.add_fault("status", status=status, where=where)
    report = check(connection_of(sandbox), login=True)
    assert (results(report), report.exit_code, sandbox.counters().token) == (expected, exit_code, logins)
    assert step(report, "response").details == {"status": faults.get("any") or faults.get("probe") or 200}


@pytest.mark.parametrize(
    ("verify", "expected", "words", "trusted"),
    [
        (True, outcomes("tls"), ["is not trusted", "trustme", "a proxy issued it"], False),
        (False, WITHOUT_LOGIN, ["trustme", "was not checked, because Verify TLS is false"], None),
        ("absent.pem", outcomes("tls"), ["The CA bundle cannot be read"], False),
    ],
)
def test_verify_tls(check, sandbox, verify, expected, words, trusted):
    report = check(connection_of(sandbox, verify=verify), login=verify is not False)
    assert (results(report), report.exit_code) == (expected, 1 if verify else 0)
    # No credential is sent if a certificate is not trusted.
    assert sandbox.counters().token == 0
    shown = step(report, "tls")
    assert all(word in shown.message for word in words)
    assert shown.details["trusted"] is trusted


def test_which_certificate_is_shown(check, sandbox, authority, monkeypatch):
    """`service/test_error_responses.py` has which texts are not shown."""
    with tls_server(trustme.CA(organization_name=SECRETS["client_secret"])) as server:
        shown = step(check(connection_of(sandbox, url=server.url)), "tls")
    assert (shown.outcome, shown.details["issuer"]) == ("failed", "a name that is not shown")

    # That of the name is shown: one address may have several.
    with tls_server(authority, "localhost") as server:
        shown = step(check(connection_of(sandbox, url=server.url, verify=authority.path)), "tls")
        assert (shown.outcome, server.asked) == ("ok", ["localhost"] * 2)

    # One that cannot be parsed.
    monkeypatch.setattr(ssl.SSLSocket, "getpeercert", lambda *_, **__: b"made up")
    shown = step(check(connection_of(sandbox, verify=False)), "tls")
    assert (shown.outcome, shown.details) == ("ok", {})
    assert shown.message.startswith("The handshake succeeded. It was not checked")


@pytest.mark.parametrize(("failed", "error"), [("host_name", UnicodeError("too long")), ("tcp", TimeoutError("X"))])
def test_a_host_that_is_not_reached(check, sandbox, monkeypatch, failed, error):
    timeouts, look_up = [], socket.getaddrinfo

    def getaddrinfo(_, *arguments, **options):
        if failed == "host_name":
            raise error
        return look_up("127.0.0.1", *arguments, **options) * 2

    def connect(self, _):
        timeouts.append(self.gettimeout())
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket.socket, "connect", connect)
    report = check(connection_of(sandbox, url="https://lender.example"), login=True)
    assert results(report) == outcomes(failed, proxy="ok")
    assert step(report, failed).message.startswith("lender.example (the service) does not ")
    # Each address has its share of the time.
    assert timeouts == ([2.5, 2.5] if failed == "tcp" else [])


HANDSHAKE = b"\x16\x03\x03\x40\x00"  # begins a TLS record of 16 KiB
TUNNEL = b"HTTP/1.1 200 Connection established\r\nX: "


@pytest.mark.parametrize(
    ("peer", "start", "repeated", "failed"),
    [
        pytest.param("https", b"", b"", "tls", id="a service that accepts and never responds"),
        pytest.param("http", b"", b"", "response", id="without TLS"),
        pytest.param("https", HANDSHAKE, b"x", "tls", id="a service that sends octet by octet"),
        pytest.param("proxy", TUNNEL, b"x", "proxy", id="a proxy that does"),
    ],
)
def test_every_connection_ends(check, sandbox, peer, start, repeated, failed):
    """Within its time, and it leaves no thread."""
    with Loopback(endless(start, repeated, 0.02)) as server:
        changed = {"proxy": server.url} if peer == "proxy" else {"url": f"{peer}://127.0.0.1:{server.port}"}
        threads, began = {*threading.enumerate()}, time.monotonic()
        report = check(connection_of(sandbox, timeout=0.3, **changed))
        # It waits for the time-out three times at most, on a busy machine.
        assert time.monotonic() - began < 20
        proxy = "failed" if peer == "proxy" else "ok"
        assert (results(report), report.exit_code) == (outcomes(failed, proxy=proxy), 3)
        assert re.fullmatch(r"(?!.*issuer).*\.", step(report, failed).message)
        while {*threading.enumerate()} - threads:
            assert time.monotonic() - began < 30
            time.sleep(0.01)


@pytest.mark.parametrize(
    ("scheme", "is_trusted", "expected", "tunnels"),
    [
        # One to see the certificate, one for the request, one for the login.
        ("http", True, OK, 3),
        # It inspects TLS, and its authority is not in the CA bundle.
        ("http", False, outcomes("tls"), 2),
        ("https", True, OK | {"proxy": "not_checked"}, 2),
        ("https", False, outcomes("tls", proxy="not_checked"), 0),
    ],
)
def test_a_proxy(check, sandbox, authority, scheme, is_trusted, expected, tunnels):
    with Path(authority.path).open("ab") as bundle:
        bundle.write(Path(sandbox.ca_path).read_bytes())
    with TunnelProxy(PROXY_CREDENTIALS, tls_context(authority) if scheme == "https" else None) as proxy:
        settings = {"proxy": proxy.url(PROXY_WRITTEN), "verify": authority.path if is_trusted else True}
        report = check(connection_of(sandbox, **settings), login=True)
        # Without tunnels, the proxy got no password either; an https proxy gets none outside of TLS.
        assert (results(report), len(proxy.tunnels), len(proxy.requests)) == (expected, tunnels, tunnels)
        assert scheme == "http" or proxy.first_octets <= {b"\x16", b""}
    shown = step(report, "proxy")
    assert shown.details == {"url": f"{scheme}://{proxy.address}", "source": "Proxy in the Connection"}
    assert f"{scheme}://{proxy.address}, from Proxy in the Connection." in shown.message
    assert "(the proxy)" in step(report, "host_name").message
    if not is_trusted:
        problem = "trustme" if scheme == "http" else "The certificate of the proxy is not trusted"
        assert problem in step(report, "tls").message


@pytest.mark.parametrize(
    ("variable", "status"),
    [
        (None, None),
        (None, 503),
        # requests accepts an address without a scheme.
        (f"HTTP://CANARYuser:{WRONG_PROXY_PASSWORD}@", 407),
        (f"CANARYuser:{WRONG_PROXY_PASSWORD}@", 407),
    ],
)
def test_a_proxy_that_opens_no_tunnel(check, sandbox, loopback, monkeypatch, variable, status):
    loopback.responses = [status and f"HTTP/1.1 {status} X\r\n\r\n".encode()]
    if variable:
        monkeypatch.setenv("HTTPS_PROXY", f"{variable}127.0.0.1:{loopback.port}")
    report = check(connection_of(sandbox, url="https://lender.example", proxy="" if variable else loopback.url))
    [request] = loopback.requests
    head, _, credentials = request.partition(b"Host: lender.example:443\r\n")
    assert head == b"CONNECT lender.example:443 HTTP/1.1\r\n"
    assert re.fullmatch(rb"Proxy-Authorization: Basic \S+\r\n\r\n" if variable else b"\r\n", credentials)
    assert (results(report), report.exit_code) == (outcomes("proxy"), 1 if variable else 3)
    source = "the proxy settings of this machine" if variable else "Proxy in the Connection"
    assert step(report, "proxy").details == {"url": loopback.url, "source": source, "status": status}


@pytest.mark.parametrize(
    "url",
    [
        "http://canaryuser:4711/CANARY-word@127.0.0.1:9",
        "http://canarykey:4711\\@127.0.0.1:9",
        f"socks5://user:{WRONG_PROXY_PASSWORD}@127.0.0.1:9",
    ],
    ids=["a slash", "a backslash", "SOCKS"],
)
def test_the_user_of_a_proxy_is_not_shown(check, sandbox, monkeypatch, url):
    monkeypatch.setenv("HTTPS_PROXY", url)
    report = check(connection_of(sandbox))
    shown, expected = "http://127.0.0.1:9", outcomes("tcp")
    if "\\" not in url:
        shown = "a proxy whose address is not shown"
        expected = outcomes("tls", host_name="not_checked", tcp="not_checked", proxy="not_checked")
    assert (step(report, "proxy").details["url"], results(report)) == (shown, expected)
    texts = str(report) + report.to_json()
    assert "canary" not in texts.lower()
    assert "4711" not in texts


def test_a_shared_login_is_shown(check, sandbox):
    report = check(connection_of(sandbox))
    assert step(report, "shared_login").message == "No login with these values is shared now."
    LoanAuthHook(CONN_ID).get_credential()
    line = step(check(None), "shared_login")
    assert re.fullmatch(r".+ logged in at \S+; the credential expires at \S+\.", line.message)
    assert set(line.details) == {"by", "at", "variable", "expires_at"}
    assert "Off" in step(check(connection_of(sandbox, share_logins=False)), "shared_login").message
    check(connection_of(sandbox, "ppe"), "ppe")
    LoanAuthHook(CONN_ID, method="ppe").get_credential()
    assert re.fullmatch(r".+ logged in at [-+:.\dTZ]+", step(check(None, "ppe"), "shared_login").message)


def test_the_failure_that_holds_here_is_shown_and_not_that_of_another_machine(check, sandbox, variables, monkeypatch):
    check(connection_of(sandbox))
    sandbox.set_fault("html-200", where="token", times=1)
    sandbox.add_fault("status", status=429, retry_after=600, where="token", times=1)
    for host in (socket.gethostname(), "another-machine"):
        start_new_process()
        with monkeypatch.context() as context:
            context.setattr(system, "hostname", lambda host=host: host)
            with pytest.raises(LoanAuthError):
                LoanAuthHook(CONN_ID, max_attempts=1).get_credential()
    assert step(check(None), "shared_login").details["error"] == "ResponseError"


FORGET = f"ends this, and so does `python -m airflow_provider_loanauth forget {CONN_ID}`."


@pytest.mark.parametrize(
    ("fault", "error", "exit_code", "advice", "elsewhere"),
    [
        ({"name": "status", "status": 400, "shape": "oauth"}, "RejectedError", 1, FORGET, "failed"),
        ({"name": "status", "status": 401}, "ResponseError", 3, FORGET, "failed"),
        ({"name": "html-200"}, "ResponseError", 3, FORGET, "ok"),
        ({"name": "status", "status": 429, "retry_after": 600}, "UnavailableError", 3, "asked to wait.", "ok"),
    ],
)
def test_a_shared_error_that_holds_is_a_failure(
    check, sandbox, variables, monkeypatch, fault, error, exit_code, advice, elsewhere
):
    check(connection_of(sandbox))
    sandbox.set_fault(fault.pop("name"), where="token", times=1, **fault)
    with pytest.raises(LoanAuthError):
        LoanAuthHook(CONN_ID).get_credential()
    report = check(None)
    assert (results(report), report.exit_code) == (WITHOUT_LOGIN | {"shared_login": "failed"}, exit_code)
    line = step(report, "shared_login")
    assert (line.details["error"], line.details["variable"] in variables) == (error, True)
    assert line.message.startswith(f"Blocked until {line.details['until']}: {line.details['by']} failed at ")
    assert line.message.endswith(advice)
    # A response that does not say what is wrong may concern one machine.
    with monkeypatch.context() as context:
        context.setattr(system, "hostname", lambda: "another-machine")
        there = step(check(None), "shared_login")
    assert there.outcome == elsewhere
    rest = re.escape(". Tasks on this machine are not blocked.")
    assert bool(re.fullmatch(rf".+ failed at \S+{rest}", there.message)) == (elsewhere == "ok")
    # Another process ends it.
    start_new_process()
    assert check(None, login=True).status == "usable"
    assert line.details["variable"] not in variables


def test_a_login_that_does_not_end_a_rejection_leaves_it_shown(check, sandbox, variables, monkeypatch):
    """In a task of Airflow 3, which cannot list Variables: other tasks still send nothing."""
    check(with_wrong_password(connection_of(sandbox)))
    with pytest.raises(RejectedError):
        LoanAuthHook(CONN_ID).get_credential()
    monkeypatch.setattr("airflow_provider_loanauth.login.variables.list_variables", None)
    sandbox.set_accounts([dataclasses.replace(COMPANY, users=(dataclasses.replace(USER, password=WRONG_PASSWORD),))])
    start_new_process()
    report = check(None, login=True)
    assert results(report) == OK | {"shared_login": "failed"}
    assert report.status == "not_usable"


def test_fernet_keys(check, sandbox, fernet):
    """Fingerprints are compared between components, which may run different releases."""
    fernet("")
    report = check(connection_of(sandbox))
    assert results(report) == WITHOUT_LOGIN | {"fernet_key": "failed", "shared_login": "not_checked"}
    assert "Variables cannot be read (Airflow has no Fernet key)" in step(report, "shared_login").message
    assert report.exit_code == 1
    assert "AIRFLOW__CORE__FERNET_KEY" in step(report, "fernet_key").message
    fernet(f"{FERNET_KEY},{OTHER_FERNET_KEY}")
    line = step(check(None), "fernet_key")
    assert line.details == {"fingerprints": ["66514bab8600", "52bd1a48c10e"]}
    assert line.message.startswith("Fingerprint 66514bab8600, and then 52bd1a48c10e, which only decrypt.")
    fernet(FERNET_KEY)
    assert step(check(None), "fernet_key").message.startswith("Fingerprint 66514bab8600.")


def test_no_connection(check, monkeypatch):
    report = check(None, login=True)
    assert results(report) == outcomes("settings", "unknown", fernet_key="ok")
    assert (report.conn_id, report.method, report.exit_code) == ("checked", None, 3)
    message = step(report, "settings").message
    assert message.startswith("Airflow did not find a connection with this id: define it in the UI")
    for way in ("AIRFLOW_CONN_", "secrets backend"):
        assert way in message
    # A check looks in the database too, where there is one.
    assert "did not look in its database" not in message
    # A shell of 2.11 reads the database.
    for way in ("example_dags/check_connection.py", "scheduler"):
        assert (way in message) is not AIRFLOW_VERSION.startswith("2.")

    def fail(conn_id):
        raise RuntimeError(f"the backend says {WRONG_PASSWORD}")

    # An unexpected error of a secrets backend.
    monkeypatch.setattr("airflow_provider_loanauth.check.steps.get_from_task_or_database", fail)
    report = check(None)
    assert (results(report)["settings"], report.method) == ("unknown", None)
    assert "RuntimeError" in step(report, "settings").message
