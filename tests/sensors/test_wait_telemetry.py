"""Metrics and spans of a sensor's wait, on real backends: ``docs/monitoring.md`` has the meaning of each."""

from __future__ import annotations

import time
from functools import partial

import pytest

from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, SettingsError
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from tests.support.airflow_names import (
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from tests.support.backends import LOGIN, seconds_of
from tests.support.processes import start_new_process
from tests.support.waiting import MODES, context_of_a_task, stored

CONN_ID = "loanauth_jwt"
#: A token that somebody entered in the place of another parameter.
MISPLACED = "CANARY-token-that-is-no-connection-id"
#: Attributes of the span of a wait.
ATTRIBUTES = {"loanauth.conn_id": CONN_ID, "loanauth.method": "jwt"}
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
def test_a_sensor_measures_from_its_first_poke(mode, wait, world, statsd, spans):
    world.sandbox.set_fault("status", status=503, where="token", times=2)
    wait(mode)
    assert statsd.counts == LOGIN | {"unavailable": 2, "wait_duration": 1}
    [waited] = [metric for metric in statsd.metrics if metric.name == "wait_duration"]
    assert 2 * WAITED <= waited.value / 1000 < 3 * WAITED
    assert waited.tags == {"method": "jwt", "conn_id": CONN_ID}
    span = spans.named["loanauth.wait"]
    assert 2 * WAITED <= seconds_of(span) < 3 * WAITED
    assert (span.status.is_ok, dict(span.attributes)) == (True, ATTRIBUTES)
    assert [span.name for span in spans.finished].count("loanauth.wait") == 1


def test_a_poke_that_may_not_send_is_no_task_that_fails(wait, world, statsd, variables):
    world.sandbox.set_fault("status", status=429, retry_after=int(WAITED * 1.5), where="token", times=1)
    wait("poke")
    assert statsd.counts == LOGIN | {"unavailable": 1, "wait_duration": 1}


def test_a_rescheduled_sensor_is_not_measured(wait, world, statsd, spans):
    """Each poke is a new process."""
    world.sandbox.set_fault("status", status=503, where="token", times=1)
    wait("reschedule")
    assert statsd.counts == LOGIN | {"unavailable": 1}
    assert "loanauth.wait" not in spans.named


@pytest.mark.parametrize(
    ("mode", "parameters", "kind", "counts", "attributes"),
    [
        ("deferrable", {"timeout": 0}, AirflowSensorTimeout, ["unavailable"], {}),
        ("poke", {"password": None}, SettingsError, [], {}),
        ("deferrable", {"password": "wrong"}, RejectedError, ["rejected"], {"http.response.status_code": 400}),
        # The error says which Connection was rejected, although Airflow raises another one.
        ("poke", {"password": "wrong", "never_fail": True}, AirflowSkipException, ["rejected"], {}),
    ],
)
def test_a_sensor_that_fails_has_only_a_span(
    mode, parameters, kind, counts, attributes, wait, world, define, statsd, spans
):
    usual = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    define(CONN_ID, usual | {"password": parameters.pop("password", usual["password"])})
    if "timeout" in parameters:
        world.sandbox.set_fault("status", status=503, where="token")
    with pytest.raises(kind):
        wait(mode, **parameters)
    assert [*statsd.counts] == counts
    span = spans.named["loanauth.wait"]
    assert 0 <= seconds_of(span) < WAITED
    assert not span.status.is_ok
    assert dict(span.attributes) == ATTRIBUTES | {"error.type": kind.__name__} | attributes


@pytest.mark.parametrize("parameters", [{"loanauth_conn_id": MISPLACED}, {"method": MISPLACED}])
def test_a_token_in_the_place_of_a_parameter_is_in_no_span(parameters, world, monkeypatch, spans):
    waits = LoanAuthSensor(task_id="wait", **{"loanauth_conn_id": CONN_ID} | parameters)
    with pytest.raises(LoanAuthError):
        waits.execute(context_of_a_task(monkeypatch))
    assert "loanauth.wait" in spans.named
    assert "CANARY" not in spans.text
