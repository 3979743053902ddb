"""Each outcome of `fault_table.py`, over real sockets: by the sensor in its three modes."""

from __future__ import annotations

import math
import time

import pytest

from airflow_provider_loanauth._compat import AirflowFailException
from tests.support.airflow_names import AirflowRescheduleException, TaskDeferred
from tests.support.fault_scenarios import MAX_WAIT, each
from tests.support.fault_table import FAILS, FAILS_AT_ONCE, OUTCOMES, POKES_AGAIN, SUCCEEDS
from tests.support.processes import start_new_process
from tests.support.waiting import context_of_a_task, fire, stored

INTERVAL = 0.06  # seconds between two probes
SHORT_WAIT = 3.5 * INTERVAL


def ends_at_first_poke(scenario, sensor, context):
    """Return whether the sensor does not wait for this fault; check its result if so."""
    row = scenario.row
    if row.sensor == SUCCEEDS:
        scenario.check_credential(sensor.execute(context))
    elif row.sensor in (FAILS, FAILS_AT_ONCE):
        error = scenario.failure(lambda: sensor.execute(context))
        assert isinstance(error, AirflowFailException) == (row.sensor == FAILS_AT_ONCE)
    else:
        return False
    scenario.check_requests(1)
    return True


@each(OUTCOMES)
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
    sensor = scenario.sensor()
    if ends_at_first_poke(scenario, sensor, {}):
        assert slept == []
        return
    scenario.check_credential(sensor.execute({}))
    assert slept == [30] * max(2, pokes_per_request)
    assert logs.text.count("The service is not available yet: ") == len(slept)
    assert scenario.row.message.partition("Gave up after")[0] in logs.text
    assert scenario.waits == []


@each(OUTCOMES)
def test_sensor_that_is_rescheduled(scenario, monkeypatch):
    context = context_of_a_task(monkeypatch)
    if ends_at_first_poke(scenario, scenario.sensor(mode="reschedule"), context):
        return
    for poke in (1, 2):
        start_new_process()
        with pytest.raises(AirflowRescheduleException) as raised:
            scenario.sensor(mode="reschedule").execute(context)
        assert 25 < raised.value.reschedule_date.timestamp() - time.time() <= 30
        scenario.check_requests(poke)
    scenario.sandbox.clear_faults()
    start_new_process()
    scenario.check_credential(scenario.sensor(mode="reschedule").execute(context))


@each(OUTCOMES)
def test_sensor_that_is_deferred(scenario, logs):
    sensor = scenario.sensor(deferrable=True, poke_interval=INTERVAL)
    if ends_at_first_poke(scenario, sensor, {}):
        assert scenario.sandbox.counters().probe <= 1
        return

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
    assert event.payload == "ready"
    scenario.check_credential(poke(deferred, event))
    if scenario.row.received:
        assert scenario.requests() == requests_before + 1
    assert {entry.endpoint for entry in scenario.sandbox.requests()} <= {"token", "secret", "probe"}
    assert logs.text.count("The service is not available yet: ") == (2 if scenario.row.sensor == POKES_AGAIN else 1)
