"""Reading and deleting the return values of a task on each version of Airflow, also those of its mapped instances."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from airflow_provider_loanauth._compat import conf

KEY = "return_value"


def read_xcom(*, dag_id: str, run_id: str, task_id: str) -> list[Any]:
    """Return the return value of a task, or those of all its mapped instances. Raises any error of Airflow."""
    try:  # 3.0
        xcom = import_module("airflow.sdk.execution_time.xcom").XCom
    except ImportError:  # 2.11
        xcom = import_module("airflow.models.xcom").XCom
        with import_module("airflow.utils.session").create_session() as session:
            rows = xcom.get_many(key=KEY, dag_ids=dag_id, run_id=run_id, task_ids=task_id, session=session)
            return [xcom.deserialize_value(row) for row in rows.with_entities(xcom.value)]
    return [*(xcom.get_all(key=KEY, dag_id=dag_id, run_id=run_id, task_id=task_id) or ())]


def delete_xcom(*, dag_id: str, run_id: str, task_id: str) -> int:
    """Delete the return values of a task; return how many are still stored. Raises any error of Airflow."""
    names = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id}
    try:  # 3.0
        xcom = import_module("airflow.sdk.execution_time.xcom").XCom
    except ImportError:  # 2.11
        import_module("airflow.models.xcom").XCom.clear(**names)
        return 0

    def stored() -> int:
        return sum(bool(value) for value in read_xcom(**names))

    left = stored()
    # An instance that is not mapped has the index -1. Mapped instances that returned nothing leave gaps, so try each
    # index until all values are deleted. Airflow 3.0 drops the map index of a request to delete, so an empty value
    # replaces each value there.
    for index in range(-1, conf.getint("core", "max_map_length", fallback=1024)):
        if not left:
            break
        if xcom.get_one(key=KEY, **names, map_index=index):
            xcom.delete(key=KEY, **names, map_index=index)
            if index >= 0 and import_module("airflow").__version__.startswith("3.0."):  # which rejects None as a value
                xcom.set(KEY, {}, **names, map_index=index)
            left -= 1
    return stored()
