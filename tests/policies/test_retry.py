"""When a task is tried again after which exception, and which policy the tasks of this package have."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta, timezone
from functools import partial
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


@pytest.fixture
def evaluate(monkeypatch):
    """Return the method of the policy. It returns tuples, because Airflow has decisions from 3.3 on."""
    decisions = SimpleNamespace(
        fail=lambda reason: ("fail", reason),
        retry=lambda delay, reason: ("retry", delay.total_seconds(), reason),
        default=lambda: ("default",),
    )
    monkeypatch.setitem(sys.modules, "airflow.sdk", SimpleNamespace(RetryDecision=decisions))
    # The longest jitter.
    monkeypatch.setattr(system, "uniform", lambda low, high: high)
    return partial(LoanAuthRetryPolicy().evaluate, try_number=1, max_tries=2)


def pause(seconds):
    return ResponseError("made up", status=401, retry_after=seconds)


def linked(link, inner, *, is_hidden=False):
    error = ValueError("made up")
    setattr(error, link, inner)
    error.__suppress_context__ = is_hidden
    return error


DEFAULT = ("default",)


@pytest.mark.parametrize(
    ("error", "decision"),
    [
        # Airflow logs and stores the reason, which contains no text of the error.
        (pause(3600.0), ("retry", 3610.0, "A login can succeed after 3600 s.")),
        # A person should know of a longer one.
        (pause(3601.0), DEFAULT),
        (UnavailableError("made up", status=503), DEFAULT),
        (ValueError("made up"), DEFAULT),
        (linked("__cause__", pause(120.0)), ("retry", 130.0, "A login can succeed after 120 s.")),
        (ConnectionError([pause(9.0), pause(6.0), ValueError()]), ("retry", 19.0, "A login can succeed after 9 s.")),
        # The task has hidden it, with "from None".
        (linked("__context__", pause(9.0), is_hidden=True), DEFAULT),
        # A task that uses something else instead, which fails, may succeed when it is tried again.
        (linked("__context__", RejectedError("made up", retry_after=DAY)), DEFAULT),
    ],
)
def test_the_next_try_is_after_the_time_of_the_error(error, decision, evaluate):
    assert evaluate(error) == decision


@pytest.mark.parametrize(("retry_delay", "decision"), [(89.0, "retry"), (90.0, "default")])
def test_the_next_try_is_not_before_the_delay_of_the_task(retry_delay, decision, evaluate):
    task = SimpleNamespace(retry_delay=timedelta(seconds=retry_delay))
    assert evaluate(pause(90.0), context={"task": task})[0] == decision


@pytest.mark.parametrize("kind", [RejectedError, SettingsError])
def test_what_no_retry_can_help_stays_final(kind, evaluate):
    error = kind("made up", retry_after=DAY)
    for one in (error, linked("__cause__", error)):
        assert evaluate(one) == ("fail", f"{kind.__name__}: a retry cannot help.")


OWN = object()
#: Where an author chooses a policy.
CHOICES = [{}, {"retry_policy": OWN}, {"default_args": {"retry_policy": OWN}}]


@pytest.mark.parametrize("kind", [LoanAuthOperator, LoanAuthSensor])
@pytest.mark.parametrize("chosen", CHOICES if HAS_POLICIES else [{}])
def test_operator_and_sensor_have_the_policy_unless_their_author_chooses_another_one(kind, chosen):
    with DAG("a_dag", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)):
        made = kind(task_id="a_task", **chosen)
        mapped = kind.partial(task_id="a_mapped_task", **chosen).expand(loanauth_conn_id=["a"])
    for one in (made, mapped.unmap({"loanauth_conn_id": "a"})):
        policy = getattr(one, "retry_policy", None)
        if chosen:
            assert policy is OWN
        else:
            assert isinstance(policy, LoanAuthRetryPolicy) == HAS_POLICIES


if HAS_POLICIES:

    def test_airflow_asks_the_policy_of_a_task(monkeypatch):
        """It need not be of Airflow's own class, whose import takes long."""
        import structlog
        from airflow.sdk import RetryDecision, task
        from airflow.sdk.execution_time.task_runner import _evaluate_retry_policy

        with DAG("a_dag", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)):

            @task(retries=2, retry_policy=LoanAuthRetryPolicy())
            def price(): ...

            priced = price().operator
        monkeypatch.setattr(system, "uniform", lambda low, high: high)
        ti = SimpleNamespace(task=priced, _ti_context_from_server=None, try_number=1)
        decision = _evaluate_retry_policy(ti, pause(400.0), structlog.get_logger(), {"task": priced})
        assert type(decision) is RetryDecision
        assert decision.retry_delay == timedelta(seconds=410)
