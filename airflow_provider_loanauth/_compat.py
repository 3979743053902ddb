"""
Differences between Airflow 2.11 and 3.3: names that moved, the channel to the supervisor, XCom. Also threads and forks.

This is the only module that depends on Airflow's version. It tries the newest place of each name first, so that no
version gives a deprecation warning.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
import threading
import weakref
from contextlib import suppress
from http import HTTPStatus
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

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
            AirflowSensorTimeout,
            AirflowSkipException,
        )
    except ImportError:  # 2.11 to 3.1
        from airflow.configuration import conf
        from airflow.exceptions import (
            AirflowException,
            AirflowFailException,
            AirflowNotFoundException,
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


def _channel() -> Any:
    return getattr(sys.modules.get("airflow.sdk.execution_time.task_runner"), "SUPERVISOR_COMMS", None)


def _remember_inherited_channel() -> None:
    global _inherited_channel  # noqa: PLW0603 - one fact of this process
    _inherited_channel = _channel()


os.register_at_fork(after_in_child=_remember_inherited_channel)


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


class TaskKey(NamedTuple):
    """
    The task instance whose XCom values are read or written.

    :param dag_id: DAG id
    :param run_id: DAG run id
    :param task_id: task id
    :param map_index: index of a mapped task instance; -1 if it is not mapped
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1


class XComConflictError(Exception):
    """Another process wrote the same XCom value at the same moment, so this one was not written."""


def current_task() -> TaskKey | None:
    """Return the task instance that this process runs, or None outside of a task."""
    try:
        instance = get_current_context()["ti"]
        index = -1 if instance.map_index is None else instance.map_index
        return TaskKey(instance.dag_id, instance.run_id, instance.task_id, index)
    except (AirflowException, RuntimeError, LookupError, AttributeError):
        return None


def _xcom() -> tuple[Any, bool]:
    """Return Airflow's XCom class, and whether tasks read and write XCom through their supervisor."""
    try:  # 3.0
        xcom = import_module("airflow.sdk.execution_time.xcom").XCom
    except ImportError:  # 2.11
        return import_module("airflow.models.xcom").XCom, False
    channel = _channel()
    if channel is not None and channel is _inherited_channel:
        # Each of the two processes may get the response to the other one.
        raise RuntimeError("This process was forked from a task of Airflow, so it cannot use XCom.")
    return xcom, True


def read_xcom(key: str, task: TaskKey) -> Any:
    """
    Return an XCom value of a task instance; None if there is none.

    :param key: key of the value
    :param task: the task instance
    :raises Exception: any error of Airflow, such as one of its API server
    """
    xcom, supervised = _xcom()
    names = {"key": key, "dag_id": task.dag_id, "run_id": task.run_id, "task_id": task.task_id}
    with supervisor_lock():
        # If the value does not exist, the supervisor of some versions logs an error for get_one, but not for get_all.
        # For a mapped task, get_all would return the values of all its instances.
        if supervised and task.map_index < 0:
            return next(iter(xcom.get_all(**names) or ()), None)
        return xcom.get_one(**names, map_index=task.map_index)


def write_xcom(key: str, value: Any, task: TaskKey) -> None:
    """
    Write an XCom value of a task instance. It replaces the value that was there.

    :param key: key of the value
    :param value: the value; JSON must be able to represent it
    :param task: the task instance
    :raises XComConflictError: another process wrote the same value at the same moment
    :raises Exception: any other error of Airflow, such as one of its API server
    """
    xcom, supervised = _xcom()
    try:
        with supervisor_lock():
            xcom.set(key, value, **task._asdict())
    except Exception as error:
        if xcom_status(error) == HTTPStatus.CONFLICT if supervised else _is_duplicate(error):
            raise XComConflictError from None
        raise


def _is_duplicate(error: Exception) -> bool:
    """
    Return whether a database has rejected a row because there is one with the same key.

    On 2.11, the task itself writes to the database. If the task instance was deleted, the error has the same type.
    """
    return type(error).__name__ == "IntegrityError" and "foreign key" not in str(getattr(error, "orig", "")).lower()


def xcom_status(error: Exception) -> int | None:
    """Return the HTTP status of Airflow's API server in an error of its SDK; None if the error has none."""
    detail = getattr(getattr(error, "error", None), "detail", None)
    status = detail.get("status_code") if isinstance(detail, dict) else None
    return status if isinstance(status, int) else None


def is_transient(error: Exception) -> bool:
    """Return whether reading or writing XCom may succeed later: Airflow's API server or database did not respond."""
    status = xcom_status(error)
    if status is None:
        # The supervisor of a task has no status to report if it gets no response.
        return type(error).__name__ in {"AirflowRuntimeError", "OperationalError"}
    return status >= HTTPStatus.INTERNAL_SERVER_ERROR


def read_all_xcom(key: str, *, dag_id: str, run_id: str, task_id: str) -> list[Any]:
    """
    Return an XCom value of a task, or those of all its mapped instances.

    :param key: key of the value
    :param dag_id: DAG id
    :param run_id: DAG run id
    :param task_id: task id
    :raises Exception: any error of Airflow, such as one of its API server
    """
    xcom, supervised = _xcom()
    if supervised:
        return [*(xcom.get_all(key=key, dag_id=dag_id, run_id=run_id, task_id=task_id) or ())]
    with import_module("airflow.utils.session").create_session() as session:
        rows = xcom.get_many(key=key, dag_ids=dag_id, run_id=run_id, task_ids=task_id, session=session)
        return [xcom.deserialize_value(row) for row in rows.with_entities(xcom.value)]


def delete_xcom(key: str, *, dag_id: str, run_id: str, task_id: str) -> int:
    """
    Delete an XCom value of a task, or those of all its mapped instances, if any are stored.

    Of a mapped task, only values with a map index below ``[core] max_map_length`` are deleted, and values that state
    their ``map_index`` themselves. Airflow 3.0 drops the map index of a request to delete, so an empty value replaces
    each value there. Airflow 2.11 deletes all values of the task, whatever their key is.

    :param key: key of the value
    :param dag_id: DAG id
    :param run_id: DAG run id
    :param task_id: task id
    :return: the number of values that are still stored
    :raises Exception: any error of Airflow, such as one of its API server
    """
    xcom, supervised = _xcom()
    if not supervised:
        xcom.clear(dag_id=dag_id, task_id=task_id, run_id=run_id)
        return 0
    names = {"key": key, "dag_id": dag_id, "run_id": run_id, "task_id": task_id}

    def stored() -> list[Any]:
        return [value for value in xcom.get_all(**names) or () if value]

    if not stored():
        return 0
    xcom.delete(**names)
    values = stored()
    left = len(values)
    stated = [value["map_index"] for value in values if isinstance(value, dict) and "map_index" in value]
    # Mapped instances that returned nothing leave gaps, so try each index until all values are deleted.
    for index in chain(stated, range(conf.getint("core", "max_map_length", fallback=1024))):
        if not left:
            break
        if xcom.get_one(**names, map_index=index):
            xcom.delete(**names, map_index=index)
            if xcom.get_one(**names, map_index=index):  # 3.0, which rejects None as a value
                xcom.set(value={}, **names, map_index=index)
            left -= 1
    return len(stored())


# Names of Airflow that other modules import from here.
__all__ = [
    "TRIGGER_FAIL_REPR",
    "TRIGGER_TIMEOUTS",
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
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
