"""
Differences between Airflow 2.11 and 3.3: names that moved, and the channel to the supervisor. Also threads and forks.

Only this package depends on Airflow's version. It tries the newest place of each name first, so that no version gives a
deprecation warning.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import sys
import threading
import weakref
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from datetime import datetime

    from airflow.sdk import (
        BaseHook,
        BaseOperator,
        BaseSensorOperator,
        Context,
        PokeReturnValue,
        conf,
        get_current_context,
    )
    from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR
    from airflow.sdk.crypto import get_fernet
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowRescheduleException,
        AirflowSensorTimeout,
        AirflowSkipException,
    )
    from airflow.sdk.log import mask_secret

    TRIGGER_TIMEOUTS: set[str]
else:
    try:  # 3.0
        from airflow.sdk import BaseOperator, BaseSensorOperator, Context, PokeReturnValue, get_current_context
    except ImportError:  # 2.11
        from airflow.models import BaseOperator
        from airflow.operators.python import get_current_context
        from airflow.sensors.base import BaseSensorOperator, PokeReturnValue
        from airflow.utils.context import Context

    try:  # 3.1
        from airflow.sdk import BaseHook
    except ImportError:  # 2.11, 3.0
        from airflow.hooks.base import BaseHook

    try:  # 3.2
        from airflow.sdk import conf
        from airflow.sdk.crypto import get_fernet
        from airflow.sdk.exceptions import (
            AirflowException,
            AirflowFailException,
            AirflowNotFoundException,
            AirflowRescheduleException,
            AirflowSensorTimeout,
            AirflowSkipException,
        )
    except ImportError:  # 2.11 to 3.1
        from airflow.configuration import conf
        from airflow.exceptions import (
            AirflowException,
            AirflowFailException,
            AirflowNotFoundException,
            AirflowRescheduleException,
            AirflowSensorTimeout,
            AirflowSkipException,
        )
        from airflow.models.crypto import get_fernet

    try:  # 3.1
        from airflow.sdk.log import mask_secret
    except ImportError:
        try:  # 3.0
            from airflow.sdk.execution_time.secrets_masker import mask_secret
        except ImportError:  # 2.11
            from airflow.utils.log.secrets_masker import mask_secret

    # Airflow stores one of these errors for a task whose trigger did not fire in time. The literal is that of 2.11.
    # Later versions need it too, because a task that timed out on 2.11 may be resumed after an upgrade.
    TRIGGER_TIMEOUTS = {"Trigger/execution timeout"}
    try:  # 3.0
        from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR, TriggerFailureReason
    except ImportError:  # 2.11 has no names for them: its scheduler writes both as literals
        TRIGGER_FAIL_REPR = "__fail__"
    else:
        TRIGGER_TIMEOUTS.add(TriggerFailureReason.TRIGGER_TIMEOUT.value)

R = TypeVar("R")


def allow_in_xcom(cls: type[Any]) -> None:
    """
    Allow Airflow to deserialize objects of a class from XCom in this process, without any configuration.

    :param cls: a class at module level with ``serialize`` and a static ``deserialize``
    """
    try:  # 3.2
        serde = import_module("airflow.sdk.serde")
    except ImportError:  # 2.11 to 3.1
        serde = import_module("airflow.serialization.serde")
    if hasattr(serde, "allow_class"):  # 3.3
        serde.allow_class(cls)
    else:
        serde._extra_allowed.add(f"{cls.__module__}.{cls.__qualname__}")  # noqa: SLF001 - no other way before 3.3


class ForkSafeLock:
    """
    A reentrant lock that a forked child does not share with its parent: ``with lock.current: …``.

    If another thread of the parent holds a lock at the fork, no thread of the child would ever release it.

    :ivar current: the lock of this process
    """

    def __init__(self) -> None:
        self.recreate()
        _LOCKS.add(self)

    def recreate(self) -> None:
        """Replace the lock. A ``with`` statement in which the process was forked releases the lock that it acquired."""
        self.current = threading.RLock()


_LOCKS: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def _recreate_locks() -> None:
    for lock in [*_LOCKS]:
        lock.recreate()


os.register_at_fork(after_in_child=_recreate_locks)

_SUPERVISOR_LOCK = ForkSafeLock()
#: The channel to the supervisor that a process shares with the task that it was forked from; None: there is none.
_inherited_channel: Any = None


def get_supervisor_channel() -> Any:
    """Return the channel of this task to its supervisor; None before Airflow 3, and outside of a task."""
    return getattr(sys.modules.get("airflow.sdk.execution_time.task_runner"), "SUPERVISOR_COMMS", None)


def _remember_inherited_channel() -> None:
    global _inherited_channel  # noqa: PLW0603 - one fact of this process
    _inherited_channel = get_supervisor_channel()


os.register_at_fork(after_in_child=_remember_inherited_channel)


def has_inherited_channel() -> bool:
    """Return whether this process was forked from a task, and has only the channel of that task to the supervisor."""
    channel = get_supervisor_channel()
    return channel is not None and channel is _inherited_channel


def supervisor_lock() -> AbstractContextManager[Any]:
    """
    Return a lock that serialises calls to Airflow's supervisor.

    On 3.0 and 3.1, a task's channel to its supervisor has no lock of its own. If two threads read a Connection or mask
    a secret at the same time, each may get the other's response.
    """
    return _SUPERVISOR_LOCK.current


async def run_in_thread(function: Callable[[], R], *, name: str = "loanauth") -> R:
    """
    Run a blocking function in a new daemon thread and wait for it without blocking the event loop.

    The default thread pool of the event loop is not used: Airflow's triggerer shares it, and a call that hangs would
    starve others. A secret can be masked in the thread; not every Airflow version allows that on an event loop. If the
    coroutine is cancelled, the thread continues until the function returns, and the result is dropped.

    :param function: function without parameters; it sees the caller's context variables
    :param name: name of the thread
    :return: the result of the function
    :raises BaseException: any exception of the function
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[R] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(result: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = context.run(function)
        except BaseException as caught:  # noqa: BLE001 - handed to the coroutine that waits
            error = caught
        # A closed loop raises RuntimeError. No coroutine is waiting then.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done


def current_task() -> Any:
    """Return the task instance that this process runs, or None outside of a task."""
    try:
        return get_current_context()["ti"]
    except (AirflowException, RuntimeError, LookupError, AttributeError):
        return None


def is_cleared_by_person() -> bool:
    """
    Return whether this is the first try of the current task after a person has cleared it.

    Clearing adds the tries that were used to ``max_tries``; an automatic retry does not change it.
    """
    task = current_task()
    try:
        first_try = task.max_tries - (task.task.retries or 0) + 1
        return bool(first_try > 1 and task.try_number == first_try)
    except (AttributeError, TypeError):
        return False


def current_team() -> str | None:
    """
    Return what tells the teams of ``[core] multi_team`` (3.3) apart in a task: its DAG bundle. None: there is one team.

    Raises an error if there are teams and the bundle is not known: keys of Variables are unique over all teams.
    """
    if not conf.getboolean("core", "multi_team", fallback=False):
        return None
    return str(current_task().bundle_instance.name)


def api_status(error: Exception) -> int | None:
    """Return the HTTP status of Airflow's API server in an error of its SDK; None if the error has none."""
    detail = getattr(getattr(error, "error", None), "detail", None)
    status = detail.get("status_code") if isinstance(detail, dict) else None
    return status if isinstance(status, int) else None


def first_reschedule(context: Context) -> datetime | None:
    """
    Return when the first poke of a sensor in mode ``reschedule`` began (UTC).

    :param context: context of the task
    :return: the time; None if the sensor has not been rescheduled
    :raises Exception: any error of Airflow, such as one of its API server
    """
    instance: Any = context["ti"]
    if hasattr(instance, "get_first_reschedule_date"):  # 3.0
        with supervisor_lock():
            first: datetime | None = instance.get_first_reschedule_date(context)
    else:  # 2.11; its sensor counts the timeout from the same time
        first = import_module("airflow.sensors.base")._orig_start_date(  # noqa: SLF001 - no other way on 2.11
            dag_id=instance.dag_id,
            task_id=instance.task_id,
            run_id=instance.run_id,
            map_index=instance.map_index,
            try_number=(instance.max_tries or 0) - (instance.task.retries or 0) + 1,
        )
    return first


@functools.cache
def get_stats() -> Any:
    """Return Airflow's ``Stats``, which sends metrics as ``[metrics]`` in the configuration says."""
    try:  # 3.2
        return import_module("airflow.sdk.observability.stats").Stats
    except ImportError:  # 2.11 to 3.1
        return import_module("airflow.stats").Stats


# Names of Airflow that other modules import from here.
__all__ = [
    "TRIGGER_FAIL_REPR",
    "TRIGGER_TIMEOUTS",
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowRescheduleException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "BaseHook",
    "BaseOperator",
    "BaseSensorOperator",
    "Context",
    "PokeReturnValue",
    "conf",
    "get_current_context",
    "get_fernet",
    "mask_secret",
]
