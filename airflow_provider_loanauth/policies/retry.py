"""Retry policy (Airflow 3.3): the next try of a task is after the end of a pause."""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth._compat.retry_policy import RetryDecision, RetryPolicy
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, SettingsError
from airflow_provider_loanauth.redaction import exception_chain, short_repr
from airflow_provider_loanauth.system import system

if TYPE_CHECKING:
    from airflow_provider_loanauth._compat import Context

__all__ = ["LoanAuthRetryPolicy"]

#: Maximum of seconds to wait. After a longer pause, the task should fail soon, so that somebody is told.
_MAX_SECONDS = 3600.0
#: Maximum of seconds of Airflow's own exponential backoff, if the task has none (``MAX_RETRY_DELAY`` of Airflow).
_MAX_BACKOFF = 86_400.0
#: Seconds after the end of the wait, because clocks differ; and a part of the wait, at most so many seconds, because
#: not all tasks should be tried at the same moment.
_MARGIN, _JITTER, _MAX_JITTER = 1.0, 0.1, 30.0
#: The statuses whose ``Retry-After`` says when to send the same request again (RFC 6585 §4, RFC 9110 §15.6.4).
_TEMPORARY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_FINAL = (RejectedError, SettingsError)


class LoanAuthRetryPolicy(RetryPolicy):
    """Try a task again when it can succeed: after the time that the service asked to wait, or in which nothing is sent.

    From Airflow 3.3 on, ``LoanAuthOperator`` and ``LoanAuthSensor`` have it unless they are given another one. It is
    for pricing tasks too: ``@task(retries=2, retry_policy=LoanAuthRetryPolicy())``. Earlier versions have no retry
    policies.

    It looks at the exception of the task and at all its causes, unless it was raised ``from None``, for the longest of
    these times:

    - ``retry_after`` of a :class:`~airflow_provider_loanauth.exceptions.LoanAuthError`, such as one of a refresh;
    - ``Retry-After`` of a response with the status 429 or 503, in an ``HTTPError`` of ``requests`` or an
      ``HTTPStatusError`` of ``httpx`` or ``httpx2``.

    The next try is a little later than that, but not before the ``retry_delay`` of the task, with its exponential
    backoff. Without such a time, and if it is more than an hour, Airflow waits as without a policy. ``retries`` limits
    the number of tries in any case. After an exception that was raised ``from`` a ``RejectedError`` or a
    ``SettingsError``, the task fails at once, as it does after these themselves.
    """

    __repr__ = short_repr

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,
        max_tries: int,  # noqa: ARG002 - Airflow's signature
        context: Context | None = None,
    ) -> RetryDecision:
        """Decide when a task that has failed is tried again (Airflow calls it on the worker)."""
        if final := _final_cause(exception):
            return RetryDecision.fail(f"{type(final).__name__}: a retry cannot help.")
        waits = [(_seconds_to_wait(one), type(one).__name__) for one in exception_chain(exception, suppressed=False)]
        asked, name = max(waits)
        if not 0 < asked <= _MAX_SECONDS:
            return RetryDecision.default()
        seconds = asked + _MARGIN + system.uniform(0, min(asked * _JITTER, _MAX_JITTER))
        if seconds <= _retry_delay(context, try_number):
            return RetryDecision.default()
        return RetryDecision.retry(timedelta(seconds=seconds), f"{name}: it may succeed after {asked:.0f} s.")


def _final_cause(error: BaseException | None) -> BaseException | None:
    """Return the error that no retry can help, if another one was raised from it; not one that was handled before."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, _FINAL):
            return error
        seen.add(id(error))
        error = error.__cause__
    return None


def _seconds_to_wait(error: BaseException) -> float:
    """Return for how many seconds the same request cannot succeed, as far as an error says so; otherwise 0."""
    if isinstance(error, _FINAL):
        # The task has handled it.
        return 0.0
    if isinstance(error, LoanAuthError):
        return error.retry_after or 0.0
    response: Any = vars(error).get("response")
    if getattr(response, "status_code", None) not in _TEMPORARY:
        return 0.0
    # DAG parsing imports this module.
    from airflow_provider_loanauth.service.error_responses import parse_retry_after

    headers = getattr(response, "headers", None) or {}
    return parse_retry_after(headers, now=system.now()) or 0.0


def _retry_delay(context: Any, try_number: int) -> float:
    """Return the seconds that Airflow itself waits before the next try, at least."""
    if context is None:
        return 0.0
    task = context["task"]
    delay: float = task.retry_delay.total_seconds()
    factor = 2.0 if task.retry_exponential_backoff is True else float(task.retry_exponential_backoff)
    if factor in (0, 1):
        return delay
    # A person may clear a task any number of times, and each adds tries.
    longest = task.max_retry_delay.total_seconds() if task.max_retry_delay else _MAX_BACKOFF
    return min(delay * factor ** min(try_number - 1, 64), longest)
