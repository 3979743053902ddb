"""Every response of Airflow's REST API about connections and DAG runs, on any version."""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.airflow import Airflow

#: What the UI of Airflow 3 requests, and what Airflow does not describe.
UI = ("/ui/config", "/ui/connections/hook_meta", "/ui/dags", "/ui/grid/runs/{dag_id}")


def collect_responses(airflow: Airflow, runs: list[tuple[str, str]]) -> dict[str, str]:
    """Request every resource that Airflow describes and that may contain data of these runs."""
    resources = _resources(airflow)
    urls = dict.fromkeys(url for known in _known_values(airflow, runs) for url in _urls(resources, known))
    responses = {}
    for url in urls:
        status, text = airflow.request("GET", url, text=True)
        responses[f"{url.removeprefix(airflow.api)} ({status})"] = text
    return responses


def _resources(airflow: Airflow) -> dict[str, list[str]]:
    """Return the parameters of each resource, by URL."""
    base = airflow.api if airflow.is_airflow_2 else airflow.url
    description = airflow.get(f"{base}/openapi.json")[1]
    resources: dict[str, list[str]] = {f"{base}{path}": [] for path in UI}
    for path, methods in description["paths"].items():
        # A request of /auth/logout would end the session.
        if "get" in methods and "/auth/" not in path:
            parameters = [*methods.get("parameters", ()), *methods["get"].get("parameters", ())]
            # Airflow 2.11 describes most parameters once for all resources.
            shared = [one["$ref"].rpartition("/")[2] for one in parameters if "$ref" in one]
            parameters += [description["components"]["parameters"][name] for name in shared]
            resources[f"{base}{path}"] = [one["name"] for one in parameters if "name" in one]
    return resources


def _known_values(airflow: Airflow, runs: list[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """Yield values of parameters that belong together."""
    # Airflow returns at most 100 entries at once.
    yield from ({"limit": 100, "offset": offset} for offset in range(0, 500, 100))
    for connection in airflow.get("/connections")[1]["connections"]:
        yield {"connection_id": connection["connection_id"]}
    for dag_id, run_id in runs:
        run = {"dag_id": dag_id, "dag_run_id": quote(run_id)}
        yield run
        for instance in airflow.get(f"/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances")[1]["task_instances"]:
            task = run | {"task_id": instance["task_id"], "map_index": instance["map_index"], "full_content": "true"}
            for number in range(1, (instance.get("try_number") or 1) + 1):
                yield task | {"try_number": number, "task_try_number": number}
            for deserialize, stringify in product(("true", "false"), repeat=2):
                yield task | {"xcom_key": "return_value", "deserialize": deserialize, "stringify": stringify}


def _urls(resources: dict[str, list[str]], known: dict[str, Any]) -> Iterator[str]:
    for path, parameters in resources.items():
        in_path = re.findall(r"{(\w+)}", path)
        if known.keys() >= set(in_path) and (in_path or "offset" in known):
            query = {name: known[name] for name in parameters if name in known and name not in in_path}
            yield f"{path.format(**known)}?{urlencode(query)}"
