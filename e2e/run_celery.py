"""Run batches of six DAGs that use one Connection, with CeleryExecutor and two workers (``make e2e-celery``).

Each task is a process of its own, on one of two workers. On Airflow 3, the workers know neither the metadata database
nor the key that signs tokens. Things go wrong during the batches: passwords change, a worker and the API server are
killed, Variables are deleted. With ``--chaos``, things go wrong at random instead. Then the leak audit searches
everything that was stored, and the REST API.

PostgreSQL and Redis are started on free ports of the loopback address, and stopped at the end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from e2e.batch import Batches, connection_variable
from e2e.cluster import WORKERS, CeleryAirflow
from e2e.history import History, task_name
from e2e.marked_secrets import COMPANY, WRONG_PASSWORD, Recorder
from e2e.scenarios import SENSORS, TABLES, Scenarios, audit
from e2e.servers import missing_servers, start_postgresql, start_redis
from e2e.versions import parser_for, prepare_directories, run_each
from loanauth_sandbox.server import running_sandbox
from scripts.matrix import ONE_PYTHON, environment
from scripts.programs import Programs

if TYPE_CHECKING:
    import argparse
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from e2e.servers import Redis

VERSIONS = ("3.3", "2.11")
#: Maximum of seconds until another task takes over from one that was killed. Its claim ends ten seconds after its last
#: renewal; the others read it every two seconds; the machine may be busy.
MAX_TAKEOVER = 25
MAX_WAIT = 20  # seconds of a task whose worker has another password
DISTURBANCES = 2  # in a batch while things fail at random
LOGIN_SHARE = 0.5  # of the disturbances that happen as soon as a task logs in
MAX_PAUSE = 60.0  # seconds
MIN_OUTAGE = 5.0  # seconds
STOP_SECONDS = 10.0  # between SIGTERM and SIGKILL
#: Host, task (``DAG.TASK``), try (``RUN TASK TRY``) and process id.
RunningTask = tuple[str, str, str, int]


class CeleryScenarios(Scenarios):
    """The scenarios with two Celery workers."""

    airflow: CeleryAirflow
    redis: Redis
    methods: ClassVar[dict[str, str]] = {
        "a": "one_expiry",
        "b": "changed_password",
        "c": "two_passwords",
        "d": "killed_claimant",
        "e": "killed_api_server",
        "f": "deferred_sensors",
        "g": "deleted_variables",
    }

    def two_passwords(self, run_id: str) -> list[str]:
        """Give one of the two workers a wrong password in its environment."""
        wrong = connection_variable(self.batches.sandbox.url, password=WRONG_PASSWORD)
        self.airflow.kill_worker(self.batches.programs, WORKERS[1])
        self.start_workers(AIRFLOW_CONN_LOANAUTH_JWT=wrong)
        self.batches.reset(run_id)
        self.batches.start(run_id)
        self.batches.end(run_id)
        result = self.batches.result(run_id, may_fail=True)
        self.airflow.kill_worker(self.batches.programs, WORKERS[1])
        problems = self.judge_result(result, logins=1, rejected=1, may_fail=True)
        if max(result.waits, default=0) > MAX_WAIT:
            problems.append(f"a task waited for {max(result.waits):.0f} s")
        return problems

    def killed_claimant(self, run_id: str) -> list[str]:
        """Kill the worker of the task that logs in, before it has the response."""
        issued = self.batches.recorder.issued_at
        self.wait_for_second_login(run_id)
        host = self._host_that_logs_in(run_id)
        killed = time.time()
        self.kill_worker(host, run_id)
        self.batches.sandbox.clear_faults()
        self.batches.end(run_id)
        delay = next((at - killed for at in issued if at > killed), None)
        print(f"  {host} was killed; another task logged in {f'{delay:.1f} s later' if delay else 'never'}", flush=True)
        late = [] if delay and delay < MAX_TAKEOVER else [f"no task took over within {MAX_TAKEOVER} s"]
        return late + self.judge(run_id)

    def _host_that_logs_in(self, run_id: str) -> str:
        """Return the host of the task that has claimed the login."""
        (task,) = self.batches.claimants()
        print(f"  {task} logs in", flush=True)
        (host,) = {host for host, one, _, _ in self._running_tasks(run_id) if one == task}
        return host

    def _running_tasks(self, run_id: str) -> list[RunningTask]:
        """Return host, task, try (``RUN TASK TRY``) and process id of each running task."""
        rows = self.batches.database.rows(
            "SELECT hostname, dag_id, task_id, map_index, try_number, pid FROM task_instance "  # noqa: S608
            f"WHERE run_id = '{run_id}' AND state = 'running' AND pid IS NOT NULL"
        )
        tasks = [(host, task_name(*names), number, int(pid)) for host, *names, number, pid in rows]
        return [(host, task, f"{run_id} {task} {number}", pid) for host, task, number, pid in tasks]

    def prepare_next(self) -> None:
        """Start what does not run."""
        self.start_workers()

    def start_workers(self, **more: str) -> None:
        """Start each worker that does not run, with more environment variables."""
        for host in WORKERS:
            if host not in self.airflow.workers:
                self.airflow.start_worker(self.batches.programs, host, more)

    def kill_worker(self, host: str, run_id: str) -> None:
        """Kill a worker with all of its tasks."""
        tasks = [one for one in self._running_tasks(run_id) if one[0] == host]
        with self._recorded("kill", host, tasks):
            self.airflow.kill_worker(self.batches.programs, host)

    @contextmanager
    def _recorded(self, event: str, what: str, tasks: list[RunningTask]) -> Iterator[None]:
        """Write to the history that processes were killed or paused, for as long as the block takes."""
        started, before = time.time(), self.batches.claimants()
        try:
            yield
        finally:
            seconds = round(time.time() - started, 1) if event == "pause" else 0
            between = any(task in before | self.batches.claimants() for _, task, _, _ in tasks)
            tries = [tried for _, _, tried, _ in tasks]
            self.batches.history.record(event, at=started, what=what, seconds=seconds, tasks=tries, between=between)

    def disturb(self, rng: random.Random, run_id: str) -> None:
        """Kill, pause or restart something at random, and start again what has ended."""
        victims = ["worker", "task", "task", "redis", "postgresql"] + ["api-server"] * (not self.airflow.is_airflow_2)
        for _ in range(DISTURBANCES):
            self._wait_for_moment(time.time() + rng.uniform(5, 25), at_login=rng.random() < LOGIN_SHARE)
            victim, action = rng.choice(victims), rng.choice(("kill", "pause", "restart"))
            seconds = rng.uniform(1, MAX_PAUSE if action == "pause" else 10)
            if self.batches.has_ended(run_id):
                break
            print(f"  {action} {victim} {seconds:.0f} s", flush=True)
            if victim == "task":
                self._disturb_task(rng, run_id, action, seconds)
            elif victim == "worker":
                self._disturb_worker(rng.choice(WORKERS), run_id, action, seconds)
            else:
                self._disturb_server(victim, action, seconds)
            self._all_runs()
        self.batches.wait_until("the batch", lambda: self._all_runs() and self.batches.has_ended(run_id))

    def _wait_for_moment(self, moment: float, *, at_login: bool) -> None:
        """Wait until a time, or until a task logs in if that is sooner."""

        def has_come() -> bool:
            time.sleep(0.2)
            return time.time() > moment or (at_login and bool(self.batches.claimants()))

        self.batches.wait_until("the moment", has_come)

    def _disturb_task(self, rng: random.Random, run_id: str, action: str, seconds: float) -> None:
        """Kill or pause the process of a task: the one that logs in, if there is one."""
        tasks, claimants = sorted(self._running_tasks(run_id)), self.batches.claimants()
        chosen = [one for one in tasks if one[1] in claimants] or tasks
        if not chosen:
            return
        task = rng.choice(chosen)
        pid = task[-1]
        with suppress(ProcessLookupError):
            if os.getsid(pid) not in {worker.pid for worker in self.airflow.workers.values()}:
                return  # the database is out of date, and the process is no task of this run
            with self._recorded("pause" if action == "pause" else "kill", "task", [task]):
                if action == "pause":
                    self._pause(partial(os.kill, pid), seconds)
                else:
                    os.kill(pid, signal.SIGKILL)

    def _pause(self, send: Callable[[int], object], seconds: float) -> None:
        send(signal.SIGSTOP)
        try:
            self.wait_for_time(time.time() + seconds)
        finally:
            with suppress(ProcessLookupError):
                send(signal.SIGCONT)

    def _disturb_worker(self, host: str, run_id: str, action: str, seconds: float) -> None:
        worker, programs = self.airflow.workers[host], self.batches.programs
        if action == "pause":
            tasks = [one for one in self._running_tasks(run_id) if one[0] == host]
            with self._recorded("pause", host, tasks):
                self._pause(partial(programs.signal, worker), seconds)
            return
        if action == "restart":
            self._end(worker)
        self.kill_worker(host, run_id)
        self.wait_for_time(time.time() + seconds)

    def _disturb_server(self, name: str, action: str, seconds: float) -> None:
        """Make Redis, PostgreSQL or the API server fail until it accepts connections again."""
        programs, started = self.batches.programs, time.time()
        server = {"redis": self.redis, "postgresql": self.airflow.postgresql}.get(name)
        program = server.program if server else self.airflow.servers[name]
        if action == "pause":
            self._pause(partial(programs.signal, program), seconds)
        else:
            if action == "restart":
                self._end(program)
            programs.kill(program)
            # PostgreSQL does not start as long as processes of the one that was killed use its memory.
            self.wait_for_time(time.time() + max(seconds, MIN_OUTAGE))
            if server:
                server.start(programs)
            else:
                self.airflow.start_again(programs, name)
        seconds = round(time.time() - started, 1)
        self.batches.history.record("outage", at=started, what=name, seconds=seconds, alone=name != "redis")

    def _end(self, program: subprocess.Popen[bytes]) -> None:
        """Ask a program to end, and wait for some seconds."""
        program.terminate()
        with suppress(subprocess.TimeoutExpired):
            program.wait(STOP_SECONDS)

    def _all_runs(self) -> bool:
        """Start again what has ended, as a service manager does, and return True."""
        for component, *_ in self.airflow.components:
            if self.airflow.servers[component].poll() is not None:
                print(f"  {component} has ended, and is started again", flush=True)
                self.airflow.run(self.batches.programs, component)
        for host in [host for host, worker in self.airflow.workers.items() if worker.poll() is not None]:
            print(f"  {host} has ended, and is started again", flush=True)
            del self.airflow.workers[host]
        self.start_workers()
        return True


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


def run(version: str, directory: Path, options: argparse.Namespace) -> list[str]:
    """Run the scenarios and the leak audit on one Airflow."""
    started = time.monotonic()
    python = str(environment(version, ONE_PYTHON[version], "e2e-executors"))
    dags, logs = prepare_directories(directory)
    recorder = Recorder()
    # The servers are stopped last.
    with running_sandbox(accounts=[COMPANY]) as sandbox, Programs(logs) as servers:
        recorder.attach(sandbox)
        postgresql = start_postgresql(servers, directory)
        redis = start_redis(servers, directory)
        with Programs(logs) as programs:
            airflow = CeleryAirflow(
                version,
                redis=redis,
                python=python,
                home=directory / "home",
                environment={
                    "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
                    "AIRFLOW__CORE__MAX_ACTIVE_TASKS_PER_DAG": str(SENSORS),
                },
                postgresql=postgresql,
            )
            airflow.start(programs)
            history = History(directory / "history" / "events")
            batches = Batches(airflow, programs, sandbox, recorder, postgresql, history)
            run_all = CeleryScenarios(batches, airflow)
            run_all.redis = redis
            run_all.start_workers()
            batches.prepare("loanauth_jwt", "waiting")
            print(f"Airflow {version}: started in {time.monotonic() - started:.0f} s", flush=True)
            problems = run_all.run(options)
            contents = run_all.collect()
            problems += asked(airflow)
    directories = {"Redis": directory / "redis" / "data", "logs": logs}
    directories |= {name: directory / name for name in ("home", *WORKERS)}
    problems += audit(batches, contents, directories, TABLES)
    print(f"Airflow {version}: {time.monotonic() - started:.0f} s", flush=True)
    return problems


def main() -> int:
    """Return the exit status."""
    parser = parser_for(__doc__, VERSIONS, "".join(CeleryScenarios.methods))
    options = parser.parse_args()
    if missing := missing_servers():
        print(missing)
        return 1
    return run_each(options.versions or VERSIONS, partial(run, options=options), keep=options.keep)


if __name__ == "__main__":
    sys.exit(main())
