"""Notifier that says once for each DAG run, Connection and class of error that a login failed."""

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

_NO_EXCEPTION = (
    "Nobody was notified: Airflow passes no exception to a callback of a whole DAG, or of a task that was killed. Use "
    "the notifier in default_args or in a task."
)

_log = task_logger(__name__)


class LoanAuthFailedNotifier(BaseNotifier):
    """Notify once for each DAG run that a login failed, through another notifier; for ``on_failure_callback``.

    It does so if the exception of a task, or one of its causes, is a :class:`LoanAuthError`. It also does so if an
    operator or sensor of this package has timed out, or its trigger has failed. Of several Connections, or several
    classes of errors, and of failures before a retry, it notifies once each. It notifies again if the run fails after
    it was cleared.

    The message is ``{{ loanauth_message }}`` in the templates of the other notifier, and
    ``context["loanauth_message"]`` in a function. It says which task failed, why, what to do, and until when nothing is
    sent, if that is known. It is never shortened, and contains no secret.

    If it is not certain that another task has notified, this one does. An error of the other notifier is logged, and
    another task of the run notifies.

    :param notifier: a notifier of Airflow, such as ``SlackNotifier``, or a function, which may be asynchronous; it
        takes the context of the task
    :raises TypeError: it is something else, such as a list or a class
    """

    def __init__(self, notifier: Callable[[Context], Any]) -> None:
        super().__init__()
        # Otherwise, nobody would be told when it matters.
        if not callable(notifier) or isinstance(notifier, type):
            raise TypeError(
                "LoanAuthFailedNotifier takes one notifier or one function. For several of them, set "
                "on_failure_callback to a list with one LoanAuthFailedNotifier for each."
            )
        self.notifier = notifier

    __repr__ = short_repr

    def notify(self, context: Context) -> None:
        """Notify, unless another task of the DAG run does. Raises no error of the other notifier.

        :param context: the context of a task that failed, with its ``exception``
        """
        from airflow_provider_loanauth.notifications.once import Notification

        exception: Any = context.get("exception")
        if not isinstance(exception, BaseException):
            _log.info(_NO_EXCEPTION)
            return
        error = _error_of_login(exception, context.get("task"))
        if error is None:
            return
        notification = Notification(context, _conn_id(error, context), _about(error, context))
        if not notification.claim():
            _log.info("Another task of this DAG run has notified of the failed login.")
            return
        cast("dict[str, Any]", context)["loanauth_message"] = _message(error, context)
        try:
            self._notify(context)
        except Exception:  # noqa: BLE001 - any notifier can be used
            _log.exception("The notification of the failed login failed. Another task of this DAG run may notify.")
            notification.release()
        else:
            _log.info("Notified of the failed login. Other tasks of this DAG run do not.")
            notification.confirm()

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


def _error_of_login(exception: BaseException, task: Any) -> BaseException | None:
    """Return the error with which a login failed: that of a task, or one of its causes; None if it is another one."""
    from airflow_provider_loanauth.operators.loanauth import AuthenticatingOperator

    of_a_wait = (
        airflow_errors.AirflowSensorTimeout,
        airflow_errors.AirflowTaskTimeout,
        airflow_errors.TaskDeferralError,
    )
    if isinstance(task, AuthenticatingOperator) and isinstance(exception, of_a_wait):
        return exception
    return next((one for one in exception_chain(exception, suppressed=False) if isinstance(one, LoanAuthError)), None)


def _will_retry(context: Context) -> bool:
    return getattr(context["ti"], "state", None) == "up_for_retry"


def _conn_id(error: BaseException, context: Context) -> str | None:
    """Return the id of the Connection with which a login failed, as far as it is known."""
    # A time-out does not know it.
    return getattr(error, "conn_id", None) or getattr(context.get("task"), "loanauth_conn_id", None)


def _about(error: BaseException, context: Context) -> str:
    """Return what tells failures of a run apart: who knows of an outage or a retry does not know of a rejection."""
    name = type(error).__name__
    if _will_retry(context):
        return f"{name}, before a retry"
    return name


def _message(error: BaseException, context: Context) -> str:
    task: Any = context["ti"]
    index = "" if task.map_index is None or task.map_index < 0 else f"[{task.map_index}]"
    message = f"DAG {task.dag_id}, run {task.run_id}, task {task.task_id}{index}: {error}"
    if isinstance(error, airflow_errors.TaskDeferralError):
        message += ". The log of the task says why."
    if _will_retry(context):
        message += " Airflow will try this task again."
    return message
