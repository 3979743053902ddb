"""Which task of a DAG run notifies, of all that fail in the same way.

An Airflow Variable of the DAG and the Connection has a mark for each of the last failures: which task notifies, and
whether it has. No operation of Variables compares and writes in one step. So a task writes its mark, waits for longer
than another one needs to write one, and notifies if its mark is still there (Fischer's algorithm, as in
``login/claims.py``).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_loanauth._compat import may_leave_calls, task_logger
from airflow_provider_loanauth._compat.variables import read_variable, write_variable
from airflow_provider_loanauth.login.rules import as_utc
from airflow_provider_loanauth.login.variables import summary_key
from airflow_provider_loanauth.system import system

if TYPE_CHECKING:
    from airflow_provider_loanauth._compat import Context

R = TypeVar("R")

#: Maximum of marks in a Variable.
MAX_MARKS = 100
#: Seconds between writing a mark and reading it again: at least, at most, and so many times as long as writing took.
MIN_DELAY, MAX_DELAY, DELAY_FACTOR = 0.5, 3.0, 4.0
#: Seconds for which a task waits until another one has notified, and between two reads. Airflow 3 ends the process of a
#: task 20 seconds after it has failed (``[core] task_success_overtime``).
MAX_WAIT, POLL = 8.0, 1.0
#: Seconds for which a task waits for one read or write. Airflow repeats a request to its API server for 90 seconds.
CALL_SECONDS = 3.0
#: Seconds for which a task uses Variables in all, before it notifies and again after that.
MAX_SECONDS = 10.0
#: Maximum of writes until other tasks see that this one has notified.
MAX_WRITES = 3
_DESCRIPTION = "Which tasks have notified of a failed login, in the last runs of a DAG. Deleting it is safe."

_log = task_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What a failure of a run has in the Variable: the task that notifies, and whether it has."""

    task: str
    #: How often the run had been cleared, and when it began (UTC): one that was deleted may be created again.
    clears: int
    began: str
    has_notified: bool = False


class Notification:
    """The notification of a failure in a DAG run, as one of its tasks sees it."""

    def __init__(self, context: Context, conn_id: str | None, about: str) -> None:
        task: Any = context["ti"]
        # Connections that fail at once would overwrite the marks of each other.
        self._key = summary_key("notified", f"{task.dag_id}.{conn_id}" if conn_id else task.dag_id)
        self._failure = ", ".join(str(one) for one in (task.run_id, conn_id, about) if one)
        run: Any = context.get("dag_run")
        clears, began = getattr(run, "clear_number", None) or 0, getattr(run, "start_date", None)
        self._ends_at = system.monotonic() + MAX_SECONDS
        by = f"{task.task_id}, map index {task.map_index}, try {task.try_number}"
        self._mark = Mark(task=by, clears=clears, began=as_utc(began.timestamp()) if began else "")

    def claim(self) -> bool:
        """Return whether this task notifies: if it is not certain that another one has, or is about to, it does."""
        try:
            return self._claim()
        except Exception as error:  # noqa: BLE001 - the errors of Airflow differ between its versions
            # Not the text of the error, which may contain a URL.
            name = type(error).__name__
            _log.warning("Variables cannot be used (%s), so other tasks of this DAG run may notify too.", name)
            return True

    def _claim(self) -> bool:
        ends_at, first = system.monotonic() + MAX_WAIT, None
        while True:
            mark, is_late = self._read(), system.monotonic() >= ends_at
            if mark is None:
                # Nobody has claimed it.
                if self._write_and_confirm(self._mark) or is_late:
                    return True
            elif mark.task == self._mark.task:
                # This task has several notifiers.
                return True
            elif mark.has_notified:
                return False
            elif not is_late:
                first = first or mark
                system.sleep(POLL)
            elif mark != first:
                # Another task has taken over.
                return False
            elif self._write_and_confirm(self._mark):
                # The task that has claimed it was killed, or has a slow notifier.
                return True

    def confirm(self) -> None:
        """Let no other task notify."""
        self._ends_at = system.monotonic() + MAX_SECONDS
        # Another run of the DAG may write the Variable at the same moment.
        with suppress(Exception):
            for _ in range(MAX_WRITES):
                if self._write_and_confirm(replace(self._mark, has_notified=True)):
                    break

    def release(self) -> None:
        """Let another task notify, unless one has taken over, or another notifier of this task has notified."""
        self._ends_at = system.monotonic() + MAX_SECONDS
        with suppress(Exception):
            if self._read() == self._mark:
                self._write_and_confirm(None)

    def _write_and_confirm(self, mark: Mark | None) -> bool:
        """Write the mark of this failure, or delete it; return whether that has lasted."""
        began = system.monotonic()
        marks = self._marks()
        marks.pop(self._failure, None)
        if mark:
            marks[self._failure] = asdict(mark)
        text = json.dumps(dict([*marks.items()][-MAX_MARKS:]), indent=2)
        self._call(partial(write_variable, self._key, text, _DESCRIPTION))
        system.sleep(min(MAX_DELAY, max(MIN_DELAY, DELAY_FACTOR * (system.monotonic() - began))))
        return self._read() == mark

    def _read(self) -> Mark | None:
        """Return the mark of this failure; None if there is none, or if the run was cleared since then."""
        with suppress(KeyError, TypeError):
            mark = Mark(**self._marks()[self._failure])
            if mark.clears >= self._mark.clears and mark.began >= self._mark.began:
                return mark
        return None

    def _marks(self) -> dict[str, Any]:
        """Return what the Variable has; empty if it has another shape."""
        with suppress(ValueError):
            marks = json.loads(self._call(partial(read_variable, self._key)) or "{}")
            if isinstance(marks, dict):
                return marks
        return {}

    def _call(self, function: Callable[[], R]) -> R:
        """Call Airflow; do not wait for longer than a callback may take."""
        seconds = min(CALL_SECONDS, self._ends_at - system.monotonic())
        if seconds <= 0:
            raise TimeoutError
        if not may_leave_calls():
            return function()
        return system.run_within(seconds, function, name="loanauth Variable")
