"""Notifier that says why a login failed, through another notifier."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from airflow_provider_loanauth._compat import BaseNotifier, airflow_errors, task_logger
from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.redaction import exception_chain, short_repr

if TYPE_CHECKING:
    from airflow_provider_loanauth._compat import Context

__all__ = ["LoanAuthFailedNotifier"]

_log = task_logger(__name__)


class LoanAuthFailedNotifier(BaseNotifier):
    """Notify that a login failed, through another notifier; for ``on_failure_callback`` of a task.

    A login has failed if the exception of a task, or one of its causes, is a :class:`LoanAuthError`, or if an operator
    or sensor of this package has timed out, or its trigger has failed. Each task that fails so notifies.

    The message is ``{{ loanauth_message }}`` in the templates of the other notifier, and
    ``context["loanauth_message"]`` in a function. It says which task failed, why, and what to do, without a secret. An
    error of the other notifier is logged.

    :param notifier: a notifier of Airflow, such as ``SlackNotifier``, or a function, which may be asynchronous; it
        takes the context of the task
    :raises TypeError: it is something else, such as a list or a class
    """

    def __init__(self, notifier: Callable[[Context], Any]) -> None:
        super().__init__()
        if not callable(notifier) or isinstance(notifier, type):
            raise TypeError("LoanAuthFailedNotifier takes one notifier or one function: put one for each into a list.")
        self.notifier = notifier

    __repr__ = short_repr

    def notify(self, context: Context) -> None:
        """Notify, if a login failed. Raises no error of the other notifier."""
        exception: Any = context.get("exception")
        if not isinstance(exception, BaseException):
            _log.info("Nobody was notified: Airflow passes no exception here. Put the notifier into default_args.")
            return
        error = _error_of_login(exception, context.get("task"))
        if error is None:
            return
        cast("dict[str, Any]", context)["loanauth_message"] = _message(error, context["ti"])
        try:
            self._notify(context)
        except Exception:  # noqa: BLE001 - any notifier can be used
            _log.exception("The notification of the failed login failed.")

    def _notify(self, context: Context) -> None:
        if isinstance(self.notifier, BaseNotifier):
            # A copy, because Airflow renders it in place. The message, with the text of the service, would be the
            # template of the next one.
            notifier = copy.copy(self.notifier)
            # What its __call__ does, which raises no error on 2.11 and 3.0.
            notifier._update_context(context)  # noqa: SLF001
            notifier.render_template_fields(context)
            notifier.notify(context)
        elif asyncio.iscoroutine(result := self.notifier(context)):
            asyncio.run(result)


def _message(error: BaseException, ti: Any) -> str:
    instance = ti.task_id
    if ti.map_index is not None and ti.map_index >= 0:
        instance += f"[{ti.map_index}]"
    message = f"DAG {ti.dag_id}, run {ti.run_id}, task {instance}: {error}"
    if isinstance(error, airflow_errors.TaskDeferralError):
        message += ". The log of the task says why."
    if getattr(ti, "state", None) == "up_for_retry":
        message += " Airflow will try this task again."
    return message


def _error_of_login(exception: BaseException, task: Any) -> BaseException | None:
    """Return the error with which a login failed: that of a task, or one of its causes; None if it is another one."""
    from airflow_provider_loanauth.operators.loanauth import AuthenticatingOperator

    waits = airflow_errors.AirflowSensorTimeout, airflow_errors.AirflowTaskTimeout, airflow_errors.TaskDeferralError
    if isinstance(task, AuthenticatingOperator) and isinstance(exception, waits):
        return exception
    return next((one for one in exception_chain(exception, suppressed=False) if isinstance(one, LoanAuthError)), None)
