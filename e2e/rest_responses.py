"""Every response of Airflow's REST API about connections and DAG runs, on any version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.airflow import Airflow


def collect_responses(airflow: Airflow, runs: list[tuple[str, str]]) -> dict[str, str]:
    """Request every resource that may contain data of these runs."""
    responses = {}
    for path in [*_general_paths(airflow), *(path for run in runs for path in _run_paths(airflow, *run))]:
        status, text = airflow.request("GET", path, text=True)
        responses[f"{path} ({status})"] = text
    return responses


def _general_paths(airflow: Airflow) -> Iterator[str]:
    yield "/connections"
    for connection in airflow.get("/connections")[1]["connections"]:
        yield f"/connections/{connection['connection_id']}"
    # Airflow returns at most 100 events at once.
    yield from (f"/eventLogs?limit=100&offset={offset}" for offset in range(0, 500, 100))
    yield from ("/variables", "/importErrors", "/providers", "/plugins", "/config")
    if not airflow.is_airflow_2:
        yield from ("/dagWarnings", "/jobs", f"{airflow.url}/ui/config", f"{airflow.url}/ui/connections/hook_meta")


def _run_paths(airflow: Airflow, dag_id: str, run_id: str) -> Iterator[str]:
    run = f"/dags/{dag_id}/dagRuns/{quote(run_id)}"
    yield from (f"/dags/{dag_id}", f"/dags/{dag_id}/details", f"/dags/{dag_id}/tasks", run, f"{run}/taskInstances")
    if airflow.is_airflow_2:
        yield f"/dags/{dag_id}/dagRuns"
    else:
        yield from (f"/dagSources/{dag_id}", f"{airflow.url}/ui/grid/runs/{dag_id}", f"{airflow.url}/ui/dags")
        yield f"{run}/taskInstances/~/xcomEntries"
    for instance in airflow.get(f"{run}/taskInstances")[1]["task_instances"]:
        yield from _task_paths(run, instance)


def _task_paths(run: str, instance: dict[str, Any]) -> Iterator[str]:
    task = f"{run}/taskInstances/{instance['task_id']}"
    index = instance["map_index"]
    mapped = f"?map_index={index}"
    yield f"{task}/{index}" if index >= 0 else task
    yield f"{task}/links{mapped}"
    yield f"{task}/{index}/tries" if index >= 0 else f"{task}/tries"
    yield f"{task}/xcomEntries{mapped}"
    entry = f"{task}/xcomEntries/return_value{mapped}"
    yield entry
    for deserialize in ("true", "false"):
        for stringify in ("true", "false"):
            yield f"{entry}&deserialize={deserialize}&stringify={stringify}"
    for number in range(1, (instance.get("try_number") or 1) + 1):
        yield f"{task}/logs/{number}{mapped}&full_content=true"
