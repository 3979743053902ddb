"""When a task is tried again after which exception, and which policy the tasks of this package have."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import httpx
import pytest
import requests

from airflow_provider_loanauth import _compat
from airflow_provider_loanauth.exceptions import (
    RejectedError,
    ResponseError,
    SealError,
    SettingsError,
    UnavailableError,
)
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from airflow_provider_loanauth.policies import retry
from airflow_provider_loanauth.policies.retry import LoanAuthRetryPolicy
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from airflow_provider_loanauth.system import system
from tests.support.airflow_names import DAG
from tests.support.clock import Clock, replace_clock

#: 25 November 2026, 09:00 UTC.
NOW = 1_795_597_200.0
HAS_POLICIES = hasattr(_compat.BaseOperator, "retry_policy")


class Decision(SimpleNamespace):
    """What Airflow has from 3.3 on."""

    @classmethod
    def fail(cls, reason):
        return cls(action=SimpleNamespace(value="fail"), retry_delay=None, reason=reason)

    @classmethod
    def retry(cls, delay, reason):
        return cls(action=SimpleNamespace(value="retry"), retry_delay=delay, reason=reason)

    @classmethod
    def default(cls):
        return cls(action=SimpleNamespace(value="default"), retry_delay=None, reason=None)


@pytest.fixture(autouse=True)
def decisions(monkeypatch):
    """A clock that stands still, the longest jitter, and on earlier versions a class for decisions."""
    replace_clock(monkeypatch, Clock(standing=NOW))
    monkeypatch.setattr(system, "uniform", lambda low, high: low + high)
    if not HAS_POLICIES:
        monkeypatch.setattr(retry, "RetryDecision", Decision)


def requests_error(status, value):
    response = requests.Response()
    response.status_code = status
    response.headers.update({"Retry-After": value} if value else {})
    return requests.HTTPError("made up", response=response)


def httpx_error(status, value):
    request = httpx.Request("POST", "https://pricing.example/price")
    response = httpx.Response(status, headers={"Retry-After": value} if value else {}, request=request)
    return httpx.HTTPStatusError("made up", request=request, response=response)


@dataclass
class NotPricedError(Exception):
    """An exception of a user, all of which are equal."""


def linked(link, inner):
    error = NotPricedError()
    setattr(error, link, inner)
    return error


def circle():
    error = linked("__cause__", ValueError("made up"))
    error.__cause__.__cause__ = error
    return error


def task(seconds=10.0, factor=0, longest=None):
    maximum = longest and timedelta(seconds=longest)
    delay = timedelta(seconds=seconds)
    return SimpleNamespace(retry_delay=delay, retry_exponential_backoff=factor, max_retry_delay=maximum)


def evaluated(error, *, of=None, try_number=1):
    context = None if of == "none" else {"task": of or task()}
    decision = LoanAuthRetryPolicy().evaluate(error, try_number, 2, context)
    return decision.action.value, decision.retry_delay and decision.retry_delay.total_seconds()


def from_none(handled):
    error = linked("__context__", handled)
    error.__suppress_context__ = True
    return error


def pause(seconds):
    return ResponseError("made up", status=401, retry_after=seconds)


DAY = 86_400.0
ERRORS = {
    "asked to wait": (UnavailableError("made up", status=503, retry_after=90.0), 100.0),
    "a pause": (pause(120.0), 133.0),
    "a pause of a second": (pause(1.0), pytest.approx(2.1)),
    "a pause of an hour": (pause(3600.0), 3631.0),
    "a longer pause, of which a person should know": (pause(3601.0), None),
    "no time is known": (UnavailableError("made up", status=503), None),
    "another error of this package": (SealError("made up"), None),
    "another error": (ValueError("made up"), None),
    "requests, 429": (requests_error(429, "60"), 67.0),
    "httpx, 503": (httpx_error(503, "60"), 67.0),
    "httpx, a date": (httpx_error(429, "Wed, 25 Nov 2026 09:02:00 GMT"), 133.0),
    "longer than an hour": (httpx_error(503, "9" * 5000), None),
    "no header": (httpx_error(503, None), None),
    "another status": (requests_error(500, "60"), None),
    "no response": (requests.ConnectionError("made up"), None),
    "the response of another library": (linked("response", {"status_code": 429}), None),
    "a response without headers": (linked("response", SimpleNamespace(status_code=429)), None),
    "a cause": (linked("__cause__", pause(120.0)), 133.0),
    "handled before": (linked("__context__", requests_error(429, "60")), 67.0),
    "handled before, and raised from None": (from_none(requests_error(429, "60")), None),
    "the longest of several": (ConnectionError([pause(120.0), requests_error(429, "60"), ValueError()]), 133.0),
    "a circle": (circle(), None),
    # A task that uses something else instead, which fails, may succeed when it is tried again.
    "a rejection that was handled": (linked("__context__", RejectedError("made up", retry_after=DAY)), None),
}


@pytest.mark.parametrize(("error", "seconds"), ERRORS.values(), ids=ERRORS)
def test_the_next_try_is_after_the_time_of_the_error(error, seconds):
    assert evaluated(error, of="none") == ("default" if seconds is None else "retry", seconds)


@pytest.mark.parametrize("kind", [RejectedError, SettingsError])
def test_what_no_retry_can_help_stays_final(kind):
    error = kind("made up", retry_after=DAY)
    for one in (error, linked("__cause__", error), linked("__cause__", linked("__cause__", error))):
        assert evaluated(one) == ("fail", None)


#: Of a task, its try, and an error that says to wait 90 s, which is 100 s with the jitter.
DELAYS = {
    "shorter": (task(99.0), 1, 100.0),
    "not shorter": (task(100.0), 1, None),
    "backoff, second try": (task(60.0, True), 2, None),
    "backoff that is shorter": (task(40.0, True), 2, 100.0),
    "backoff by a factor": (task(12.0, 3.0), 3, None),
    "backoff up to a maximum": (task(12.0, 3.0, 80.0), 3, 100.0),
    "a maximum without backoff": (task(100.0, 0, 80.0), 1, None),
    "a factor below one": (task(200.0, 0.5), 4, 100.0),
    "cleared very often": (task(60.0, 10.0), 5000, None),
    "no context": ("none", 1, 100.0),
}


@pytest.mark.parametrize(("of", "try_number", "seconds"), DELAYS.values(), ids=DELAYS)
def test_the_next_try_is_not_before_the_delay_of_the_task(of, try_number, seconds):
    expected = "default" if seconds is None else "retry", seconds
    assert evaluated(pause(90.0), of=of, try_number=try_number) == expected


def test_not_all_tasks_are_tried_at_the_same_moment(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(retry, "RetryDecision", Decision)
    found = {evaluated(pause(90.0))[1] for _ in range(20)}
    assert 91 <= min(found) < max(found) <= 100


def test_the_reason_contains_no_text_of_the_error():
    decision = LoanAuthRetryPolicy().evaluate(linked("__cause__", pause(90.0)), 1, 2)
    assert decision.reason == "ResponseError: it may succeed after 90 s."
    decision = LoanAuthRetryPolicy().evaluate(linked("__cause__", RejectedError("made up")), 1, 2)
    assert decision.reason == "RejectedError: a retry cannot help."


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
        assert (
            policy is OWN if chosen != "none" else type(policy) is (LoanAuthRetryPolicy if HAS_POLICIES else type(None))
        )
