"""Batches of the six DAGs in ``late_batch.py``: the logins that the sandbox counted, and the waits of the tasks."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from e2e.marked_secrets import COMPANY, USER, jwt_connection
from e2e.steps import EndToEndError

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.marked_secrets import Recorder
    from e2e.servers import PostgreSQL
    from e2e.standalone import Airflow
    from loanauth_sandbox.server import Sandbox
    from scripts.programs import Programs

DAG_IDS = tuple(f"late_batch_{number}" for number in range(6))
TASKS = 3 * len(DAG_IDS)  # that price, in a batch
RUN_TIMEOUT = 900.0  # seconds of a batch
CONNECTION_TIMEOUT = 5  # seconds, the field Timeout of the Connection
LIFETIME = 40  # seconds of a token
#: Fraction of the lifetime that must lie between two logins: an authenticating task takes over what has half its life.
MIN_FRACTION = 0.45
CHANGED_PASSWORD = "E2E-changed-password-å/%2B&-mark"


@dataclass(frozen=True)
class Result:
    """
    The result of one batch.

    :param states: number of pricing tasks in each state
    :param logins: when the service issued each token, in seconds since the epoch
    :param rejected: number of rejected logins
    :param seconds: duration of the batch
    :param authenticating: duration of the slowest authenticating task, in seconds, with the start of its process
    :param waits: for each pricing task, the seconds for which its slowest request waited for a credential
    """

    states: Counter[str]
    logins: list[float]
    rejected: int
    seconds: float = 0.0
    authenticating: float = 0.0
    waits: tuple[float, ...] = (0.0,)

    @property
    def extra_logins(self) -> int:
        """Number of logins that followed another one too soon."""
        times = sorted(self.logins)
        return sum(later - earlier < MIN_FRACTION * LIFETIME for earlier, later in pairwise(times))

    def problems(self, *, logins: int = 2, rejected: int = 0, max_extra: int = 0, may_fail: bool = False) -> list[str]:
        """
        Return a sentence for each wrong number.

        :param logins: fewest logins, of which each is one lifetime after the other
        """
        problems = []
        if self.states != {"success": TASKS} and not may_fail:
            problems.append("some tasks did not succeed")
        if len(self.logins) < logins:
            problems.append(f"{len(self.logins)} logins instead of {logins}: the token did not expire")
        if self.extra_logins > max_extra:
            problems.append(f"{self.extra_logins} tasks logged in too soon after another one")
        if self.rejected != rejected:
            problems.append(f"{self.rejected} logins were rejected instead of {rejected}")
        return problems

    def __str__(self) -> str:
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items(), reverse=True))
        return (
            f"{states} in {self.seconds:.0f} s; {len(self.logins)} logins, {self.extra_logins} of them extra; "
            f"{self.rejected} rejected; slowest wait for a credential {max(self.waits, default=0):.1f} s; slowest "
            f"authenticating task {self.authenticating:.1f} s"
        )


@dataclass
class Batches:
    """Batches on one Airflow."""

    airflow: Airflow
    programs: Programs
    sandbox: Sandbox
    recorder: Recorder
    database: PostgreSQL
    _started: float = 0.0

    def connection(self, **changed: str) -> dict[str, Any]:
        """Return the Connection, as the REST API expects it."""
        return jwt_connection(self.sandbox.url, extra={"timeout": CONNECTION_TIMEOUT}, **changed)

    def prepare(self, *connection_ids: str) -> None:
        """Add the Connections, and unpause the DAGs when Airflow has parsed them."""
        for connection_id in connection_ids:
            self._succeeds("POST", "/connections", self.connection(connection_id=connection_id))
        for dag_id in DAG_IDS:
            self.airflow.wait_for_dag(self.programs, dag_id)
            self.airflow.unpause(dag_id)

    def variables(self) -> dict[str, dict[str, Any]]:
        """Return the readable part of each Variable of a shared login."""
        rows = self._succeeds("GET", "/variables?limit=100")["variables"]
        return {row["key"]: json.loads(row["value"]) for row in rows if row["key"].startswith("loanauth.")}

    def delete_variables(self) -> None:
        """Delete all Variables of a shared login."""
        for key in self.variables():
            self._succeeds("DELETE", f"/variables/{key}")

    def _succeeds(self, method: str, path: str, body: Any = None) -> Any:
        status, response = self.airflow.request(method, path, body)
        if status >= 300:  # noqa: PLR2004 - RFC 9110 §15.3
            raise EndToEndError(f"{method} {path} was rejected: {status} {response}")
        return response

    def reset(self, run_id: str, lifetime: int = LIFETIME) -> None:
        """Forget earlier logins, and count from zero."""
        self.sandbox.reset()
        self.sandbox.set_settings(token_lifetime=lifetime)
        self.delete_variables()
        self.recorder.step, self.recorder.issued_at[:] = run_id, []
        self._started = time.monotonic()

    def start(self, run_id: str, *, seconds: int = 0, wait: int = LIFETIME) -> None:
        """
        Start all DAGs at once.

        :param seconds: for which tasks price after the token has expired
        :param wait: for how many seconds tasks wait for that
        """
        params = {"url": f"{self.sandbox.url}/sandbox/price", "seconds": seconds, "wait": wait}
        for dag_id in DAG_IDS:
            self.airflow.trigger(dag_id, run_id, params)

    def one_expiry(self, run_id: str) -> Result:
        """Run a batch, whose tasks need another token when the first one has expired."""
        self.reset(run_id)
        self.start(run_id)
        return self.end(run_id)

    def changed_password(self, run_id: str) -> Result:
        """Change the password at the service during a batch; then run another one."""
        self.reset(run_id)
        self.start(run_id)
        self.wait_until("pricing tasks", lambda: self.sandbox.counters().price >= TASKS)
        user = replace(COMPANY.users[0], password=CHANGED_PASSWORD)
        self.sandbox.set_accounts([replace(COMPANY, users=(user,))])
        try:
            self.end(run_id)
            self.start(f"{run_id}_again")
            self.end(f"{run_id}_again")
        finally:
            self.sandbox.set_accounts([COMPANY])
        return self.end(run_id)

    def withdrawn_token(self, run_id: str) -> Result:
        """Change the password and withdraw the token; run twice; correct it, and clear a task of each kind."""
        self.reset(run_id, lifetime=3600)
        self.start(run_id, wait=0)
        self.end(run_id)
        # In the first run, an authenticating task may still hand the token on; in the second one, each knows better.
        for task_id, number in (("price", 1), ("authenticate", 2)):
            self.sandbox.change_password(USER.username, CHANGED_PASSWORD, revoke=True)
            for run in (f"{run_id}_{task_id}_1", f"{run_id}_{task_id}_2"):
                self.start(run, wait=0)
                self.end(run)
            [(run, dag_id)] = self.database.rows(
                "SELECT run_id, MIN(dag_id) FROM task_instance "  # noqa: S608 - no input of a user
                "WHERE task_id = 'authenticate' AND state = 'success' "
                f"AND run_id LIKE '{run_id}_{task_id}_%' GROUP BY run_id"
            )
            self.sandbox.change_password(USER.username, USER.password)
            self._clear(dag_id, f"{run[:-1]}{number}", task_id)
        return self.end(run_id)

    def _clear(self, dag_id: str, run_id: str, task_id: str) -> None:
        self.airflow.clear(dag_id, run_id, task_id)
        path = f"/dags/{dag_id}/dagRuns/{run_id}"
        self.wait_until(f"{task_id} of {run_id}", lambda: bool(self.airflow.get(path)[1]["state"] == "success"))

    def wait_until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        self.programs.wait(what, condition, seconds=RUN_TIMEOUT)

    def states(self, run_id: str) -> Counter[str]:
        """Return the number of tasks in each state, without authenticating tasks."""
        rows = self.database.rows(
            "SELECT state, COUNT(*) FROM task_instance "  # noqa: S608 - no input of a user
            f"WHERE run_id = '{run_id}' AND task_id != 'authenticate' GROUP BY state"
        )
        time.sleep(0.3)
        return Counter({state or "none": int(count) for state, count in rows})

    def end(self, run_id: str) -> Result:
        """Wait until a batch has ended, and return its result."""
        of_run = f"WHERE run_id = '{run_id}'"

        def have_ended() -> bool:
            time.sleep(0.3)
            rows = self.database.rows(f"SELECT state FROM dag_run {of_run}")  # noqa: S608 - no input of a user
            return [row[0] in ("success", "failed") for row in rows] == [True] * len(DAG_IDS)

        self.wait_until(f"the batch {run_id}", have_ended)
        (slowest,) = self.database.rows(
            f"SELECT MAX(duration) FROM task_instance {of_run} AND task_id = 'authenticate'"  # noqa: S608
        )
        waits = self.database.rows(f"SELECT CAST(value AS TEXT) FROM xcom {of_run} AND key = 'waited'")  # noqa: S608
        return Result(
            states=self.states(run_id),
            logins=[*self.recorder.issued_at],
            rejected=self.sandbox.counters().authentications.rejected,
            seconds=time.monotonic() - self._started,
            authenticating=float(slowest[0]),
            waits=tuple(float(_value(text)) for (text,) in waits),
        )


def _value(text: str) -> Any:
    """Return the value of a row of XCom: 2.11 stores JSON as bytes, 3.0 and later a JSON string in JSON."""
    value: Any = bytes.fromhex(text[2:]).decode() if text.startswith("\\x") else text
    while isinstance(value, str):
        value = json.loads(value)
    return value
