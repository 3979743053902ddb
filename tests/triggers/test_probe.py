"""`triggers/loanauth.py`: who shares a request and when it is sent; which responses count, and that a request ends."""

from __future__ import annotations

import asyncio
import contextvars
from unittest import mock

import pytest

from airflow_provider_loanauth.triggers import loanauth
from airflow_provider_loanauth.triggers.loanauth import LoanAuthSensorTrigger
from loanauth_sandbox.faults import load_faults
from loanauth_sandbox.server import running_sandbox
from tests.support.virtual_service import ADDRESS, Event, Sensor, Service, wait_for
from tests.support.wire_cases import split_message

EACH_MINUTE = range(60, 600, 60)


@pytest.mark.parametrize(
    ("sensors", "takes", "times"),
    [
        pytest.param([{}] * 1000, 0, EACH_MINUTE, id="many share a request"),
        pytest.param([{"joins": 10 * number} for number in range(50)], 0, EACH_MINUTE, id="also those that join later"),
        # Those with another interval have a probe of their own.
        pytest.param([{"interval": 500}, {"interval": 200, "joins": 50}], 0, [250, 450, 500], id="two intervals"),
        pytest.param([{"interval": -1, "leaves": 0.16}], 0, [0.05, 0.1, 0.15], id="negative interval"),
        pytest.param([{"interval": 15, "leaves": 70}], 100, [15, 40, 65], id="an interval after a slow request"),
    ],
)
def test_when_requests_are_sent(sensors, takes, times):
    service = Service(takes=takes)
    wait_for(service, [Sensor(**{"leaves": 590} | sensor) for sensor in sensors])
    assert service.times == pytest.approx([*times])


@pytest.mark.parametrize(("interval", "timeout"), [(60, 10), (4, 4)])
def test_a_request_takes_at_most_ten_seconds_or_one_interval(interval, timeout):
    service = Service(recovers=60)
    wait_for(service, [Sensor(interval=interval)])
    assert {request.timeout for request in service.requests} == {timeout}


def test_addresses_and_proxies_do_not_share():
    service = Service(recovers=60)
    users = [(ADDRESS, None), (f"{ADDRESS}/tenant1", None), (ADDRESS, "http://proxy.invalid:3128")]
    wait_for(service, [Sensor(address=address, proxy=proxy) for address, proxy in users * 2])
    assert sorted(((one.address, one.proxy) for one in service.requests), key=str) == sorted(users, key=str)


@pytest.mark.parametrize(("which", "at"), [(0, 30), (2, 90), (4, 125)])
def test_a_trigger_that_is_cancelled_does_not_affect_the_others(which, at):
    sensors = [Sensor()] * 5
    sensors[which] = Sensor(leaves=at)
    service = Service(recovers=180, takes=5)
    events = wait_for(service, sensors)
    assert service.times == [60, 125, 190]
    assert events.pop(which) == Event(None, at)
    assert {event.status for event in events} == {"ready"}


def test_an_error_of_the_probe_reaches_every_trigger(monkeypatch):
    """Nobody waits for ever. The probe does not run in the context of a trigger, by which Airflow 3 labels its log."""
    variable = contextvars.ContextVar("trigger_id", default=None)

    async def fail(*_, **__):
        raise KeyError(variable.get())

    monkeypatch.setattr(loanauth, "run_in_thread", fail)

    async def main():
        variable.set("first")
        triggers = [anext(LoanAuthSensorTrigger(ADDRESS, poke_interval=0.1).run()) for _ in range(5)]
        return await asyncio.gather(*triggers, return_exceptions=True)

    assert [repr(result) for result in asyncio.run(main())] == ["KeyError(None)"] * 5


def test_a_thread_that_cannot_be_started_ends_no_wait(logs, monkeypatch):
    outcomes = [RuntimeError("can't start new thread"), None]
    monkeypatch.setattr(loanauth, "run_in_thread", mock.AsyncMock(side_effect=outcomes))
    trigger = LoanAuthSensorTrigger(ADDRESS, poke_interval=0.1)
    assert asyncio.run(anext(trigger.run())).payload == {"status": "ready"}
    assert "no request could be sent (RuntimeError)" in logs.text


TIMEOUT = 15.0
SERVICE = "https://lender.invalid"
NOT_BY_PROXY = "The proxy could not be reached, or it blocked the request"


def reason(address, proxy=None):
    return loanauth.why_unavailable(address, TIMEOUT, proxy)


def response(status):
    return f"HTTP/1.1 {status} made up\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("status", "expected"),
    [(302, None), (407, None), (408, "status 408"), (429, "status 429"), (499, None), (500, "status 500")],
)
def test_each_status_but_408_429_and_5xx_counts_as_reachable(status, expected, loopback):
    loopback.responses.append(response(status))
    assert reason(loopback.url) == expected
    assert len(loopback.requests) == 1
    # There is no second response.
    assert reason(loopback.url) is not None


@pytest.mark.parametrize("environment", ["", "socks5://127.0.0.1:1"])
def test_an_invalid_address_is_left_to_the_login(environment, monkeypatch):
    """Its error names the field of the Connection."""
    monkeypatch.setenv("https_proxy", environment)
    assert reason(f"{SERVICE}:99999") is None


def test_https_where_the_port_expects_http_is_left_to_the_login():
    with running_sandbox() as service:
        assert reason(f"https:{service.url.partition(':')[2]}") is None


def test_the_request_contains_nothing_but_the_address(loopback):
    loopback.responses.append(response(200))
    assert reason(f"{loopback.url}/a b/ü/c%2Fd") is None
    line, headers, _ = split_message(loopback.requests[0])
    assert line == b"GET /a%20b/%C3%BC/c%2Fd HTTP/1.1"
    expected = b"accept accept-encoding cache-control connection host user-agent"
    assert [name for name, _ in headers] == expected.split()


def test_certificates_are_not_checked():
    with running_sandbox(tls=True, faults=load_faults({"kind": "certificate"})) as service:
        assert reason(service.url) is None
        assert service.counters().probe == 1


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
        assert (b"authorization" in request.lower()) == ("made-up@" in str(environment))
