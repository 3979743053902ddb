"""`triggers/loanauth.py`: who shares a request and when it is sent; which responses count, and that a request ends."""

from __future__ import annotations

import asyncio
import contextvars
import socket
import threading

import pytest

from airflow_provider_loanauth import __version__
from airflow_provider_loanauth.triggers import loanauth
from airflow_provider_loanauth.triggers.loanauth import MIN_INTERVAL, LoanAuthSensorTrigger
from tests.support.loopback import Loopback, endless
from tests.support.virtual_service import ADDRESS, Event, Sensor, Service, wait_for
from tests.support.waiting import is_reachable

PROXY = "http://proxy.invalid:3128"


def requests(*sensors, **service):
    """Return when requests were sent, if these triggers wait; they leave at 590 s."""
    service = Service(**service)
    wait_for(service, [Sensor(**{"leaves": 590} | sensor) for sensor in sensors])
    return service.times


@pytest.mark.parametrize("number", [1, 1000])
def test_one_request_per_interval_however_many_wait(number):
    assert requests(*[{}] * number) == [60, 120, 180, 240, 300, 360, 420, 480, 540]


@pytest.mark.parametrize("other", [{"address": f"{ADDRESS}/tenant1"}, {"proxy": PROXY}])
def test_addresses_and_proxies_do_not_share(other):
    service = Service(recovers=60)
    wait_for(service, [Sensor(), Sensor(**other), Sensor(**other)])
    assert {(request.address, request.proxy) for request in service.requests} == {
        (ADDRESS, None),
        (other.get("address", ADDRESS), other.get("proxy")),
    }
    assert len(service.requests) == 2


def test_two_event_loops_have_a_probe_each():
    loops = [asyncio.new_event_loop() for _ in range(2)]
    waiting = [loop.create_task(anext(LoanAuthSensorTrigger(ADDRESS).run())) for loop in loops]
    for loop in loops:
        loop.run_until_complete(asyncio.sleep(0))
    assert {key[0] for key in loanauth._PROBES} == {*loops}
    for loop, task in zip(loops, waiting, strict=True):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.close()
    assert loanauth._PROBES == {}


@pytest.mark.parametrize("which", [0, 2, 4])
@pytest.mark.parametrize("at", [30, 90, 125], ids=["before", "between", "during"])
def test_a_trigger_that_is_cancelled_does_not_affect_the_others(which, at):
    sensors = [Sensor()] * 5
    sensors[which] = Sensor(leaves=at)
    service = Service(recovers=180, takes=10)
    events = wait_for(service, sensors)
    assert service.times == [60, 120, 180]
    assert service.cancelled == []
    assert events.pop(which) == Event(None, at)
    assert {event.status for event in events} == {"ready"}


def test_when_the_last_one_leaves_the_request_is_cancelled():
    service = Service(takes=10)
    wait_for(service, [Sensor(leaves=122), Sensor(leaves=125), Sensor(joins=130, leaves=192)])
    assert service.times == [60, 120, 190]
    assert service.cancelled == [125, 192]


def test_an_error_of_the_probe_reaches_every_trigger(monkeypatch):
    """Nobody waits for ever."""

    async def fail(*_):
        raise KeyError("made up")

    monkeypatch.setattr(loanauth, "why_unavailable", fail)

    async def main():
        triggers = [anext(LoanAuthSensorTrigger(ADDRESS, poke_interval=0.1).run()) for _ in range(5)]
        return await asyncio.gather(*triggers, return_exceptions=True)

    assert [type(result) for result in asyncio.run(main())] == [KeyError] * 5
    assert loanauth._PROBES == {}


@pytest.mark.parametrize(
    ("sensors", "times"),
    [
        # Those with another interval have a probe of their own.
        ([{"interval": 500}, {"interval": 200, "joins": 50}], [250, 450, 500]),
        ([{"interval": 250}, {"interval": 50, "leaves": 160}], [50, 100, 150, 250, 500]),
        # A trigger that joins waits for an interval of its own, if nobody needs an earlier request.
        ([{"interval": 100}, {"interval": 100, "joins": 150}], [100, 200, 300, 400, 500]),
        ([{"interval": 300}, {"interval": 100, "joins": 350}], [300, 450, 550]),
    ],
)
def test_triggers_with_the_same_interval_share_a_request(sensors, times):
    assert requests(*sensors) == times


@pytest.mark.parametrize("interval", [0, -1, 0.000001])
def test_a_tiny_interval_is_raised_to_the_minimum(interval):
    assert requests({"interval": interval, "leaves": 0.26}) == pytest.approx([MIN_INTERVAL * n for n in range(1, 6)])


@pytest.mark.parametrize(("interval", "timeout"), [(15, 10), (10, 10), (5, 5)])
def test_a_request_takes_at_most_ten_seconds_and_one_interval(interval, timeout):
    """The interval includes the request: a service that does not respond in time makes it no longer."""
    service = Service(takes=100)
    wait_for(service, [Sensor(interval=interval, leaves=4.5 * interval)])
    assert service.times == [interval * number for number in range(1, 5)]
    assert {request.timeout for request in service.requests} == {timeout}


def test_a_blocked_event_loop_causes_no_burst():
    class Blocking(Service):
        async def why_unavailable(self, *arguments):
            if not self.requests:
                asyncio.get_running_loop().now += 500
            return await super().why_unavailable(*arguments)

    service = Blocking()
    wait_for(service, [Sensor(interval=100, leaves=850)])
    assert service.times == [600, 600, 700, 800]


def test_the_probe_does_not_run_in_the_context_of_the_trigger_that_starts_it(monkeypatch):
    """On 3.0 and later, Airflow adds the id of a trigger to log records by such a variable."""
    variable = contextvars.ContextVar("trigger_id", default=None)
    seen = []

    async def why_unavailable(*_):
        seen.append(variable.get())

    monkeypatch.setattr(loanauth, "why_unavailable", why_unavailable)

    async def main():
        variable.set("first")
        await anext(LoanAuthSensorTrigger(ADDRESS, poke_interval=0.1).run())

    asyncio.run(main())
    assert seen == [None]


# --- one request. Real sockets

TIMEOUT = 15.0
SHORT_TIMEOUT = 0.3
SERVICE = "https://lender.invalid"
NOT_REACHED = "The service could not be reached"
NOT_BY_PROXY = "The proxy could not be reached, or it blocked the request"


def reason(address, timeout=TIMEOUT, proxy=None):
    return asyncio.run(loanauth.why_unavailable(address, timeout, proxy, timeout))


def response(status, headers=b"", body=b""):
    head = f"HTTP/1.1 {status} made up\r\nContent-Length: {len(body)}\r\n".encode()
    return head + headers + b"Connection: close\r\n\r\n" + body


@pytest.mark.parametrize("status", [200, 302, 407, 408, 409, 428, 429, 430, 499, 500, 599])
def test_each_status_but_408_429_and_5xx_counts_as_reachable(status, loopback):
    loopback.responses.append(response(status, b"Location: /elsewhere\r\nRetry-After: 0\r\n"))
    is_unavailable = status in (408, 429, 500, 599)
    assert reason(loopback.url) == (f"status {status}" if is_unavailable else None)
    assert len(loopback.requests) == 1


@pytest.mark.parametrize("data", [None, b"\r\n", b"SSH-2.0-made-up\r\n", b"HTTP/1.1 abc\r\n\r\n"])
def test_a_response_that_is_broken_counts_as_unavailable(data, loopback):
    loopback.responses.append(data)
    assert is_reachable(loopback.url, TIMEOUT) is False


def test_no_response_is_unavailable():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert reason(f"http://127.0.0.1:{bound.getsockname()[1]}").startswith(NOT_REACHED)
    assert reason(SERVICE).startswith(NOT_REACHED)


def test_the_request_contains_nothing_but_the_address(loopback, monkeypatch, tmp_path):
    netrc = tmp_path / "netrc"
    netrc.write_text("default login made-up-user password made-up-netrc-password\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    loopback.responses.append(response(200))
    assert is_reachable(f"{loopback.url}/a b/\N{LATIN SMALL LETTER U WITH DIAERESIS}/c%2Fd", TIMEOUT) is True
    line, *lines = loopback.requests[0].decode().split("\r\n")
    # As for a login, it is percent-encoded.
    assert line == "GET /a%20b/%C3%BC/c%2Fd HTTP/1.1"
    headers = dict(line.lower().split(": ", 1) for line in lines if line)
    assert set(headers) == {"host", "user-agent", "connection", "accept", "accept-encoding"}
    assert headers["host"] == f"127.0.0.1:{loopback.port}"
    assert headers["user-agent"] == f"airflow-provider-loanauth/{__version__}"


def test_certificates_are_not_checked(tls_sandbox):
    """Nothing secret is sent. The issuer of this one is not trusted either."""
    tls_sandbox.set_fault("certificate", name="wrong-name")
    assert is_reachable(tls_sandbox.url, TIMEOUT) is True
    assert tls_sandbox.counters().probe == 1


#: A TLS 1.2 record with a HelloRequest, which a client ignores during a handshake (RFC 5246 §7.4.1.1).
HELLO_REQUEST = b"\x16\x03\x03\x00\x04\x00\x00\x00\x00"


@pytest.mark.parametrize(
    ("peer", "start", "repeated", "pause"),
    [
        pytest.param("http", b"HTTP/1.1 200 made up\r\nX: ", b"y", 0.02, id="a slow header"),
        pytest.param("http", b"HTTP/1.1 200 made up\r\n", b"X: y\r\n", 0, id="fast headers"),
        pytest.param("proxy", b"HTTP/1.1 200 made up\r\nX: ", b"y", 0.02, id="a slow header of a tunnel"),
        pytest.param("https", b"", HELLO_REQUEST, 0.02, id="messages of a handshake"),
        pytest.param("https", b"", b"", 0.02, id="silence during a handshake"),
    ],
)
def test_what_never_becomes_a_response_counts_as_unavailable(peer, start, repeated, pause):
    with Loopback(endless(start, repeated, pause)) as server:
        if peer == "proxy":
            assert is_reachable(SERVICE, SHORT_TIMEOUT, server.url) is False
        else:
            assert is_reachable(f"{peer}://127.0.0.1:{server.port}", SHORT_TIMEOUT) is False


def test_an_endless_body_does_not_matter(loopback):
    loopback.responses.append(
        endless(b"HTTP/1.1 200 made up\r\nTransfer-Encoding: chunked\r\n\r\n", b"4\r\nyyyy\r\n", 0)
    )
    assert is_reachable(loopback.url, TIMEOUT) is True


def test_a_resolver_that_hangs_starves_nobody(monkeypatch):
    """Nothing interrupts a lookup: one for an address, in a thread that no other trigger needs, on all event loops."""
    ended, hosts = threading.Event(), []

    def hang(host, *_, **__):
        hosts.append(host)
        ended.wait(60)
        raise socket.gaierror("made up")

    async def others():
        return await asyncio.gather(*(asyncio.to_thread(lambda: "runs") for _ in range(50)))

    async def main():
        for _ in range(20):
            assert await loanauth.why_unavailable(SERVICE, 0.01, None, 60) == "no response within 0.01 s"
        assert await loanauth.why_unavailable("https://other.invalid", 0.01, None, 60)
        assert await loanauth.why_unavailable(SERVICE, 0.01, "http://proxy.invalid:3128", 60)
        assert await loanauth.why_unavailable(SERVICE, 0.01, None, 30)
        assert await asyncio.wait_for(others(), TIMEOUT) == ["runs"] * 50

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        asyncio.run(main())
        asyncio.run(main())
        assert sorted(hosts) == ["lender.invalid", "lender.invalid", "other.invalid", "proxy.invalid"]
    finally:
        ended.set()
    for thread in threading.enumerate():
        if thread.name.startswith("probe of "):
            thread.join(TIMEOUT)
    # It continues when they have ended.
    assert reason(SERVICE).startswith(NOT_REACHED)


def test_the_proxy_of_the_environment_is_used(loopback, monkeypatch):
    """A scheme's own proxy has precedence over ``ALL_PROXY``; a scheme and user information are optional."""
    loopback.responses += [response(403), response(403)]
    monkeypatch.setenv("all_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("https_proxy", loopback.url.removeprefix("http://"))
    assert reason(SERVICE).startswith(NOT_BY_PROXY)
    monkeypatch.delenv("https_proxy")
    monkeypatch.setenv("all_proxy", loopback.url.replace("//", "//user:made-up@"))
    assert reason(SERVICE).startswith(NOT_BY_PROXY)
    assert all(request.startswith(b"CONNECT lender.invalid:443 HTTP/1.") for request in loopback.requests)
    without_user, with_user = loopback.requests
    assert b"authorization" not in without_user.lower()
    assert b"proxy-authorization: basic dxnlcjptywrllxvw" in with_user.lower()


@pytest.mark.parametrize("no_proxy", ["*", "lender.invalid", None])
def test_a_proxy_of_a_connection_has_precedence_over_the_environment(no_proxy, loopback, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://user:made-up-password@127.0.0.1:1")
    if no_proxy:
        monkeypatch.setenv("no_proxy", no_proxy)
        # Without one, there is no proxy at all; this name does not exist.
        assert reason(SERVICE).startswith(NOT_REACHED)
    loopback.responses.append(response(502))
    assert reason(SERVICE, proxy=loopback.url).startswith(NOT_BY_PROXY)
    assert loopback.requests[0].startswith(b"CONNECT lender.invalid:443 HTTP/1.")
    assert b"authorization" not in loopback.requests[0].lower()


def test_plain_http_bypasses_the_proxies_of_the_environment_as_a_login_does(loopback, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("all_proxy", "socks5h://127.0.0.1:1")
    loopback.responses.append(response(503))
    assert is_reachable(loopback.url, TIMEOUT) is False
    assert loopback.requests[0].startswith(b"GET / HTTP/1.1\r\n")


@pytest.mark.parametrize("where", ["argument", "environment"])
@pytest.mark.parametrize("proxy", ["socks5h", "SOCKS5", "https", "a proxy that requires authentication"])
def test_a_proxy_that_the_probe_cannot_use_counts_as_a_response(proxy, where, loopback, monkeypatch):
    """The worker that pokes then may be able to use it: it has the user and the password of the Connection."""
    loopback.responses.append(response(407))
    scheme = "http" if " " in proxy else proxy
    url = f"{scheme}://127.0.0.1:{loopback.port}"
    if where == "environment":
        monkeypatch.setenv("https_proxy", url)
    assert is_reachable(SERVICE, TIMEOUT, url if where == "argument" else None) is True
    assert len(loopback.requests) == (scheme == "http")


def test_networks_in_no_proxy_are_those_of_a_login(monkeypatch):
    """``requests`` knows networks; the functions of the standard library know only names."""
    monkeypatch.setenv("https_proxy", "socks5://127.0.0.1:1")
    assert reason("https://127.0.0.1:1") is None
    monkeypatch.setenv("no_proxy", "127.0.0.0/8")
    assert reason("https://127.0.0.1:1").startswith(NOT_REACHED)


@pytest.mark.parametrize("proxy", ["http://[::1", "http://127.0.0.1:99999", "::::"])
def test_an_address_that_is_none_is_left_to_the_login(proxy, monkeypatch):
    """Its error says what to correct: the field of the Connection, or the proxy of the environment."""
    assert is_reachable(f"https://{'x' * 80}.invalid", TIMEOUT) is True
    assert is_reachable("https://other.invalid:99999", TIMEOUT) is True
    monkeypatch.setenv("https_proxy", proxy)
    assert is_reachable(SERVICE, TIMEOUT) is True
