"""When a task is tried again after which exception, and which policy the tasks of this package have."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth import _compat
from airflow_provider_loanauth.exceptions import RejectedError, ResponseError, SettingsError, UnavailableError
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from airflow_provider_loanauth.policies.retry import LoanAuthRetryPolicy
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from airflow_provider_loanauth.system import system
from tests.support.airflow_names import DAG

HAS_POLICIES = hasattr(_compat.BaseOperator, "retry_policy")
DAY = 86_400.0


def decision(action, retry_delay=None, reason=None):
    return SimpleNamespace(action=SimpleNamespace(value=action), retry_delay=retry_delay, reason=reason)


@pytest.fixture(autouse=True)
def _decisions(monkeypatch):
    """The longest jitter, and on earlier versions decisions as Airflow has them from 3.3 on."""
    monkeypatch.setattr(system, "uniform", lambda low, high: high)
    if not HAS_POLICIES:
        decisions = SimpleNamespace(
            fail=lambda reason: decision("fail", reason=reason),
            retry=lambda delay, reason: decision("retry", delay, reason),
            default=lambda: decision("default"),
        )
        monkeypatch.setitem(sys.modules, "airflow.sdk", SimpleNamespace(RetryDecision=decisions))


def pause(seconds):
    return ResponseError("made up", status=401, retry_after=seconds)


def linked(link, inner):
    error = ValueError("made up")
    setattr(error, link, inner)
    return error


def evaluated(error, *, retry_delay=None):
    context = None if retry_delay is None else {"task": SimpleNamespace(retry_delay=timedelta(seconds=retry_delay))}
    decision = LoanAuthRetryPolicy().evaluate(error, 1, 2, context)
    return decision.action.value, decision.retry_delay and decision.retry_delay.total_seconds()


ERRORS = {
    "asked to wait": (UnavailableError("made up", status=503, retry_after=90.0), 100.0),
    "a pause of an hour": (pause(3600.0), 3610.0),
    "a longer pause, of which a person should know": (pause(3601.0), None),
    "no time is known": (UnavailableError("made up", status=503), None),
    "another error": (ValueError("made up"), None),
    "a cause": (linked("__cause__", pause(120.0)), 130.0),
    "the longest of several": (ConnectionError([pause(120.0), pause(60.0), ValueError()]), 130.0),
    # A task that uses something else instead, which fails, may succeed when it is tried again.
    "a rejection that was handled": (linked("__context__", RejectedError("made up", retry_after=DAY)), None),
}


@pytest.mark.parametrize(("error", "seconds"), ERRORS.values(), ids=ERRORS)
def test_the_next_try_is_after_the_time_of_the_error(error, seconds):
    assert evaluated(error) == ("default" if seconds is None else "retry", seconds)


@pytest.mark.parametrize(("retry_delay", "expected"), [(89.0, ("retry", 100.0)), (90.0, ("default", None))])
def test_the_next_try_is_not_before_the_delay_of_the_task(retry_delay, expected):
    assert evaluated(pause(90.0), retry_delay=retry_delay) == expected


@pytest.mark.parametrize("kind", [RejectedError, SettingsError])
def test_what_no_retry_can_help_stays_final(kind):
    error = kind("made up", retry_after=DAY)
    for one in (error, linked("__cause__", error)):
        assert evaluated(one) == ("fail", None)


def test_the_reason_contains_no_text_of_the_error():
    """Airflow logs and stores it."""
    reasons = [LoanAuthRetryPolicy().evaluate(error, 1, 2).reason for error in (pause(90.0), RejectedError("made up"))]
    assert reasons == ["A login can succeed after 90 s.", "RejectedError: a retry cannot help."]


OWN = object()
#: Where an author chooses a policy.
CHOICES = {"none": {}, "task": {"retry_policy": OWN}, "default_args": {"default_args": {"retry_policy": OWN}}}
CHOICES = CHOICES if HAS_POLICIES else {"none": {}}


@pytest.mark.parametrize("kind", [LoanAuthOperator, LoanAuthSensor])
@pytest.mark.parametrize("chosen", CHOICES)
def test_operator_and_sensor_have_the_policy_unless_their_author_chooses_another_one(kind, chosen):
    with DAG("a_dag", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)):
        made = kind(task_id="a_task", **CHOICES[chosen])
        mapped = kind.partial(task_id="a_mapped_task", **CHOICES[chosen]).expand(loanauth_conn_id=["a"])
    for one in (made, mapped.unmap({"loanauth_conn_id": "a"})):
        policy = getattr(one, "retry_policy", None)
        if chosen != "none":
            assert policy is OWN
        else:
            assert isinstance(policy, LoanAuthRetryPolicy) == HAS_POLICIES


if HAS_POLICIES:

    def test_airflow_asks_the_policy_of_a_task():
        """It need not be of Airflow's own class, whose import takes long."""
        import structlog
        from airflow.sdk import RetryDecision, task
        from airflow.sdk.execution_time.task_runner import _evaluate_retry_policy

        with DAG("a_dag", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)):

            @task(retries=2, retry_policy=LoanAuthRetryPolicy())
            def price(): ...

            priced = price().operator
        ti = SimpleNamespace(task=priced, _ti_context_from_server=None, try_number=1)
        decision = _evaluate_retry_policy(ti, pause(400.0), structlog.get_logger(), {"task": priced})
        assert type(decision) is RetryDecision
        assert decision.retry_delay == timedelta(seconds=410)
