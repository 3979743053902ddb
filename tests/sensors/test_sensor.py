"""`sensors/loanauth.py`: what a poke does, how a wait ends and is measured, what Airflow's parameters do."""

from __future__ import annotations

import datetime as dt
import time

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
from tests.support.programs import run_python
from tests.support.waiting import MODES, context_of_a_task, each_mode, stored

CONN_ID = "waiting"
TIMEOUT = 15.0


def sensor(mode="deferrable", **parameters):
    return LoanAuthSensor(task_id="wait", loanauth_conn_id=CONN_ID, **MODES[mode], **parameters)


@pytest.fixture
def context(monkeypatch):
    return context_of_a_task(monkeypatch)


@pytest.fixture
def connection(sandbox, define):
    """Define the Connection; change it by calling the fixture."""

    def use(**changes):
        define(CONN_ID, sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"] | changes)

    use()
    return use


@pytest.fixture
def clock(clock, monkeypatch):
    """A sensor that waits moves the clock."""
    monkeypatch.setattr(time, "sleep", clock.sleep)
    return clock


def deferred_by(call):
    return ended_by(call, TaskDeferred)


def ended_by(call, kind=(AirflowException, AirflowTaskTimeout)):
    with pytest.raises(kind) as raised:
        call()
    return raised.value


def resume(deferred, status="ready", **parameters):
    """Resume in a new process, which knows the DAG file and what Airflow stored."""
    return sensor(**parameters).resume_execution(deferred.method_name, stored(deferred, {"status": status}), {})


def test_without_sealing_the_plaintext_is_returned_also_after_the_trigger(connection, sandbox):
    assert sensor("poke", seal=False).execute({}).count(".") == 2
    start_new_process()
    sandbox.set_fault("status", where="token", times=1)
    deferred = deferred_by(lambda: sensor(seal=False).execute({}))
    assert resume(deferred, seal=False).count(".") == 2


@pytest.fixture
def shared_login(connection, variables, sandbox):
    """Another task has logged in."""
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
    assert sandbox.counters().probe == 1 + (mode == "poke")
    assert sandbox.counters().token >= 1


def test_where_only_a_login_responds_the_sensor_logs_in(shared_login, sandbox, monkeypatch):
    """Some gateways respond to no other path. A poke does not wait long for the response that allows to share."""
    monkeypatch.setattr(sensors, "_PROBE_TIMEOUT", 0.1)
    sandbox.set_fault("hang", where="probe")
    began = time.monotonic()
    assert sensor().execute({}).value != shared_login.value
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("way", ["reuse", "share_logins"])
def test_without_sharing_a_poke_is_a_login(way, shared_login, connection, sandbox):
    if way == "share_logins":
        usual = sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
        connection(extra=usual["extra"] | {"share_logins": False})
    assert sensor(reuse=way != "reuse").execute({}).value != shared_login.value
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
    error = ended_by(lambda: sensor(mode, timeout=0, soft_fail=soft_fail).execute(context))
    assert type(error) is (AirflowSkipException if soft_fail else AirflowSensorTimeout)
    assert str(error).startswith(WHY.format(0, "timeout"))
    assert sandbox.counters().token == 1


@pytest.mark.parametrize(("soft_fail", "in_poke"), [(False, False), (False, True), (True, True)])
def test_a_wait_in_one_process_ends_at_the_execution_timeout(
    soft_fail, in_poke, connection, sandbox, context, monkeypatch
):
    """With ``soft_fail``, Airflow skips the task only if a poke is under way."""

    def time_out(*_, **__):
        raise AirflowTaskTimeout("made up")

    def poke_again(_):
        monkeypatch.setattr(LoanAuthHook, "authenticate_task", time_out)

    sandbox.set_fault("status", where="token")
    monkeypatch.setattr(time, "sleep", poke_again if in_poke else time_out)
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
    for deferred, left in ((first, 600), (again, 400)):
        assert deferred.trigger.deadline == deferred.kwargs["deadline"] == deadline
        # Airflow's own timeout is for a missing triggerer, and comes later.
        assert left < deferred.timeout.total_seconds() <= left + 60
    clock.pass_time(passed)
    error = ended_by(lambda: resume(again, status, timeout=600))
    assert type(error) is AirflowSensorTimeout
    assert str(error).startswith(WHY.format(600, "timeout"))
    sandbox.clear_faults()
    assert type(resume(again, status)) is AccessToken


def test_the_event_alone_is_enough_because_airflow_dags_test_passes_nothing_else(connection, sandbox, clock):
    sandbox.set_fault("status", where="token", times=2)
    resumed = sensor(timeout=600).resume_execution
    again = deferred_by(lambda: resumed("execute_complete", {"event": {"status": "ready"}}, {}))
    assert again.trigger.deadline == clock.time() + 600
    error = ended_by(lambda: resumed("execute_complete", {"event": {"status": "timeout"}}, {}))
    assert type(error) is AirflowSensorTimeout
    event = {"status": "ready", "of_a_later_release": 1}
    assert type(resumed("execute_complete", {"event": event}, {})) is AccessToken


def test_without_a_triggerer_the_error_says_so(connection):
    """On 2.11, it is that of Airflow."""
    error = ended_by(lambda: sensor(timeout=7).resume_execution("__fail__", {"error": "Trigger timeout"}, {}))
    is_ours = "timeout of the sensor. Last cause: its trigger sent no event: a triggerer must run" in str(error)
    assert is_ours == (type(error) is AirflowSensorTimeout)
    assert is_ours or isinstance(error, TaskDeferralError)


@pytest.mark.parametrize("soft_fail", [False, True])
@each_mode
def test_a_rejection_ends_the_wait(mode, soft_fail, connection, sandbox, context):
    """Also with ``soft_fail``: Airflow would skip the task, and nobody would be told."""
    connection(password="made-up-wrong-password")
    with pytest.raises(RejectedError, match="Username or Password is wrong"):
        sensor(mode, soft_fail=soft_fail).execute(context)
    assert sandbox.counters().token == 1


@pytest.mark.parametrize("soft_fail", [False, True])
def test_a_rejection_after_the_trigger_ends_the_wait(soft_fail, connection, sandbox):
    sandbox.set_fault("status", where="token", times=1)
    deferred = deferred_by(lambda: sensor(soft_fail=soft_fail).execute({}))
    connection(password="made-up-wrong-password")
    with pytest.raises(RejectedError, match="Username or Password is wrong"):
        resume(deferred, soft_fail=soft_fail)


def test_wrong_settings_end_the_wait(connection, context):
    connection(password=None)
    with pytest.raises(SettingsError, match="Password is missing"):
        sensor("poke", silent_fail=True).execute(context)


@pytest.mark.parametrize("event", [None, "ready", {}, {"status": "of another release"}])
def test_an_unknown_event_fails_and_sends_nothing(event, connection, sandbox):
    with pytest.raises(LoanAuthError, match="install the same release on triggerer and workers"):
        sensor().resume_execution("execute_complete", {"event": event}, {})
    assert sandbox.counters().connections_accepted == 0


def test_airflow_stores_the_address_and_seconds(connection, sandbox):
    usual = sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    connection(host="https://127.0.0.1:1/tenant1/", extra=usual["extra"] | {"proxy": "http://user:made-up@127.0.0.1:1"})
    parameters = {"poke_interval": dt.timedelta(seconds=5), "exponential_backoff": True}
    first = deferred_by(lambda: sensor(**parameters).execute({}))
    for deferred in (first, deferred_by(lambda: resume(first, **parameters))):
        assert type(deferred.trigger) is LoanAuthSensorTrigger
        assert deferred.trigger.serialize()[1] == {
            "address": "https://127.0.0.1:1/tenant1",
            "poke_interval": 5,
            "deadline": first.kwargs["deadline"],
            "proxy": "http://127.0.0.1:1",
        }
        assert set(deferred.kwargs) == {"deadline"}
        assert deferred.method_name == "execute_complete"


@pytest.mark.processes
def test_the_configuration_decides_whether_it_defers_by_default():
    """Without it, a sensor does not defer: see all tests above."""
    program = f"from {LoanAuthSensor.__module__} import LoanAuthSensor as S; assert S(task_id='wait').deferrable"
    run_python("-c", program, environment={"AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE": "True"})


def test_each_poke_of_a_deferrable_sensor_gets_the_context_of_the_task(connection, context):
    contexts = []

    class Recording(LoanAuthSensor):
        def poke(self, context):
            contexts.append(context)
            return super().poke(context)

    task = Recording(task_id="wait", loanauth_conn_id=CONN_ID, deferrable=True)
    task.execute(context)
    for status in ("ready", "timeout"):
        task.resume_execution("execute_complete", {"event": {"status": status}}, context)
    assert len(contexts) == 3
    assert all(given is context for given in contexts)


@pytest.mark.parametrize("mode", ["poke", "deferrable"])
def test_a_wait_is_measured_from_its_first_poke(mode, connection, sandbox, context, clock, statsd):
    sandbox.set_fault("status", where="token", times=2)
    if mode == "poke":
        sensor(mode, poke_interval=90).execute(context)
    else:
        deferred = deferred_by(lambda: sensor().execute(context))
        clock.pass_time(90)
        deferred = deferred_by(lambda: resume(deferred))
        clock.pass_time(90)
        resume(deferred)
    assert statsd.counts == LOGIN | {"unavailable": 2, "wait_duration": 1}
    [waited] = [metric for metric in statsd.metrics if metric.name == "wait_duration"]
    assert (waited.value, waited.tags) == (180_000.0, {"method": "jwt", "conn_id": CONN_ID})


def test_a_poke_that_may_not_send_is_no_task_that_fails(connection, variables, sandbox, context, clock, statsd):
    sandbox.set_fault("status", status=429, retry_after=90, where="token", times=1)
    sensor("poke", poke_interval=60).execute(context)
    assert statsd.counts == LOGIN | {"unavailable": 1, "wait_duration": 1}


def test_a_rescheduled_sensor_is_not_measured(connection, sandbox, context, statsd):
    """Each poke is a new process."""
    sandbox.set_fault("status", where="token", times=1)
    with pytest.raises(AirflowRescheduleException):
        sensor("reschedule").execute(context)
    sensor("reschedule").execute(context)
    assert statsd.counts == LOGIN | {"unavailable": 1}
