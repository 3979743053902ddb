"""Deleting the return values of a task on each version of Airflow, also those of its mapped instances."""

from __future__ import annotations

from importlib import import_module

from airflow_provider_loanauth._compat import conf


def delete_xcom(*, dag_id: str, run_id: str, task_id: str, map_index: int | None = None) -> int:
    """Delete the return values of a task, or that of one map index; return how many are still stored.

    Raises any error of Airflow.
    """
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
