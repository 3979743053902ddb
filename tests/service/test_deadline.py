"""Every request ends within its deadline, whatever a service or a proxy sends. Nothing is left, and little is kept."""

import gzip
import socket
import threading
import time
import tracemalloc
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from airflow_provider_loanauth.exceptions import LoanAuthError, ResponseError, SettingsError, UnavailableError
from airflow_provider_loanauth.service.transport import Deadline, send
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
GZIP = b"HTTP/1.1 %d X\r\nContent-Encoding: gzip\r\n\r\n"
#: Responses without end: what comes first, what is repeated, and whether it belongs to the head.
ENDLESS = {
    "a body of octets": (b"HTTP/1.1 %d X\r\n\r\n", b" ", False),
    "a body of chunks": (CHUNKED, b"1\r\n \r\n", False),
    "a chunk size": (CHUNKED + b"1;", b"a", False),
    "trailers": (CHUNKED + b"0\r\n", b"X: y\r\n", False),
    "gzip members": (GZIP, gzip.compress(b""), False),
    "deflate blocks": (GZIP + b"\x1f\x8b\x08" + bytes(7), b"\x00\x00\x00\xff\xff", False),
    "a gzip header": (GZIP + b"\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x00", b"n", False),
    "a status line": (b"HTTP/1.1 ", b"2", True),
    "a reason": (b"HTTP/1.1 %d ", b"y", True),
    "a header": (b"HTTP/1.1 %d X\r\nX: ", b"y", True),
    "headers": (b"HTTP/1.1 %d X\r\n", b"X: y\r\n", True),
    "headers of 100 Continue": (b"HTTP/1.1 100 Continue\r\n", b"X: y\r\n", True),
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", True),
    "no HTTP": (b"", b"x", True),
}


def test_a_host_that_accepts_no_connection():
    # The one connection fills the queue of the server.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, socket.create_connection(server.getsockname()):
        error = outcome(token_request(f"http://127.0.0.1:{server.getsockname()[1]}"))
    assert type(error) is UnavailableError
    assert "did not accept a connection within the time set in Timeout" in str(error)


@pytest.mark.parametrize(("start", "repeated", "is_head"), ENDLESS.values(), ids=ENDLESS)
def test_endless_responses(start, repeated, is_head):
    """A rejection is one whatever its body does. After a broken head, the service may have counted a failed login.

    `fault_table.py` has some that arrive as fast as they can.
    """
    with Loopback() as one, Loopback() as other:
        one.responses = [endless(start.replace(b"%d", b"200"), repeated, SLOW)] * 3
        other.responses = [endless(start.replace(b"%d", b"401"), repeated, SLOW)] * 3
        requests = [token_request(one.url), token_request(other.url)]
        accepted, rejection = with_enough_time(lambda timeout: outcomes(requests, timeout=timeout))
    part = "head" if is_head else "body"
    assert f"{part} of the response did not arrive within the time set in Timeout" in str(accepted)
    assert type(accepted) is (ResponseError if is_head else UnavailableError)
    assert (type(rejection), rejection.status) == (ResponseError, None if is_head else 401)


def test_with_tls(tls):
    with Loopback(tls) as service, Loopback(tls) as other:
        service.responses = [endless(b"HTTP/1.1 401 X\r\n\r\n", b" ", SLOW)] * 3
        other.responses = [endless(b"HTTP/1.1 200 X\r\nX: ", b"y", SLOW)] * 3
        requests = [token_request(one.url.replace("http:", "https:")) for one in (service, other)]
        rejection, late = with_enough_time(lambda timeout: outcomes(requests, timeout=timeout))
    assert (type(rejection), rejection.status) == (ResponseError, 401)
    assert type(late) is ResponseError


def test_a_service_that_does_not_read():
    with Loopback(endless(b"", b"", SLOW)) as server:
        request = token_request(server.url)
        error = outcome(replace(request, form=(*request.form, ("more", "x" * 16 * MIB))))
    assert type(error) is UnavailableError
    assert "did not respond within the time set in Timeout" in str(error)


@pytest.mark.parametrize(
    ("start", "repeated"),
    [(b"HTTP/1.1 200 ", b"O"), (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"), (b"HTTP/1.1 401 X\r\nX: ", b"y")],
)
def test_a_proxy_that_sends_without_end(start, repeated, loopback, monkeypatch):
    """Nothing that a proxy says before it has made the connection is a response of the service."""
    monkeypatch.setenv("HTTPS_PROXY", loopback.url)
    loopback.responses = [endless(start, repeated, SLOW)]
    error = outcome(token_request("https://auth.example"))
    # From Python 3.12 on, http.client does not look at the status before it has all headers.
    assert type(error) in (UnavailableError, *([SettingsError] if b"401" in start else []))
    assert error.status is None
    assert loopback.requests[0].startswith(b"CONNECT auth.example:443")


def test_a_connection_that_has_ended_before_its_deadline():
    with socket.socket() as sock, Deadline(0.0) as deadline:
        deadline.watch(sock)
        began = time.monotonic()
        while not deadline.expired:
            assert time.monotonic() < began + LIMIT
    assert deadline._thread.is_alive() is False


def descriptors():
    return len([*Path("/proc/self/fd").iterdir()])


def test_nothing_is_left_after_50_requests_that_ran_out_of_time(loopback):
    """A sensor may poke for a week."""
    start, repeated, _ = ENDLESS["trailers"]
    loopback.responses = [endless(start.replace(b"%d", b"200"), repeated, 0.0) for _ in range(51)]
    threads, files = threading.active_count(), None
    for _ in range(51):
        assert isinstance(outcome(secret_request(loopback.url), timeout=0.01), (UnavailableError, ResponseError))
        # What the first request opens for the process does not count.
        files = descriptors() if files is None else files
        assert threading.active_count() <= threads
    # The server may not have closed its side yet.
    deadline = time.monotonic() + LIMIT
    while descriptors() > files:
        assert time.monotonic() < deadline
        time.sleep(0.01)


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
    "as many headers as possible": [*[b"Set-Cookie: " + b"y=1;" * 16_000 + b"\r\n"] * 98, b"\r\nno JSON"],
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
