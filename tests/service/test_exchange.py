"""Every request ends, whatever a service or a proxy sends, and keeps little of it in memory."""

from __future__ import annotations

import contextlib
import contextvars
import gzip
import importlib
import os
import signal
import socket
import ssl
import struct
import sys
import threading
import time
import tracemalloc
import zlib
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import ModuleType

import pytest
import requests
import trustme

from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, ResponseError, UnavailableError
from airflow_provider_loanauth.service import exchange as exchange_module
from airflow_provider_loanauth.service.exchange import (
    _WATCHDOG,
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    Exchange,
    LimitedResponse,
)
from airflow_provider_loanauth.service.protocol import parse_response
from airflow_provider_loanauth.service.transport import Transport
from tests.support.leaks import leaks, messages
from tests.support.loopback import Loopback, json_response
from tests.support.proxy import relay
from tests.support.secret_accounts import SECRETS
from tests.support.wire_requests import secret_request, token_request

BODY = b'{"valid": 1, "secret": "made-up"}'
NOW = datetime(2026, 11, 21, tzinfo=timezone.utc)

TIMEOUT = 0.5  # seconds: the setting
LIMIT = 30.0  # seconds after which a test fails, far more than any request takes
#: More octets than any request may read, and more memory than any may use.
BOMB = 16 * 1024 * 1024

SLOW, FAST = "slow", "fast"
ENDLESS = b"0\r\n\r\n"


def outcomes(requests, *, timeout=TIMEOUT):
    """Send requests at the same time, and return what each raises or returns. Fail if one does not end."""
    found = {}

    def send(index, request):
        try:
            with Transport(timeout=timeout, verify=True) as transport:
                found[index] = parse_response(request, transport.send(request), now=NOW)
        except LoanAuthError as error:
            found[index] = error

    threads = [threading.Thread(target=send, args=item, daemon=True) for item in enumerate(requests)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive(), "the request does not end"
    errors = [result for result in found.values() if isinstance(result, LoanAuthError)]
    assert leaks("".join(map(messages, errors)), SECRETS.values()) == []
    return [found[index] for index in range(len(requests))]


def outcome(request, **options):
    return outcomes([request], **options)[0]


def endless(start, repeated, pace):
    """Return a response that begins with ``start`` and never ends."""

    def respond(connection, stopped):
        connection.sendall(start)
        pause = 0.02 if pace == SLOW else 0
        octets = repeated if pace == SLOW else repeated * (65536 // len(repeated))
        while not stopped.wait(pause):
            connection.sendall(octets)

    return respond


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Return a TLS context for servers, and the path of the CA bundle that trusts it."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    bundle = tmp_path_factory.mktemp("authority") / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    return context, bundle


@pytest.fixture
def tls(certificates, monkeypatch):
    """Return a function that makes a server use TLS; clients trust its certificate."""
    context, bundle = certificates
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    return lambda connection, stopped: context.wrap_socket(connection, server_side=True)


@pytest.fixture(params=["http", "https"])
def services(request):
    """Three servers, for three statuses at the same time."""
    accept = [request.getfixturevalue("tls")] if request.param == "https" else []
    with Loopback(*accept) as one, Loopback(*accept) as two, Loopback(*accept) as three:
        for server in (one, two, three):
            server.url = server.url.replace("http", request.param)
        yield one, two, three


@pytest.fixture
def service(services):
    return services[0]


def outcomes_by_status(services, start, repeated, pace):
    """Return what is raised for a response without end, by its status."""
    statuses = (200, 401, 503)
    for status, server in zip(statuses, services, strict=True):
        server.responses = [endless(start.replace(b"%d", str(status).encode()), repeated, pace)]
    return dict(zip(statuses, outcomes([token_request(server.url) for server in services]), strict=True))


CHUNKED = b"HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\n"
GZIP = b"HTTP/1.1 %d X\r\nContent-Encoding: gzip\r\n\r\n"
#: Bodies: what comes first, and what is repeated without end.
BODIES = {
    "octets": (b"HTTP/1.1 %d X\r\n\r\n", b" "),
    "octets of a stated length": (b"HTTP/1.1 %d X\r\nContent-Length: 999999999\r\n\r\n", b" "),
    "chunks": (CHUNKED, b"1\r\n \r\n"),
    "a chunk size": (CHUNKED + b"1;", b"a"),
    "zeros before a chunk size": (CHUNKED, b"0"),
    "trailers": (CHUNKED + b"0\r\n", b"X: y\r\n"),
    "a trailer": (CHUNKED + b"0\r\nX: ", b"y"),
    "gzip members": (GZIP, gzip.compress(b"")),
    "deflate blocks": (GZIP + b"\x1f\x8b\x08" + bytes(7), b"\x00\x00\x00\xff\xff"),
    "a gzip header": (GZIP + b"\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x00", b"n"),
}
#: Heads that state a status, and then do not end.
HEADS = {
    "a header": (b"HTTP/1.1 %d X\r\nX: ", b"y"),
    "headers": (b"HTTP/1.1 %d X\r\n", b"X: y\r\n"),
}
#: Heads that state no status.
NO_STATUS = {
    "a status line": (b"HTTP/1.1 ", b"2"),
    "a reason": (b"HTTP/1.1 200 ", b"y"),
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "headers of 100 Continue": (b"HTTP/1.1 100 Continue\r\n", b"X: y\r\n"),
    "lines": (b"", b"x"),
}


def assert_the_status_decides(errors):
    assert all(error.status == status for status, error in errors.items())
    assert type(errors[401]) is RejectedError
    assert type(errors[503]) is UnavailableError
    assert "responded with 503" in str(errors[503])


@pytest.mark.parametrize("pace", [SLOW, FAST])
@pytest.mark.parametrize("body", BODIES)
def test_endless_bodies(body, pace, services):
    errors = outcomes_by_status(services, *BODIES[body], pace)
    assert_the_status_decides(errors)
    message = str(errors[200])
    if pace == SLOW:
        assert type(errors[200]) is UnavailableError
        assert "did not arrive within twice the time set in Timeout" in message
    else:
        # A limit of this package for octets or time, or the library's limit for a line or a chunk size.
        causes = ("and was not read to its end", "did not arrive within twice", "was cut off or cannot be decoded")
        assert any(cause in message for cause in causes)


@pytest.mark.parametrize("pace", [SLOW, FAST])
@pytest.mark.parametrize("head", HEADS)
def test_endless_heads(head, pace, services):
    errors = outcomes_by_status(services, *HEADS[head], pace)
    assert_the_status_decides(errors)
    assert type(errors[200]) is ResponseError
    cause = "did not arrive within the time set in Timeout" if pace == SLOW else "cannot be read"
    assert f"the head of its response {cause}" in str(errors[200])


@pytest.mark.parametrize("pace", [SLOW, FAST])
@pytest.mark.parametrize("head", NO_STATUS)
def test_endless_heads_without_a_status(head, pace, service):
    start, repeated = NO_STATUS[head]
    service.responses = [endless(start, repeated, pace)]
    error = outcome(token_request(service.url))
    assert type(error) is ResponseError
    assert error.status is None
    cause = "did not arrive within the time set in Timeout" if pace == SLOW else "cannot be read"
    assert f"the head of its response {cause}" in str(error)


def test_no_response(service):
    service.responses = [lambda connection, stopped: stopped.wait(LIMIT)]
    error = outcome(token_request(service.url))
    assert type(error) is UnavailableError
    assert "did not respond within the time set in Timeout" in str(error)


@pytest.mark.parametrize("late", [False, True])
def test_a_service_that_does_not_read(late, monkeypatch):
    """Sending is part of the time for the head, also if the thread runs late."""
    if late:
        monkeypatch.setattr(_WATCHDOG, "watch", lambda exchange, sock: None)

    def accept(connection, stopped):
        stopped.wait(LIMIT)
        return connection

    with Loopback(accept) as server:
        request = token_request(server.url)
        large = replace(request, form=(*request.form, ("more", "x" * BOMB)))
        error = outcome(large)
    assert type(error) is UnavailableError
    assert "did not respond within the time set in Timeout" in str(error)


@pytest.mark.parametrize("octet", [b"", b"\0"], ids=["nothing", "octet by octet"])
def test_a_tls_handshake_without_end(octet):
    def accept(connection, stopped):
        # The header of a record of 16 KiB.
        connection.sendall(octet and b"\x16\x03\x03\x40\x00")
        while not stopped.wait(0.02):
            connection.sendall(octet)
        return connection

    with Loopback(accept) as server:
        error = outcome(token_request(server.url.replace("http:", "https:")))
    assert type(error) is UnavailableError
    assert "did not respond within the time set in Timeout" in str(error)


# --- proxies


PROXY_RESPONSES = {
    "nothing": (b"", b""),
    "a status line": (b"HTTP/1.1 200 ", b"O"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
    "a header": (b"HTTP/1.1 200 OK\r\nX: ", b"y"),
    "a rejection": (b"HTTP/1.1 401 X\r\nX: ", b"y"),
}


@pytest.mark.parametrize("pace", [SLOW, FAST])
@pytest.mark.parametrize("response", PROXY_RESPONSES)
def test_a_proxy_that_sends_without_end(response, pace, service, monkeypatch):
    """Nothing that a proxy says before it has made the connection is a response of the service."""
    monkeypatch.setenv("HTTPS_PROXY", service.url)
    start, repeated = PROXY_RESPONSES[response]
    if repeated:
        service.responses = [endless(start, repeated, pace)]
    else:
        service.responses = [lambda connection, stopped: stopped.wait(LIMIT)]
    error = outcome(token_request("https://auth.example"))
    assert type(error) is UnavailableError
    assert error.status is None
    assert service.requests[0].startswith(b"CONNECT auth.example:443")


@pytest.mark.parametrize("response", [b"HTTP/1.1 403 X\r\n\r\n", b"HTTP/1.1 401 X\r\n\r\n", b"garbage\r\n\r\n", None])
def test_a_proxy_that_makes_no_connection(response, service, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", service.url)
    service.responses = [response]
    error = outcome(token_request("https://auth.example"))
    assert type(error) is UnavailableError
    assert error.status is None
    # urllib3 says that the proxy is to blame only if the proxy says so.
    assert ("The proxy could not be reached, or it blocked the request" in str(error)) is (b" X" in (response or b""))


@pytest.mark.parametrize("late", [False, True])
def test_through_a_proxy(late, service, tls, monkeypatch):
    """The limits hold for TLS inside the connection to a proxy too, which is itself plain or TLS."""
    with Loopback(tls) as target:
        target.responses = [endless(b"HTTP/1.1 401 X\r\n\r\n", b" ", SLOW) if late else json_response(BODY)]

        def tunnel(connection, stopped):
            connection.sendall(b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n")
            with socket.create_connection(("127.0.0.1", target.port)) as inner:
                relay(connection, inner)

        service.responses = [tunnel]
        monkeypatch.setenv("HTTPS_PROXY", service.url)
        found = outcome(secret_request(f"https://127.0.0.1:{target.port}"), timeout=TIMEOUT if late else LIMIT)
    if late:
        assert type(found) is RejectedError
        assert found.status == 401
    else:
        assert found.secret == "made-up"
    assert len(target.requests) == 1


@pytest.fixture
def socks(monkeypatch):
    """A SOCKS library that connects directly, because none is installed. ``requests`` looks for it at its import."""
    library = ModuleType("socks")
    library.PROXY_TYPE_SOCKS4, library.PROXY_TYPE_SOCKS5 = 1, 2
    library.ProxyError = type("ProxyError", (OSError,), {})
    targets = []

    def create_connection(target, timeout, **options):
        targets.append(target)
        return socket.create_connection(target, timeout)

    library.create_connection = create_connection
    monkeypatch.setitem(sys.modules, "socks", library)
    # None blocks the import. After the test, there is no such module again.
    monkeypatch.setitem(sys.modules, "urllib3.contrib.socks", None)
    del sys.modules["urllib3.contrib.socks"]
    managers = importlib.import_module("urllib3.contrib.socks")
    monkeypatch.setattr(requests.adapters, "SOCKSProxyManager", managers.SOCKSProxyManager)
    monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1")
    return targets


def test_through_a_socks_proxy(socks, tls):
    """The SOCKS library makes the connection, which then has the limits of the exchange."""
    with Loopback(tls) as service:
        service.responses = [json_response(BODY)]
        assert outcome(secret_request(f"https://127.0.0.1:{service.port}"), timeout=LIMIT).secret == "made-up"
        assert socks == [("127.0.0.1", service.port)]


# --- addresses


@pytest.fixture
def silent():
    """An address whose connections are neither accepted nor rejected, because its queue is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        for _ in range(4):
            connection = socket.socket()
            connection.setblocking(False)
            connection.connect_ex(listener.getsockname())
            waiting.append(connection)
        yield listener.getsockname()
        for connection in waiting:
            connection.close()


def resolves_to(monkeypatch, *addresses):
    """Make the name ``auth.example`` resolve to these addresses."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **options: found)


def test_addresses_that_do_not_respond(silent, monkeypatch):
    """All of them together get the time of one."""
    resolves_to(monkeypatch, *[silent] * 200)
    start = time.monotonic()
    error = outcome(token_request("https://auth.example"), timeout=0.5)
    # One after another with the whole time each, they would take 100 s.
    assert time.monotonic() - start < LIMIT
    assert type(error) is UnavailableError
    assert "did not accept a connection within the time set in Timeout" in str(error)


def test_an_address_that_does_not_respond_leaves_time_for_the_next(silent, loopback, monkeypatch):
    resolves_to(monkeypatch, silent, ("127.0.0.1", loopback.port))
    with Exchange(4.0) as exchange:
        exchange.create_connection(("auth.example", 443)).close()
        # Half of the time is left.
        assert exchange.deadline - time.monotonic() > 0.5


def test_each_address_may_take_an_equal_part_of_the_time_that_is_left(monkeypatch):
    timeouts = []

    class Refusing(socket.socket):
        def settimeout(self, seconds):
            timeouts.append(seconds)

        def connect(self, address):
            raise ConnectionRefusedError

    resolves_to(monkeypatch, *[("127.0.0.1", 9)] * 3)
    monkeypatch.setattr(socket, "socket", Refusing)
    with Exchange(LIMIT) as exchange, pytest.raises(ConnectionRefusedError):
        exchange.create_connection(("auth.example", 443))
    assert timeouts == pytest.approx([LIMIT / 3, LIMIT / 2, LIMIT], rel=0.1)


@pytest.mark.parametrize(("host", "resolved"), [("[::1]", "::1"), ("XX.example", "XX.example")])
def test_an_ipv6_address_is_resolved_without_its_brackets(host, resolved, monkeypatch):
    hosts = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, **__: hosts.append(host) or [])
    with Exchange(LIMIT) as exchange, pytest.raises(OSError, match="the host has no address"):
        exchange.create_connection((host, 443))
    assert hosts == [resolved]


def test_a_name_without_an_address(monkeypatch):
    def fails(*args, **options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    error = outcome(token_request("https://auth.example"))
    assert type(error) is UnavailableError
    assert "could not be reached" in str(error)


# --- memory


BOMBS = {
    "identity": (b"", [b" " * 65536] * 256),
    "gzip": (b"Content-Encoding: gzip\r\n", [gzip.compress(bytes(BOMB))]),
    "gzip, gzip": (b"Content-Encoding: gzip, gzip\r\n", [gzip.compress(gzip.compress(bytes(8 * BOMB)))]),
    "gzip in two headers": (
        b"Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n",
        [gzip.compress(gzip.compress(bytes(8 * BOMB)))],
    ),
    "deflate": (b"Content-Encoding: deflate\r\n", [zlib.compress(bytes(8 * BOMB))]),
    "br": (b"Content-Encoding: br\r\n", [struct.pack("<I", 0) * 16]),
    "many members": (b"Content-Encoding: gzip\r\n", [gzip.compress(bytes(65536)) * 512]),
    "a chunk size": (b"Transfer-Encoding: chunked\r\n", [b"1;", *[b"a" * 65536] * 256, b"\r\n{\r\n0\r\n\r\n"]),
    "digits of a chunk size": (b"Transfer-Encoding: chunked\r\n", [b"f" * 65536] * 256),
    "a huge chunk": (b"Transfer-Encoding: chunked\r\n", [b"7fffffffffffffff\r\n", *[b" " * 65536] * 256]),
    "a huge length": (b"Content-Length: 9223372036854775807\r\n", [b" " * 65536] * 256),
    "a trailer": (b"Transfer-Encoding: chunked\r\n", [b"2\r\n{}\r\n0\r\nX: ", *[b"y" * 65536] * 256, b"\r\n\r\n"]),
    "a header": (b"X: ", [b"y" * 65536] * 256),
    "headers": (b"", [b"", *[b"X: " + b"y" * 60_000 + b"\r\n"] * 256]),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_memory(bomb, loopback):
    header, parts = BOMBS[bomb]

    def respond(connection, stopped):
        end_of_head = b"" if bomb in {"a header", "headers"} else b"\r\n"
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + header + end_of_head)
        for part in parts:
            connection.sendall(part)

    loopback.responses = [b"", respond]
    # Modules that are imported on the way must not count.
    outcome(secret_request(loopback.url))
    tracemalloc.start()
    try:
        error = outcome(secret_request(loopback.url), timeout=LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(error, (ResponseError, UnavailableError))
    assert peak < BOMB / 2


@pytest.mark.parametrize(("before", "line"), [(b"", b"1;"), (b"0\r\n", b"X: ")], ids=["a chunk size", "a trailer"])
def test_a_line_of_a_body_over_the_limit(before, line, loopback):
    line = line.ljust(MAX_HEAD_BYTES + 1 - len(b"\r\n"), b"y") + b"\r\n"
    loopback.responses = [CHUNKED.replace(b"%d", b"200") + before + line]
    error = outcome(secret_request(loopback.url), timeout=LIMIT)
    assert type(error) is ResponseError
    assert "larger than 1024 KiB and was not read to its end" in str(error)


SIZE = b"%x" % len(BODY)


@pytest.mark.parametrize(
    ("before", "line", "after"),
    [
        (b"", SIZE + b";", BODY + b"\r\n0\r\n\r\n"),
        (SIZE + b"\r\n" + BODY + b"\r\n0\r\n", b"X: ", b"\r\n"),
    ],
    ids=["a chunk size", "a trailer"],
)
def test_a_line_of_a_body_at_the_limit(before, line, after, loopback):
    line = line.ljust(MAX_HEAD_BYTES - len(b"\r\n"), b"y") + b"\r\n"
    loopback.responses = [CHUNKED.replace(b"%d", b"200") + before + line + after]
    assert outcome(secret_request(loopback.url), timeout=LIMIT).secret == "made-up"


# --- content codings


@pytest.mark.parametrize("coding", ["", "identity", "gzip", "x-gzip", "GZip", "identity, gzip"])
def test_accepted_codings(coding, loopback):
    body = gzip.compress(BODY) if "zip" in coding.lower() else BODY
    loopback.responses = [json_response(body, headers=f"Content-Encoding: {coding}\r\n".encode())]
    assert outcome(secret_request(loopback.url)).secret == "made-up"


@pytest.mark.parametrize("status", [200, 401])
@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("deflate", zlib.compress(BODY)),
        ("br", b"\x0b\x10\x80made-up"),
        ("zstd", b"made-up"),
        ("unknown", BODY),
        ("gzip, gzip", gzip.compress(gzip.compress(BODY))),
        ("deflate, gzip", gzip.compress(zlib.compress(BODY))),
        ("gzip", gzip.compress(BODY) + gzip.compress(b" ")),
        ("gzip", gzip.compress(BODY) + b"more"),
    ],
    ids=["deflate", "br", "zstd", "unknown", "gzip, gzip", "deflate, gzip", "two members", "trailing data"],
)
def test_other_codings(coding, body, status, loopback):
    loopback.responses = [json_response(body, f"{status} X", f"Content-Encoding: {coding}\r\n".encode())]
    error = outcome(secret_request(loopback.url))
    if status == 401:
        assert type(error) is RejectedError
    else:
        assert type(error) is ResponseError
        assert "only one gzip stream is accepted" in str(error)


@pytest.mark.parametrize("length", [0, 5, 20, 30])
def test_gzip_that_was_cut_off(length, loopback):
    """The service has sent what it wanted to send, so sending the request again cannot help."""
    loopback.responses = [json_response(gzip.compress(BODY)[:length], headers=b"Content-Encoding: gzip\r\n")]
    error = outcome(secret_request(loopback.url))
    assert type(error) is ResponseError
    assert "a body that is not JSON" in str(error)


def test_a_rejection_without_a_body_is_labelled_gzip(loopback):
    loopback.responses = [json_response(b"", "401 X", b"Content-Encoding: gzip\r\n")]
    assert type(outcome(secret_request(loopback.url))) is RejectedError


def test_a_response_at_the_limit(loopback):
    """The limits are for octets of the head and of the body, not for both together."""
    chunks = b"".join(b"2000\r\n" + b" " * 8192 + b"\r\n" for _ in range(MAX_BODY_BYTES // 8192 - 1))
    last = BODY + b" " * (8192 - len(BODY))
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + b"X: " + b"y" * (MAX_HEAD_BYTES // 2) + b"\r\n\r\n"
    loopback.responses = [head + chunks + b"2000\r\n" + last + b"\r\n0\r\n\r\n"]
    assert outcome(secret_request(loopback.url), timeout=LIMIT).secret == "made-up"


# --- the exchange itself


def test_interim_responses(loopback):
    interim = b"".join(b"HTTP/1.1 %d X\r\nX: y\r\n\r\n" % status for status in (100, 102, 103, 199))
    loopback.responses = [interim + json_response(BODY)]
    assert outcome(secret_request(loopback.url)).secret == "made-up"


@contextlib.contextmanager
def blocked(server, exchange):
    """Read in a thread from a server that sends nothing, and check that the read ends."""
    server.responses = [lambda connection, stopped: stopped.wait(LIMIT)]
    with exchange:
        connection = exchange.create_connection(("127.0.0.1", server.port))
        with connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            connection.settimeout(LIMIT)
            thread = threading.Thread(target=lambda: connection.recv(1), daemon=True)
            thread.start()
            yield
            thread.join(LIMIT)
            assert not thread.is_alive()


def test_deadlines_of_several_exchanges(monkeypatch):
    """One thread keeps them all. It was asleep until a later deadline when an earlier one was added."""
    # Its own thread, which has never run.
    monkeypatch.setattr(exchange_module, "_WATCHDOG", exchange_module._Watchdog())
    later, sooner, cancelled = Exchange(LIMIT * 10), Exchange(0.1), Exchange(LIMIT * 10)
    with Loopback() as one, Loopback() as two, Loopback() as three, monkeypatch.context() as patch:
        patch.setattr(exchange_module, "_MAX_SLEEP", LIMIT * 10)
        with blocked(one, later):
            time.sleep(0.05)
            with blocked(two, sooner):
                pass
            assert (later.expired, sooner.expired) == (False, True)
            with blocked(three, cancelled):
                cancelled.cancel()
            assert (later.expired, cancelled.expired) == (False, True)
            patch.undo()
            later.cancel()


def test_the_parts_of_an_exchange():
    """Each has its own deadline, and the head of a proxy's response does not count as one of the service."""
    with Exchange(LIMIT) as exchange:
        start = exchange.deadline
        exchange.received(MAX_HEAD_BYTES)
        exchange.connected()
        connected = exchange.deadline
        exchange.received(MAX_HEAD_BYTES)
        exchange.head_received()
        exchange.received(MAX_BODY_BYTES)
        assert start < connected < exchange.deadline == pytest.approx(start + LIMIT)
        with pytest.raises(OSError, match="more octets"):
            exchange.received(1)


def test_cancelling():
    """No later part of the exchange moves the deadline again. Cancelling before and after the exchange is allowed."""
    exchange = Exchange(LIMIT)
    exchange.cancel()
    with exchange:
        exchange.connected()
        exchange.head_received()
        assert exchange.deadline < time.monotonic()
    exchange.cancel()


STALLED = {
    "head": (b"HTTP/1.1 ", ResponseError, "the head of its response did not arrive within the time set in Timeout"),
    "body": (b"HTTP/1.1 200 OK\r\n\r\n{", UnavailableError, "did not arrive within twice the time set in Timeout"),
}


@pytest.mark.parametrize("repeated", [b"", b"0"], ids=["nothing more", "octet by octet"])
@pytest.mark.parametrize("part", STALLED)
def test_the_message_does_not_depend_on_the_thread(part, repeated, service, monkeypatch):
    """On a busy machine, the timeout of the socket, or an octet, may come before the thread runs."""
    monkeypatch.setattr(_WATCHDOG, "watch", lambda exchange, sock: None)
    start, kind, message = STALLED[part]
    service.responses = [endless(start, repeated, SLOW)]
    error = outcome(token_request(service.url))
    assert type(error) is kind
    assert message in str(error)


def reset(octets):
    """Respond with octets, and then reset the connection."""

    def respond(connection, stopped):
        connection.sendall(octets)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    return respond


@pytest.mark.parametrize(
    ("octets", "kind", "message"),
    [
        (b"", UnavailableError, "was cut off or cannot be decoded"),
        (b"HTTP/1.1 200", ResponseError, "the head of its response cannot be read"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", UnavailableError, "was cut off or cannot be decoded"),
    ],
    ids=["nothing", "part of the head", "part of the body"],
)
def test_a_connection_that_is_reset(octets, kind, message, loopback):
    """Only if no octet of the response arrived, the service has not responded."""
    loopback.responses = [reset(octets)]
    error = outcome(token_request(loopback.url))
    assert type(error) is kind
    assert message in str(error)


def test_octets_after_the_deadline():
    with Exchange(LIMIT) as exchange:
        exchange.cancel()
        with pytest.raises(TimeoutError):
            exchange.received(1)
        assert exchange.expired
        assert not exchange.responded


def test_an_exchange_that_has_expired_stays_so():
    """Although a head that was parsed after that moves the deadline forward."""
    with Exchange(LIMIT) as exchange:
        exchange.expired = True
        exchange.head_received()
        with pytest.raises(TimeoutError):
            exchange.received(1)


def test_a_total_that_is_shorter_than_the_timeout():
    with Exchange(LIMIT, total=1.0) as exchange:
        start = exchange.deadline
        exchange.connected()
        exchange.head_received()
        assert exchange.deadline == start < time.monotonic() + LIMIT / 2


def test_the_thread_ends(loopback):
    """It is there for the next exchange too, but not for ever."""
    loopback.responses = [json_response(BODY)]
    outcome(secret_request(loopback.url))
    # Another test may have interrupted a request, whose deadline is then up to a minute away.
    deadline = time.monotonic() + 3 * LIMIT
    while any(thread.name == "deadlines of requests" for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "the thread does not end"
        time.sleep(0.05)
    # Another one starts when it is needed. Python does not wait for it at its end.
    with Loopback() as hanging, blocked(hanging, Exchange(0.1)):
        assert [thread.daemon for thread in threading.enumerate() if thread.name == "deadlines of requests"] == [True]


def test_a_response_passes_the_parameters_of_its_base_class_on(capsys):
    near, far = socket.socketpair()
    with near, far, Exchange(LIMIT):
        far.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
        response = LimitedResponse(near, 1, method="HEAD")
        response.begin()
        # The response to HEAD has no body (RFC 9110 §9.3.2). A debug level of 1 prints the headers.
        assert response.read() == b""
        response.close()
    assert "Content-Length" in capsys.readouterr().out


def test_a_connection_has_the_options_of_urllib3(loopback, monkeypatch):
    """A request is sent at once, without waiting for more octets."""
    options, watch = [], Exchange.watch

    def record(exchange, sock):
        options.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        watch(exchange, sock)

    monkeypatch.setattr(Exchange, "watch", record)
    loopback.responses = [json_response(BODY)]
    assert outcome(secret_request(loopback.url)).secret == "made-up"
    assert options
    assert all(options)


def test_a_subclass_gets_the_socket_of_the_connection(loopback):
    class Observed(Exchange):
        port = None

        def connected(self, sock=None):
            self.port = sock.getpeername()[1]
            super().connected(sock)

    loopback.responses, exchange = [json_response(BODY)], Observed(LIMIT)
    with Transport(timeout=LIMIT, verify=True) as transport:
        transport.send(secret_request(loopback.url), exchange=exchange)
    assert exchange.port == loopback.port


def test_a_connection_that_has_ended_at_its_deadline():
    """The thread goes on."""
    with Exchange(0.1) as ended, socket.socket() as never_connected:
        ended.watch(never_connected)
        with Loopback() as hanging, blocked(hanging, Exchange(0.2)):
            pass
        assert ended.expired


def descriptors():
    return len([*Path("/proc/self/fd").iterdir()])


def test_each_exchange_has_its_own_connection(loopback):
    """The service keeps each connection open, but the limits are those of one exchange."""
    next_octets = []

    def respond(connection, stopped):
        connection.sendall(json_response(BODY).replace(b"Connection: close\r\n", b""))
        next_octets.append(connection.recv(1))

    loopback.responses = [respond] * 2
    request = secret_request(loopback.url)
    with Transport(timeout=LIMIT, verify=True) as transport:
        assert [transport.send(request).status for _ in range(2)] == [200, 200]
    deadline = time.monotonic() + LIMIT
    while len(next_octets) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert next_octets == [b"", b""]


@pytest.mark.parametrize("where", ["connected", "head_received"])
def test_an_interruption(where, loopback, monkeypatch):
    """The time-out of a task is a BaseException, which may be raised anywhere. No file and no thread is left."""

    class Interruption(BaseException):
        pass

    def interrupt(exchange, *_):
        raise Interruption

    monkeypatch.setattr(Exchange, where, interrupt)
    stopped = threading.Event()
    loopback.responses = [lambda connection, _: (connection.sendall(json_response(BODY)), stopped.wait(LIMIT))]
    before = descriptors()
    with Transport(timeout=LIMIT, verify=True) as transport, pytest.raises(Interruption):
        transport.send(secret_request(loopback.url))
    try:
        # The server's side is still open.
        assert descriptors() <= before + 1
    finally:
        stopped.set()


def test_outside_of_the_exchange_there_is_none(loopback):
    loopback.responses = [json_response(BODY)]

    def request():
        with Transport(timeout=LIMIT, verify=True) as transport:
            assert transport.send(secret_request(loopback.url)).status == 200
        with pytest.raises(LookupError):
            Exchange.current()

    # In a context of its own, because an interrupted test may have left an exchange in that of the process.
    contextvars.Context().run(request)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_in_the_middle(loopback):
    """A child has a copy of every lock, but no thread that would release one."""
    received = threading.Event()

    def respond(connection, stopped):
        received.wait(LIMIT)
        connection.sendall(b"x")

    loopback.responses = [respond]
    with Exchange(LIMIT) as exchange:
        connection = exchange.create_connection(("127.0.0.1", loopback.port))
        with connection:
            _WATCHDOG._lock.acquire()
            child = os.fork()
            if child == 0:
                exchange.watch(connection)
                exchange.__exit__(None, None, None)
                os._exit(7)
            _WATCHDOG._lock.release()
            # A child that hangs is killed, and then has another exit code.
            killer = threading.Timer(LIMIT, os.kill, (child, signal.SIGKILL))
            killer.start()
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            killer.cancel()
            # The child's copy of the connection is closed; the parent's is not shut down.
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            received.set()
            assert connection.recv(1) == b"x"
