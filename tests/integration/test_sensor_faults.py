"""Each outcome of `fault_table.py`, over real sockets: by the sensor, also when it is deferred."""

from __future__ import annotations

import math
import time

import pytest

from tests.support.airflow_names import AirflowFailException, TaskDeferred
from tests.support.fault_scenarios import MAX_WAIT, each
from tests.support.fault_table import FAILS_AT_ONCE, OUTCOMES, POKES_AGAIN, SUCCEEDS, WAITS
from tests.support.processes import start_new_process
from tests.support.waiting import fire, stored

INTERVAL = 0.06  # seconds between two probes
SHORT_WAIT = 3.5 * INTERVAL
WAITING = [row for row in OUTCOMES if row.sensor in (WAITS, POKES_AGAIN)]


@each([row for row in OUTCOMES if row not in WAITING])
def test_sensor_that_does_not_wait(scenario):
    if scenario.row.sensor == SUCCEEDS:
        scenario.check_credential(scenario.sensor().execute({}))
    else:
        error = scenario.failure(lambda: scenario.sensor().execute({}))
        assert isinstance(error, AirflowFailException) == (scenario.row.sensor == FAILS_AT_ONCE)
    scenario.check_requests(1)


@each(WAITING)
def test_sensor_that_pokes(scenario, monkeypatch, logs, memory_clock):
    slept = []
    # A poke sends nothing while the service asks to wait.
    pokes_per_request = math.ceil(scenario.row.params.get("retry_after", 0) / 30) or 1

    def sleep(seconds):
        slept.append(seconds)
        memory_clock.pass_time(seconds)
        scenario.check_requests(math.ceil(len(slept) / pokes_per_request))
        if len(slept) == 2:
            scenario.sandbox.clear_faults()

    monkeypatch.setattr(time, "sleep", sleep)
    scenario.check_credential(scenario.sensor().execute({}))
    assert slept == [30] * max(2, pokes_per_request)
    assert logs.text.count("The service is not available yet: ") == len(slept)
    assert scenario.row.message.partition("Gave up after")[0] in logs.text
    assert scenario.waits == []


@each(WAITING)
def test_sensor_that_is_deferred(scenario, logs):
    def poke(deferred=None, event=None):
        """Poke as a worker does, with nothing but the values that Airflow stored."""
        start_new_process()
        sensor = scenario.sensor(deferrable=True, poke_interval=INTERVAL)
        if deferred is None:
            return sensor.execute({})
        return sensor.resume_execution(deferred.method_name, stored(deferred, event.payload), {})

    with pytest.raises(TaskDeferred) as first:
        poke()
    deferred = first.value
    scenario.check_requests(1)
    # During the fault, the trigger sends no event, or one after an interval, and the next poke defers again.
    event = fire(deferred.trigger, MAX_WAIT if scenario.row.sensor == POKES_AGAIN else SHORT_WAIT)
    assert (event is not None) == (scenario.row.sensor == POKES_AGAIN)
    if event is not None:
        with pytest.raises(TaskDeferred) as again:
            poke(deferred, event)
        deferred = again.value
        scenario.check_requests(2)
    requests_before = scenario.requests()
    scenario.sandbox.clear_faults()
    event = fire(deferred.trigger, MAX_WAIT)
    assert event.payload == {"status": "ready"}
    scenario.check_credential(poke(deferred, event))
    if scenario.row.received:
        assert scenario.requests() == requests_before + 1
    assert {entry.endpoint for entry in scenario.sandbox.requests()} <= {"token", "secret", "probe"}
    assert logs.text.count("The service is not available yet: ") == (2 if scenario.row.sensor == POKES_AGAIN else 1)
