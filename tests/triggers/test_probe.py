"""`triggers/probe.py`: one request per interval for all that wait, whichever of them join, leave or fail."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from airflow_provider_loanauth.triggers import probe
from airflow_provider_loanauth.triggers.loanauth import MIN_INTERVAL, READY, ServiceReadyTrigger
from tests.support.virtual_service import ADDRESS, Event, Sensor, Service, wait_for

PROXY = "http://proxy.invalid:3128"


def requests(*sensors, **service):
    """Return when requests were sent, if these triggers wait; they leave at 590 s."""
    service = Service(**service)
    wait_for(service, [Sensor(**{"leaves": 590} | sensor) for sensor in sensors])
    return service.times


@pytest.mark.parametrize("number", [1, 1000])
def test_one_request_per_interval_however_many_wait(number):
    assert requests(*[{}] * number) == [60, 120, 180, 240, 300, 360, 420, 480, 540]


def test_triggers_that_join_at_different_times_share_too():
    assert requests(*[{"joins": 10 * number} for number in range(50)]) == list(range(60, 600, 60))


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
    waiting = [loop.create_task(anext(ServiceReadyTrigger(ADDRESS).run())) for loop in loops]
    for loop in loops:
        loop.run_until_complete(asyncio.sleep(0))
    assert {key[0] for key in probe._PROBES} == {*loops}
    for loop, task in zip(loops, waiting, strict=True):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.close()
    assert probe._PROBES == {}


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
    assert {event.payload for event in events} == {READY}


def test_when_the_last_one_leaves_the_request_is_cancelled():
    service = Service(takes=10)
    wait_for(service, [Sensor(leaves=122), Sensor(leaves=125), Sensor(joins=130, leaves=192)])
    assert service.times == [60, 120, 190]
    assert service.cancelled == [125, 192]


def test_an_error_of_the_probe_reaches_every_trigger(monkeypatch):
    """Nobody waits for ever."""

    async def fail(*_):
        raise KeyError("made up")

    monkeypatch.setattr(probe, "why_unavailable", fail)

    async def main():
        triggers = [anext(ServiceReadyTrigger(ADDRESS, 0.1).run()) for _ in range(5)]
        return await asyncio.gather(*triggers, return_exceptions=True)

    assert [type(result) for result in asyncio.run(main())] == [KeyError] * 5
    assert probe._PROBES == {}


@pytest.mark.parametrize(
    ("sensors", "times"),
    [
        # A short interval does not wait for a long one.
        ([{"interval": 500}, {"interval": 200}], [200, 400]),
        ([{"interval": 500}, {"interval": 200, "joins": 50}], [250, 450]),
        # When it has gone, the long one applies again.
        ([{"interval": 250}, {"interval": 50, "leaves": 160}], [50, 100, 150, 400]),
        # A response to another's request is enough, so the interval counts from it.
        ([{"interval": 100}, {"interval": 70, "leaves": 75}], [70, 170, 270, 370, 470, 570]),
        # A trigger that joins waits for an interval of its own, if nobody needs an earlier request.
        ([{"interval": 100}, {"interval": 100, "joins": 150}], [100, 200, 300, 400, 500]),
        ([{"interval": 300}, {"interval": 100, "joins": 350}], [300, 450, 550]),
    ],
)
def test_the_next_request_comes_when_any_trigger_needs_it(sensors, times):
    assert requests(*sensors) == times


@pytest.mark.parametrize("interval", [0, -1, 0.000001])
def test_a_tiny_interval_is_raised_to_the_minimum(interval):
    assert requests({"interval": interval, "leaves": 0.26}) == pytest.approx([MIN_INTERVAL * n for n in range(1, 6)])


@pytest.mark.parametrize(("intervals", "expected"), [([60], 10), ([60, 4], 4)])
def test_a_request_takes_at_most_ten_seconds_and_one_interval(intervals, expected):
    service = Service(recovers=60)
    wait_for(service, [Sensor(interval=interval) for interval in intervals])
    assert {request.timeout for request in service.requests} == {expected}


def test_the_interval_includes_the_request():
    """A service that does not respond in time makes it no longer."""
    assert requests({"interval": 15}, takes=100)[:4] == [15, 30, 45, 60]
    assert requests({"interval": 5}, takes=100)[:4] == [5, 10, 15, 20]


def test_the_probe_does_not_run_in_the_context_of_the_trigger_that_starts_it(monkeypatch):
    """On 3.0 and later, Airflow adds the id of a trigger to log records by such a variable."""
    variable = contextvars.ContextVar("trigger_id", default=None)
    seen = []

    async def why_unavailable(*_):
        seen.append(variable.get())

    monkeypatch.setattr(probe, "why_unavailable", why_unavailable)

    async def main():
        variable.set("first")
        await anext(ServiceReadyTrigger(ADDRESS, 0.1).run())

    asyncio.run(main())
    assert seen == [None]
