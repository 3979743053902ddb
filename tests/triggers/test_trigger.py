"""`triggers/loanauth.py`: arguments, the event and when it is sent, the deadline, the log."""

from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_loanauth.triggers import loanauth
from airflow_provider_loanauth.triggers.loanauth import LoanAuthSensorTrigger
from tests.support.virtual_service import Event, Sensor, Service, wait_for

ADDRESS = "https://lender.example/tenant1"
ROUNDING = 1e-6


def recover(sensors, *, recovers=0.0, seed=0):
    service = Service(recovers=recovers)
    return wait_for(service, sensors, seed=seed), service.times


@pytest.mark.parametrize("parameter", ["address", "proxy"])
@pytest.mark.parametrize(
    "url", ["https://user:made-up@lender.example", "https://@lender.example", "", "ftp://a.example"]
)
def test_an_invalid_url_or_one_with_user_information_is_rejected(url, parameter):
    message = f"^The {parameter} of a trigger must be an http or https address without user information.$"
    with pytest.raises(ValueError, match=message):
        LoanAuthSensorTrigger(**{"address": ADDRESS, parameter: url})


def test_it_ends_at_once_when_the_deadline_has_passed():
    events, requests = recover([Sensor(time_left=-3600)])
    assert (events, requests) == ([Event("timeout", 0)], [])


SENSORS = st.builds(
    Sensor, joins=st.floats(0, 300), interval=st.floats(0.1, 600), time_left=st.just(math.inf) | st.floats(0, 600)
)


@given(sensors=st.lists(SENSORS, min_size=1, max_size=40), recovers=st.floats(0, 600), seed=st.integers())
def test_no_trigger_is_late(sensors, recovers, seed):
    """Within two intervals of its own, and before its deadline; ready if there is a response before the deadline."""
    events, _ = recover(sensors, recovers=recovers, seed=seed)
    for sensor, event in zip(sensors, events, strict=True):
        began = max(sensor.joins, recovers)
        assert event.at <= min(began + 2 * sensor.interval, sensor.deadline) + ROUNDING
        if event.status == "timeout":
            assert event.at == pytest.approx(sensor.deadline, abs=ROUNDING)
            assert began + sensor.interval >= sensor.deadline - ROUNDING
        else:
            assert event.status == "ready"
            assert event.at >= min(sensor.joins + sensor.interval, sensor.deadline) - ROUNDING


@pytest.mark.parametrize(
    ("number", "interval", "seconds"), [(1, 60, 0), (2, 60, 0.05), (1000, 60, 50), (2000, 60, 60), (1000, 5, 5)]
)
def test_the_spread_grows_with_the_number_of_triggers_up_to_one_interval(number, interval, seconds):
    events, (request,) = recover([Sensor(interval=interval)] * number)
    delays = [event.at - request for event in events]
    assert 0 <= min(delays) <= max(delays) <= seconds
    assert (max(delays) > 0) == (number > 1)
    # Evenly over all of it, and in random order.
    assert number < 100 or all(sum(delay * 4 // seconds == part for delay in delays) > number / 6 for part in range(4))
    assert delays != sorted(delays) or number <= 2


def test_the_spread_ends_at_the_deadline():
    events, _ = recover([Sensor(time_left=70)] * 1000)
    assert 69 < max(event.at for event in events) <= 70 + ROUNDING


def test_a_trigger_that_joins_waits_for_an_interval_of_its_own():
    """Its sensor has just poked, and the request of another one responds."""
    (_, joined), requests = recover([Sensor(), Sensor(joins=50)])
    assert requests == [60]
    assert 110 <= joined.at < 111


def test_without_a_response_a_sensor_tries_to_log_in_once_an_hour():
    """The address may respond with 5xx to each request without credentials, or the triggerer may have no network."""
    sensors = [*[Sensor(time_left=7 * 86_400)] * 100, *[Sensor(interval=7200)] * 20, Sensor(time_left=1700)]
    *events, last = recover(sensors, recovers=math.inf)[0]
    assert {event.status for event in events} == {"ready"}
    times = [event.at for event in events[:100]]
    assert 1800 <= min(times) < 2000
    assert 3400 < max(times) <= 3600
    times = [event.at for event in events[100:]]
    assert 2 * 7200 <= min(times) < max(times) <= 4 * 7200
    assert last == Event("timeout", 1700)


def test_it_logs_why_it_waits_and_says_it_once(logs):
    wait_for(Service(recovers=60), [Sensor(interval=10)])
    lines = [text for text in logs.at("info") if text.startswith("Still waiting for ")]
    assert lines == ["Still waiting for http://lender.invalid: made up."]


@pytest.mark.parametrize("steps", range(6))
def test_a_trigger_that_is_cancelled_at_the_moment_of_a_response_ends(steps, monkeypatch):
    """Before Python 3.12, ``asyncio.wait_for`` would lose the cancellation. Another trigger still gets the response."""

    async def main():
        asked, responded = asyncio.Event(), asyncio.Event()

        async def respond(*_, **__):
            asked.set()
            await responded.wait()
            return "made-up outage"

        monkeypatch.setattr(loanauth, "run_in_thread", respond)
        running, other = (
            asyncio.create_task(anext(LoanAuthSensorTrigger(ADDRESS, poke_interval=0.2).run())) for _ in range(2)
        )
        await asyncio.wait_for(asked.wait(), 15)
        responded.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        ended, _ = await asyncio.wait([running, other], timeout=0.1)
        assert ended == {running}

    asyncio.run(main())
