"""A response ends in time, whatever arrives, and little of it is kept."""

import gzip
import socket
import tracemalloc
from dataclasses import replace

import pytest

from airflow_provider_loanauth.exceptions import ResponseError, UnavailableError
from tests.support.loopback import Loopback, endless
from tests.support.wire_requests import failure, secret_request, token_request

pytestmark = pytest.mark.once

MIB = 1024 * 1024
NO_RESPONSE = "The service did not respond within the time set in Timeout"


def error_of(response, scheme="http", **options):
    """Return the error of a login, with a longer time-out if a busy machine did not respond in time."""
    for timeout in (0.1, 2, 20):
        with Loopback(**options) as server:
            server.responses = [response]
            error = failure(token_request(server.url.replace("http", scheme)), timeout=timeout)
        if NO_RESPONSE not in str(error):
            break
    return error


CHUNKED = b"HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\n"
#: Bodies without end: what comes first, and what is repeated.
BODIES = {
    "nothing": (b"HTTP/1.1 %d X\r\nContent-Length: 9\r\n\r\n{", b""),
    "octets": (b"HTTP/1.1 %d X\r\n\r\n", b" "),
    "digits of a chunk size": (CHUNKED, b"0"),
    "trailers": (CHUNKED + b"0\r\n", b"X: y\r\n"),
    "empty gzip members": (b"HTTP/1.1 %d X\r\nContent-Encoding: gzip\r\n\r\n", gzip.compress(b"")),
}


@pytest.mark.parametrize(("start", "repeated"), BODIES.values(), ids=BODIES)
def test_endless_bodies(start, repeated):
    """A rejection is one whatever its body does. `integration/test_faults.py` has bodies that arrive at once."""
    error = error_of(endless(start.replace(b"%d", b"200"), repeated))
    assert type(error) is UnavailableError
    assert "body of the response did not arrive within the time set in Timeout" in str(error)
    error = error_of(endless(start.replace(b"%d", b"401"), repeated))
    assert (type(error), error.status) == (ResponseError, 401)


def test_an_endless_body_with_tls(tls):
    error = error_of(endless(b"HTTP/1.1 401 X\r\n\r\n", b" "), "https", accept=tls)
    assert (type(error), error.status) == (ResponseError, 401)


def test_the_endless_head_of_a_proxy(loopback, monkeypatch):
    """Nothing that a proxy says before it has made the connection is a response of the service."""
    monkeypatch.setenv("HTTPS_PROXY", loopback.url)
    loopback.responses = [endless(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n")]
    error = failure(token_request("https://auth.example"), timeout=0.3)
    assert (type(error), error.status) == (UnavailableError, None)
    assert loopback.requests[0].startswith(b"CONNECT auth.example:443")


def test_a_host_that_accepts_no_connection():
    # The one connection fills the queue of the server.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, socket.create_connection(server.getsockname()):
        error = failure(token_request(f"http://127.0.0.1:{server.getsockname()[1]}"), timeout=0.3)
    assert NO_RESPONSE in str(error)


def test_a_service_that_does_not_read():
    with Loopback(endless(b"", b"")) as server:
        request = token_request(server.url)
        error = failure(replace(request, form=(*request.form, ("more", "x" * 16 * MIB))), timeout=0.3)
    assert NO_RESPONSE in str(error)


@pytest.mark.parametrize(("coding", "encode"), [(b"identity", bytes), (b"gzip", gzip.compress)])
def test_memory(coding, encode, loopback):
    """A body of 128 MiB."""

    def respond(connection, stopped):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\n\r\n" % coding)
        for _ in range(2048):
            connection.sendall(encode(bytes(65536)))

    loopback.responses = [b"", respond]
    # Modules that are imported on the way must not count.
    failure(secret_request(loopback.url))
    tracemalloc.start()
    try:
        failure(secret_request(loopback.url), timeout=30)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * MIB
