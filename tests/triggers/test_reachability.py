"""`triggers/reachability.py`: which responses count as reachable, what is sent, and that it ends. Real sockets."""

from __future__ import annotations

import socket
import ssl
import threading
import time

import pytest
import trustme

from airflow_provider_loanauth import __version__
from airflow_provider_loanauth.service.exchange import Exchange
from airflow_provider_loanauth.triggers import reachability
from loanauth_sandbox.server import running_sandbox
from tests.support.loopback import Loopback
from tests.support.waiting import is_reachable

TIMEOUT = 5.0
SHORT_TIMEOUT = 0.3
LIMIT = 30.0  # seconds after which a test fails, far more than any request takes
#: Of requests that must end for another reason than their deadline.
LONG_TIMEOUT = 3600.0


def outcome(function):
    """Call a function in a thread, and return its result. Fail if it does not end."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive(), "the request does not end"
    return results[0]


def response(status, headers=b"", body=b""):
    head = f"HTTP/1.1 {status} made up\r\nContent-Length: {len(body)}\r\n".encode()
    return head + headers + b"Connection: close\r\n\r\n" + body


@pytest.mark.parametrize("status", [200, 204, 301, 302, 307, 308, 400, 401, 403, 404, 405, 418, 499])
def test_a_response_counts_as_reachable(status, loopback):
    loopback.responses.append(response(status, b"Location: /elsewhere\r\n"))
    assert is_reachable(loopback.url, TIMEOUT) is True
    assert len(loopback.requests) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 501, 502, 503, 504, 520, 599])
def test_408_429_and_5xx_count_as_unreachable(status, loopback):
    loopback.responses.append(response(status, b"Retry-After: 0\r\n"))
    assert is_reachable(loopback.url, TIMEOUT) is False
    assert len(loopback.requests) == 1


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"\r\n",
        b"SSH-2.0-made-up\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"\x00\xff" * 50,
    ],
    ids=["hangs up", "empty", "blank", "not HTTP", "no status", "octets"],
)
def test_a_response_that_is_not_http_counts_as_unreachable(data, loopback):
    loopback.responses.append(data)
    assert is_reachable(loopback.url, TIMEOUT) is False


@pytest.mark.parametrize(("status", "expected"), [(200, True), (401, True), (429, False), (503, False)])
@pytest.mark.parametrize(
    "headers",
    [b"", b"X: y\r\n" * 200, b"X: " + b"y" * 100_000, b"made up\r\n\r\n", b"Content-Length: made up\r\n\r\n"],
    ids=["hangs up", "many headers", "long header", "no colon", "wrong length"],
)
def test_a_status_counts_even_if_its_headers_are_broken(headers, status, expected, loopback):
    loopback.responses.append(b"HTTP/1.1 %d made up\r\n" % status + headers)
    assert is_reachable(loopback.url, TIMEOUT) is expected


@pytest.mark.parametrize(("status", "expected"), [(200, True), (503, False)])
@pytest.mark.parametrize("interim", [100, 102, 103, 199])
def test_an_interim_response_is_not_the_final_one(interim, status, expected, loopback):
    loopback.responses.append(b"HTTP/1.1 %d made up\r\nLink: </>\r\n\r\n" % interim * 3 + response(status))
    assert is_reachable(loopback.url, TIMEOUT) is expected


def test_the_request_contains_nothing_but_the_address(loopback, monkeypatch, tmp_path):
    netrc = tmp_path / "netrc"
    netrc.write_text("default login made-up-user password made-up-netrc-password\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    loopback.responses.append(response(200))
    assert is_reachable(f"{loopback.url}/tenant1", TIMEOUT) is True
    lines = loopback.requests[0].decode().split("\r\n")
    assert lines[0] == "GET /tenant1 HTTP/1.1"
    headers = dict(line.split(": ", 1) for line in lines[1:] if line)
    assert headers == {
        "Host": f"127.0.0.1:{loopback.port}",
        "User-Agent": f"airflow-provider-loanauth/{__version__}",
        "Connection": "close",
        "Accept-Encoding": "identity",
    }


def test_the_body_is_not_read(loopback):
    loopback.responses.append(b"HTTP/1.1 200 made up\r\nContent-Length: 1000000000\r\n\r\n")
    assert is_reachable(loopback.url, TIMEOUT) is True


def test_a_closed_port_is_unreachable():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert is_reachable(f"http://127.0.0.1:{bound.getsockname()[1]}", TIMEOUT) is False


def test_an_unknown_host_name_is_unreachable():
    assert is_reachable("http://loanauth.invalid", TIMEOUT) is False


def test_a_request_without_a_response_times_out(sandbox):
    sandbox.set_fault("hang")
    began = time.monotonic()
    assert outcome(lambda: is_reachable(sandbox.url, SHORT_TIMEOUT)) is False
    # The sandbox would hang for an hour.
    assert time.monotonic() - began >= SHORT_TIMEOUT


@pytest.fixture(scope="module")
def tls():
    with running_sandbox(tls="good") as sandbox:
        yield sandbox


@pytest.fixture
def over_tls(tls):
    tls.clear_faults()
    tls.reset()
    yield tls
    tls.clear_faults()


@pytest.mark.parametrize("certificate", ["good", "unknown-ca", "wrong-name"])
def test_certificates_are_not_checked_because_nothing_secret_is_sent(certificate, over_tls):
    over_tls.set_fault("certificate", name=certificate)
    assert is_reachable(over_tls.url, TIMEOUT) is True
    assert over_tls.counters().probe == 1


def test_a_hung_handshake_times_out(over_tls):
    over_tls.set_fault("stall")
    assert outcome(lambda: is_reachable(over_tls.url, SHORT_TIMEOUT)) is False


# --- every request ends ---


def endless(start, repeated, pause):
    """Return a function of a server that sends ``start``, and then ``repeated`` without end."""

    def send(connection, stopped):
        connection.sendall(start)
        while not stopped.wait(pause):
            connection.sendall(repeated if pause else repeated * (65536 // len(repeated)))
        return connection

    return send


#: What comes first, what is repeated without end, and the seconds between two repetitions. None has a final status.
ENDLESS = {
    f"{name}, {pace}": (start, repeated, pause)
    for name, start, repeated in [
        ("a status line", b"", b"H"),
        ("spaces in a status line", b"HTTP/1.1", b" "),
        ("blank lines", b"", b"\r\n"),
        ("interim responses 100", b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        ("interim responses 103", b"", b"HTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n"),
        ("headers", b"HTTP/1.1 100 Continue\r\n", b"X: y\r\n"),
        ("a header", b"HTTP/1.1 100 Continue\r\nX: ", b"y"),
    ]
    for pace, pause in [("slow", 0.02), ("fast", 0)]
}


@pytest.mark.parametrize("through", ["nothing", "a proxy", "a tunnel"])
@pytest.mark.parametrize("case", ENDLESS)
def test_an_endless_head_counts_as_unreachable(case, through, loopback):
    start, repeated, pause = ENDLESS[case]
    loopback.responses.append(endless(start, repeated, pause))
    address = {"nothing": loopback.url, "a proxy": "http://lender.invalid", "a tunnel": "https://lender.invalid"}
    proxy = None if through == "nothing" else loopback.url
    # A fast response ends at the limit of octets.
    timeout = SHORT_TIMEOUT if pause else LONG_TIMEOUT
    assert outcome(lambda: is_reachable(address[through], timeout, proxy)) is False


@pytest.mark.parametrize("pause", [0.02, 0], ids=["slow", "fast"])
@pytest.mark.parametrize("octets", [b"y", b"\r\nX: y"], ids=["a header", "headers"])
@pytest.mark.parametrize(("status", "expected"), [(200, True), (503, False)])
def test_a_status_with_an_endless_head_counts(status, expected, octets, pause, loopback):
    loopback.responses.append(endless(b"HTTP/1.1 %d made up\r\nX: " % status, octets, pause))
    timeout = SHORT_TIMEOUT if pause else LONG_TIMEOUT
    assert outcome(lambda: is_reachable(loopback.url, timeout)) is expected


@pytest.mark.parametrize("pause", [0.02, 0], ids=["slow", "fast"])
def test_the_status_of_a_tunnel_is_not_that_of_the_service(pause, loopback):
    loopback.responses.append(endless(b"HTTP/1.1 200 made up\r\nX: ", b"y", pause))
    timeout = SHORT_TIMEOUT if pause else LONG_TIMEOUT
    assert outcome(lambda: is_reachable("https://lender.invalid", timeout, loopback.url)) is False


#: A TLS 1.2 record with a HelloRequest, which a client ignores during a handshake (RFC 5246 §7.4.1.1).
HELLO_REQUEST = b"\x16\x03\x03\x00\x04\x00\x00\x00\x00"
#: The beginning of a record with a long ServerHello.
SERVER_HELLO = b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc\x03\x03"


@pytest.mark.parametrize(
    ("start", "repeated", "pause"),
    [(SERVER_HELLO, b"\x00", 0.02), (b"", HELLO_REQUEST, 0.02), (b"", HELLO_REQUEST, 0), (b"", b"", 0.02)],
    ids=["octets", "slow messages", "fast messages", "silence"],
)
def test_an_endless_handshake_counts_as_unreachable(start, repeated, pause):
    with Loopback(endless(start, repeated, pause)) as server:
        address = server.url.replace("http:", "https:")
        assert outcome(lambda: is_reachable(address, SHORT_TIMEOUT)) is False


def test_the_deadline_is_that_of_handshake_and_head_together():
    """Each of the two is in time, but not both."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)

    def accept(connection, stopped):
        stopped.wait(0.6)
        return context.wrap_socket(connection, server_side=True)

    def respond(connection, stopped):
        stopped.wait(0.6)
        connection.sendall(response(200))

    with Loopback(accept) as server:
        server.responses += [respond, respond]
        address = server.url.replace("http:", "https:")
        assert outcome(lambda: is_reachable(address, 1.0)) is False
        assert outcome(lambda: is_reachable(address, LIMIT)) is True


# --- a request that is cancelled ---


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("octets", [b"", b"H", HELLO_REQUEST], ids=["silence", "octets", "messages"])
def test_a_cancelled_request_ends_long_before_its_deadline(octets, scheme):
    exchange = Exchange(LONG_TIMEOUT, total=LONG_TIMEOUT)

    def accept(connection, stopped):
        exchange.cancel()
        return endless(b"", octets, 0.02)(connection, stopped)

    with Loopback(accept) as server:
        address = server.url.replace("http", scheme)
        assert outcome(lambda: reachability.is_reachable(address, exchange)) is False
    assert exchange.expired


def test_a_request_that_was_cancelled_before_it_began_ends_at_once(loopback):
    exchange = Exchange(LONG_TIMEOUT, total=LONG_TIMEOUT)
    exchange.cancel()
    loopback.responses.append(endless(b"", b"H", 0.02))
    assert outcome(lambda: reachability.is_reachable(loopback.url, exchange)) is False


def test_cancelling_after_the_end_changes_nothing(loopback):
    exchange = Exchange(LIMIT, total=LIMIT)
    loopback.responses.append(response(200))
    assert reachability.is_reachable(loopback.url, exchange) is True
    exchange.cancel()
    assert exchange.status == 200
    assert not exchange.expired


def test_plain_http_to_a_tls_port_is_unreachable(over_tls):
    assert is_reachable(over_tls.url.replace("https", "http"), TIMEOUT) is False


def test_the_proxy_of_the_environment_is_used(loopback, monkeypatch):
    monkeypatch.setenv("http_proxy", loopback.url)
    loopback.responses.append(response(404))
    assert is_reachable("http://lender.invalid/tenant1", TIMEOUT) is True
    assert loopback.requests[0].startswith(b"GET http://lender.invalid/tenant1 HTTP/1.1\r\n")


def test_a_502_of_the_proxy_counts_as_unreachable(loopback, monkeypatch):
    monkeypatch.setenv("http_proxy", loopback.url)
    loopback.responses.append(response(502))
    assert is_reachable("http://lender.invalid", TIMEOUT) is False


def test_no_proxy_is_respected(loopback, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy.invalid")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    loopback.responses.append(response(200))
    assert is_reachable(loopback.url, TIMEOUT) is True


def test_plain_http_to_a_loopback_address_bypasses_every_proxy_as_a_login_does(loopback, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy.invalid")
    monkeypatch.setenv("all_proxy", "socks5h://proxy.invalid")
    loopback.responses.append(response(503))
    assert is_reachable(loopback.url, TIMEOUT) is False
    assert loopback.requests[0].startswith(b"GET / HTTP/1.1\r\n")


def test_all_proxy_is_used_where_the_scheme_has_no_proxy(loopback, monkeypatch):
    monkeypatch.setenv("all_proxy", loopback.url)
    loopback.responses += [response(404), response(403)]
    assert is_reachable("http://lender.invalid", TIMEOUT) is True
    assert loopback.requests[0].startswith(b"GET http://lender.invalid HTTP/1.1\r\n")
    # For https the proxy is asked for a tunnel, which this one rejects.
    assert is_reachable("https://lender.invalid", TIMEOUT) is False
    assert loopback.requests[1].startswith(b"CONNECT lender.invalid:443 HTTP/1.")


@pytest.mark.parametrize(
    "proxy", ["socks5h://127.0.0.1:{port}", "SOCKS5://127.0.0.1:{port}", "https://127.0.0.1:{port}"]
)
def test_behind_a_proxy_that_urllib_cannot_use_the_worker_tries(proxy, loopback, monkeypatch):
    monkeypatch.setenv("https_proxy", proxy.format(port=loopback.port))
    assert is_reachable("https://lender.invalid", TIMEOUT) is True
    assert loopback.requests == []
    # A host that no_proxy excepts is requested directly; this name does not exist.
    monkeypatch.setenv("no_proxy", "lender.invalid")
    assert is_reachable("https://lender.invalid", TIMEOUT) is False


# --- the proxy of a Connection


@pytest.mark.parametrize("no_proxy", ["*", "lender.invalid", None])
def test_a_proxy_has_precedence_over_the_environment(no_proxy, loopback, monkeypatch):
    for name in ("https_proxy", "http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://user:made-up-password@127.0.0.1:1")
    if no_proxy:
        monkeypatch.setenv("no_proxy", no_proxy)
    loopback.responses += [response(403), response(404)]
    assert is_reachable("https://lender.invalid", TIMEOUT, loopback.url) is False
    assert is_reachable("http://lender.invalid/tenant1", TIMEOUT, loopback.url) is True
    tunnel, plain = loopback.requests
    assert tunnel.startswith(b"CONNECT lender.invalid:443 HTTP/1.")
    assert plain.startswith(b"GET http://lender.invalid/tenant1 HTTP/1.1\r\n")
    assert b"authorization" not in (tunnel + plain).lower()


def test_plain_http_to_a_loopback_address_bypasses_it(loopback):
    loopback.responses.append(response(503))
    assert is_reachable(loopback.url, TIMEOUT, "http://proxy.invalid:3128") is False
    assert loopback.requests[0].startswith(b"GET / HTTP/1.1\r\n")


def test_behind_an_https_proxy_the_worker_tries(loopback):
    assert is_reachable("https://lender.invalid", TIMEOUT, f"https://127.0.0.1:{loopback.port}") is True
    assert loopback.requests == []


@pytest.mark.parametrize("where", ["argument", "environment"])
def test_a_proxy_that_requires_authentication_counts_as_a_response(where, loopback, monkeypatch):
    """The worker that pokes then may have a password for it."""
    loopback.responses.append(response(407))
    if where == "environment":
        monkeypatch.setenv("https_proxy", loopback.url)
    proxy = loopback.url if where == "argument" else None
    assert is_reachable("https://lender.invalid", TIMEOUT, proxy) is True
    assert loopback.requests[0].startswith(b"CONNECT lender.invalid:443 HTTP/1.")
