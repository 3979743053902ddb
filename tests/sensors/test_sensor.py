"""`sensors/loanauth.py`: what a poke does, how a wait ends, what Airflow's parameters do in each mode."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth._compat import (
    TRIGGER_TIMEOUTS,
    AirflowException,
    AirflowSensorTimeout,
    AirflowSkipException,
)
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.exceptions import (
    LoanAuthError,
    RejectedError,
    ResponseError,
    SettingsError,
    UnavailableError,
)
from airflow_provider_loanauth.sensors import loanauth as sensors
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from airflow_provider_loanauth.triggers.loanauth import ServiceReadyTrigger
from tests.support.airflow_names import AirflowRescheduleException, AirflowTaskTimeout, TaskDeferred
from tests.support.processes import start_new_process
from tests.support.waiting import context_of_a_task, fire, stored

CONN_ID = "waiting"
TIMEOUT = 15.0
MODES = {
    "poke": {},
    "reschedule": {"mode": "reschedule"},
    "deferrable": {"deferrable": True},
}
each_mode = pytest.mark.parametrize("mode", MODES)


def sensor(mode="deferrable", **parameters):
    return LoanAuthSensor(task_id="wait", loanauth_conn_id=CONN_ID, **MODES[mode], **parameters)


@pytest.fixture
def context(monkeypatch):
    return context_of_a_task(monkeypatch)


@pytest.fixture
def connection(sandbox, define):
    """Define the Connection; change it by calling the fixture."""

    def use(method="jwt", **changes):
        conn = sandbox.connections()[f"AIRFLOW_CONN_LOANAUTH_{method.upper()}"]
        define(CONN_ID, {**conn, **changes})

    use()
    return use


@pytest.fixture
def slept(monkeypatch, memory_clock):
    """Do not sleep; record for how long it would have been, and move the clock of remembered failures."""
    all_seconds = []

    def sleep(seconds):
        all_seconds.append(seconds)
        memory_clock.pass_time(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    return all_seconds


def deferred_by(call):
    """Return the deferral that a call raises."""
    with pytest.raises(TaskDeferred) as raised:
        call()
    return raised.value


def resume(deferred, payload="ready", **parameters):
    """Resume in a new process, which knows the DAG file and what Airflow stored."""
    return sensor(**parameters).resume_execution(deferred.method_name, stored(deferred, payload), {})


# --- what it returns ---


@each_mode
@pytest.mark.parametrize(("method", "kind"), [("jwt", AccessToken), ("los", AccessToken), ("ppe", ApiSecret)])
def test_the_first_poke_returns_the_credential(mode, method, kind, connection, sandbox, context, slept):
    connection(method)
    credential = sensor(mode).execute(context)
    assert type(credential) is kind
    assert credential.method == method
    assert credential.value
    assert sandbox.counters().authentications.succeeded == 1
    assert sandbox.counters().probe == 0
    assert slept == []


@each_mode
def test_the_method_of_the_task_overrides_the_connections(mode, connection, define, sandbox, context):
    both = sandbox.connections()
    define(
        CONN_ID,
        {
            **both["AIRFLOW_CONN_LOANAUTH_JWT"],
            "extra": both["AIRFLOW_CONN_LOANAUTH_PPE"]["extra"] | both["AIRFLOW_CONN_LOANAUTH_JWT"]["extra"],
        },
    )
    assert type(sensor(mode, method="ppe").execute(context)) is ApiSecret


@each_mode
def test_without_sealing_the_plaintext_is_returned(mode, connection, context):
    assert sensor(mode, seal=False).execute(context).count(".") == 2


def test_without_sealing_also_after_the_trigger(connection, sandbox):
    sandbox.set_fault("status", where="token", times=1)
    deferred = deferred_by(lambda: sensor(seal=False).execute({}))
    assert resume(deferred, seal=False).count(".") == 2


def test_templates():
    assert LoanAuthSensor.template_fields == ("loanauth_conn_id", "method")


# --- timeouts ---


def times_out(mode, context, slept, monkeypatch, **parameters):
    """Poke until the timeout, without really waiting; return what is raised."""
    waits = sensor(mode, timeout=90, poke_interval=60, **parameters)
    if mode != "deferrable":
        # Both clocks of Airflow's loop advance by what is slept.
        clocks = {name: getattr(time, name) for name in ("monotonic", "time")}
        for name, clock in clocks.items():
            monkeypatch.setattr(time, name, lambda clock=clock: clock() + sum(slept))
    if mode == "reschedule":
        waits.timeout = -1  # it has been rescheduled for longer than its timeout
    if mode == "deferrable":
        deferred = deferred_by(lambda: waits.execute(context))
        with pytest.raises(AirflowException) as raised:
            resume(deferred, "timeout", **parameters)
    else:
        with pytest.raises(AirflowException) as raised:
            waits.execute(context)
    return raised.value


@each_mode
def test_a_timeout_fails_without_retries(mode, connection, sandbox, context, slept, monkeypatch):
    sandbox.set_fault("status", where="token")
    assert type(times_out(mode, context, slept, monkeypatch)) is AirflowSensorTimeout
    assert sandbox.counters().token == {"poke": 3, "reschedule": 1, "deferrable": 2}[mode]


@each_mode
def test_a_timeout_skips_with_soft_fail(mode, connection, sandbox, context, slept, monkeypatch):
    sandbox.set_fault("status", where="token")
    error = times_out(mode, context, slept, monkeypatch, soft_fail=True)
    assert type(error) is AirflowSkipException
    # In the other modes, the message is Airflow's.
    assert mode != "deferrable" or str(error).startswith("The service was not available within ")


def test_a_timeout_skips_with_never_fail_as_in_airflow_when_it_is_deferred(
    connection, sandbox, context, slept, monkeypatch
):
    sandbox.set_fault("status", where="token")
    error = times_out("deferrable", context, slept, monkeypatch, never_fail=True)
    assert type(error) is AirflowSkipException
    assert str(error).startswith("Skipped because never_fail is set: The service was not available within ")


def test_the_trigger_reports_the_deadline(connection, sandbox):
    sandbox.set_fault("status")
    deferred = deferred_by(lambda: sensor(timeout=600, poke_interval=0.1).execute({}))
    deferred.trigger.deadline = time.time() + 0.3
    event = fire(deferred.trigger, TIMEOUT)
    assert event.payload == "timeout"
    with pytest.raises(AirflowSensorTimeout, match=r"The service was not available within 0 s\."):
        resume(deferred, event.payload, timeout=0.3)


def test_it_waits_for_less_than_a_second_too(connection, sandbox):
    connection()
    sandbox.set_fault("status", where="token")
    deferred_by(lambda: sensor(timeout=0.9).execute({}))


@each_mode
def test_a_poke_without_success_says_why(mode, connection, sandbox, context, slept, logs):
    connection()
    sandbox.set_fault("status", where="token", status=503, times=1)
    with contextlib.suppress(TaskDeferred, AirflowRescheduleException):
        sensor(mode).execute(context)
    [text] = [text for text in logs.at("info") if text.startswith("The service is not available yet: ")]
    assert "503" in text


def test_after_the_deadline_a_last_poke_decides(connection, sandbox):
    """The probe may fail where a login works, for example behind a proxy that only one of the two uses."""
    sandbox.set_fault("status", where="token", times=1)
    deferred = deferred_by(lambda: sensor(timeout=600).execute({}))
    assert type(resume(deferred, "timeout", timeout=600)) is AccessToken
    assert sandbox.counters().token == 2


def test_the_deadline_is_that_of_the_first_poke(connection, sandbox):
    sandbox.set_fault("status", where="token")
    before = time.time()
    first = deferred_by(lambda: sensor(timeout=600).execute({}))
    again = deferred_by(lambda: resume(first, timeout=600))
    assert first.trigger.deadline == again.trigger.deadline == first.kwargs["deadline"] == again.kwargs["deadline"]
    assert before + 600 <= first.trigger.deadline <= time.time() + 600
    # Airflow's own timeout is for a missing triggerer, and comes later.
    assert 600 < first.timeout.total_seconds() <= 660


def test_a_poke_after_the_deadline_is_the_last(connection, sandbox):
    sandbox.set_fault("status", where="token")
    deferred = deferred_by(lambda: sensor(timeout=600).execute({}))
    deferred.kwargs["deadline"] = time.time() - 1
    with pytest.raises(AirflowSensorTimeout):
        resume(deferred)
    sandbox.clear_faults()
    assert type(resume(deferred)) is AccessToken


def test_at_the_deadline_it_does_not_wait_again(connection, sandbox, monkeypatch):
    sandbox.set_fault("status", where="token")
    deferred = deferred_by(lambda: sensor(timeout=600).execute({}))
    deadline = deferred.kwargs["deadline"]
    monkeypatch.setattr(sensors, "time", SimpleNamespace(time=lambda: deadline))
    with pytest.raises(AirflowSensorTimeout):
        resume(deferred)


def test_the_event_alone_is_enough_because_airflow_dags_test_passes_nothing_else(connection, sandbox):
    sandbox.set_fault("status", where="token", times=1)
    resumed = sensor(timeout=600).resume_execution
    again = deferred_by(lambda: resumed("execute_complete", {"event": "ready"}, {}))
    assert again.trigger.deadline == pytest.approx(time.time() + 600, abs=60)
    assert type(resumed("execute_complete", {"event": "ready"}, {})) is AccessToken


@pytest.mark.parametrize("error", sorted(TRIGGER_TIMEOUTS))
def test_a_missing_triggerer_is_a_timeout(error):
    with pytest.raises(AirflowSensorTimeout):
        sensor().resume_execution("__fail__", {"error": error}, {})
    for forgiving in ({"soft_fail": True}, {"never_fail": True}):
        with pytest.raises(AirflowSkipException):
            sensor(**forgiving).resume_execution("__fail__", {"error": error}, {})


@pytest.mark.parametrize("soft_fail", [False, True])
def test_a_trigger_that_failed_is_no_timeout(soft_fail):
    with pytest.raises(AirflowException) as raised:
        sensor(soft_fail=soft_fail).resume_execution("__fail__", {"error": "Trigger failure", "traceback": ["…"]}, {})
    assert not isinstance(raised.value, (AirflowSkipException, AirflowSensorTimeout))


def test_the_execution_timeout_of_a_task_may_be_skipped_as_in_any_sensor(monkeypatch):
    waits = sensor("poke", soft_fail=True)

    def poke(_):
        raise AirflowTaskTimeout

    monkeypatch.setattr(waits, "poke", poke)
    with pytest.raises(AirflowSkipException):
        waits.execute({})


# --- rejected credentials ---


# In the other modes each poke is a first poke.
each_mode_and_when = pytest.mark.parametrize(
    ("mode", "when"), [*((mode, "at once") for mode in MODES), ("deferrable", "later")]
)


def raised_by_rejection(mode, context, when, sandbox, **parameters):
    """Return what is raised when the service rejects the credentials, at the first poke or after a wait."""
    if when == "later":
        sandbox.set_fault("status", where="token", times=1)
        deferred = deferred_by(lambda: sensor(mode, **parameters).execute(context))
        with pytest.raises(AirflowException) as raised:
            resume(deferred, **parameters)
    else:
        with pytest.raises(AirflowException) as raised:
            sensor(mode, **parameters).execute(context)
    return raised.value


@each_mode_and_when
@pytest.mark.parametrize("parameter", [None, "soft_fail", "silent_fail"])
def test_rejected_credentials_fail_whatever_may_be_skipped(mode, when, parameter, connection, sandbox, context, slept):
    connection(password="made-up-wrong-password")
    error = raised_by_rejection(mode, context, when, sandbox, **({parameter: True} if parameter else {}))
    assert type(error) is RejectedError
    assert "Username or Password is wrong" in str(error)
    assert sandbox.counters().authentications.rejected == 1


@each_mode_and_when
def test_rejected_credentials_are_skipped_only_with_never_fail(mode, when, connection, sandbox, context, slept):
    connection(password="made-up-wrong-password")
    assert type(raised_by_rejection(mode, context, when, sandbox, never_fail=True)) is AirflowSkipException
    assert sandbox.counters().authentications.rejected == 1


@each_mode
def test_an_incomplete_connection_is_not_skipped(mode, connection, context, sandbox):
    connection(password=None)
    with pytest.raises(SettingsError, match="Password is missing"):
        sensor(mode, soft_fail=True).execute(context)
    assert sandbox.counters().token == 0


@each_mode
def test_a_response_that_is_not_the_interfaces_is_not_skipped(mode, connection, sandbox, context):
    sandbox.set_fault("html-200", where="token")
    with pytest.raises(ResponseError, match="an HTML page instead of JSON"):
        sensor(mode, soft_fail=True).execute(context)


@each_mode
def test_with_silent_fail_the_sensor_pokes_again_after_such_a_response(mode, connection, sandbox, context, slept, logs):
    sandbox.set_fault("html-200", where="token", times=1)
    if mode == "poke":
        credential = sensor(mode, silent_fail=True).execute(context)
    elif mode == "reschedule":
        with pytest.raises(AirflowRescheduleException):
            sensor(mode, silent_fail=True).execute(context)
        start_new_process()
        credential = sensor(mode, silent_fail=True).execute(context)
    else:
        deferred = deferred_by(lambda: sensor(silent_fail=True).execute(context))
        start_new_process()
        credential = resume(deferred, silent_fail=True)
    assert type(credential) is AccessToken
    assert len([text for text in logs.at("error") if "Sensor poke failed" in text and "HTML page" in text]) == 1


def test_soft_fail_hides_no_error_of_another_kind(connection, monkeypatch):
    waits = sensor("poke", soft_fail=True)
    error = LoanAuthError("made up")
    monkeypatch.setattr(waits.hook, "get_credential", lambda: (_ for _ in ()).throw(error))
    with pytest.raises(LoanAuthError) as raised:
        waits.execute({})
    assert raised.value is error


# --- intervals ---


@pytest.mark.parametrize("interval", [45, 45.0, dt.timedelta(seconds=45)])
@each_mode
def test_the_interval_is_poke_interval(mode, interval, connection, sandbox, context, slept):
    sandbox.set_fault("status", where="token", times=1)
    waits = sensor(mode, poke_interval=interval)
    if mode == "poke":
        waits.execute(context)
        assert slept == [45]
    elif mode == "reschedule":
        with pytest.raises(AirflowRescheduleException) as raised:
            waits.execute(context)
        assert 40 < raised.value.reschedule_date.timestamp() - time.time() <= 45
    else:
        assert deferred_by(lambda: waits.execute(context)).trigger.poke_interval == 45


def test_with_exponential_backoff_pokes_become_rarer(connection, sandbox, slept):
    sandbox.set_fault("status", where="token", times=6)
    sensor("poke", poke_interval=60, exponential_backoff=True, timeout=90_000).execute({})
    assert len(slept) == 6
    assert slept[-1] > 4 * slept[0]


def test_with_exponential_backoff_probes_become_rarer_when_it_is_deferred(connection, sandbox):
    sandbox.set_fault("status", where="token")
    for max_wait, max_interval in ((None, 9_000), (dt.timedelta(seconds=300), 300), (300, 300)):
        if isinstance(max_wait, int) and not hasattr(sensor(max_wait=300).max_wait, "total_seconds"):
            continue  # 2.11 takes a timedelta only
        parameters = {"poke_interval": 60, "exponential_backoff": True, "timeout": 9_000, "max_wait": max_wait}
        trigger = deferred_by(lambda p=parameters: sensor(**p).execute({})).trigger
        assert trigger.max_interval == max_interval
        assert 60 <= trigger.poke_interval < 80


@pytest.mark.parametrize(("waited", "interval"), [(0, 60), (60, 120), (180, 240), (420, 480), (5_000, 600)])
def test_with_exponential_backoff_a_sensor_that_defers_again_continues_the_back_off(
    waited, interval, connection, sandbox
):
    sandbox.set_fault("status", where="token")
    parameters = {
        "poke_interval": 60,
        "exponential_backoff": True,
        "timeout": 9_000,
        "max_wait": dt.timedelta(seconds=600),
    }
    deferred = deferred_by(lambda: sensor(**parameters).execute({}))
    deferred.kwargs["deadline"] -= waited
    again = deferred_by(lambda: resume(deferred, **parameters))
    assert again.trigger.poke_interval == pytest.approx(interval, abs=20)


def test_without_exponential_backoff_the_interval_does_not_change(connection, sandbox):
    sandbox.set_fault("status", where="token")
    deferred = deferred_by(lambda: sensor(poke_interval=60).execute({}))
    assert deferred.trigger.max_interval is None
    deferred.kwargs["deadline"] -= 1_000
    assert deferred_by(lambda: resume(deferred, poke_interval=60)).trigger.poke_interval == 60


def test_a_max_wait_below_the_interval_does_not_shorten_it(connection, sandbox):
    sandbox.set_fault("status", where="token")
    parameters = {"poke_interval": 60, "exponential_backoff": True, "max_wait": dt.timedelta(seconds=10)}
    assert deferred_by(lambda: sensor(**parameters).execute({})).trigger.poke_interval == 60


def test_while_only_the_probe_succeeds_it_waits_an_interval_each_time(connection, sandbox):
    """503 for the token, 200 for the address itself: no busy loop."""
    interval, rounds = 0.2, 4
    sandbox.set_fault("status", where="token")
    parameters = {"poke_interval": interval, "timeout": 600}
    deferred = deferred_by(lambda: sensor(**parameters).execute({}))
    for _ in range(rounds):
        event = fire(deferred.trigger, TIMEOUT)
        assert event.payload == "ready"
        deferred = deferred_by(lambda last=deferred: resume(last, **parameters))
    pokes = [entry.at for entry in sandbox.requests() if entry.endpoint == "token"]
    assert len(pokes) == rounds + 1
    # The two clocks may differ slightly.
    assert all(later - earlier >= interval - 0.02 for earlier, later in itertools.pairwise(pokes))
    assert sandbox.counters().probe >= rounds
    sandbox.clear_faults()
    assert type(resume(deferred, **parameters)) is AccessToken


# --- the event ---


@pytest.mark.parametrize("soft_fail", [False, True])
@pytest.mark.parametrize(
    "payload", [None, "", "READY", "ready ", "success", True, 1, {"status": "ready"}, ["ready"], "error"], ids=repr
)
def test_an_unknown_or_empty_event_is_an_error(payload, soft_fail, connection, sandbox):
    with pytest.raises(LoanAuthError, match="The trigger sent an unknown event") as raised:
        sensor(soft_fail=soft_fail).resume_execution(
            "execute_complete", {"event": payload, "deadline": time.time() + 60}, {}
        )
    assert "Workers and triggerers must run the same release" in str(raised.value)
    assert f"connection id '{CONN_ID}'" in str(raised.value)
    assert sandbox.counters().token == 0


def test_a_missing_event_is_an_error(connection, sandbox):
    with pytest.raises(LoanAuthError, match="The trigger sent an unknown event"):
        sensor().resume_execution("execute_complete", {"deadline": time.time() + 60}, {})
    assert sandbox.counters().token == 0


# --- what Airflow stores ---


@pytest.mark.parametrize("method", ["jwt", "los", "ppe"])
def test_airflow_stores_the_address_and_seconds(method, connection, sandbox):
    connection(method)
    sandbox.set_fault("status", times=1)
    deferred = deferred_by(lambda: sensor(poke_interval=5).execute({}))
    assert type(deferred.trigger) is ServiceReadyTrigger
    assert deferred.trigger.serialize()[1] == {
        "address": sandbox.url,
        "poke_interval": 5,
        "deadline": deferred.kwargs["deadline"],
        "max_interval": None,
    }
    assert set(deferred.kwargs) == {"deadline"}
    assert deferred.method_name == "execute_complete"


def test_the_trigger_uses_the_proxy_of_the_connection(connection, sandbox):
    usual = sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    connection(host="https://auth.example", extra=usual["extra"] | {"proxy": "http://user:made-up@127.0.0.1:1"})
    deferred = deferred_by(lambda: sensor().execute({}))
    assert deferred.trigger.proxy == "http://127.0.0.1:1"


def test_the_prefix_of_the_address_is_kept_and_nothing_else(connection, sandbox):
    connection(host=f"{sandbox.url}/tenant1/")
    sandbox.set_fault("status")
    assert deferred_by(lambda: sensor().execute({})).trigger.address == f"{sandbox.url}/tenant1"


# --- the default ---


@pytest.mark.parametrize(
    ("value", "expected"), [(None, "False"), ("True", "True"), ("False", "False")], ids=["unset", "true", "false"]
)
@pytest.mark.processes
def test_the_configuration_decides_whether_it_defers_by_default(value, expected):
    environment = {name: text for name, text in os.environ.items() if not name.endswith("__DEFAULT_DEFERRABLE")}
    if value:
        environment["AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE"] = value
    program = (
        "import sys\n"
        "from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor\n"
        "assert 'airflow_provider_loanauth.triggers' not in sys.modules, 'parsing a DAG loads triggers'\n"
        "print('deferrable:', LoanAuthSensor(task_id='wait').deferrable)\n"
        "print('explicit:', LoanAuthSensor(task_id='wait2', deferrable=True).deferrable)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert f"deferrable: {expected}\nexplicit: True\n" in done.stdout, done.stderr


def test_an_unavailable_service_is_no_error_of_poke(connection, sandbox, monkeypatch):
    waits = sensor("poke")
    monkeypatch.setattr(
        waits.hook, "get_credential", lambda: (_ for _ in ()).throw(UnavailableError("made up", retry_after=7))
    )
    result = waits.poke({})
    assert not result
    assert result.xcom_value is None


def test_each_poke_of_a_deferrable_sensor_gets_the_context_of_the_task(connection, context):
    contexts = []

    class Recording(LoanAuthSensor):
        """Its poke may use the context."""

        def poke(self, context):
            contexts.append(context)
            return super().poke(context)

    task = Recording(task_id="wait", loanauth_conn_id=CONN_ID, deferrable=True)
    task.execute(context)
    for event in ("ready", "timeout"):
        task.execute_complete(context, event)
    assert len(contexts) == 3
    assert all(given is context for given in contexts)
