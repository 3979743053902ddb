"""
`triggers/probe.py` and `triggers/loanauth.py`: after a response, the triggers of a probe send their events one after
the other.

The triggers run on an event loop with virtual time, so a test of minutes takes no time and gives the same result on any
machine. Times are seconds of that loop. Random numbers are seeded.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from airflow_provider_loanauth.triggers import loanauth, probe
from airflow_provider_loanauth.triggers.loanauth import READY, ServiceReadyTrigger
from tests.support import virtual_time

ADDRESS = "http://lender.invalid"
#: The system time when the loop starts.
EPOCH = 1_790_000_000.0
#: Rounding errors of the system time, in seconds.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Sensor:
    """A trigger: when it starts, its interval, and how many seconds it may take."""

    joins: float = 0.0
    interval: float = 60.0
    time_left: float | None = None
    max_interval: float | None = None

    @property
    def deadline(self):
        return math.inf if self.time_left is None else self.joins + self.time_left


@dataclass(frozen=True)
class Event:
    """What a trigger has sent, and when; a cancelled trigger sends nothing."""

    payload: str | None
    at: float


class Service:
    """An unavailable service that recovers."""

    def __init__(self, recovers):
        self.recovers = recovers
        self.requests = []

    async def request(self, function, **_):
        """Replace `run_in_thread`: a request takes no time."""
        return function()

    def is_reachable(self, *_):
        now = asyncio.get_running_loop().time()
        self.requests.append(now)
        return now >= self.recovers


def recover(sensors, *, recovers=0.0, seed=0, act=None):
    """
    Run triggers until each has ended; return their events and the times of the requests.

    :param recovers: when the service becomes available
    :param act: called with the tasks of the triggers, it does something while they wait
    """
    service = Service(recovers)

    async def run_trigger(sensor):
        loop = asyncio.get_running_loop()
        await asyncio.sleep(sensor.joins)
        deadline = None if sensor.time_left is None else EPOCH + sensor.deadline
        trigger = ServiceReadyTrigger(ADDRESS, sensor.interval, deadline=deadline, max_interval=sensor.max_interval)
        try:
            events = [(event.payload, loop.time()) async for event in trigger.run()]
        except asyncio.CancelledError:
            events = [(None, loop.time())]
        return Event(*events[0])

    async def main():
        tasks = [asyncio.ensure_future(run_trigger(sensor)) for sensor in sensors]
        if act is not None:
            await act(tasks)
        events = await asyncio.gather(*tasks)
        # On this loop, time passes only when no task has anything left to do.
        await asyncio.sleep(1)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return events

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "random", random.Random(seed))
        patch.setattr(probe, "run_in_thread", service.request)
        patch.setattr(probe, "is_reachable", service.is_reachable)
        patch.setattr(loanauth, "time", SimpleNamespace(time=lambda: EPOCH + asyncio.get_running_loop().time()))
        events = virtual_time.run(main())
    return events, service.requests


def max_per_second(events):
    """Return the highest number of events within any one second."""
    times, first, highest = sorted(event.at for event in events), 0, 0
    for number, at in enumerate(times, 1):
        while times[first] <= at - 1:
            first += 1
        highest = max(highest, number - first)
    return highest


SECONDS = st.floats(0.1, 600)
SENSORS = st.builds(
    Sensor,
    joins=st.floats(0, 300),
    interval=SECONDS,
    time_left=st.none() | st.floats(0, 600),
)


@given(sensor=SENSORS, seed=st.integers())
def test_a_single_trigger_is_released_at_once(sensor, seed):
    """The service is available at the first request, which is sent after one interval."""
    first_request = sensor.joins + sensor.interval
    assume(abs(sensor.deadline - first_request) > ROUNDING)
    (event,), requests = recover([sensor], seed=seed)
    if sensor.deadline < first_request:
        assert (event.payload, requests) == (loanauth.TIMEOUT, [])
    else:
        assert (event.payload, requests) == (READY, [event.at])
        assert event.at == pytest.approx(first_request)


@given(sensors=st.lists(SENSORS, min_size=1, max_size=40), recovers=st.floats(0, 600), seed=st.integers())
def test_no_trigger_is_late(sensors, recovers, seed):
    """
    Whatever the others are: within two intervals of its own, the first of them until the response, and before its
    deadline.
    """
    events, _ = recover(sensors, recovers=recovers, seed=seed)
    for sensor, event in zip(sensors, events, strict=True):
        began = max(sensor.joins, recovers)
        assert event.at <= min(began + 2 * sensor.interval, sensor.deadline) + ROUNDING
        if event.payload == READY:
            assert event.at >= max(recovers, sensor.joins + sensor.interval) - ROUNDING
        else:
            assert event.payload == loanauth.TIMEOUT
            assert event.at == pytest.approx(sensor.deadline, abs=ROUNDING)


@given(sensors=st.lists(SENSORS, min_size=1, max_size=40), recovers=st.floats(0, 600), seed=st.integers())
def test_no_trigger_misses_its_deadline_while_it_waits_for_its_turn(sensors, recovers, seed):
    """A response before the deadline makes the event ``ready``, however little time is left for the turn."""
    events, _ = recover(sensors, recovers=recovers, seed=seed)
    for sensor, event in zip(sensors, events, strict=True):
        if max(sensor.joins, recovers) + sensor.interval < sensor.deadline - ROUNDING:
            assert event.payload == READY


@settings(max_examples=10, phases=[Phase.generate])
@given(seed=st.integers(), joins=st.sampled_from([0.0, 60.0]), recovers=st.floats(0, 300))
def test_a_thousand_triggers_do_not_log_in_at_the_same_moment(seed, joins, recovers):
    """Also if they joined during one interval, and the service recovers before the last one has joined."""
    seeded = random.Random(seed)
    sensors = [Sensor(joins=seeded.uniform(0, joins)) for _ in range(1000)]
    events, _ = recover(sensors, recovers=recovers, seed=seed)
    assert {event.payload for event in events} == {READY}
    assert max_per_second(events) < 50
    began = [max(sensor.joins, recovers) for sensor in sensors]
    assert all(event.at <= start + 2 * 60 for event, start in zip(events, began, strict=True))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("number", [2, 20, 100, 1000])
def test_the_spread_grows_with_the_number_of_triggers(number, seed):
    events, (at,) = recover([Sensor()] * number, seed=seed)
    delays = [event.at - at for event in events]
    assert min(delays) == 0
    assert max(delays) == pytest.approx((number - 1) / 20)
    # One more if rounding moves the last one into the second.
    assert max_per_second(events) <= 21


def test_thousands_of_triggers_share_one_interval():
    """They cannot all have a turn of their own: the limit is the interval, and they are still spread over all of it."""
    events, (at,) = recover([Sensor(interval=5)] * 2000)
    delays = sorted(event.at - at for event in events)
    assert 0.99 * 5 < delays[-1] < 5
    assert max_per_second(events) <= 2000 / 5 + 1


@pytest.mark.parametrize("seed", range(5))
def test_a_deadline_comes_before_a_turn(seed):
    """After the response at 60 s, these triggers have 5 s, 1 s or 1 ms left; without deadlines, a turn takes 50 s."""
    sensors = [Sensor(time_left=60 + left) for left in (5, 1, 0.001) for _ in range(300)] + [Sensor()] * 100
    events, _ = recover(sensors, seed=seed)
    assert {event.payload for event in events} == {READY}
    assert all(event.at < sensor.deadline for sensor, event in zip(sensors, events, strict=True))
    assert max(event.at for event in events[:300]) > 60 + 0.9 * 5
    assert max(event.at for event in events[900:]) > 60 + 0.9 * 50


def test_a_deadline_comes_before_a_turn_of_a_trigger_that_joined_later():
    """Its interval is over long after the response, so less time is left for its turn."""
    sensors = [Sensor(interval=10)] + [Sensor(interval=60, time_left=61)] * 100
    events, requests = recover(sensors)
    assert requests == [10]
    assert {event.payload for event in events} == {READY}
    assert all(60 <= event.at < 61 for event in events[1:])


def test_each_trigger_has_its_own_interval():
    """Triggers with a short interval are not late, and do not make the others earlier."""
    short, long = [Sensor(interval=5)] * 100, [Sensor(interval=60)] * 900
    events, requests = recover(short + long, recovers=100)
    delays = [event.at - requests[-1] for event in events]
    assert 4 < max(delays[:100]) < 5
    assert 45 < max(delays[100:]) < 50
    assert max_per_second(events) < 50


def test_the_spread_does_not_grow_with_the_back_off():
    """The interval is ten minutes when the service recovers, but a turn comes within the first interval."""
    events, requests = recover([Sensor(interval=5, max_interval=600)] * 1000, recovers=1000)
    delays = [event.at - requests[-1] for event in events]
    assert requests[-1] - requests[-2] == 600
    assert 4 < max(delays) < 5


def test_the_order_is_random():
    sensors = [Sensor()] * 100
    orders = []
    for seed in (1, 2, 1):
        events, _ = recover(sensors, seed=seed)
        orders.append(sorted(range(100), key=lambda number, events=events: events[number].at))
    first, other, again = orders
    assert first == again
    assert first != other
    assert sorted(first) == list(range(100)) not in orders


def test_waiting_for_a_turn_sends_no_request():
    _, requests = recover([Sensor(interval=10)] * 1000, recovers=25)
    assert requests == [10, 20, 30]


def test_a_trigger_that_joins_during_the_turns_of_others_waits_one_interval():
    """It was unavailable for this one a moment ago, so this one has another probe."""
    late = Sensor(joins=70, interval=10)
    events, requests = recover([Sensor()] * 1000 + [late])
    assert requests == [60, 80]
    assert events[-1] == Event(READY, 80)


def test_a_trigger_is_cancelled_while_it_waits_for_its_turn():
    """It ends at once and sends nothing. The others do not notice. After a restart, it sends its event."""
    cancelled = []

    async def cancel(tasks):
        await asyncio.sleep(80)
        cancelled.extend(number for number, task in enumerate(tasks) if not task.done())
        del cancelled[10:]
        for number in cancelled:
            tasks[number].cancel()

    restarted = [Sensor(joins=90)] * 10
    events, requests = recover([Sensor()] * 1000 + restarted, act=cancel)
    undisturbed, _ = recover([Sensor()] * 1000)
    assert requests == [60, 150]
    for number, event in enumerate(events[:1000]):
        assert event == (Event(None, 80) if number in cancelled else undisturbed[number])
    assert {event.payload for event in events[1000:]} == {READY}
    assert max(event.at for event in events[1000:]) < 150 + 10 / 20


def test_all_triggers_are_cancelled_while_they_wait_for_their_turn():
    async def cancel(tasks):
        await asyncio.sleep(61.01)
        for task in tasks:
            task.cancel()

    events, requests = recover([Sensor()] * 100, act=cancel)
    assert Counter(event.payload for event in events) == {READY: 21, None: 79}
    assert max(event.at for event in events) == 61.01
    assert requests == [60]
