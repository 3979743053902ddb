"""Batches of the DAGs in ``dags/batches.py``, and the logins of each as the sandbox counted them."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cryptography.fernet import Fernet

from e2e.marked_secrets import jwt_connection
from scripts.update_docs import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from e2e.executors import ExecutorAirflow
    from e2e.marked_secrets import Recorder
    from loanauth_sandbox.log import LogEntry
    from loanauth_sandbox.server import Sandbox
    from scripts.programs import Programs

BATCH_TIMEOUT = 900.0  # seconds
CONNECTION_TIMEOUT = 5  # seconds, the field Timeout of the Connection
#: Seconds that the response to a login takes; and from a claim to the end of its login at most.
LOGIN_SECONDS, MAX_CLAIM_AGE = 12, 2 * CONNECTION_TIMEOUT + 5
#: Fraction of the lifetime that must lie between two logins: an authenticating task takes over what has half its life.
MIN_FRACTION = 0.45


def write_dags(to: Path, numbers: Iterable[int], loans: int, *, waits: bool = True) -> None:
    """Write the DAGs of a batch, and those that wait."""
    to.mkdir(parents=True)
    source = (ROOT / "e2e" / "dags" / "batches.py").read_text()
    source = source.replace("NUMBERS = range(6)", f"NUMBERS = {[*numbers]}").replace("LOANS = 3", f"LOANS = {loans}")
    (to / "batches.py").write_text(source)
    if waits:
        for name in ("waits_and_retries.py", "fifty_waiting.py"):
            shutil.copy(ROOT / "e2e" / "dags" / name, to)


def connection_variable(url: str, **changed: str) -> str:
    """Return the Connection for an environment variable."""
    connection = jwt_connection(url, extra={"timeout": CONNECTION_TIMEOUT}, **changed)
    del connection["connection_id"]  # Airflow ignores an environment variable with a key that it does not know
    return json.dumps(connection)


def task_name(dag_id: str, task_id: str, map_index: int | str) -> str:
    """Return the name of a task, as the package writes it into Variables."""
    return f"{dag_id}.{task_id}" + (f"[{map_index}]" if int(map_index) >= 0 else "")


@dataclass
class Counts:
    """What the service counted in a batch.

    :param extra: logins that followed another one sooner than the lifetime needs
    :param repeated: rejected passwords that were sent again, although no login with them succeeded in between
    :param values: passwords that were sent
    """

    logins: int
    extra: int
    rejected: int
    repeated: int
    prices: int
    values: int

    def __str__(self) -> str:
        return (
            f"{self.logins} logins, {self.extra} of them extra; {self.rejected} rejected, {self.repeated} of them "
            f"again; {self.prices} loans priced"
        )

    def problems(self, *, logins: int = 2, extra: int = 0, rejected: int = 0) -> list[str]:
        """Return a sentence for each wrong number.

        :param logins: fewest logins
        :param extra: most extra logins
        :param rejected: rejected passwords, each sent once
        """
        problems = []
        if self.logins < logins:
            problems.append(f"{self.logins} logins instead of {logins} or more: the token did not expire")
        if self.extra > extra:
            problems.append(f"{self.extra} extra logins instead of {extra} at most")
        if (self.rejected, self.repeated) != (rejected, 0):
            problems.append(f"{self.rejected} logins were rejected, {self.repeated} again, instead of {rejected} and 0")
        return problems


def count(requests: Sequence[LogEntry], lifetime: int, *, shares: int = 1) -> Counts:
    """Count the logins among requests, the oldest first.

    :param lifetime: seconds of a token
    :param shares: number of groups of tasks that share nothing with another
    """
    authentications = [one for one in requests if one.endpoint == "token" and (one.issued or one.rejected)]
    logins = [one for one in authentications if one.issued]
    rejected = [one for one in authentications if one.rejected]
    extra = repeated = 0
    values = {one.sent for one in authentications}
    for value in values:
        of_value = [one for one in logins if one.sent == value]
        for earlier, later in zip(of_value, of_value[shares:], strict=False):
            extra += later.at - earlier.at < MIN_FRACTION * lifetime
        wrong = [one for one in rejected if one.sent == value]
        for earlier, later in zip(wrong, wrong[shares:], strict=False):
            repeated += not any(earlier.at < one.at < later.at for one in of_value)
    prices = sum(one.endpoint == "price" and not one.rejected for one in requests)
    return Counts(len(logins), extra, len(rejected), repeated, prices, len(values))


@dataclass
class Batches:
    """Batches on one Airflow."""

    airflow: ExecutorAirflow
    programs: Programs
    sandbox: Sandbox
    recorder: Recorder
    dag_ids: tuple[str, ...]
    shares: int = 1
    #: Name and content of what the audit searches later, although it is gone then.
    kept: list[tuple[str, str, bytes]] = field(default_factory=list)
    _lifetime: int = 0
    _started: float = 0.0

    @property
    def tasks(self) -> int:
        """The number of tasks that price in a batch."""
        return len(self.dag_ids) * self.airflow.loans

    def rows(self, sql: str) -> list[list[str]]:
        """Return the rows of a query."""
        return self.airflow.postgresql.rows(sql)

    def prepare(self) -> None:
        """Add the Connections, and unpause the DAGs when Airflow has parsed them."""
        url = self.sandbox.url
        # The closed port ends each wait; the sandbox does not speak TLS.
        urls = {"closed": "http://127.0.0.1:1", "wrong_scheme": url.replace("http:", "https:")}
        for connection_id in ("loanauth_jwt", "waiting", *urls):
            extra = {"timeout": CONNECTION_TIMEOUT}
            connection = jwt_connection(urls.get(connection_id, url), extra=extra, connection_id=connection_id)
            self.airflow.succeed("POST", "/connections", connection)
        for dag_id in self.dag_ids:
            self.airflow.wait_for_dag(self.programs, dag_id)
            self.airflow.unpause(dag_id)

    def variables(self) -> dict[str, dict[str, Any]]:
        """Return the readable part of each Variable of a shared login, also while the API server is gone."""
        fernet = Fernet(self.airflow.environment["AIRFLOW__CORE__FERNET_KEY"])
        rows = self.rows("SELECT key, val FROM variable WHERE key LIKE 'loanauth.%'")
        return {key: json.loads(fernet.decrypt(value)) for key, value in rows}

    def claimants(self) -> set[str]:
        """Return the tasks that may have claimed a login without a result so far."""
        rows, found = self.variables(), set()
        for key, claim in rows.items():
            if not key.endswith(".claim"):
                continue
            login, at = rows.get(f"{key.removesuffix('claim')}login"), _seconds(claim["at"])
            has_result = login and login["by"] == claim["by"] and _seconds(login["at"]) >= at - LOGIN_SECONDS
            if not has_result and time.time() - at < MAX_CLAIM_AGE:
                found.add(claim["by"].partition(" on ")[0])
        return found

    def delete_variables(self) -> None:
        """Delete all Variables of a shared login."""
        for key in self.variables():
            self.airflow.succeed("DELETE", f"/variables/{key}")

    def reset(self, run_id: str, lifetime: int | None = None) -> None:
        """Forget earlier logins, and count from zero."""
        self.sandbox.reset()
        self.sandbox.state.requests = deque()  # the sandbox itself keeps the last 1,000
        self._lifetime = lifetime or self.airflow.lifetime
        self.sandbox.set_settings(token_lifetime=self._lifetime)
        self.delete_variables()
        self.recorder.step, self.recorder.issued_at[:] = run_id, []
        self._started = time.monotonic()

    def start(self, run_id: str, *, seconds: int = 0, wait: int = 3600) -> None:
        """Start all DAGs at once.

        :param seconds: for which tasks price after the token has expired
        :param wait: for how many seconds tasks wait for that
        """
        params = {"url": f"{self.sandbox.url}/sandbox/price", "seconds": seconds, "wait": wait}
        for dag_id in self.dag_ids:
            self.airflow.trigger(dag_id, run_id, params)

    def start_and_wait(self, run_id: str) -> None:
        """Start a batch, and wait until just before its token expires."""
        issued = self.recorder.issued_at
        self.reset(run_id)
        self.start(run_id, seconds=10)
        self.wait_until("a login", lambda: bool(issued))
        self.sleep(issued[0] + 0.85 * self._lifetime - time.time())

    def wait_for_prices(self) -> None:
        """Wait until each task has priced once."""
        self.wait_until("pricing tasks", lambda: self.sandbox.counters().price >= self.tasks)

    def wait_until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        self.programs.wait(what, condition, seconds=BATCH_TIMEOUT)

    def sleep(self, seconds: float) -> None:
        """Wait for some seconds."""
        end = time.monotonic() + seconds
        self.wait_until("the time", lambda: time.monotonic() > end)

    def states(self, run_id: str) -> Counter[str]:
        """Return the number of tasks in each state, without authenticating tasks."""
        rows = self.rows(
            "SELECT state, COUNT(*) FROM task_instance "  # noqa: S608 - no input of a user
            f"WHERE run_id LIKE '{run_id}' AND task_id != 'authenticate' GROUP BY state"
        )
        time.sleep(0.3)
        return Counter({state or "none": int(number) for state, number in rows})

    def has_ended(self, run_id: str) -> bool:
        """Return whether a batch has ended."""
        time.sleep(0.3)
        rows = self.rows(f"SELECT state FROM dag_run WHERE run_id = '{run_id}'")  # noqa: S608 - no input of a user
        return [state in ("success", "failed") for (state,) in rows] == [True] * len(self.dag_ids)

    def end(self, *run_ids: str) -> None:
        """Wait until batches have ended."""
        for run_id in run_ids:
            self.wait_until(f"the batch {run_id}", lambda one=run_id: self.has_ended(one))

    def clear(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Clear a task, and wait until the run succeeds. Airflow 3 may still show it as failed at first."""
        self.airflow.clear(dag_id, run_id, task_id)
        path = f"/dags/{dag_id}/dagRuns/{run_id}"
        self.wait_until(f"{task_id} of {run_id}", lambda: bool(self.airflow.get(path)[1]["state"] == "success"))

    def judge(self, run_id: str, *, may_fail: bool = False, **expected: int) -> list[str]:
        """Print the counts of all runs since the reset, whose ids begin so; return a sentence for each problem.

        :param may_fail: whether tasks may fail, because a password is wrong
        :param expected: the parameters of :meth:`Counts.problems`
        """
        states = self.states(f"{run_id}%")
        counts = count([*self.sandbox.state.requests], self._lifetime, shares=self.shares)
        shown = ", ".join(f"{number} {state}" for state, number in sorted(states.items(), reverse=True))
        print(f"  {shown} in {time.monotonic() - self._started:.0f} s; {counts}", flush=True)
        problems = counts.problems(**expected)
        if {*states} != {"success"} and not may_fail:
            problems.append("some tasks did not succeed")
        kinds = Counter(key.rpartition(".")[2] for key in self.variables())
        stored, wanted = (kinds["login"], kinds["claim"]), counts.values * self.shares
        if stored != (wanted, wanted):
            problems.append(f"{stored} logins and claims in Variables at the end, instead of {wanted} of each")
        return problems

    def keep_table(self, name: str) -> None:
        """Keep the content of a table for the audit."""
        tables = self.airflow.postgresql.contents()
        self.kept += [("PostgreSQL", table, content) for table, content in tables if table == name]


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
