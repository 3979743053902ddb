"""
Run the three example DAGs against the sandbox, and show what came of it (``make demo``).

Whatever this makes lies in one scratch directory, which it empties at the start; whatever it starts, it stops.
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import json
import os
import re
import shutil
import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from urllib.request import ProxyHandler, build_opener

from cryptography.fernet import Fernet

from scripts.programs import ProgramError, Programs, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
DAGS = ROOT / "example_dags"
METHODS = {"jwt": "Authen JWT", "los": "Authen LOS", "ppe": "PPE API secret"}
SECRET_FIELDS = ("password", "client_secret", "los_client_secret", "api_key")

START_SECONDS = 120.0  # that the sandbox may take to listen
STEP_SECONDS = 600.0  # that each other step may take; far more than it needs
ROWS = 6  # shown of each table; the whole of it is in the log


class DemoError(Exception):
    """The demo did not go as it should. The message is for the reader."""


@dataclass
class Run:
    """
    One DAG run.

    :param method: ``jwt``, ``los``, ``ppe``
    :param home: its ``AIRFLOW_HOME``
    :param log: what ``airflow dags test`` printed
    """

    method: str
    dag_id: str
    home: Path
    log: Path

    def table(self) -> list[str]:
        """Return what its summary task printed: a header, a line a loan, and how many there were."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        found = re.search(r"^loan  .*?^\d+ loans priced$", text, re.MULTILINE | re.DOTALL)
        if not found:
            raise DemoError(f"{self.dag_id} printed no table; see {shown(self.log)}")
        return found[0].splitlines()

    def loans(self) -> int:
        """Return how many loans it priced, as its summary task counted them."""
        return int(self.table()[-1].split()[0])

    def xcom(self) -> dict[str, Any]:
        """Return the row that its authenticating task left in the metadata database."""
        with closing(sqlite3.connect(f"{(self.home / 'airflow.db').as_uri()}?mode=ro", uri=True)) as database:
            rows = database.execute("SELECT value FROM xcom WHERE task_id = 'authenticate'").fetchall()
        if len(rows) != 1:
            raise DemoError(f"{self.dag_id} left {len(rows)} credentials in XCom instead of one")
        row = json.loads(rows[0][0])
        if not isinstance(row, dict) or "sealed" not in row.get("__data__", {}):
            raise DemoError(f"{self.dag_id} left something in XCom that is not sealed")
        return row


def say(text: str = "") -> None:
    """Print a line at once, also into a pipe."""
    print(text, flush=True)


def claim(directory: Path) -> int:
    """
    Make the scratch directory ours, and empty.

    :return: a lock, which this process holds until it closes it or ends
    :raises DemoError: it holds what no demo has made, or another demo is using it
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    mark = directory / "lock"
    if not mark.exists() and any(directory.iterdir()):
        raise DemoError(f"{shown(directory)} holds files that no demo has made: give another --directory")
    lock = os.open(mark, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DemoError(f"another demo is running in {shown(directory)}") from None
    for entry in directory.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry != mark:
            entry.unlink()
    return lock


def airflow_environment(home: Path, key: str, ready: dict[str, Any]) -> dict[str, str]:
    """Return the environment of an Airflow that knows this demo and nothing of the user's own Airflow."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "PYTHON"))}
    direct = ",".join(filter(None, [kept.get("no_proxy") or kept.get("NO_PROXY"), "127.0.0.1"]))
    return kept | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__FERNET_KEY": key,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW_VAR_LOAN_PRICING_URL": f"{ready['url']}/sandbox/price",
        "NO_PROXY": direct,
        "no_proxy": direct,
        "PYTHONUNBUFFERED": "1",
        **{name: json.dumps(connection) for name, connection in ready["connections"].items()},
    }


def start_sandbox(programs: Programs, ready_file: Path) -> dict[str, Any]:
    """Start the sandbox on a free port; return its addresses and the Connections that fit it."""
    arguments = ("loanauth_sandbox", "--ready-file", str(ready_file))
    sandbox = programs.start("sandbox", *arguments, environment=dict(os.environ))
    programs.wait(
        "the start of the sandbox",
        lambda: ready_file.exists() or programs.succeeded("sandbox", sandbox),
        seconds=START_SECONDS,
    )
    ready: dict[str, Any] = json.loads(ready_file.read_text(encoding="utf-8"))
    say(f"  the sandbox listens on {ready['url']}")
    return ready


def run_dags(programs: Programs, directory: Path, key: str, ready: dict[str, Any]) -> list[Run]:
    """Run the DAG of each method with ``airflow dags test``, all at once."""
    # SQLite serves one writer at a time, so each run gets an Airflow of its own: a copy of one that is set up once.
    first = directory / "airflow"
    first.mkdir()
    started = time.monotonic()
    name = "airflow-db-migrate"
    migrate = programs.start(name, "airflow", "db", "migrate", environment=airflow_environment(first, key, ready))
    programs.wait("airflow db migrate", lambda: programs.succeeded(name, migrate), seconds=STEP_SECONDS)
    say(f"  a scratch Airflow {version('apache-airflow')} is set up after {time.monotonic() - started:.0f} s")

    started = time.monotonic()
    runs = []
    waiting = {}
    for method in METHODS:
        (file,) = DAGS.glob(f"*_{method}.py")
        run = Run(method, file.stem, directory / f"airflow-{method}", programs.log(file.stem))
        shutil.copytree(first, run.home)
        environment = airflow_environment(run.home, key, ready)
        waiting[run.dag_id] = programs.start(run.dag_id, "airflow", "dags", "test", run.dag_id, environment=environment)
        runs.append(run)

    def all_ended() -> bool:
        for dag_id, program in list(waiting.items()):
            if programs.succeeded(dag_id, program):
                del waiting[dag_id]
                say(f"  airflow dags test {dag_id} is done after {time.monotonic() - started:.0f} s")
        return not waiting

    programs.wait("running the DAGs", all_ended, seconds=STEP_SECONDS)
    return runs


def show_tables(runs: list[Run]) -> None:
    """Show what each summary task printed."""
    for run in runs:
        header, *lines, count = run.table()
        say(f"\n{METHODS[run.method]}: {run.dag_id}\n")
        for line in [header, *lines[:ROWS]]:
            say(f"  {line}")
        say(f"  {count}; all of them in {shown(run.log)}")


def show_xcom(runs: list[Run], key: str, ready: dict[str, Any]) -> list[str]:
    """
    Show what the metadata databases hold of each credential, and search them and the logs for every secret.

    :return: a sentence for each secret that was found
    """
    say("\nWhat XCom holds: the row in the metadata database")
    secrets = {
        f"{field} of {name}": value
        for name, connection in ready["connections"].items()
        for field, value in (connection | connection["extra"]).items()
        if field in SECRET_FIELDS
    }
    for run in runs:
        row = run.xcom()
        say(f"\n  {run.dag_id}, task authenticate: {row['__classname__'].rpartition('.')[2]}")
        for name, value in row["__data__"].items():
            say(f"    {name:11} {f'{value[:44]}... ({len(value)} characters)' if name == 'sealed' else value}")
        # The key was made for this demo. Only who has it can tell what to search for.
        opened = Fernet(key).decrypt(row["__data__"]["sealed"].encode()).decode()
        # Two lines of metadata come before it.
        secrets[f"the credential of {run.dag_id}"] = opened.split("\n", 2)[2]
    files = [file for run in runs for file in (*run.home.glob("airflow.db*"), run.log)]
    leaks = find_leaks(secrets, files)
    say()
    say("  Searched the databases and the logs of the runs for these credentials, unsealed, and for the secrets")
    say(f"  of the Connections, each as it is, percent-encoded and in Base64: {len(leaks) or 'none'} found.")
    return leaks


def find_leaks(secrets: dict[str, str], files: list[Path]) -> list[str]:
    """Search files for secrets, which are given by name; return a sentence for each that was found."""
    found = []
    for file in files:
        content = file.read_bytes()
        for name, secret in secrets.items():
            if any(form in content for form in forms(secret)):
                found.append(f"{name} stands in {shown(file)}")
    return found


def forms(secret: str) -> Iterator[bytes]:
    """Return a secret as it may stand in a file: as it is, percent-encoded, in Base64 wherever it begins in there."""
    raw = secret.encode()
    yield raw
    yield quote(secret, safe="").encode()
    for before, first in ((0, 0), (1, 2), (2, 3)):
        yield base64.b64encode(b"\0" * before + raw)[first : (before + len(raw)) * 8 // 6]


def show_counters(runs: list[Run], counters: dict[str, Any]) -> list[str]:
    """
    Show what the sandbox was asked.

    :return: a sentence for each number that is not as it should be
    """
    loans = len((DAGS / "data" / "loans.csv").read_text(encoding="utf-8").splitlines()) - 1
    problems = []
    say("\nWhat the sandbox saw\n")
    say(f"  {'method':15} {'DAG run':24} {'authentications':>15} {'loans priced':>13}")
    for run in runs:
        tally = counters["by_method"].get(run.method, {})
        logins, priced = sum(tally.values()), run.loans()
        say(f"  {METHODS[run.method]:15} {run.dag_id:24} {logins:>15} {priced:>13}")
        if logins != 1 or tally["succeeded"] != 1:
            problems.append(f"{run.dag_id} authenticated {logins} times instead of once: {tally}")
        if priced != loans:
            problems.append(f"{run.dag_id} priced {priced} loans instead of {loans}")
    if counters["prices"] != {"succeeded": loans * len(runs), "refused": 0}:
        problems.append(f"the sandbox was to price {loans * len(runs)} loans: {counters['prices']}")
    if counters["token"] + counters["secret"] != len(runs):
        problems.append(f"the sandbox got {counters['token']} token and {counters['secret']} secret requests")
    return problems


def demo(directory: Path) -> list[str]:
    """
    Run the demo.

    :param directory: where everything goes
    :return: a sentence for each thing that is not as it should be
    :raises DemoError: something is missing
    :raises ProgramError: a program failed
    :raises KeyboardInterrupt: a signal asked to stop; nothing is left running
    """
    lock = claim(directory)
    logs = directory / "logs"
    logs.mkdir()
    key = Fernet.generate_key().decode()
    say("Loan Pricing Authentication: a DAG for each method, against the sandbox\n")
    with Programs(logs) as programs:
        ready = start_sandbox(programs, directory / "sandbox.json")
        runs = run_dags(programs, directory, key, ready)
        with build_opener(ProxyHandler({})).open(f"{ready['control_url']}/counters", timeout=START_SECONDS) as answer:
            counters = json.load(answer)
    show_tables(runs)
    problems = [*show_xcom(runs, key, ready), *show_counters(runs, counters)]
    say(f"\nLogs: {shown(logs)}. Nothing is left running.")
    os.close(lock)
    return problems


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--directory", type=Path, default=ROOT / ".demo", help="scratch directory; default .demo")
    started = time.monotonic()
    try:
        problems = demo(parser.parse_args().directory.resolve())
    except KeyboardInterrupt:
        say("\nStopped. Nothing is left running.")
        return 130
    except (DemoError, ProgramError, OSError) as error:
        problems = [str(error)]
    for problem in problems:
        say(f"\nFAILED: {problem}")
    if not problems:
        say(f"Done in {time.monotonic() - started:.0f} s: every loan priced, one authentication for each DAG run.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
