# ruff: noqa: F401 - other modules import Airflow's names from here
# mypy: implicit-reexport, disable-error-code="assignment, attr-defined, import-not-found, no-redef"
"""Names that Airflow has moved, from their newest place; the channel to the supervisor; threads and forks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_loanauth.system import system

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
    from airflow.sdk import BaseNotifier, BaseOperator, BaseSensorOperator, PokeReturnValue, get_current_context
except ImportError:
    from airflow.models import BaseOperator
    from airflow.notifications.basenotifier import BaseNotifier
    from airflow.operators.python import get_current_context
    from airflow.sensors.base import BaseSensorOperator, PokeReturnValue

if TYPE_CHECKING:
    from airflow.sdk import Context

R = TypeVar("R")


def _newest(name: str, *modules: str) -> Any:
    """Return a name of Airflow from the first of these modules that has it."""
    for module in modules:
        with suppress(ImportError, AttributeError):
            return getattr(import_module(module), name)
    raise ImportError(name)


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


_LOCKS: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


class ForkSafeLock:
    """A reentrant lock that a forked child does not share with its parent: ``with lock.current: …``."""

    # If another thread of the parent holds a lock at the fork, no thread of the child would ever release it.
    def __init__(self) -> None:
        self.recreate()
        _LOCKS.add(self)

    def recreate(self) -> None:
        # A ``with`` statement in which the process was forked releases the lock that it acquired.
        self.current = threading.RLock()


class SupervisorError(RuntimeError):
    """The supervisor of a task cannot be asked, or responds with an error. The text has no secret."""


_TASK_RUNNER = "airflow.sdk.execution_time.task_runner"
_SUPERVISOR_LOCK = ForkSafeLock()
#: Of a process that was forked from a task: the channel to the supervisor of that task, from which both would read.
_channel_of_parent: Any = None


def _channel() -> Any:
    return getattr(sys.modules.get(_TASK_RUNNER), "SUPERVISOR_COMMS", None)


def _is_forked_from_task() -> bool:
    """Return whether this process has no channel of its own. Airflow forks each task, and then opens one."""
    # None: another thread hides it (supervisor_turn).
    return _channel_of_parent is not None and _channel() in (None, _channel_of_parent)


def _is_in_triggerer() -> bool:
    return type(_channel()).__name__ == "TriggerCommsDecoder"


@contextmanager
def supervisor_turn() -> Iterator[bool]:
    """Guard the channel to the supervisor while the block calls Airflow; yield True in a fork, which has none."""
    if _is_forked_from_task():
        # Each of the two processes may get the response to the other one, so Airflow must not find the channel.
        runner: Any = sys.modules[_TASK_RUNNER]
        with _SUPERVISOR_LOCK.current:
            runner.SUPERVISOR_COMMS = None
            try:
                yield True
            finally:
                runner.SUPERVISOR_COMMS = _channel_of_parent
    elif not str(import_module("airflow").__version__).startswith(("3.0.", "3.1.")):
        # The channel has a lock. A thread that calls may need the event loop, which must not wait for another one.
        yield False
    elif _is_in_triggerer():
        # It would end the triggerer, or wait for the event loop of which it holds the thread.
        raise SupervisorError("On Airflow 3.0 and 3.1, a trigger cannot use credentials: let a task do it")
    else:
        # Without it, each of two threads may get the response to the other one.
        with _SUPERVISOR_LOCK.current:
            yield False


def is_triggerer_loop() -> bool:
    """Return whether this thread runs the event loop of a triggerer, which the triggers of all DAGs share."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    thread = threading.current_thread()
    # On 2.11, the loop has a thread of its own; on later versions, a process.
    is_process = thread is threading.main_thread() and _is_in_triggerer()
    return is_process or type(thread).__name__ == "TriggerRunner"


def get_supervisor_channel() -> Any:
    """Return the channel of this task to its supervisor; None before Airflow 3, and outside of a task."""
    if _is_forked_from_task():
        raise SupervisorError("this process was forked from a task")
    return _channel()


def _after_fork() -> None:
    global _channel_of_parent  # noqa: PLW0603 - one fact of this process
    # If a thread hid it at the fork, it is that of an earlier parent.
    _channel_of_parent = _channel() or _channel_of_parent
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

    def run() -> None:
        try:
            result.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised in the coroutine that waits
            result.set_exception(error)

    system.start(run, name=name)
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
    # No task, or the stand-in of a test, lacks some of these.
    with suppress(AttributeError, TypeError):
        # Clearing adds the tries that were used to max_tries; an automatic retry does not change it.
        first_try = task.max_tries - (task.task.retries or 0) + 1
        if 1 < first_try == task.try_number:
            return task.dag_id, task.run_id, task.task_id, task.map_index, task.try_number
    return None


def index_in_group_of(context: Context, other: Any) -> int | None:
    """Return the map index of this task, if another task is in the same mapped task group; otherwise None."""
    group = context["task"].get_closest_mapped_task_group()
    if other is None or group is None or other.get_closest_mapped_task_group() is not group:
        return None
    index: int = context["ti"].map_index
    return index


def pull(context: Context, task_id: str, map_index: int | None) -> Any:
    """Return what a task of this run has returned, or its instance with a map index."""
    if map_index is None:
        return context["ti"].xcom_pull(task_ids=task_id)
    return context["ti"].xcom_pull(task_ids=task_id, map_indexes=map_index)


def delete_xcom(*, dag_id: str, run_id: str, task_id: str, map_index: int | None = None) -> int:
    """Delete the return values of a task, or that of one map index; return how many are still stored."""
    task = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id}
    try:  # 3.0
        xcom = import_module("airflow.sdk.execution_time.xcom").XCom
    except ImportError:  # 2.11
        import_module("airflow.models.xcom").XCom.clear(**task, map_index=map_index)
        return 0
    names = task | {"key": "return_value"}

    def stored() -> int:
        values = xcom.get_all(**names) if map_index is None else [xcom.get_one(**names, map_index=map_index)]
        return sum(bool(value) for value in values or ())

    left = stored()
    # An instance that is not mapped has the index -1. Mapped instances that returned nothing leave gaps, so try each
    # index until all values are deleted. Airflow 3.0 drops the map index of a request to delete, so an empty value
    # replaces each value there.
    indexes = range(-1, conf.getint("core", "max_map_length", fallback=1024)) if map_index is None else [map_index]
    for index in indexes:
        if not left:
            break
        if xcom.get_one(**names, map_index=index):
            xcom.delete(**names, map_index=index)
            if index >= 0 and import_module("airflow").__version__.startswith("3.0."):  # which rejects None as a value
                xcom.set(**names, value={}, map_index=index)
            left -= 1
    return stored()


def current_team() -> str | None:
    """Return what tells the teams of ``[core] multi_team`` (3.2) apart: the DAG bundle. None: there is one team."""
    if not conf.getboolean("core", "multi_team", fallback=False):
        return None
    bundle = getattr(current_task(), "bundle_instance", None)
    if bundle is None:  # keys of Variables are unique over all teams
        raise SupervisorError("Airflow has several teams, and that of this process is not known")
    return str(bundle.name)


def get_masker() -> Any:
    """Return the masker of this process, to which ``mask_secret`` adds values."""
    places = "airflow.sdk._shared.secrets_masker", "airflow.sdk.execution_time.secrets_masker"
    return _newest("_secrets_masker", *places, "airflow.utils.log.secrets_masker")()


@functools.cache
def get_stats() -> Any:
    """Return Airflow's ``Stats``, which sends metrics as ``[metrics]`` in the configuration says."""
    return _newest("Stats", "airflow.sdk.observability.stats", "airflow.stats")
