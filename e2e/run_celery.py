"""
Run batches of six DAGs that use one Connection, with CeleryExecutor and two workers (``make e2e-celery``).

Each task is a process of its own, on one of two workers. On Airflow 3, the workers know neither the metadata database
nor the key that signs tokens. Things go wrong during the batches: passwords change, a worker and the API server are
killed, Variables are deleted. Then the leak audit searches everything that was stored, and the REST API.

PostgreSQL and Redis are started on free ports of the loopback address, and stopped at the end.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from e2e.audit import Audit, KnownLeak
from e2e.batch import CHANGED_PASSWORD, CONNECTION_TIMEOUT, DAG_IDS, LIFETIME, TASKS, Batches, Result
from e2e.cluster import WORKERS, CeleryAirflow
from e2e.marked_secrets import COMPANY, MARKED_SECRETS, WRONG_PASSWORD, Recorder
from e2e.rest_responses import collect_responses
from e2e.servers import missing_servers, start_postgresql, start_redis
from e2e.steps import EndToEndError
from e2e.versions import parser_for, run_each
from loanauth_sandbox.server import running_sandbox
from scripts.matrix import ONE_PYTHON, environment
from scripts.programs import Programs
from scripts.update_docs import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

VERSIONS = ("3.3", "2.11")
SENSORS = 50
LOGIN_SECONDS = 4  # of a login during which something goes wrong
#: Maximum of seconds until another task takes over from one that was killed. Its claim is valid for twice the timeout
#: and 8 seconds; the others read it every 5 seconds.
MAX_TAKEOVER = 2 * CONNECTION_TIMEOUT + 25
MAX_WAIT = 20  # seconds of a task whose worker has another password
API_SERVER_PAUSE = 20  # seconds
#: Tables in which Airflow could store a secret, and which must be among those that are searched.
TABLES = {"variable", "log", "dag_run", "trigger", "xcom", "connection", "rendered_task_instance_fields"}


SCENARIOS = {
    "a": "six_dags",
    "b": "changed_password",
    "c": "two_passwords",
    "d": "killed_claimant",
    "e": "killed_api_server",
    "f": "deferred_sensors",
    "g": "deleted_variables",
}


@dataclass
class Scenarios:
    """The scenarios on one Airflow. Each prints its counts, and returns a sentence for each condition that fails."""

    batches: Batches
    airflow: CeleryAirflow
    #: Name and content of what is searched later, although it is gone then.
    contents: list[tuple[str, str, bytes]] = field(default_factory=list)

    def run(self, names: Sequence[str]) -> list[str]:
        """Run scenarios."""
        problems = []
        for number, letter in enumerate(names, 1):
            scenario = getattr(self, SCENARIOS[letter])
            title = f"Airflow {self.airflow.version} ({letter}) {scenario.__doc__}"
            print(title, flush=True)
            try:
                found = scenario(f"{letter}{number}")
            except EndToEndError as error:
                found = [str(error)]
            problems += [f"{title} {problem}" for problem in found]
            self.start_workers()
        return problems

    def _judge(self, result: Result, **expected: Any) -> list[str]:
        print(f"  {result}", flush=True)
        return result.problems(**expected)

    def six_dags(self, run_id: str) -> list[str]:
        """Run six DAGs at once, over one expiry."""
        return self._judge(self.batches.one_expiry(run_id))

    def changed_password(self, run_id: str) -> list[str]:
        """Change the password at the service during a batch; run all DAGs again afterwards."""
        return self._judge(self.batches.changed_password(run_id), logins=1, rejected=1, may_fail=True)

    def two_passwords(self, run_id: str) -> list[str]:
        """Give one of the two workers a wrong password in its environment."""
        wrong = self.batches.connection(password=WRONG_PASSWORD)
        del wrong["connection_id"]  # Airflow ignores an environment variable with a key that it does not know
        self.airflow.kill_worker(self.batches.programs, WORKERS[1])
        self.start_workers(AIRFLOW_CONN_LOANAUTH_JWT=json.dumps(wrong))
        result = self.batches.one_expiry(run_id)
        self.airflow.kill_worker(self.batches.programs, WORKERS[1])
        problems = self._judge(result, logins=1, rejected=1, may_fail=True)
        if max(result.waits, default=0) > MAX_WAIT:
            problems.append(f"a task waited for {max(result.waits):.0f} s")
        return problems

    def killed_claimant(self, run_id: str) -> list[str]:
        """Kill the worker of the task that logs in, before it has the response."""
        issued = self.batches.recorder.issued_at
        self._wait_for_second_login(run_id)
        host = self._host_that_logs_in(run_id)
        killed = time.time()
        self.airflow.kill_worker(self.batches.programs, host)
        self.batches.sandbox.clear_faults()
        result = self.batches.end(run_id)
        delay = next((at - killed for at in issued if at > killed), None)
        print(f"  {host} was killed; another task logged in {f'{delay:.1f} s later' if delay else 'never'}", flush=True)
        late = [] if delay and delay < MAX_TAKEOVER else [f"no task took over within {MAX_TAKEOVER} s"]
        return late + self._judge(result, max_extra=1)

    def killed_api_server(self, run_id: str) -> list[str]:
        """Kill the API server before the token expires, and start another one."""
        if self.airflow.is_airflow_2:
            print("  left out: tasks of Airflow 2.11 use the metadata database, and not an API server")
            return []
        self._start_and_wait(run_id)
        programs = self.batches.programs
        programs.kill(self.airflow.servers["api-server"])
        stopped = time.time()
        self._wait_until(stopped + API_SERVER_PAUSE)
        self.airflow.wait_until_healthy(programs, [self.airflow.run(programs, "api-server")])
        print(f"  the API server was available again after {time.time() - stopped:.0f} s", flush=True)
        # A task that cannot read Variables logs in for itself.
        return self._judge(self.batches.end(run_id), max_extra=TASKS)

    def deferred_sensors(self, run_id: str) -> list[str]:
        """Let fifty deferred sensors wait for the service."""
        dag_id, sandbox, programs = "fifty_waiting", self.batches.sandbox, self.batches.programs
        self.batches.reset(run_id, lifetime=3600)
        sandbox.set_fault("refuse")
        try:
            self.airflow.wait_for_dag(programs, dag_id)
            self.airflow.unpause(dag_id)
            self.airflow.trigger(dag_id, run_id, {})
            self.batches.wait_until(
                f"{SENSORS} deferred sensors", lambda: self.batches.states(run_id) == {"deferred": SENSORS}
            )
            self.contents += self._tables("trigger")
        finally:
            sandbox.clear_faults()
        self.batches.wait_until(
            f"{SENSORS} sensors", lambda: not self.batches.states(run_id).keys() - {"success", "failed"}
        )
        states, counters = self.batches.states(run_id), sandbox.counters()
        succeeded, rejected = counters.authentications.succeeded, counters.authentications.rejected
        print(
            f"  {states['success']} success, {states['failed']} failed; {succeeded} logins, {rejected} rejected; "
            f"{counters.probe} probes",
            flush=True,
        )
        if (states["success"], succeeded, rejected) != (SENSORS, 1, 0):
            return ["all sensors should succeed with one login"]
        return []

    def deleted_variables(self, run_id: str) -> list[str]:
        """Delete the Variables before the token expires, and while a task logs in."""
        self._wait_for_second_login(run_id, before=self.batches.delete_variables)
        self.batches.delete_variables()
        self.batches.sandbox.clear_faults()
        # Without its claim, the task that logs in is not the only one.
        return self._judge(self.batches.end(run_id), max_extra=1)

    def _start_and_wait(self, run_id: str) -> None:
        """Start a batch, and wait until just before its token expires."""
        issued = self.batches.recorder.issued_at
        self.batches.reset(run_id)
        self.batches.start(run_id, seconds=10)
        self.batches.wait_until("a login", lambda: bool(issued))
        self._wait_until(issued[0] + 0.85 * LIFETIME)

    def _wait_for_second_login(self, run_id: str, before: Callable[[], None] = lambda: None) -> None:
        """Start a batch, and wait until its second login has reached the service; do something just before."""
        self._start_and_wait(run_id)
        before()
        self.batches.sandbox.set_fault("latency", where="token", seconds=LOGIN_SECONDS)
        issued = self.batches.recorder.issued_at
        self.batches.wait_until("a second login", lambda: len(issued) > 1)

    def _host_that_logs_in(self, run_id: str) -> str:
        """Return the host of the task that has claimed the login."""
        (who,) = [claim["by"] for key, claim in self.batches.variables().items() if key.endswith(".claim")]
        print(f"  {who} logs in", flush=True)
        dag_id, _, task = who.partition(" on ")[0].partition(".")
        task_id, _, index = task.removesuffix("]").partition("[")
        (row,) = self.batches.database.rows(
            "SELECT hostname FROM task_instance WHERE "  # noqa: S608 - no input of a user
            f"dag_id = '{dag_id}' AND run_id = '{run_id}' AND task_id = '{task_id}' AND map_index = {int(index or -1)}"
        )
        return row[0]

    def start_workers(self, **more: str) -> None:
        """Start each worker that does not run, with more environment variables."""
        for host in WORKERS:
            if host not in self.airflow.workers:
                self.airflow.start_worker(self.batches.programs, host, more)

    def _tables(self, *names: str) -> list[tuple[str, str, bytes]]:
        contents = self.airflow.postgresql.contents()
        return [("PostgreSQL", table, content) for table, content in contents if table in names or not names]

    def _wait_until(self, moment: float) -> None:
        self.batches.wait_until("the time", lambda: time.time() > moment)

    def collect(self, names: Sequence[str]) -> list[tuple[str, str, bytes]]:
        """Return everything that the REST API and the database contain of these scenarios."""
        run_ids = [f"{name}{number}" for number, name in enumerate(names, 1) if name != "f"]
        responses = collect_responses(self.airflow, [(DAG_IDS[0], run_id) for run_id in {*run_ids[:1], *run_ids[-1:]}])
        rest = [("REST", path, text.encode()) for path, text in responses.items() if path.endswith("(200)")]
        return [*self.contents, *rest, *self._tables()]


def audit(
    directory: Path, recorder: Recorder, contents: list[tuple[str, str, bytes]], homes: Sequence[str]
) -> tuple[Audit, list[str]]:
    """Search everything that was stored for every secret."""
    kinds = {kind for kind, _, _ in contents} | {"Redis", "logs", *homes}
    known = [KnownLeak("control", f"{kind}: ", "the search finds nothing in such places") for kind in sorted(kinds)]
    changed = {"changed password": CHANGED_PASSWORD, "control": "late_batch"}
    search = Audit({**MARKED_SECRETS, **recorder.issued, **changed}, known)
    for content in contents:
        search.search(*content)
    search.search_files("Redis", directory / "redis" / "data")
    search.search_files("logs", directory / "logs")
    for home in homes:
        search.search_files(home, directory / home)
    return search, search.close()


def asked(airflow: CeleryAirflow) -> list[str]:
    """Print what the secrets backends were asked; return a sentence if those of workers were asked for a Variable."""
    problems = []
    for home in (airflow.home, *map(airflow.worker_home, WORKERS)):
        lines = Counter((home / "asked").read_text().splitlines() if (home / "asked").exists() else ())
        kinds: Counter[str] = Counter()
        for line, times in lines.items():
            kinds[" ".join(line.split(".")[:2] if line.startswith("variable loanauth.") else line.split()[:1])] += times
        print(f"  secrets backend of {home.name} was asked for: {dict(kinds)}", flush=True)
        if home != airflow.home and any(kind.startswith("variable loanauth") for kind in kinds):
            problems.append(f"the secrets backend of {home.name} was asked for Variables of a shared login")
    return problems


def run(version: str, directory: Path, scenarios: str) -> list[str]:
    """Run the scenarios and the leak audit on one Airflow."""
    started = time.monotonic()
    python = str(environment(version, ONE_PYTHON[version], "e2e-executors"))
    home, logs, dags = directory / "home", directory / "logs", directory / "dags"
    for path in (home, logs, dags):
        path.mkdir(parents=True)
    for dag in ("e2e/dags/late_batch.py", "tests/dags/fifty_waiting.py"):
        shutil.copy(ROOT / dag, dags)
    recorder = Recorder()
    # The servers are stopped last.
    with running_sandbox(accounts=[COMPANY]) as sandbox, Programs(logs) as servers:
        recorder.attach(sandbox)
        postgresql = start_postgresql(servers, directory)
        redis = start_redis(servers, directory)
        with Programs(logs) as programs:
            airflow = CeleryAirflow(
                version,
                python=python,
                home=home,
                environment={
                    "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
                    "AIRFLOW__CORE__MAX_ACTIVE_TASKS_PER_DAG": str(SENSORS),
                },
                postgresql=postgresql,
                redis=redis,
            )
            airflow.start(programs)
            batches = Batches(airflow, programs, sandbox, recorder, postgresql)
            run_all = Scenarios(batches, airflow)
            run_all.start_workers()
            batches.prepare("loanauth_jwt", "waiting")
            print(f"Airflow {version}: started in {time.monotonic() - started:.0f} s", flush=True)
            problems = run_all.run(scenarios)
            contents = run_all.collect(scenarios)
            problems += asked(airflow)
    search, found = audit(directory, recorder, contents, ("home", *WORKERS))
    if missing := TABLES - {"" if "f" in scenarios else "trigger"} - {place for _, place, _ in contents}:
        found.append(f"not searched: {', '.join(sorted(missing))}")
    print(f"Airflow {version}: {time.monotonic() - started:.0f} s; {search}", flush=True)
    return problems + [f"Airflow {version}: {one}" for one in found]


def main() -> int:
    """Return the exit status."""
    parser = parser_for(__doc__, VERSIONS)
    parser.add_argument(
        "--scenarios",
        default="".join(SCENARIOS),
        metavar="LETTERS",
        help="run these; aaa runs the first one three times (default: abcdefg)",
    )
    options = parser.parse_args()
    if unknown := sorted(set(options.scenarios) - set(SCENARIOS)):
        parser.error(f"not one of the scenarios a to g: {' '.join(unknown)}")
    if missing := missing_servers():
        print(missing)
        return 1
    run_scenarios = partial(run, scenarios=options.scenarios)
    return run_each(options.versions or VERSIONS, run_scenarios, keep=options.keep)


if __name__ == "__main__":
    sys.exit(main())
