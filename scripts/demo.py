"""Run an example DAG for each method against the sandbox, and show the results (``make demo``).

All files are in one scratch directory. All programs are stopped at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sqlite3
import sys
import time
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import ProxyHandler, build_opener

from cryptography.fernet import Fernet

from scripts.programs import ProgramError, Programs, shown
from scripts.update_docs import ROOT

DAGS = ROOT / "example_dags"
METHODS = {"jwt": "Authen JWT", "los": "Authen LOS", "ppe": "PPE API secret"}
#: The default scratch directory. It is emptied first.
DIRECTORY = ROOT / ".demo"

TIMEOUT = 600.0  # seconds for each step, which needs far less
SHOWN_ROWS = 6  # of each table; the log has all of them


class Run(NamedTuple):
    """One DAG run, in an Airflow of its own."""

    method: str
    dag_id: str
    home: Path
    log: Path

    def table(self) -> list[str]:
        """Return the lines that its summary task printed: a header, one line for each loan, and the number of loans."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        if found := re.search(r"^loan  .*?^\d+ loans priced$", text, re.MULTILINE | re.DOTALL):
            return found[0].splitlines()
        raise ProgramError(f"{self.dag_id} printed no table; see {shown(self.log)}")

    def xcom(self) -> dict[str, Any]:
        """Return the row of its credential in the metadata database."""
        with closing(sqlite3.connect(self.home / "airflow.db")) as database:
            rows = database.execute("SELECT value FROM xcom WHERE task_id = 'authenticate'").fetchall()
        if len(rows) != 1:
            raise ProgramError(f"{self.dag_id} stored {len(rows)} credentials in XCom instead of one")
        row = json.loads(rows[0][0])
        if not isinstance(row, dict) or "sealed" not in row.get("__data__", {}):
            raise ProgramError(f"{self.dag_id} stored a value in XCom that is not sealed")
        return row


def airflow_environment(home: Path, key: str, ready: dict[str, Any]) -> dict[str, str]:
    """Return environment variables for an Airflow of this demo, without those of the user's own Airflow."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "PYTHON"))}
    return inherited | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__FERNET_KEY": key,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW_VAR_LOAN_PRICING_URL": ready["pricing_url"],
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        "PYTHONUNBUFFERED": "1",
        **{name: json.dumps(connection) for name, connection in ready["connections"].items()},
    }


def start_sandbox(programs: Programs, ready_file: Path) -> dict[str, Any]:
    """Start the sandbox on a free port; return the content of its ready file, with addresses and Connections."""
    arguments = ("loanauth_sandbox", "--ready-file", str(ready_file))
    sandbox = programs.start("sandbox", *arguments, environment=dict(os.environ))
    programs.wait(
        "the start of the sandbox",
        lambda: ready_file.exists() or programs.succeeded("sandbox", sandbox),
        seconds=TIMEOUT,
    )
    ready: dict[str, Any] = json.loads(ready_file.read_text(encoding="utf-8"))
    print(f"  the sandbox listens on {ready['url']}")
    return ready


def run_dags(programs: Programs, directory: Path, ready: dict[str, Any]) -> list[Run]:
    """Run the DAG of each method with ``airflow dags test``, all at the same time."""
    key = Fernet.generate_key().decode()
    # SQLite allows one writer at a time, so each run gets its own copy of one new metadata database.
    first = directory / "airflow"
    first.mkdir()
    started = time.monotonic()
    name = "airflow-db-migrate"
    migrate = programs.start(name, "airflow", "db", "migrate", environment=airflow_environment(first, key, ready))
    programs.wait("airflow db migrate", lambda: programs.succeeded(name, migrate), seconds=TIMEOUT)
    print(f"  a scratch Airflow {version('apache-airflow')} was set up in {time.monotonic() - started:.0f} s")

    started = time.monotonic()
    runs = []
    for method in METHODS:
        (file,) = DAGS.glob(f"*_{method}.py")
        runs.append(Run(method, file.stem, directory / f"airflow-{method}", programs.log(file.stem)))
    waiting = {}
    for run in runs:
        shutil.copytree(first, run.home)
        environment = airflow_environment(run.home, key, ready)
        waiting[run.dag_id] = programs.start(run.dag_id, "airflow", "dags", "test", run.dag_id, environment=environment)

    def all_ended() -> bool:
        for dag_id, program in list(waiting.items()):
            if programs.succeeded(dag_id, program):
                del waiting[dag_id]
                print(f"  airflow dags test {dag_id} ended after {time.monotonic() - started:.0f} s")
        return not waiting

    programs.wait("running the DAGs", all_ended, seconds=TIMEOUT)
    return runs


def show_tables(runs: list[Run]) -> None:
    """Print the table of each summary task."""
    for run in runs:
        header, *lines, count = run.table()
        print(f"\n{METHODS[run.method]}: {run.dag_id}\n")
        print(*(f"  {line}" for line in [header, *lines[:SHOWN_ROWS]]), sep="\n")
        print(f"  {count}; the whole table is in {shown(run.log)}")


def show_xcom(runs: list[Run]) -> None:
    """Print how each credential is stored."""
    print("\nXCom: the credential's row in the metadata database")
    for run in runs:
        row = run.xcom()
        print(f"\n  {run.dag_id}, task authenticate: {row['__classname__'].rpartition('.')[2]}")
        for name, value in row["__data__"].items():
            print(f"    {name:11} {f'{value[:44]}... ({len(value)} characters)' if name == 'sealed' else value}")


def show_counters(runs: list[Run], counters: dict[str, Any]) -> list[str]:
    """Print the number of requests to the sandbox."""
    loans = len((DAGS / "data" / "loans.csv").read_text(encoding="utf-8").splitlines()) - 1
    problems = []
    print("\nRequests to the sandbox\n")
    print(f"  {'method':15} {'DAG run':24} {'authentications':>15} {'loans priced':>13}")
    for run in runs:
        counts = counters["by_method"].get(run.method, {})
        logins, priced = sum(counts.values()), int(run.table()[-1].split()[0])
        print(f"  {METHODS[run.method]:15} {run.dag_id:24} {logins:>15} {priced:>13}")
        if (counts.get("succeeded"), logins, priced) != (1, 1, loans):
            problems.append(f"{run.dag_id} should have authenticated once, and priced {loans} loans: {counts}")
    if counters["prices"] != {"succeeded": loans * len(runs), "rejected": 0}:
        problems.append(f"the sandbox should have priced {loans * len(runs)} loans: {counters['prices']}")
    return problems


def demo(directory: Path) -> list[str]:
    """Run the demo."""
    if directory == DIRECTORY:
        shutil.rmtree(directory, ignore_errors=True)
    if directory.exists() and any(directory.iterdir()):
        raise ProgramError(f"{shown(directory)} is not empty; choose a different --directory")
    logs = directory / "logs"
    logs.mkdir(parents=True)
    print("Loan Pricing Authentication: an example DAG for each method, run against the sandbox\n")
    with Programs(logs) as programs:
        ready = start_sandbox(programs, logs / "sandbox.json")
        runs = run_dags(programs, directory, ready)
        with build_opener(ProxyHandler({})).open(f"{ready['control_url']}/counters", timeout=TIMEOUT) as response:
            counters = json.load(response)
    show_tables(runs)
    show_xcom(runs)
    problems = show_counters(runs, counters)
    print(f"\nLogs: {shown(logs)}. All programs have been stopped.")
    return problems


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="scratch directory (default: .demo)")
    started = time.monotonic()
    try:
        problems = demo(parser.parse_args().directory.resolve())
    except KeyboardInterrupt:
        print("\nInterrupted. All programs have been stopped.")
        return 130
    except (ProgramError, OSError) as error:
        problems = [str(error)]
    for problem in problems:
        print(f"\nFAILED: {problem}")
    if not problems:
        print(f"Done in {time.monotonic() - started:.0f} s: every loan priced, one login for each DAG run.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
