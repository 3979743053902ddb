"""
Run batches of six DAGs that use one Connection, with LocalExecutor on real Airflow installations (``make e2e-local``).

LocalExecutor starts a process for each task. All of them together must log in once for each lifetime of a token, and
post a rejected password once. On 3.3, the DAGs then belong to two teams, which share nothing.

The database is PostgreSQL, because Airflow 2.11 does not run LocalExecutor on SQLite.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from e2e.batch import Batches, connection_variable, write_dags
from e2e.history import History
from e2e.marked_secrets import COMPANY, Recorder
from e2e.scenarios import TABLES, audit
from e2e.servers import start_postgresql
from e2e.standalone import Airflow
from e2e.versions import parser_for, run_each
from loanauth_sandbox.server import running_sandbox
from scripts.matrix import ONE_PYTHON, environment
from scripts.programs import ProgramError, Programs
from scripts.update_docs import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROCESSES = 8  # tasks at the same time
VERSIONS = ("2.11", "3.0", "3.1", "3.2", "3.3")
#: Which of the six DAGs a team has.
TEAMS = {"team_a": "range(3)", "team_b": "range(3, 6)"}
#: Names of batches, and what differs from a batch without problems.
BATCHES: dict[str, dict[str, Any]] = {
    "one_expiry": {},
    "changed_password": {"logins": 1, "rejected": 1, "may_fail": True},
    # One rejected post before each of the two corrections, and one login after it.
    "withdrawn_token": {"logins": 3, "rejected": 2},
}


def run(version: str, directory: Path) -> list[str]:
    """Run the batches on one Airflow, and print their results."""
    problems: list[str] = []
    with started(version, directory / "one", problems) as batches:
        for name, limits in BATCHES.items():
            result = getattr(batches, name)(name)
            print(f"Airflow {version}, LocalExecutor, {name}: {result}", flush=True)
            problems += [f"Airflow {version}, {name}: {problem}" for problem in result.problems(**limits)]
        problems += [f"Airflow {version}, {problem}" for problem in waits_that_end(batches)]
        if version in ("2.11", "3.2", "3.3"):
            problems += [f"Airflow {version}, {problem}" for problem in retries_that_succeed(batches)]
    if version == "3.3":
        with started(version, directory / "teams", problems, TEAMS) as batches:
            result = batches.one_expiry("two_teams", shares=len(TEAMS))
            keys = [key for key in batches.variables() if key.endswith(".login")]
            print(f"Airflow {version}, LocalExecutor, two teams: {result}; {len(keys)} shared logins", flush=True)
            problems += result.problems(logins=4)
            if len(keys) != len(TEAMS):
                problems.append("each team should have a login of its own")
    return problems


def waits_that_end(batches: Batches) -> list[str]:
    """Run sensors whose service never responds; return a sentence for each that does not end as its name says."""
    airflow, problems, run = batches.airflow, [], "/dags/waits_that_end/dagRuns/ends"
    airflow.wait_for_dag(batches.programs, "waits_that_end")
    airflow.unpause("waits_that_end")
    airflow.trigger("waits_that_end", "ends", {})
    airflow.wait_for_run(batches.programs, "waits_that_end", "ends", expected="failed")
    for task in airflow.get(f"{run}/taskInstances")[1]["task_instances"]:
        task_id, state, duration = task["task_id"], task["state"], task["duration"]
        _, limit, end = task_id.split("-")
        log = airflow.request("GET", f"{run}/taskInstances/{task_id}/logs/1?full_content=true", text=True)[1]
        said = re.search(r"The service (was not available within [^:]*: [^:]*|responded without TLS)", log)
        text = said[0] if said else "no reason"
        print(f"Airflow {airflow.version}, {task_id}: {state} after {duration:.0f} s: {text}", flush=True)
        expected = f"within 30 s, the {limit} of the sensor. Last cause: The service could not be reached"
        expected = "The service " + (
            "responded without TLS" if limit == "wrong_scheme" else f"was not available {expected}"
        )
        if state != {"fails": "failed", "skips": "skipped"}[end] or text != expected:
            problems.append(f"{task_id} did not end as it should; its log ends with: {log[-2000:]}")
    return problems


#: A refusal of every login that ends after some seconds, by name; the second try starts after three minutes or more.
REFUSALS: dict[str, dict[str, Any]] = {
    "a 401 for 20 s": {"status": 401, "lasts": 20.0},
    "invalid_client for 90 s": {"status": 401, "shape": "oauth", "error": "invalid_client", "lasts": 90.0},
}


#: Seconds of the Retry-After of one response. Airflow tries again after ten seconds, from 3.3 on not before its end.
RETRY_AFTER = 90


def retries_that_succeed(batches: Batches) -> list[str]:
    """Run tasks that Airflow retries while logins fail; return a sentence for each run that ends differently."""
    airflow, problems = batches.airflow, []
    runs = [(name, fault, "retried_login", 0) for name, fault in REFUSALS.items()]
    has_policies = airflow.version == "3.3"
    asked = {"status": 503, "retry_after": RETRY_AFTER, "times": 1}
    runs.append((f"Retry-After: {RETRY_AFTER}", asked, "retried_soon", RETRY_AFTER * has_policies))
    for dag_id in ("retried_login", "retried_soon"):
        airflow.wait_for_dag(batches.programs, dag_id)
        airflow.unpause(dag_id)
    for number, (name, fault, dag_id, shortest) in enumerate(runs):
        before = batches.sandbox.counters().token
        batches.sandbox.set_fault("status", where="token", **fault)
        began = time.monotonic()
        airflow.trigger(dag_id, f"refused_{number}", {})
        try:
            airflow.wait_for_run(batches.programs, dag_id, f"refused_{number}", expected="success")
        except ProgramError as error:
            problems.append(f"{name}: {error}")
        batches.sandbox.clear_faults()
        seconds, posts = time.monotonic() - began, batches.sandbox.counters().token - before
        print(f"Airflow {airflow.version}, {name}: success, after {seconds:.0f} s and {posts} posts", flush=True)
        if seconds < shortest:
            problems.append(f"{name}: a post within the pause")
    return problems


@contextmanager
def started(
    version: str, directory: Path, problems: list[str], teams: dict[str, str] | None = None
) -> Iterator[Batches]:
    """
    Start an Airflow with the DAGs; with teams, each has a bundle with some of them.

    :param problems: gets a sentence for each leak
    """
    began = time.monotonic()
    python = str(environment(version, ONE_PYTHON[version], "e2e-executors"))
    home, logs = directory / "home", directory / "logs"
    logs.mkdir(parents=True)
    bundles = []
    for team, numbers in (teams or {"dags": "range(6)"}).items():
        (home / team).mkdir(parents=True)
        write_dags(home / team, dags=numbers)
        for name in ("retried_login", "waits_that_end"):
            shutil.copy(ROOT / "e2e" / "dags" / f"{name}.py", home / team)
        kwargs = {"path": str(home / team)}
        classpath = "airflow.dag_processing.bundles.local.LocalDagBundle"
        bundles.append({"name": f"{team}_dags", "classpath": classpath, "kwargs": kwargs, "team_name": team})
    settings = {
        "AIRFLOW__CORE__MULTI_TEAM": "True",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
    }
    recorder = Recorder()
    # The servers are stopped last.
    with running_sandbox(accounts=[COMPANY]) as sandbox, Programs(logs) as servers, Programs(logs) as programs:
        recorder.attach(sandbox)
        postgresql = start_postgresql(servers, directory)
        airflow = Airflow(
            version,
            python=python,
            home=home,
            environment={
                "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
                "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
                "AIRFLOW__CORE__PARALLELISM": str(PROCESSES),
                "AIRFLOW_CONN_CLOSED": connection_variable("http://127.0.0.1:1", share_logins=False),
                "AIRFLOW_CONN_WRONG_SCHEME": connection_variable(sandbox.url.replace("http:", "https:")),
                **(settings if teams else {}),
            },
            database=postgresql.url,
        )
        airflow.start(programs, *(("teams", "create", team) for team in teams or ()))
        batches = Batches(airflow, programs, sandbox, recorder, postgresql, History(directory / "history" / "events"))
        batches.prepare("loanauth_jwt")
        yield batches
        contents = [("PostgreSQL", *content) for content in postgresql.contents()]
    problems += audit(batches, contents, {"logs": logs, "home": home}, TABLES)
    print(f"Airflow {version}: everything took {time.monotonic() - began:.0f} s", flush=True)


def main() -> int:
    """Return the exit status."""
    options = parser_for(__doc__, VERSIONS).parse_args()
    return run_each(options.versions or VERSIONS, run, keep=options.keep)


if __name__ == "__main__":
    sys.exit(main())
