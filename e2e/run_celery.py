"""
Run batches that last longer than their token with CeleryExecutor and two workers (``make e2e-celery``).

Each task is a process of its own, on one of two workers. On Airflow 3, the workers know neither the metadata database
nor the key that signs tokens. Things go wrong during the batches: a password changes, workers and the API server are
killed. Then the leak audit searches everything that was stored.

PostgreSQL and Redis are started on free ports of the loopback address, and stopped at the end.
"""

from __future__ import annotations

import base64
import dataclasses
import re
import secrets
import shutil
import sys
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from e2e.audit import Audit, KnownLeak
from e2e.batch import CONNECTION_TIMEOUT, DAG_ID, Batches
from e2e.cluster import SLOTS, WORKERS, CeleryAirflow
from e2e.marked_secrets import COMPANY, MARKED_SECRETS, Recorder
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
LIFETIME = 20  # seconds of a token during the batch of many tasks
SHORT_LIFETIME = 10  # seconds of a token during the other batches
MANY, SOME = 200, 60  # tasks of a batch
SENSORS = 50
#: Maximum of seconds until another task takes over from one that was killed while it refreshed. It normally needs about
#: 12 more than the timeout; a busy machine needs more.
MAX_TAKEOVER = CONNECTION_TIMEOUT + 30
API_SERVER_PAUSE = 20  # seconds
CHANGED_PASSWORD = "E2E-changed-password-å/%2B&-mark"


class Scenarios:
    """The scenarios on one Airflow. Each prints its counts, and returns a sentence for each condition that fails."""

    def __init__(self, batches: Batches, airflow: CeleryAirflow) -> None:
        self.batches = batches
        self.airflow = airflow
        self.programs = batches.programs
        self.sandbox = batches.sandbox

    def run(self, names: Sequence[str]) -> list[str]:
        """Run scenarios."""
        problems = []
        scenarios: dict[str, tuple[str, Callable[[str], list[str]]]] = {
            "a": (f"{MANY} tasks", self.many_tasks),
            "b": ("password changed during the batch", self.changed_password),
            "c": ("worker killed between claim and login", self.killed_claimant),
            "d": ("worker killed in the middle of the batch", self.killed_worker),
            "e": (f"API server killed during a refresh, started {API_SERVER_PAUSE} s later", self.killed_api_server),
            "f": (f"{SENSORS} deferred sensors", self.deferred_sensors),
        }
        for number, name in enumerate(names, 1):
            title, scenario = scenarios[name]
            print(f"Airflow {self.airflow.version} ({name}) {title}", flush=True)
            try:
                found = scenario(f"{name}{number}")
            except EndToEndError as error:
                found = [str(error)]
            problems += [f"Airflow {self.airflow.version} ({name}) {title}: {problem}" for problem in found]
            for host in WORKERS:
                if host not in self.airflow.workers:
                    self.airflow.start_worker(self.programs, host)
        return problems

    def many_tasks(self, run_id: str) -> list[str]:
        """Run a batch over several lifetimes of a token."""
        self.batches.start(run_id, tasks=MANY, lifetime=LIFETIME)
        return self._end(run_id, MANY)

    def changed_password(self, run_id: str) -> list[str]:
        """Change the password at the service during a batch."""
        self.batches.start(run_id, tasks=SOME, lifetime=SHORT_LIFETIME)
        self._wait_for_tasks(run_id, 5)
        user = dataclasses.replace(COMPANY.users[0], password=CHANGED_PASSWORD)
        self.sandbox.set_accounts([dataclasses.replace(COMPANY, users=(user,))])
        result = self.batches.end(run_id)
        self.sandbox.set_accounts([COMPANY])
        print(f"  {result}", flush=True)
        problems = []
        if result.rejected != 1:
            problems.append(f"{result.rejected} logins were rejected instead of one")
        if set(result.states) != {"success", "failed"} or result.states.total() != SOME:
            problems.append("some tasks did not end, or the password was not needed")
        return problems

    def killed_claimant(self, run_id: str) -> list[str]:
        """Kill the worker of the task that refreshes, between its claim and its login."""
        self.batches.start(run_id, tasks=SOME, lifetime=SHORT_LIFETIME)
        host = self._wait_for_claim(run_id)
        before = self.sandbox.counters().token
        killed = time.time()
        self.airflow.kill_worker(self.programs, host)
        problems = self._end(run_id, SOME)
        logins = [one.at for one in self.sandbox.requests() if one.endpoint == "token"]
        if before != 1:
            problems.append(f"{host} was killed too late: it had logged in")
        delay = next((at - killed for at in logins if at > killed), None)
        print(f"  {host} was killed; another task logged in {f'{delay:.1f} s later' if delay else 'never'}", flush=True)
        if delay is None or delay > MAX_TAKEOVER:
            problems.append(f"no task took over within {MAX_TAKEOVER} s")
        return problems

    def killed_worker(self, run_id: str) -> list[str]:
        """Kill a worker in the middle of a batch."""
        self.batches.start(run_id, tasks=SOME, lifetime=SHORT_LIFETIME)
        self._wait_for_tasks(run_id, SOME // 3)
        self.airflow.kill_worker(self.programs, WORKERS[0])
        return self._end(run_id, SOME)

    def killed_api_server(self, run_id: str) -> list[str]:
        """Kill the API server while a task refreshes, and start another one."""
        if self.airflow.is_airflow_2:
            print("  left out: tasks of Airflow 2.11 use the metadata database, and not an API server")
            return []
        self.batches.start(run_id, tasks=SOME, lifetime=SHORT_LIFETIME)
        self._wait_for_claim(run_id)
        self.airflow.kill_api_server(self.programs)
        stopped = time.monotonic()
        self.programs.wait(
            "the pause", lambda: time.monotonic() > stopped + API_SERVER_PAUSE, seconds=2 * API_SERVER_PAUSE
        )
        self.airflow.start_api_server(self.programs)
        print(f"  the API server was available again after {time.monotonic() - stopped:.0f} s", flush=True)
        # A task that cannot reach the register refreshes on its own.
        return self._end(run_id, SOME, max_extra=SLOTS * len(WORKERS))

    def deferred_sensors(self, run_id: str) -> list[str]:
        """Let deferred sensors wait for the service."""
        dag_id = "fifty_waiting"
        self.sandbox.reset()
        self.sandbox.set_settings(token_lifetime=3600)
        self.batches.recorder.step = run_id
        self.sandbox.stop_listening()
        try:
            self.airflow.wait_for_dag(self.programs, dag_id)
            self.airflow.unpause(dag_id)
            self.airflow.trigger(dag_id, run_id, {})
            self.batches.wait_until(
                f"{SENSORS} deferred sensors", lambda: self._states(dag_id, run_id) == {"deferred": SENSORS}
            )
        finally:
            self.sandbox.start_listening()
        back = time.time()
        self.batches.wait_until(
            f"{SENSORS} sensors", lambda: not self._states(dag_id, run_id).keys() - {"success", "failed"}
        )
        states = self._states(dag_id, run_id)
        logins = [one.at for one in self.sandbox.requests() if one.endpoint == "token"]
        max_per_second = max(sum(first <= at < first + 1 for at in logins) for first in logins)
        rejected = self.sandbox.counters().authentications.rejected
        print(
            f"  {states['success']} success, {states['failed']} failed; {len(logins)} logins, at most {max_per_second} "
            f"in one second, the last one {logins[-1] - back:.0f} s after the service was back; {rejected} rejected "
            f"logins; {self.sandbox.counters().probe} probes",
            flush=True,
        )
        if (states["success"], len(logins), rejected) != (SENSORS, SENSORS, 0):
            return ["each sensor should succeed with one login"]
        return []

    def _states(self, dag_id: str, run_id: str) -> Counter[str]:
        rows = self.batches.database.rows(
            "SELECT state, COUNT(*) FROM task_instance "  # noqa: S608 - no input of a user
            f"WHERE dag_id = '{dag_id}' AND run_id = '{run_id}' GROUP BY state"
        )
        time.sleep(0.5)
        return Counter({state or "none": int(count) for state, count in rows})

    def _wait_for_tasks(self, run_id: str, number: int) -> None:
        def enough() -> bool:
            time.sleep(0.2)
            return self.batches.states(run_id)["success"] >= number

        self.batches.wait_until(f"{number} tasks", enough)

    def _wait_for_claim(self, run_id: str) -> str:
        """Wait until a pricing task has written a claim; return the host of that task."""
        claims: list[tuple[int, Any]] = []

        def is_claimed() -> bool:
            claims[:] = self.batches.xcom(run_id, "loanauth_claim.jwt.loanauth_jwt", "authenticate")
            return bool(claims) or self.batches.has_ended(run_id)

        self.batches.wait_until("a claim", is_claimed)
        self.batches.check(claims, f"no task of the batch {run_id} claimed the refresh")
        index = re.search(r"\[(\d+)\] on ", claims[0][1]["claimed_by"])
        self.batches.check(index, f"the claim does not say who wrote it: {claims[0][1]['claimed_by']}")
        return self.batches.host(run_id, int(index[1])) if index else ""

    def _end(self, run_id: str, tasks: int, *, max_extra: int = 0) -> list[str]:
        """Wait for the end of a batch; return a sentence for each wrong number."""
        result = self.batches.end(run_id)
        print(f"  {result}", flush=True)
        return result.problems(tasks, max_extra=max_extra)


def audit(
    directory: Path, recorder: Recorder, contents: list[tuple[str, str, bytes]], homes: Sequence[str]
) -> tuple[Audit, list[str]]:
    """Search everything that was stored for every secret."""
    kinds = {kind for kind, _, _ in contents} | {"Redis", "logs", *homes}
    known = [KnownLeak("control", f"{kind}: ", "the search finds nothing in such places") for kind in sorted(kinds)]
    changed = {"changed password": CHANGED_PASSWORD, "control": DAG_ID}
    search = Audit({**MARKED_SECRETS, **recorder.issued, **changed}, known)
    for content in contents:
        search.search(*content)
    search.search_files("Redis", directory / "redis" / "data")
    search.search_files("logs", directory / "logs")
    for home in homes:
        search.search_files(home, directory / home)
    return search, search.close()


def run(version: str, directory: Path, scenarios: Sequence[str]) -> list[str]:
    """Run the scenarios and the leak audit on one Airflow."""
    started = time.monotonic()
    python = str(environment(version, ONE_PYTHON[version], "e2e-celery"))
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
                fernet_key=base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
                password=f"made-up-{secrets.token_hex(8)}",
                postgresql=postgresql,
                redis=redis,
            )
            airflow.start(programs)
            for host in WORKERS:
                airflow.start_worker(programs, host)
            batches = Batches(airflow, programs, sandbox, recorder, postgresql)
            batches.add_connection("loanauth_jwt")
            batches.add_connection("waiting")
            batches.unpause()
            print(f"Airflow {version}: started in {time.monotonic() - started:.0f} s", flush=True)
            problems = Scenarios(batches, airflow).run(scenarios)
        contents = [("PostgreSQL", table, content) for table, content in postgresql.contents()]
    search, found = audit(directory, recorder, contents, ("home", *WORKERS))
    places = ", ".join(f"{count} {kind}" for kind, count in search.places.items())
    print(
        f"Airflow {version}: audit of {len(search.secrets)} secrets in {search.forms} forms, "
        f"{sum(search.places.values())} places ({places}), {search.searched_bytes / 1e6:.1f} MB: "
        f"{len(found) or 'no'} leaks; everything took {time.monotonic() - started:.0f} s",
        flush=True,
    )
    return problems + [f"Airflow {version}: {one}" for one in found]


def main() -> int:
    """Return the exit status."""
    parser = parser_for(__doc__, VERSIONS)
    parser.add_argument(
        "--scenarios",
        default="abcdef",
        metavar="LETTERS",
        help="run these; aaa runs the first one three times (default: abcdef)",
    )
    options = parser.parse_args()
    if unknown := sorted(set(options.scenarios) - set("abcdef")):
        parser.error(f"not one of the scenarios a to f: {' '.join(unknown)}")
    if missing := missing_servers():
        print(missing)
        return 1
    run_scenarios = partial(run, scenarios=options.scenarios)
    return run_each(options.versions or VERSIONS, run_scenarios, keep=options.keep)


if __name__ == "__main__":
    sys.exit(main())
