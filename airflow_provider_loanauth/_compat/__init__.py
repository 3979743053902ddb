# ruff: noqa: F401 - other modules import Airflow's names from here
# mypy: implicit-reexport, disable-error-code="assignment, attr-defined, import-not-found, no-redef"
"""Names that Airflow has moved, from their newest place; the channel to the supervisor; threads and forks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

try:  # 3.2
    from airflow.sdk import conf
    from airflow.sdk import exceptions as airflow_errors
except ImportError:
    from airflow import exceptions as airflow_errors
    from airflow.configuration import conf
try:  # 3.1
    from airflow.sdk import BaseHook
    from airflow.sdk.log import mask_secret
except ImportError:
    from airflow.hooks.base import BaseHook

    try:  # 3.0; the other one masks nothing in the log of its tasks
        from airflow.sdk.execution_time.secrets_masker import mask_secret
    except ImportError:
        from airflow.utils.log.secrets_masker import mask_secret
try:  # 3.0
    from airflow.sdk import BaseOperator, BaseSensorOperator, PokeReturnValue, get_current_context
except ImportError:
    from airflow.models import BaseOperator
    from airflow.operators.python import get_current_context
    from airflow.sensors.base import BaseSensorOperator, PokeReturnValue

if TYPE_CHECKING:
    from airflow.sdk import Context

R = TypeVar("R")


def _newest(name: str, *modules: str) -> Any:
    """Return what Airflow has under this name, from the first of these modules that has it: the newest one."""
    for module in modules:
        with suppress(ImportError, AttributeError):
            return getattr(import_module(module), name)
    raise ImportError(name)


#: What Airflow stores for a task whose trigger failed, and one of these errors if it did not fire in time: on 3.0 and
#: later, and on 2.11. A task that timed out on 2.11 may be resumed after an upgrade.
TRIGGER_FAIL_REPR = "__fail__"
TRIGGER_TIMEOUTS = {"Trigger timeout", "Trigger/execution timeout"}


def task_logger(module: str) -> logging.Logger:
    """Return the logger of a module. It is a child of Airflow's, so that its lines reach the log of the task."""
    return logging.getLogger(f"airflow.task.hooks.{module}")


def allow_in_xcom(cls: type[Any]) -> None:
    """Allow Airflow to deserialize objects of a class from XCom in this process, without any configuration."""
    try:
        _newest("allow_class", "airflow.sdk.serde")(cls)
    except ImportError:  # before 3.3
        allowed = _newest("_extra_allowed", "airflow.sdk.serde", "airflow.serialization.serde")
        allowed.add(f"{cls.__module__}.{cls.__qualname__}")


class ForkSafeLock:
    """A reentrant lock that a forked child does not share with its parent: ``with lock.current: …``."""

    # If another thread of the parent holds a lock at the fork, no thread of the child would ever release it.
    def __init__(self) -> None:
        self.recreate()
        _LOCKS.add(self)

    def recreate(self) -> None:
        """Replace the lock. A ``with`` statement in which the process was forked releases the lock that it acquired."""
        self.current = threading.RLock()


_LOCKS: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


class SupervisorError(RuntimeError):
    """The supervisor of a task cannot be asked, or responds with an error. The text has no secret."""


#: Held during a call to the supervisor: on 3.0 and 3.1, each of two threads may get the other's response.
SUPERVISOR_LOCK = ForkSafeLock()
#: The channel to the supervisor that a process shares with the task that it was forked from; None: there is none.
_inherited_channel: Any = None


def get_supervisor_channel() -> Any:
    """Return the channel of this task to its supervisor; None before Airflow 3, and outside of a task."""
    channel = getattr(sys.modules.get("airflow.sdk.execution_time.task_runner"), "SUPERVISOR_COMMS", None)
    if channel is not None and channel is _inherited_channel:
        # Each of the two processes may get the response to the other one.
        raise SupervisorError("this process was forked from a task")
    return channel


def _after_fork() -> None:
    global _inherited_channel  # noqa: PLW0603 - one fact of this process
    _inherited_channel = None  # in a child of a child
    _inherited_channel = get_supervisor_channel()
    for lock in [*_LOCKS]:
        lock.recreate()


os.register_at_fork(after_in_child=_after_fork)


async def run_in_thread(function: Callable[[], R], *, name: str = "loanauth") -> R:
    """Run a blocking function in a new daemon thread, which continues if the coroutine that waits is cancelled."""
    # Not in the thread pool of the event loop, which Airflow's triggerer shares: a call that hangs would starve others.
    # A secret can be masked in the thread; not every Airflow version allows that on an event loop.
    result: concurrent.futures.Future[R] = concurrent.futures.Future()
    # From now on it cannot be cancelled, so that the thread can always set it.
    result.set_running_or_notify_cancel()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            result.set_result(context.run(function))
        except BaseException as error:  # noqa: BLE001 - raised in the coroutine that waits
            result.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await asyncio.wrap_future(result)


def current_task() -> Any:
    """Return the task instance that this process runs, or None outside of a task."""
    try:
        return get_current_context()["ti"]
    except (airflow_errors.AirflowException, RuntimeError, LookupError, AttributeError):
        return None


def cleared_try() -> tuple[Any, ...] | None:
    """Return what identifies the try of the current task, if it is the first one after a person has cleared it."""
    task = current_task()
    try:
        # Clearing adds the tries that were used to max_tries; an automatic retry does not change it.
        if 1 < task.max_tries - (task.task.retries or 0) + 1 == task.try_number:
            return task.dag_id, task.run_id, task.task_id, task.map_index, task.try_number
    except (AttributeError, TypeError):  # no task, or the stand-in of a test
        pass
    return None


def current_team() -> str | None:
    """Return what tells the teams of ``[core] multi_team`` (3.2) apart: the DAG bundle. None: there is one team."""
    # An error if the bundle is not known, because keys of Variables are unique over all teams.
    if not conf.getboolean("core", "multi_team", fallback=False):
        return None
    bundle = getattr(current_task(), "bundle_instance", None)
    if bundle is None:
        raise SupervisorError("Airflow has several teams, and that of this process is not known")
    return str(bundle.name)


def api_status(error: Exception) -> int | None:
    """Return the HTTP status of Airflow's API server in an error of its SDK; None if the error has none."""
    detail = getattr(getattr(error, "error", None), "detail", None)
    status = detail.get("status_code") if isinstance(detail, dict) else None
    return status if isinstance(status, int) else None


@functools.cache
def get_stats() -> Any:
    """Return Airflow's ``Stats``, which sends metrics as ``[metrics]`` in the configuration says."""
    return _newest("Stats", "airflow.sdk.observability.stats", "airflow.stats")
