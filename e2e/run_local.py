"""
Run batches of six DAGs that use one Connection, with LocalExecutor on real Airflow installations (``make e2e-local``).

LocalExecutor starts a process for each task. All of them together must log in once for each lifetime of a token, and
post a rejected password once. On 3.3, the DAGs then belong to two teams, which share nothing.

The database is PostgreSQL, because Airflow 2.11 does not run LocalExecutor on SQLite.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from e2e.batch import Batches, write_dags
from e2e.history import History
from e2e.marked_secrets import COMPANY, Recorder
from e2e.scenarios import TABLES, audit
from e2e.servers import start_postgresql
from e2e.standalone import Airflow
from e2e.versions import parser_for, run_each
from loanauth_sandbox.server import running_sandbox
from scripts.matrix import ONE_PYTHON, environment
from scripts.programs import Programs

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
    if version == "3.3":
        with started(version, directory / "teams", problems, TEAMS) as batches:
            result = batches.one_expiry("two_teams", shares=len(TEAMS))
            keys = [key for key in batches.variables() if key.endswith(".login")]
            print(f"Airflow {version}, LocalExecutor, two teams: {result}; {len(keys)} shared logins", flush=True)
            problems += result.problems(logins=4)
            if len(keys) != len(TEAMS):
                problems.append("each team should have a login of its own")
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
