"""Retry policy (Airflow 3.3): when a task is tried again after a login has failed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, SettingsError
from airflow_provider_loanauth.redaction import exception_chain, short_repr
from airflow_provider_loanauth.system import system

if TYPE_CHECKING:
    from airflow.sdk import RetryDecision, RetryPolicy

    from airflow_provider_loanauth._compat import Context
else:
    # Airflow asks any object. Its class exists from 3.3 on, and takes a fifth of the import of this package.
    RetryPolicy = object

__all__ = ["LoanAuthRetryPolicy"]

#: Maximum of seconds to wait. After a longer pause, the task should fail soon, so that somebody is told.
_MAX_SECONDS = 3600.0


class LoanAuthRetryPolicy(RetryPolicy):
    """Try a task again when a login can succeed: not before ``error.retry_after``.

    From Airflow 3.3 on, ``LoanAuthOperator`` and ``LoanAuthSensor`` have it unless they are given another one. It is
    for pricing tasks too: ``@task(retries=2, retry_policy=LoanAuthRetryPolicy())``.

    It looks at each ``LoanAuthError`` among the exception of a task and its causes. If none says when to try again, or
    the time is shorter than the ``retry_delay`` of the task or longer than an hour, Airflow waits as without a policy.
    An exception that was raised ``from`` a ``RejectedError`` or ``SettingsError`` fails the task at once, as these do.
    """

    __repr__ = short_repr

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,  # noqa: ARG002 - Airflow's signature
        max_tries: int,  # noqa: ARG002
        context: Context | None = None,
    ) -> RetryDecision:
        """Decide when a task that has failed is tried again (Airflow calls it on the worker)."""
        from airflow.sdk import RetryDecision

        for error in (exception, exception.__cause__):
            if isinstance(error, (RejectedError, SettingsError)):
                return RetryDecision.fail(f"{type(error).__name__}: a retry cannot help.")
        errors = [one for one in exception_chain(exception, suppressed=False) if isinstance(one, LoanAuthError)]
        seconds = max((one.retry_after or 0.0 for one in errors), default=0.0)
        shortest = context["task"].retry_delay.total_seconds() if context else 0.0
        if not shortest < seconds <= _MAX_SECONDS:
            return RetryDecision.default()
        # Clocks differ, and not all tasks should be tried at the same moment.
        delay = timedelta(seconds=seconds + system.uniform(1, 10))
        return RetryDecision.retry(delay, f"A login can succeed after {seconds:.0f} s.")
