"""A response ends in time, whatever arrives, and little of it is kept."""

import gzip
import socket
import threading
import tracemalloc
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from airflow_provider_loanauth.exceptions import LoanAuthError, ResponseError, UnavailableError
from airflow_provider_loanauth.service.transport import send
from tests.support.loopback import Loopback, endless
from tests.support.wire_requests import parse, secret_request, token_request, with_enough_time

pytestmark = pytest.mark.once

NOW = datetime(2026, 11, 21, tzinfo=timezone.utc)
TIMEOUT = 0.3  # seconds: the setting
LIMIT = 30.0  # seconds after which a test fails, far more than any request takes
MIB = 1024 * 1024
SLOW = 0.02  # seconds between two octets


def outcomes(requests, *, timeout=TIMEOUT):
    """Send requests at the same time, and return what each raises or returns. Fail if one does not end."""
    found = {}

    def run(index, request):
        try:
            found[index] = parse(request, send(request, timeout=timeout, verify=True), now=NOW)
        except LoanAuthError as error:
            found[index] = error

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in enumerate(requests)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive(), "the request does not end"
    return [found[index] for index in range(len(requests))]


def outcome(request, **options):
    return outcomes([request], **options)[0]


CHUNKED = b"HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\n"
#: Bodies without end: what comes first, and what is repeated.
BODIES = {
    "octets": (b"HTTP/1.1 %d X\r\n\r\n", b" "),
    "chunks": (CHUNKED, b"1\r\n \r\n"),
    "digits of a chunk size": (CHUNKED, b"0"),
    "an extension of a chunk": (CHUNKED + b"1;", b"x"),
    "a trailer": (CHUNKED + b"0\r\nX: ", b"y"),
    "trailers": (CHUNKED + b"0\r\n", b"X: y\r\n"),
    "empty gzip members": (b"HTTP/1.1 %d X\r\nContent-Encoding: gzip\r\n\r\n", gzip.compress(b"")),
}
#: Heads without end.
HEADS = {
    "a status line": (b"HTTP/1.1 %d ", b"X"),
    "a header": (b"HTTP/1.1 %d X\r\nX: ", b"y"),
    "headers": (b"HTTP/1.1 %d X\r\n", b"X: y\r\n"),
    "100": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "103": (b"", b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n"),
}


def test_a_host_that_accepts_no_connection():
    # The one connection fills the queue of the server.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, socket.create_connection(server.getsockname()):
        error = outcome(token_request(f"http://127.0.0.1:{server.getsockname()[1]}"))
    assert type(error) is UnavailableError
    assert "did not respond within the time set in Timeout" in str(error)


@pytest.mark.parametrize(("start", "repeated"), BODIES.values(), ids=BODIES)
def test_endless_bodies(start, repeated):
    """A rejection is one whatever its body does. `fault_table.py` has some that arrive as fast as they can."""
    with Loopback() as one, Loopback() as other:
        one.responses = [endless(start.replace(b"%d", b"200"), repeated, SLOW)] * 3
        other.responses = [endless(start.replace(b"%d", b"401"), repeated, SLOW)] * 3
        requests = [token_request(one.url), token_request(other.url)]
        accepted, rejection = with_enough_time(lambda timeout: outcomes(requests, timeout=timeout))
    assert "body of the response did not arrive within the time set in Timeout" in str(accepted)
    assert type(accepted) is UnavailableError
    assert (type(rejection), rejection.status) == (ResponseError, 401)


@pytest.mark.parametrize(("start", "repeated"), HEADS.values(), ids=HEADS)
def test_endless_heads(start, repeated, loopback):
    """The request is not sent again: it may have counted as a failed login."""
    loopback.responses = [endless(start.replace(b"%d", b"401"), repeated, SLOW)]
    error = outcome(token_request(loopback.url))
    assert "The head of the response cannot be read" in str(error)
    assert type(error) is ResponseError


@pytest.mark.parametrize(
    ("start", "repeated"), [(b"HTTP/1.1 200 ", b"O"), (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n")], ids=["status", "headers"]
)
def test_the_endless_head_of_a_proxy(start, repeated, loopback, monkeypatch):
    """Nothing that a proxy says before it has made the connection is a response of the service."""
    monkeypatch.setenv("HTTPS_PROXY", loopback.url)
    loopback.responses = [endless(start, repeated, SLOW)]
    error = outcome(token_request("https://auth.example"))
    assert (type(error), error.status) == (UnavailableError, None)
    assert loopback.requests[0].startswith(b"CONNECT auth.example:443")


def test_with_tls(tls):
    with Loopback(tls) as service:
        service.responses = [endless(b"HTTP/1.1 401 X\r\n\r\n", b" ", SLOW)] * 3
        requests = [token_request(service.url.replace("http:", "https:"))]
        [rejection] = with_enough_time(lambda timeout: outcomes(requests, timeout=timeout))
    assert (type(rejection), rejection.status) == (ResponseError, 401)


def test_a_service_that_does_not_read():
    with Loopback(endless(b"", b"", SLOW)) as server:
        request = token_request(server.url)
        error = outcome(replace(request, form=(*request.form, ("more", "x" * 16 * MIB))))
    assert type(error) is UnavailableError
    assert "did not respond within the time set in Timeout" in str(error)


IN_GZIP, IN_CHUNKS = b"Content-Encoding: gzip\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"


#: What is sent after the status line.
BOMBS = {
    "identity": [b"\r\n", *[b" " * 65536] * 1024],
    "gzip members": [IN_GZIP, gzip.compress(bytes(65536)) * 2048],
    "digits of a chunk size": [IN_CHUNKS, *[b"f" * 65536] * 1024],
    "a huge chunk": [IN_CHUNKS, b"7fffffffffffffff\r\n", *[b" " * 65536] * 1024],
    "a trailer": [IN_CHUNKS, b"2\r\n{}\r\n0\r\nX: ", *[b"y" * 65536] * 1024],
    "a header": [b"X: ", *[b"y" * 65536] * 1024],
    "headers": [b"X: " + b"y" * 65_000 + b"\r\n"] * 1024,
}


@pytest.mark.parametrize("parts", BOMBS.values(), ids=BOMBS)
def test_memory(parts, loopback):
    def respond(connection, stopped):
        for part in (b"HTTP/1.1 200 OK\r\n", *parts):
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
    assert peak < 64 * MIB
