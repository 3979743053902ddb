"""`sensors/loanauth.py`: what a poke does, how a wait ends and is measured, what Airflow's parameters do."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import runpy
import time
from importlib.metadata import version
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, SealError, SettingsError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.sensors import loanauth as sensors
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from airflow_provider_loanauth.triggers.loanauth import LoanAuthSensorTrigger
from tests.support.airflow_names import (
    AirflowException,
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    TaskDeferralError,
    TaskDeferred,
)
from tests.support.backends import LOGIN
from tests.support.processes import start_new_process
from tests.support.waiting import MODES

CONN_ID = "waiting"
each_mode = pytest.mark.parametrize("mode", MODES)


def sensor(mode="deferrable", **parameters):
    return LoanAuthSensor(task_id="wait", loanauth_conn_id=CONN_ID, **MODES[mode], **parameters)


@pytest.fixture
def context(monkeypatch):
    """The part of a context that a rescheduled sensor reads, on any Airflow; it was not rescheduled before."""
    with contextlib.suppress(ImportError, AttributeError):  # 2.11 reads its database
        monkeypatch.setattr("airflow.sensors.base._orig_start_date", lambda **_: None)
    names = {"dag_id": "nightly", "task_id": "wait", "run_id": "manual", "map_index": -1, "max_tries": 0}
    ti = SimpleNamespace(**names, try_number=1)
    if not version("apache-airflow").startswith("2."):
        ti.get_first_reschedule_date = lambda _: None
    return {"ti": ti}


@pytest.fixture
def connection(sandbox, define):
    def use(**changes):
        define(CONN_ID, sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"] | changes)

    use()
    return use


@pytest.fixture
def clock(clock, monkeypatch):
    monkeypatch.setattr(time, "sleep", clock.sleep)
    return clock


def deferred_by(call):
    with pytest.raises(TaskDeferred) as raised:
        call()
    return raised.value


def ended_by(call):
    with pytest.raises((AirflowException, AirflowTaskTimeout)) as raised:
        call()
    return raised.value


def resume(deferred, status="ready", **parameters):
    """Resume in a new process, which knows the DAG file and what Airflow stored."""
    stored = json.loads(json.dumps({**deferred.kwargs, "event": {"status": status}}))
    return sensor(**parameters).resume_execution(deferred.method_name, stored, {})


def test_without_sealing_the_plaintext_is_returned_also_after_the_trigger(connection, sandbox):
    assert sensor("poke", seal=False).execute({}).count(".") == 2
    start_new_process()
    sandbox.set_fault("status", where="token", times=1)
    deferred = deferred_by(lambda: sensor(seal=False).execute({}))
    assert resume(deferred, seal=False).count(".") == 2


@pytest.fixture
def shared_login(connection, variables, sandbox):
    credential = LoanAuthHook(CONN_ID).get_credential()
    start_new_process()
    sandbox.reset()
    return credential


@each_mode
def test_while_the_service_responds_the_shared_login_is_taken_over(mode, shared_login, sandbox, context):
    assert sensor(mode).execute(context).value == shared_login.value
    assert (sandbox.counters().token, sandbox.counters().probe) == (0, 1)


@each_mode
def test_the_sensor_never_succeeds_from_the_shared_login_alone(mode, shared_login, sandbox, context, clock):
    """A poke whose request fails asks the service itself, which says why."""
    sandbox.set_fault("status", times=2)
    if mode == "poke":
        assert sensor(mode).execute(context).value
        assert clock.passed >= 60
    else:
        with pytest.raises((TaskDeferred, AirflowRescheduleException)):
            sensor(mode).execute(context)
    assert sandbox.counters().token >= 1


def test_where_only_a_login_responds_the_sensor_logs_in(shared_login, sandbox, monkeypatch):
    """Some gateways respond to no other path. A poke does not wait long for the response that allows to share."""
    monkeypatch.setattr(sensors, "_PROBE_TIMEOUT", 0.1)
    sandbox.set_fault("hang", where="probe")
    began = time.monotonic()
    assert sensor().execute({}).value != shared_login.value
    assert time.monotonic() - began < 10


def test_without_reuse_a_poke_is_a_login(shared_login, sandbox):
    assert sensor(reuse=False).execute({}).value != shared_login.value
    assert (sandbox.counters().token, sandbox.counters().probe) == (1, 0)


def test_without_a_fernet_key_nothing_is_sent(connection, sandbox, fernet):
    fernet("")
    with pytest.raises(SealError):
        sensor().execute({})
    assert sandbox.counters().connections_accepted == 0


WHY = "The service was not available within {} s, the {} of the sensor. Last cause: The service responded with 503 ("


@pytest.mark.parametrize("soft_fail", [False, True])
@each_mode
def test_a_wait_ends_at_the_timeout(mode, soft_fail, connection, sandbox, context):
    sandbox.set_fault("status", where="token")
    longer = dt.timedelta(hours=1)
    error = ended_by(lambda: sensor(mode, timeout=0, execution_timeout=longer, soft_fail=soft_fail).execute(context))
    assert type(error) is (AirflowSkipException if soft_fail else AirflowSensorTimeout)
    assert str(error).startswith(WHY.format(0, "timeout"))
    assert sandbox.counters().token == 1


@pytest.mark.parametrize("soft_fail", [False, True])
def test_a_wait_in_one_process_ends_at_the_execution_timeout(soft_fail, connection, sandbox, context, monkeypatch):
    def time_out(*_, **__):
        raise AirflowTaskTimeout("made up")

    sandbox.set_fault("status", where="token")
    # In the second poke.
    monkeypatch.setattr(time, "sleep", lambda _: monkeypatch.setattr(LoanAuthHook, "authenticate_task", time_out))
    limit = dt.timedelta(minutes=1)
    error = ended_by(lambda: sensor("poke", execution_timeout=limit, soft_fail=soft_fail).execute(context))
    assert type(error) is (AirflowSkipException if soft_fail else AirflowTaskTimeout)
    assert str(error).startswith(WHY.format(60, "execution_timeout"))


@pytest.mark.parametrize(("status", "passed"), [("ready", 400), ("ready", 401), ("timeout", 341)])
def test_from_the_deadline_on_a_last_poke_decides(status, passed, connection, sandbox, clock):
    """The probe may fail where a login works, for example behind a proxy that only one of the two uses."""
    sandbox.set_fault("status", where="token")
    deadline = clock.time() + 600
    first = deferred_by(lambda: sensor(timeout=600).execute({}))
    clock.pass_time(200)
    again = deferred_by(lambda: resume(first, timeout=600))
    assert again.trigger.deadline == again.kwargs["deadline"] == deadline
    # Airflow's own timeout is for a missing triggerer, and comes later.
    assert 400 < again.timeout.total_seconds() <= 460
    clock.pass_time(passed)
    error = ended_by(lambda: resume(again, status, timeout=600))
    assert type(error) is AirflowSensorTimeout
    assert str(error).startswith(WHY.format(600, "timeout"))
    sandbox.clear_faults()
    assert type(resume(again, status)) is AccessToken


def test_the_event_alone_is_enough_because_airflow_dags_test_passes_nothing_else(connection, sandbox, clock):
    sandbox.set_fault("status", where="token", times=1)
    resumed = sensor(timeout=600).resume_execution
    again = deferred_by(lambda: resumed("execute_complete", {"event": {"status": "ready"}}, {}))
    assert again.trigger.deadline == clock.time() + 600
    event = {"status": "timeout", "of_a_later_release": 1}
    assert type(resumed("execute_complete", {"event": event}, {})) is AccessToken


def test_without_a_triggerer_the_error_says_so(connection):
    """On 2.11, it is that of Airflow."""
    error = ended_by(lambda: sensor(timeout=7).resume_execution("__fail__", {"error": "Trigger timeout"}, {}))
    is_ours = "timeout of the sensor. Last cause: its trigger sent no event: a triggerer must run" in str(error)
    assert is_ours == (type(error) is AirflowSensorTimeout)
    assert is_ours or isinstance(error, TaskDeferralError)


@each_mode
def test_a_rejection_ends_the_wait_also_with_soft_fail(mode, connection, sandbox, context):
    """Airflow would skip the task, and nobody would be told."""
    connection(password="made-up-wrong-password")
    with pytest.raises(RejectedError, match="Username or Password is wrong"):
        sensor(mode, soft_fail=True).execute(context)
    assert sandbox.counters().token == 1


def test_a_rejection_after_the_trigger_ends_the_wait_also_with_soft_fail(connection, sandbox):
    sandbox.set_fault("status", where="token", times=1)
    deferred = deferred_by(lambda: sensor(soft_fail=True).execute({}))
    connection(password="made-up-wrong-password")
    with pytest.raises(RejectedError, match="Username or Password is wrong"):
        resume(deferred, soft_fail=True)


@pytest.mark.parametrize(
    ("parameter", "error", "message"),
    [("silent_fail", SettingsError, "Password is missing"), ("never_fail", AirflowSkipException, "never_fail")],
)
def test_wrong_settings_end_the_wait(parameter, error, message, connection, context):
    connection(password=None)
    with pytest.raises(error, match=message):
        sensor("poke", **{parameter: True}).execute(context)


@pytest.mark.parametrize("event", [None, {}, {"status": "of another release"}])
def test_an_unknown_event_fails_and_sends_nothing(event, connection, sandbox):
    with pytest.raises(LoanAuthError, match="install the same release on triggerer and workers"):
        sensor().resume_execution("execute_complete", {"event": event}, {})
    assert sandbox.counters().connections_accepted == 0


def test_airflow_stores_the_address_and_seconds(connection, sandbox):
    usual = sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    connection(host="https://127.0.0.1:1/tenant1/", extra=usual["extra"] | {"proxy": "http://user:made-up@127.0.0.1:1"})
    deferred = deferred_by(lambda: sensor(poke_interval=dt.timedelta(seconds=5)).execute({}))
    assert type(deferred.trigger) is LoanAuthSensorTrigger
    assert deferred.trigger.serialize()[1] == {
        "address": "https://127.0.0.1:1/tenant1",
        "poke_interval": 5,
        "deadline": deferred.kwargs["deadline"],
        "proxy": "http://127.0.0.1:1",
    }
    assert set(deferred.kwargs) == {"deadline"}
    assert deferred.method_name == "execute_complete"


@pytest.mark.parametrize("defers", [True, False])
def test_the_configuration_decides_whether_it_defers_by_default(defers, monkeypatch):
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", str(defers))
    assert runpy.run_path(sensors.__file__)["LoanAuthSensor"](task_id="wait").deferrable is defers


def test_a_wait_is_measured_from_its_first_poke(connection, sandbox, clock, statsd):
    sandbox.set_fault("status", where="token", times=2)
    first = deferred_by(lambda: sensor().execute({}))
    clock.pass_time(90)
    second = deferred_by(lambda: resume(first))
    clock.pass_time(90)
    resume(second)
    assert statsd.counts == LOGIN | {"unavailable": 2, "wait_duration": 1}
    [waited] = [metric for metric in statsd.metrics if metric.name == "wait_duration"]
    assert (waited.value, waited.tags) == (180_000.0, {"method": "jwt", "conn_id": CONN_ID})


def test_a_wait_in_one_process_is_measured_too(connection, sandbox, context, clock, statsd):
    sandbox.set_fault("status", where="token", times=1)
    sensor("poke", poke_interval=60).execute(context)
    assert statsd.counts == LOGIN | {"unavailable": 1, "wait_duration": 1}
    assert [metric.value for metric in statsd.metrics if metric.name == "wait_duration"] == [60_000.0]


def test_a_rescheduled_sensor_is_not_measured(connection, sandbox, context, statsd):
    """Each poke is a new process."""
    sandbox.set_fault("status", where="token", times=1)
    with pytest.raises(AirflowRescheduleException):
        sensor("reschedule").execute(context)
    sensor("reschedule").execute(context)
    assert statsd.counts == LOGIN | {"unavailable": 1}
