"""Notifier that says once for each DAG run, Connection and class of error that a login failed.

The first task that fails says in an Airflow Variable that it notifies. Nothing is locked: tasks that fail at the same
moment wait for a random time, so that most see what the first one wrote.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from airflow_provider_loanauth._compat import BaseNotifier, airflow_errors, task_logger
from airflow_provider_loanauth._compat.variables import read_variable, write_variable
from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.redaction import exception_chain, short_repr
from airflow_provider_loanauth.system import system

if TYPE_CHECKING:
    from airflow_provider_loanauth._compat import Context

__all__ = ["LoanAuthFailedNotifier"]

#: Maximum of failures in a Variable.
MAX_MARKS = 100
#: Maximum of seconds to wait before a read. Airflow 3 ends the process of a task 20 seconds after it has failed.
MAX_DELAY = 4.0
_NO_EXCEPTION = (
    "Nobody was notified: Airflow passes no exception to a callback of a whole DAG, or of a task that was killed. Use "
    "the notifier in default_args or in a task."
)
_DESCRIPTION = "Which tasks have notified of a failed login, in the last runs of a DAG. Deleting it is safe."

_log = task_logger(__name__)


class LoanAuthFailedNotifier(BaseNotifier):
    """Notify once for each DAG run that a login failed, through another notifier; for ``on_failure_callback``.

    A login has failed if the exception of a task, or one of its causes, is a :class:`LoanAuthError`, or if an operator
    or sensor of this package has timed out, or its trigger has failed. Several Connections, several classes of errors,
    and failures before a retry count apart. After a run was cleared, it notifies again.

    The message is ``{{ loanauth_message }}`` in the templates of the other notifier, and
    ``context["loanauth_message"]`` in a function. It says which task failed, why, and what to do, without a secret.

    Of tasks that fail at the same moment, two or three may notify. Where Variables cannot be used, all do. An error of
    the other notifier is logged, and another task of the run notifies, unless another notifier of this task has.

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
        """Notify, unless another task of the DAG run does. Raises no error of the other notifier."""
        exception: Any = context.get("exception")
        if not isinstance(exception, BaseException):
            _log.info(_NO_EXCEPTION)
            return
        error = _error_of_login(exception, context.get("task"))
        if error is None:
            return
        failure = _Failure(error, context)
        if not failure.mark():
            _log.info("Another task of this DAG run has notified of the failed login.")
            return
        cast("dict[str, Any]", context)["loanauth_message"] = failure.message
        try:
            self._notify(context)
        except Exception:  # noqa: BLE001 - any notifier can be used
            _log.exception("The notification of the failed login failed. Another task of this DAG run may notify.")
            failure.unmark()
        else:
            _log.info("Notified of the failed login. Other tasks of this DAG run do not.")

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


class _Failure:
    """A failed login. The first task that notifies of it writes a mark into the Variable of its DAG."""

    def __init__(self, error: BaseException, context: Any) -> None:
        from airflow_provider_loanauth.login.variables import key_of

        task, run = context["ti"], context.get("dag_run")
        # A time-out does not know the Connection.
        conn_id = getattr(error, "conn_id", None) or getattr(context.get("task"), "loanauth_conn_id", None)
        self._key = key_of("notified", f"{task.dag_id}.{conn_id}" if conn_id else task.dag_id)
        index = "" if task.map_index is None or task.map_index < 0 else f"[{task.map_index}]"
        self.message = f"DAG {task.dag_id}, run {task.run_id}, task {task.task_id}{index}: {error}"
        if isinstance(error, airflow_errors.TaskDeferralError):
            self.message += ". The log of the task says why."
        # Who knows of an outage or a retry does not know of a rejection.
        about = type(error).__name__
        if getattr(task, "state", None) == "up_for_retry":
            self.message += " Airflow will try this task again."
            about += ", before a retry"
        # A run that was cleared, or deleted and created again, fails anew.
        again = getattr(run, "clear_number", None), getattr(run, "start_date", None)
        self._name = ", ".join(str(one) for one in (task.run_id, conn_id, about, *again) if one)
        self._task = f"{task.task_id}, map index {task.map_index}, try {task.try_number}"
        self._is_new = False

    def mark(self) -> bool:
        """Return whether this task notifies: if it is not certain that another one does, it does."""
        system.sleep(system.uniform(0, MAX_DELAY))
        try:
            marks = self._read()
            self._is_new = self._name not in marks
            if self._is_new:
                self._write(marks | {self._name: self._task})
            # A task may have several notifiers.
            return self._is_new or marks[self._name] == self._task
        except Exception as error:  # noqa: BLE001 - the errors of Airflow differ between its versions
            # Not the text of the error, which may contain a URL.
            name = type(error).__name__
            _log.warning("Variables cannot be used (%s), so other tasks of this DAG run may notify too.", name)
            return True

    def unmark(self) -> None:
        """Let another task notify, unless another notifier of this one has."""
        with suppress(Exception):
            marks = self._read()
            if self._is_new and marks.pop(self._name, None) == self._task:
                self._write(marks)

    def _read(self) -> dict[str, Any]:
        return dict(json.loads(read_variable(self._key) or "{}"))

    def _write(self, marks: dict[str, Any]) -> None:
        last = dict([*marks.items()][-MAX_MARKS:])
        write_variable(self._key, json.dumps(last, indent=2), _DESCRIPTION)


def _error_of_login(exception: BaseException, task: Any) -> BaseException | None:
    """Return the error with which a login failed: that of a task, or one of its causes; None if it is another one."""
    from airflow_provider_loanauth.operators.loanauth import AuthenticatingOperator

    waits = airflow_errors.AirflowSensorTimeout, airflow_errors.AirflowTaskTimeout, airflow_errors.TaskDeferralError
    if isinstance(task, AuthenticatingOperator) and isinstance(exception, waits):
        return exception
    return next((one for one in exception_chain(exception, suppressed=False) if isinstance(one, LoanAuthError)), None)
