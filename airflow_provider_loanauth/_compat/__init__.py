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
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import datetime, timezone
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


#: What Airflow stores for a task whose trigger failed, and one of these errors if it did not fire in time (the second
#: one: 2.11). A task that timed out on 2.11 may be resumed after an upgrade.
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


_RENEWED: weakref.WeakKeyDictionary[Any, Callable[[Any], object]] = weakref.WeakKeyDictionary()


def renew_in_child(thing: Any, renew: Callable[[Any], object]) -> None:
    """Call ``renew(thing)`` in each process that is forked from this one as long as the object exists."""
    _RENEWED[thing] = renew


class ForkSafeLock:
    """A reentrant lock that a forked child does not share with its parent: ``with lock.current: …``."""

    # If another thread of the parent holds a lock at the fork, no thread of the child would ever release it.
    def __init__(self) -> None:
        self.recreate()
        renew_in_child(self, ForkSafeLock.recreate)

    def recreate(self) -> None:
        # A ``with`` statement in which the process was forked releases the lock that it acquired.
        self.current = threading.RLock()


class SupervisorError(RuntimeError):
    """The supervisor of a task cannot be asked, or responds with an error. The text has no secret."""


_TASK_RUNNER = "airflow.sdk.execution_time.task_runner"
_SUPERVISOR_LOCK = ForkSafeLock()
#: ``has_loop``: a call to the supervisor in this thread runs on the event loop that has started it.
_THREAD = threading.local()
#: The channel to the supervisor that this process shares with the task that it was forked from.
_inherited_channel: Any = None
#: How many threads have hidden it.
_hidden = 0
_HIDING_LOCK = ForkSafeLock()


def _channel() -> Any:
    return getattr(sys.modules.get(_TASK_RUNNER), "SUPERVISOR_COMMS", None)


def _has_channel_without_lock() -> bool:
    # There, each of two threads may get the response of the supervisor to the other one.
    return str(import_module("airflow").__version__).startswith(("3.0.", "3.1."))


def _is_forked_from_task() -> bool:
    channel = _channel()
    return _inherited_channel is not None and (channel is _inherited_channel or channel is None)


def _is_in_triggerer() -> bool:
    return type(_channel()).__name__ == "TriggerCommsDecoder"


def supervisor_turn() -> AbstractContextManager[Any]:
    """Return what is held during a call to the supervisor."""
    # Nothing where the channel has a lock: a thread that calls may need the event loop, which must not wait.
    if not _has_channel_without_lock():
        return nullcontext()
    if _is_in_triggerer() and not getattr(_THREAD, "has_loop", False):
        # It would end the triggerer, or wait for the event loop of which it holds the thread.
        raise SupervisorError("On Airflow 3.0 and 3.1, a trigger can only use aget_credential()")
    return _SUPERVISOR_LOCK.current


def may_leave_calls() -> bool:
    """Return whether a call to Airflow may go on in a thread while its caller continues and calls Airflow too."""
    # That of ``dag.test()`` has no lock either, on any version.
    channel = _channel()
    return channel is None or hasattr(channel, "_thread_lock")


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
        # Each of the two processes may get the response to the other one.
        raise SupervisorError("this process was forked from a task")
    return _channel()


@contextmanager
def hidden_inherited_channel() -> Iterator[bool]:
    """Hide the channel of the task that this process was forked from, from Airflow; yield whether there is one."""
    global _hidden  # noqa: PLW0603 - one fact of this process
    if not _is_forked_from_task():
        yield False
        return
    runner: Any = sys.modules[_TASK_RUNNER]
    with _HIDING_LOCK.current:
        _hidden += 1
        runner.SUPERVISOR_COMMS = None
    try:
        yield True
    finally:
        with _HIDING_LOCK.current:
            _hidden -= 1
            # Another thread may still need it to be hidden.
            if not _hidden:
                runner.SUPERVISOR_COMMS = _inherited_channel


def _after_fork() -> None:
    global _inherited_channel  # noqa: PLW0603 - one fact of this process
    # A thread of the parent may have hidden it.
    _inherited_channel = _channel() or _inherited_channel
    for thing, renew in [*_RENEWED.items()]:
        # One that cannot be renewed must not keep the others from it.
        with suppress(Exception):
            renew(thing)


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

    if _has_channel_without_lock() and is_triggerer_loop():
        # A call to the supervisor must run on this event loop. In any other thread, asgiref would use a loop of its own
        # for it, and the triggerer would end.
        executor = concurrent.futures.ThreadPoolExecutor(1, initializer=setattr, initargs=(_THREAD, "has_loop", True))
        sync_to_async = import_module("asgiref.sync").sync_to_async
        await asyncio.shield(sync_to_async(run, thread_sensitive=False, executor=executor)())
    else:
        system.start(run, name=name)
    return await asyncio.wrap_future(result)


def current_task() -> Any:
    """Return the task instance that this process runs, or None outside of a task."""
    try:
        return get_current_context()["ti"]
    except (airflow_errors.AirflowException, RuntimeError, LookupError, AttributeError):
        return None


def is_outside_of_airflow() -> bool:
    """Return whether Airflow does not look for Connections in its database: from 3.1 on, in a script."""
    is_server = os.environ.get("_AIRFLOW_PROCESS_CONTEXT") == "server"
    return BaseHook.__module__.startswith("airflow.sdk") and _channel() is None and not is_server


def cleared_try() -> tuple[Any, ...] | None:
    """Return what identifies the try of the current task, if it is the first one after a person has cleared it."""
    task = current_task()
    # No task, or the stand-in of a test, lacks some of these.
    with suppress(AttributeError, TypeError):
        # Clearing adds the tries that were used to max_tries; an automatic retry does not change it.
        if 1 < task.max_tries - (task.task.retries or 0) + 1 == task.try_number:
            return task.dag_id, task.run_id, task.task_id, task.map_index, task.try_number
    return None


def first_start(context: Context) -> float | None:
    """Return when the try of a rescheduled sensor first started, in seconds since the epoch (UTC); None: it is now."""
    ti: Any = context["ti"]
    if hasattr(ti, "get_first_reschedule_date"):  # 3.0
        found = ti.get_first_reschedule_date(context)
        if isinstance(found, str):  # ``airflow dags test`` of 3.0
            found = datetime.fromisoformat(found.replace("Z", "+00:00"))
    else:
        names = ("dag_id", "run_id", "task_id", "map_index", "try_number")
        find = _newest("_orig_start_date", "airflow.sensors.base")
        found = find(**{name: getattr(ti, name) for name in names})
    return found and float(found.timestamp())


def resume_after_its_time(task: Any, ti: Any) -> None:
    """Give a task that resumes all of its ``execution_timeout``, as Airflow 3 does."""
    # 2.11 subtracts the time since the first start. If none is left, it raises an error that does not say anything.
    if getattr(ti, "next_method", None) and ti.start_date:
        task.execution_timeout += datetime.now(timezone.utc) - ti.start_date


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


def pending_tasks(context: Context, task_ids: set[str], map_index: int | None) -> list[str]:
    """Return which of these tasks of this run have not ended, or their instances of one map index; [] if not known."""
    instance: Any = context["ti"]
    states: dict[str, Any] = {}
    with suppress(Exception):  # only for a warning
        if hasattr(instance, "get_task_states"):  # 3.0
            names = {"dag_id": instance.dag_id, "task_ids": sorted(task_ids), "run_ids": [instance.run_id]}
            states = instance.get_task_states(**names, map_index=map_index)[instance.run_id]
        else:
            for one in context["dag_run"].get_task_instances():
                if one.task_id in task_ids and map_index in (None, one.map_index):
                    states[f"{one.task_id}_{one.map_index}".removesuffix("_-1")] = one.state
    ended = ("success", "failed", "skipped", "upstream_failed", "removed")
    return sorted(name for name, state in states.items() if state not in ended)


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
