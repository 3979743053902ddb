"""`triggers/loanauth.py`: which responses count, and that a request ends."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from airflow_provider_loanauth import __version__
from airflow_provider_loanauth.triggers import loanauth
from airflow_provider_loanauth.triggers.loanauth import LoanAuthSensorTrigger
from loanauth_sandbox.server import running_sandbox
from tests.support.loopback import endless
from tests.support.virtual_service import Event, Sensor, Service, wait_for
from tests.support.waiting import fire


def test_a_request_takes_at_most_ten_seconds_or_one_interval():
    service = Service(recovers=60)
    wait_for(service, [Sensor(interval=60), Sensor(interval=4)])
    assert {request.timeout for request in service.requests} == {10, 4}


def test_a_trigger_that_is_cancelled_leaves_nothing():
    service = Service(takes=10)
    assert wait_for(service, [Sensor(leaves=62)]) == [Event(None, 62)]


# --- one request. Real sockets

TIMEOUT = 15.0
SHORT_TIMEOUT = 0.3
SERVICE = "https://lender.invalid"
NOT_BY_PROXY = "The proxy could not be reached, or it blocked the request"


def reason(address, timeout=TIMEOUT, proxy=None):
    return asyncio.run(loanauth.why_unavailable(address, timeout, proxy))


def response(status):
    head = f"HTTP/1.1 {status} made up\r\nLocation: /elsewhere\r\nRetry-After: 0\r\nContent-Length: 0\r\n"
    return f"{head}Connection: close\r\n\r\n".encode()


@pytest.mark.parametrize("status", [200, 302, 407, 408, 429, 499, 500])
def test_each_status_but_408_429_and_5xx_counts_as_reachable(status, loopback):
    loopback.responses.append(response(status))
    is_unavailable = status in (408, 429, 500)
    assert reason(loopback.url) == (f"status {status}" if is_unavailable else None)
    assert len(loopback.requests) == 1


@pytest.mark.parametrize("data", [None, endless(b"HTTP/1.1 200 made up\r\nX: ", b"y", 0.02)], ids=["none", "endless"])
def test_a_response_that_is_broken_counts_as_unavailable(data, loopback):
    loopback.responses.append(data)
    assert reason(loopback.url, SHORT_TIMEOUT if data else TIMEOUT) is not None


@pytest.mark.parametrize(
    ("address", "environment"),
    [(f"https://{'x' * 80}.invalid", ""), (f"{SERVICE}:99999", ""), (f"{SERVICE}:99999", "socks5://127.0.0.1:1")],
    ids=["host name", "port", "port, and a proxy"],
)
def test_an_invalid_address_is_left_to_the_login(address, environment, monkeypatch):
    """Its error names the field of the Connection."""
    monkeypatch.setenv("https_proxy", environment)
    assert reason(address) is None


def test_https_where_the_port_expects_http_is_left_to_the_login():
    with running_sandbox() as service:
        assert reason(f"https:{service.url.partition(':')[2]}") is None


def test_the_request_contains_nothing_but_the_address(loopback):
    loopback.responses.append(response(200))
    assert reason(f"{loopback.url}/a b/ü/c%2Fd") is None
    line, *lines = loopback.requests[0].decode().split("\r\n")
    # As for a login.
    assert line == "GET /a%20b/%C3%BC/c%2Fd HTTP/1.1"
    headers = dict(line.lower().split(": ", 1) for line in lines if line)
    assert set(headers) == {"host", "user-agent", "connection", "accept", "accept-encoding"}
    assert headers["host"] == f"127.0.0.1:{loopback.port}"
    assert headers["user-agent"] == f"airflow-provider-loanauth/{__version__}"


def test_certificates_are_not_checked():
    """Nothing secret is sent."""
    with running_sandbox(tls="unknown-ca") as service:
        assert reason(service.url) is None
        assert service.counters().probe == 1


def test_a_thread_that_cannot_be_started_ends_no_wait(loopback, monkeypatch):
    loopback.responses = [b"HTTP/1.1 200 OK\r\n\r\n"]
    errors = [RuntimeError("can't start new thread")] * 2
    start = threading.Thread.start

    def start_unless_it_fails(thread):
        if errors:
            raise errors.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_unless_it_fails)
    assert reason(loopback.url) == "no request could be sent (RuntimeError)"
    assert fire(LoanAuthSensorTrigger(loopback.url, poke_interval=0.3), TIMEOUT).payload == {"status": "ready"}


def test_a_resolver_that_hangs_starves_nobody(monkeypatch):
    """Nothing interrupts a lookup. It is in a thread that no other trigger needs."""
    ended = threading.Event()

    def hang(*_, **__):
        ended.wait(60)
        raise socket.gaierror("made up")

    async def others():
        return await asyncio.gather(*(asyncio.to_thread(lambda: "runs") for _ in range(50)))

    async def main():
        for _ in range(20):
            assert await loanauth.why_unavailable(SERVICE, 0.01, None) == "no response within 0.01 s"
        assert await asyncio.wait_for(others(), TIMEOUT) == ["runs"] * 50

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        asyncio.run(main())
    finally:
        ended.set()


@pytest.mark.parametrize(
    ("environment", "proxy", "status", "expected"),
    [
        ({"all_proxy": "http://user:made-up@{}"}, None, 503, NOT_BY_PROXY),
        # The proxy of a Connection has precedence over the environment.
        ({"https_proxy": "http://127.0.0.1:1", "no_proxy": "*"}, "http://{}", 502, NOT_BY_PROXY),
        # The worker that pokes then may be able to use these: it has the user and the password of the Connection.
        ({"https_proxy": "http://{}"}, None, 407, None),
        ({"https_proxy": "https://{}"}, None, None, None),
        # The error of a login says what to correct.
        ({"https_proxy": "http://{}"}, None, 405, None),
    ],
    ids=str,
)
def test_a_proxy(environment, proxy, status, expected, loopback, monkeypatch):
    """`test_environment.py` in tests/integration has the environments."""
    host = f"127.0.0.1:{loopback.port}"
    for name, value in environment.items():
        monkeypatch.setenv(name, value.replace("{}", host))
    loopback.responses.append(response(status))
    found = reason(SERVICE, proxy=proxy and proxy.format(host))
    assert found is expected or found.startswith(expected)
    assert len(loopback.requests) == (status is not None)
    for request in loopback.requests:
        assert request.startswith(b"CONNECT lender.invalid:443 HTTP/1.")
        has_user = b"proxy-authorization: basic dxnlcjptywrllxvw" in request.lower()
        assert has_user == (b"authorization" in request.lower()) == ("made-up@" in str(environment))
