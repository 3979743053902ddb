"""Reading, writing and deleting XCom values of any task instance, on each version of Airflow."""

from __future__ import annotations

from http import HTTPStatus
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth._compat import conf, has_inherited_channel, supervisor_lock

if TYPE_CHECKING:
    from airflow_provider_loanauth._compat import TaskKey


class XComConflictError(Exception):
    """Another process wrote the same XCom value at the same moment, so this one was not written."""


def _xcom() -> tuple[Any, bool]:
    """Return Airflow's XCom class, and whether tasks read and write XCom through their supervisor."""
    try:  # 3.0
        xcom = import_module("airflow.sdk.execution_time.xcom").XCom
    except ImportError:  # 2.11
        return import_module("airflow.models.xcom").XCom, False
    if has_inherited_channel():
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
