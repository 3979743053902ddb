"""Metrics of a sensor's wait, on real backends: ``docs/operating.md`` has the meaning of each."""

from __future__ import annotations

import time
from functools import partial

import pytest

from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from tests.support.airflow_names import (
    AirflowRescheduleException,
    TaskDeferred,
)
from tests.support.backends import LOGIN
from tests.support.processes import start_new_process
from tests.support.waiting import MODES, context_of_a_task, stored

CONN_ID = "loanauth_jwt"
WAITED = 90.0


def sensor(mode, **parameters):
    parameters = MODES[mode] | {"timeout": 3600, "poke_interval": WAITED} | parameters
    return LoanAuthSensor(task_id="wait", loanauth_conn_id=CONN_ID, **parameters)


@pytest.fixture
def wait(monkeypatch, world):
    """Run a sensor until it ends, as Airflow does. Each time that it waits, as long as the interval passes."""
    context = context_of_a_task(monkeypatch)

    def run(mode, **parameters):
        monkeypatch.setattr(time, "sleep", world.clock.sleep)
        action = partial(sensor(mode, **parameters).execute, context)
        while True:
            try:
                return action()
            except AirflowRescheduleException:
                pass
            except TaskDeferred as deferred:
                arguments = stored(deferred, {"status": "ready"})
                resume = partial(sensor(mode, **parameters).resume_execution, deferred.method_name)
                action = partial(resume, arguments, context)
            start_new_process()
            world.clock.sleep(WAITED)

    return run


@pytest.mark.parametrize("mode", ["poke", "deferrable"])
def test_a_sensor_measures_from_its_first_poke(mode, wait, world, statsd):
    world.sandbox.set_fault("status", status=503, where="token", times=2)
    wait(mode)
    assert statsd.counts == LOGIN | {"unavailable": 2, "wait_duration": 1}
    [waited] = [metric for metric in statsd.metrics if metric.name == "wait_duration"]
    assert 2 * WAITED <= waited.value / 1000 < 3 * WAITED
    assert waited.tags == {"method": "jwt", "conn_id": CONN_ID}


def test_a_poke_that_may_not_send_is_no_task_that_fails(wait, world, statsd, variables):
    world.sandbox.set_fault("status", status=429, retry_after=int(WAITED * 1.5), where="token", times=1)
    wait("poke")
    assert statsd.counts == LOGIN | {"unavailable": 1, "wait_duration": 1}


def test_a_rescheduled_sensor_is_not_measured(wait, world, statsd):
    """Each poke is a new process."""
    world.sandbox.set_fault("status", status=503, where="token", times=1)
    wait("reschedule")
    assert statsd.counts == LOGIN | {"unavailable": 1}
