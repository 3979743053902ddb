"""
Run a batch that lasts longer than its token with LocalExecutor on real Airflow installations (``make e2e-local``).

LocalExecutor starts a process for each task. All of them together must log in once for each lifetime of a token.

Airflow 2.11 runs on PostgreSQL, because it does not run LocalExecutor on SQLite.
"""

from __future__ import annotations

import base64
import secrets
import shutil
import sys
import time
from typing import TYPE_CHECKING

from e2e.batch import Batches, SQLite
from e2e.marked_secrets import COMPANY, Recorder
from e2e.servers import start_postgresql
from e2e.standalone import Airflow
from e2e.versions import parser_for, run_each
from loanauth_sandbox.server import running_sandbox
from scripts.matrix import ONE_PYTHON, environment
from scripts.programs import Programs
from scripts.update_docs import ROOT

if TYPE_CHECKING:
    from pathlib import Path

TASKS = 50
LIFETIME = 5  # seconds of a token; the batch takes longer
PROCESSES = 8  # tasks at the same time
VERSIONS = ("2.11", "3.0", "3.1", "3.2", "3.3")


def run(version: str, directory: Path) -> list[str]:
    """Run the batch on one Airflow, and print its result."""
    started = time.monotonic()
    python = str(environment(version, ONE_PYTHON[version], "e2e-celery"))
    home, logs = directory / "home", directory / "logs"
    logs.mkdir(parents=True)
    (home / "dags").mkdir(parents=True)
    shutil.copy(ROOT / "e2e" / "dags" / "late_batch.py", home / "dags")
    recorder = Recorder()
    # The servers are stopped last.
    with running_sandbox(accounts=[COMPANY]) as sandbox, Programs(logs) as servers, Programs(logs) as programs:
        postgresql = start_postgresql(servers, directory) if version == "2.11" else None
        airflow = Airflow(
            version,
            python=python,
            home=home,
            environment={
                "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
                "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
                "AIRFLOW__CORE__PARALLELISM": str(PROCESSES),
            },
            fernet_key=base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            password=f"made-up-{secrets.token_hex(8)}",
            database=postgresql.url if postgresql else None,
        )
        airflow.start(programs)
        batches = Batches(airflow, programs, sandbox, recorder, postgresql or SQLite(home / "airflow.db"))
        batches.add_connection()
        batches.unpause()
        batches.start("late", tasks=TASKS, lifetime=LIFETIME)
        result = batches.end("late")
    print(f"Airflow {version}, LocalExecutor: {result}; everything took {time.monotonic() - started:.0f} s", flush=True)
    return [f"Airflow {version}: {problem}" for problem in result.problems(TASKS)]


def main() -> int:
    """Return the exit status."""
    options = parser_for(__doc__, VERSIONS).parse_args()
    return run_each(options.versions or VERSIONS, run, keep=options.keep)


if __name__ == "__main__":
    sys.exit(main())
