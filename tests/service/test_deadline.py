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


def outcome(request, *, timeout=TIMEOUT):
    """Return what a request raises or returns. Fail if it does not end."""
    found = []

    def run():
        try:
            found.append(parse(request, send(request, timeout=timeout, verify=True), now=NOW))
        except LoanAuthError as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive(), "the request does not end"
    return found[0]


def outcomes(*addresses):
    requests = [token_request(address) for address in addresses]
    return with_enough_time(lambda timeout: [outcome(request, timeout=timeout) for request in requests])


CHUNKED = b"HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\n"
#: Bodies without end: what comes first, and what is repeated.
BODIES = {
    "nothing": (b"HTTP/1.1 %d X\r\nContent-Length: 9\r\n\r\n{", b""),
    "octets": (b"HTTP/1.1 %d X\r\n\r\n", b" "),
    "digits of a chunk size": (CHUNKED, b"0"),
    "trailers": (CHUNKED + b"0\r\n", b"X: y\r\n"),
    "empty gzip members": (b"HTTP/1.1 %d X\r\nContent-Encoding: gzip\r\n\r\n", gzip.compress(b"")),
}
#: Heads without end.
HEADS = {
    "a status line": (b"HTTP/1.1 401 ", b"X"),
    "headers": (b"HTTP/1.1 401 X\r\n", b"X: y\r\n"),
    "interim responses": (b"", b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n"),
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
        accepted, rejection = outcomes(one.url, other.url)
    assert "body of the response did not arrive within the time set in Timeout" in str(accepted)
    assert type(accepted) is UnavailableError
    assert (type(rejection), rejection.status) == (ResponseError, 401)


@pytest.mark.parametrize(("start", "repeated"), HEADS.values(), ids=HEADS)
def test_endless_heads(start, repeated, loopback):
    """The request is not sent again: it may have counted as a failed login."""
    loopback.responses = [endless(start, repeated, SLOW)]
    error = outcome(token_request(loopback.url))
    assert "The head of the response cannot be read" in str(error)
    assert type(error) is ResponseError


def test_the_endless_head_of_a_proxy(loopback, monkeypatch):
    """Nothing that a proxy says before it has made the connection is a response of the service."""
    monkeypatch.setenv("HTTPS_PROXY", loopback.url)
    loopback.responses = [endless(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", SLOW)]
    error = outcome(token_request("https://auth.example"))
    assert (type(error), error.status) == (UnavailableError, None)
    assert loopback.requests[0].startswith(b"CONNECT auth.example:443")


def test_with_tls(tls):
    with Loopback(tls) as service:
        service.responses = [endless(b"HTTP/1.1 401 X\r\n\r\n", b" ", SLOW)] * 3
        [rejection] = outcomes(service.url.replace("http:", "https:"))
    assert (type(rejection), rejection.status) == (ResponseError, 401)


def test_a_service_that_does_not_read():
    with Loopback(endless(b"", b"", SLOW)) as server:
        request = token_request(server.url)
        error = outcome(replace(request, form=(*request.form, ("more", "x" * 16 * MIB))))
    assert type(error) is UnavailableError
    assert "did not respond within the time set in Timeout" in str(error)


@pytest.mark.parametrize(("coding", "encode"), [(b"identity", bytes), (b"gzip", gzip.compress)])
def test_memory(coding, encode, loopback):
    """A body of 128 MiB."""

    def respond(connection, stopped):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\n\r\n" % coding)
        for _ in range(2048):
            connection.sendall(encode(bytes(65536)))

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
