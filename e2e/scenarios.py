"""The scenarios that Celery and Kubernetes share, and the leak audit at the end of a run."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from e2e.audit import Audit, KnownLeak
from e2e.batch import CHANGED_PASSWORD
from e2e.checker import Verdict
from e2e.marked_secrets import COMPANY, MARKED_SECRETS
from e2e.rest_responses import collect_responses
from e2e.steps import EndToEndError
from scripts.programs import ProgramError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from e2e.batch import Batches, Result
    from e2e.cluster import ClusterAirflow

SENSORS = 50
LOGIN_SECONDS = 4  # of a login during which something goes wrong
API_SERVER_PAUSE = 30  # seconds until it is started again, which takes ten or more
CHAOS_LIFETIME = 30  # seconds of a token
CHAOS_LOGIN_SECONDS = 2
#: Tables in which Airflow could store a secret, and which must be among those that are searched.
TABLES = {"variable", "log", "dag_run", "trigger", "xcom", "connection", "rendered_task_instance_fields"}

Contents = list[tuple[str, str, bytes]]


@dataclass
class Scenarios:
    """The scenarios on one Airflow. Each prints its counts, and returns a sentence for each condition that fails."""

    batches: Batches
    airflow: ClusterAirflow
    #: Name and content of what is searched later, although it is gone then.
    contents: Contents = field(default_factory=list)

    #: The name of the method for each letter.
    methods: ClassVar[dict[str, str]]

    def run(self, options: argparse.Namespace) -> list[str]:
        """Run scenarios, or batches while things fail at random."""
        return (
            self.run_scenarios(options.scenarios)
            if options.chaos is None
            else self.chaos(options.chaos, options.batches)
        )

    def run_scenarios(self, letters: Sequence[str]) -> list[str]:
        """Run scenarios by their letters."""
        problems = []
        for number, letter in enumerate(letters, 1):
            scenario = getattr(self, self.methods[letter])
            title = f"Airflow {self.airflow.version} ({letter}) {scenario.__doc__}"
            print(title, flush=True)
            try:
                found = scenario(f"{letter}{number}")
            except (EndToEndError, ProgramError) as error:
                found = [str(error)]
            problems += self._shown(title, found)
            self.prepare_next()
        return problems

    def _shown(self, title: str, problems: list[str]) -> list[str]:
        for problem in problems:
            print(f"  PROBLEM: {problem}", flush=True)
        return [f"{title} {problem}" for problem in problems]

    def prepare_next(self) -> None:
        """Prepare what the next scenario needs."""

    def judge(self, run_id: str, *, may_fail: bool = False, **expected: Any) -> list[str]:
        """Return what is wrong with a batch that has ended."""
        return self.judge_result(self.batches.result(run_id, may_fail=may_fail), may_fail=may_fail, **expected)

    def judge_result(self, result: Result, **expected: Any) -> list[str]:
        """Print a result, and return what is wrong with it."""
        print(f"  {result}", flush=True)
        return result.problems(**expected)

    def one_expiry(self, run_id: str) -> list[str]:
        """Run all DAGs at once, over one expiry."""
        return self.judge_result(self.batches.one_expiry(run_id))

    def changed_password(self, run_id: str) -> list[str]:
        """Change the password at the service during a batch; run all DAGs again afterwards."""
        return self.judge_result(self.batches.changed_password(run_id), logins=1, rejected=1, may_fail=True)

    def killed_api_server(self, run_id: str) -> list[str]:
        """Kill the API server before the token expires, and start another one."""
        if self.airflow.is_airflow_2:
            print("  left out: tasks of Airflow 2.11 use the metadata database, and not an API server")
            return []
        self.start_and_wait(run_id)
        programs, stopped = self.batches.programs, time.time()
        programs.kill(self.airflow.servers["api-server"])
        self.wait_for_time(stopped + API_SERVER_PAUSE)
        self.airflow.start_again(programs, "api-server")
        seconds = time.time() - stopped
        self.batches.history.record("outage", at=stopped, what="api-server", seconds=seconds, alone=True)
        print(f"  the API server was available again after {seconds:.0f} s", flush=True)
        self.batches.end(run_id)
        return self.judge(run_id)

    def deferred_sensors(self, run_id: str) -> list[str]:
        """Let fifty deferred sensors wait for the service."""
        return self.wait_deferred(run_id, "fifty_waiting", SENSORS)

    def wait_deferred(self, run_id: str, dag_id: str, sensors: int) -> list[str]:
        """Run a DAG with sensors while the service is gone; all tasks must succeed with one login when it is back."""
        sandbox, programs = self.batches.sandbox, self.batches.programs
        self.batches.reset(run_id, lifetime=3600)
        sandbox.set_fault("refuse")
        try:
            self.airflow.wait_for_dag(programs, dag_id)
            self.airflow.unpause(dag_id)
            self.airflow.trigger(dag_id, run_id, {})
            self.batches.wait_until(
                f"{sensors} deferred sensors", lambda: self.batches.states(run_id)["deferred"] == sensors
            )
            self.contents += self.tables("trigger")
        finally:
            sandbox.clear_faults()
        self.airflow.wait_for_run(programs, dag_id, run_id)
        print(f"  {sensors} deferred sensors; {sandbox.counters().probe} probes", flush=True)
        result = self.batches.result(run_id)
        return self.judge_result(result, logins=1) + (["more than one login"] if result.verdict.logins > 1 else [])

    def deleted_variables(self, run_id: str) -> list[str]:
        """Delete the Variables before the token expires, and while a task logs in."""
        self.wait_for_second_login(run_id, before=self.batches.delete_variables)
        # Without its claim, the task that logs in is not the only one.
        self.batches.delete_variables()
        self.batches.sandbox.clear_faults()
        self.batches.end(run_id)
        return self.judge(run_id)

    def chaos(self, seed: int, count: int) -> list[str]:
        """Run batches while things fail at random. In each fourth one, the password changes at the service.

        :param count: number of batches
        """
        rng, problems = random.Random(seed), []  # noqa: S311 - not for cryptography
        sandbox, total = self.batches.sandbox, Verdict()
        for number in range(1, count + 1):
            run_id, is_wrong = f"chaos{number:02}", number % 4 == 0
            print(f"Airflow {self.airflow.version} chaos with seed {seed}, batch {number} of {count}", flush=True)
            try:
                self.batches.reset(run_id, CHAOS_LIFETIME)
                sandbox.set_fault("latency", where="token", seconds=CHAOS_LOGIN_SECONDS)
                self.batches.start(run_id, seconds=CHAOS_LIFETIME)
                if is_wrong:
                    self.batches.wait_until("a price", lambda: sandbox.counters().price > 0)
                    self.change_password()
                self.disturb(rng, run_id)
                sandbox.clear_faults()
                self.batches.end(run_id)
                result = self.batches.result(run_id, may_fail=is_wrong)
                total += result.verdict
                # The checker says which tasks may have failed, and how many logins there may be.
                rejected = result.verdict.rejected - result.verdict.repeated
                found = self.judge_result(result, logins=1, rejected=min(rejected, int(is_wrong)), may_fail=True)
            except (EndToEndError, ProgramError) as error:
                found = [str(error)]
            finally:
                sandbox.clear_faults()
                sandbox.set_accounts([COMPANY])
            problems += self._shown(f"Airflow {self.airflow.version} seed {seed} {run_id}:", found)
            self.prepare_next()
        print(f"Airflow {self.airflow.version} chaos with seed {seed}, all batches: {total}", flush=True)
        return problems

    def change_password(self) -> None:
        """Change the password at the service."""
        self.batches.sandbox.change_password(COMPANY.users[0].username, CHANGED_PASSWORD)

    def disturb(self, rng: random.Random, run_id: str) -> None:
        """Let things fail at random while a batch runs."""
        raise NotImplementedError

    def start_and_wait(self, run_id: str) -> None:
        """Start a batch, and wait until just before its token expires."""
        issued = self.batches.recorder.issued_at
        self.batches.reset(run_id)
        self.batches.start(run_id, seconds=10)
        self.batches.wait_until("a login", lambda: bool(issued))
        self.wait_for_time(issued[0] + 0.85 * self.batches.lifetime)

    def wait_for_second_login(self, run_id: str, before: Callable[[], None] = lambda: None) -> None:
        """Start a batch, and wait until its second login has reached the service; do something just before."""
        self.start_and_wait(run_id)
        before()
        self.batches.sandbox.set_fault("latency", where="token", seconds=LOGIN_SECONDS)
        issued = self.batches.recorder.issued_at
        self.batches.wait_until("a second login", lambda: len(issued) > 1)

    def wait_for_time(self, moment: float) -> None:
        """Wait until a time, in seconds since the epoch."""
        self.batches.wait_until("the time", lambda: time.time() > moment)

    def tables(self, *names: str) -> Contents:
        """Return the content of the tables of the database, by default of all."""
        contents = self.batches.database.contents()
        return [("PostgreSQL", table, content) for table, content in contents if table in names or not names]

    def collect(self) -> Contents:
        """Return everything that the REST API and the database contain; of runs, the first and the last one."""
        rows = self.batches.database.rows(
            f"SELECT run_id FROM dag_run WHERE dag_id = '{self.batches.dag_ids[0]}' ORDER BY id"  # noqa: S608
        )
        first_and_last = dict.fromkeys(run_id for (run_id,) in [*rows[:1], *rows[-1:]])
        runs = [(self.batches.dag_ids[0], run_id) for run_id in first_and_last]
        responses = collect_responses(self.airflow, runs)
        rest = [("REST", path, text.encode()) for path, text in responses.items() if path.endswith("(200)")]
        return [*self.contents, *rest, *self.tables()]


def audit(batches: Batches, contents: Contents, directories: dict[str, Path], missing: set[str]) -> list[str]:
    """Search everything that was stored for every secret, and print what was searched.

    :param missing: tables that must be among the contents
    """
    directories = {"history": batches.history.path.parent, **directories}
    kinds = {kind for kind, _, _ in contents} | directories.keys()
    known = [KnownLeak("control", f"{kind}: ", "the search finds nothing in such places") for kind in sorted(kinds)]
    changed = {"changed password": CHANGED_PASSWORD, "control": "late_batch"}
    search = Audit({**MARKED_SECRETS, **batches.recorder.issued, **changed}, known)
    for content in contents:
        search.search(*content)
    for kind, directory in directories.items():
        search.search_files(kind, directory)
    leaks = search.close()
    if not_searched := missing - {place for _, place, _ in contents}:
        leaks.append(f"not searched: {', '.join(sorted(not_searched))}")
    batches.history.record("audit", leaks=leaks)
    print(f"Airflow {batches.airflow.version}: {search}", flush=True)
    return leaks
