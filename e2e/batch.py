"""Batches of the six DAGs in ``late_batch.py``: the logins that the sandbox counted, and the waits of the tasks."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cryptography.fernet import Fernet

from e2e.checker import check
from e2e.history import task_name
from e2e.marked_secrets import COMPANY, USER, jwt_connection
from e2e.steps import EndToEndError
from scripts.update_docs import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from e2e.checker import Verdict
    from e2e.history import History
    from e2e.marked_secrets import Recorder
    from e2e.servers import PostgreSQL
    from e2e.standalone import Airflow
    from loanauth_sandbox.log import LogEntry
    from loanauth_sandbox.server import Sandbox
    from scripts.programs import Programs

RUN_TIMEOUT = 900.0  # seconds of a batch
CONNECTION_TIMEOUT = 5  # seconds, the field Timeout of the Connection
LIFETIME = 40  # seconds of a token
#: Seconds from a login to the end of its claim at most; and after which another process takes a claim over.
LOGIN_SECONDS, MAX_CLAIM_AGE = 12, 2 * CONNECTION_TIMEOUT + 25
CHANGED_PASSWORD = "E2E-changed-password-å/%2B&-mark"


def write_dags(to: Path, *, dags: str = "range(6)", loans: int = 3) -> None:
    """Write the DAGs of a batch."""
    source = (ROOT / "e2e" / "dags" / "late_batch.py").read_text()
    loans_of_dag = str([*range(1, loans + 1)])
    (to / "late_batch.py").write_text(source.replace("range(6)", dags).replace("[1, 2, 3]", loans_of_dag))


def connection_variable(url: str, *, share_logins: bool = True, **changed: str) -> str:
    """Return the Connection for an environment variable."""
    extra = {"timeout": CONNECTION_TIMEOUT, "share_logins": share_logins}
    connection = jwt_connection(url, extra=extra, **changed)
    del connection["connection_id"]  # Airflow ignores an environment variable with a key that it does not know
    return json.dumps(connection)


@dataclass(frozen=True)
class Result:
    """The result of one batch.

    :param states: number of pricing tasks in each state
    :param verdict: what the checker found in the history of the batch
    :param seconds: duration of the batch
    :param authenticating: duration of the slowest authenticating task, in seconds, with the start of its process
    :param waits: for each pricing task, the seconds for which its slowest request waited for a credential
    """

    states: Counter[str]
    verdict: Verdict
    seconds: float
    authenticating: float
    waits: tuple[float, ...]

    def problems(self, *, logins: int = 2, rejected: int = 0, may_fail: bool = False) -> list[str]:
        """Return a sentence for each wrong number and each rule that was broken.

        :param logins: fewest logins, of which each is one lifetime after the other
        """
        problems = [*self.verdict.problems]
        if {*self.states} != {"success"} and not may_fail:
            problems.append("some tasks did not succeed")
        if self.verdict.logins < logins:
            problems.append(f"{self.verdict.logins} logins instead of {logins}: the token did not expire")
        if self.verdict.rejected - self.verdict.repeated != rejected:
            problems.append(f"{self.verdict.rejected} logins were rejected instead of {rejected}")
        return problems

    def __str__(self) -> str:
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items(), reverse=True))
        return (
            f"{states} in {self.seconds:.0f} s; {self.verdict}; slowest wait for a credential "
            f"{max(self.waits, default=0):.1f} s; slowest authenticating task {self.authenticating:.1f} s"
        )


@dataclass
class Batches:
    """Batches on one Airflow."""

    airflow: Airflow
    programs: Programs
    sandbox: Sandbox
    recorder: Recorder
    database: PostgreSQL
    history: History
    lifetime: int = LIFETIME
    dag_ids: tuple[str, ...] = tuple(f"late_batch_{number}" for number in range(6))
    tasks: int = 18  # that price, in a batch
    _started: float = 0.0
    _requests: list[LogEntry] = field(default_factory=list)

    def prepare(self, *connection_ids: str) -> None:
        """Add the Connections, and unpause the DAGs when Airflow has parsed them."""
        for connection_id in connection_ids:
            extra = {"timeout": CONNECTION_TIMEOUT}
            connection = jwt_connection(self.sandbox.url, extra=extra, connection_id=connection_id)
            self._succeeds("POST", "/connections", connection)
        for dag_id in self.dag_ids:
            self.airflow.wait_for_dag(self.programs, dag_id)
            self.airflow.unpause(dag_id)

    def variables(self) -> dict[str, dict[str, Any]]:
        """Return the readable part of each Variable of a shared login, also while the API server is gone."""
        fernet = Fernet(self.airflow.environment["AIRFLOW__CORE__FERNET_KEY"])
        rows = self.database.rows("SELECT key, val FROM variable WHERE key LIKE 'loanauth.%'")
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
        self.history.record("deleted")
        for key in self.variables():
            self._succeeds("DELETE", f"/variables/{key}")

    def _succeeds(self, method: str, path: str, body: Any = None) -> Any:
        status, response = self.airflow.request(method, path, body)
        if status >= 300:  # noqa: PLR2004 - RFC 9110 §15.3
            raise EndToEndError(f"{method} {path} was rejected: {status} {response}")
        return response

    def reset(self, run_id: str, lifetime: int | None = None, shares: int = 1) -> None:
        """Forget earlier logins, and count from zero.

        :param shares: number of groups of tasks that share nothing with another
        """
        self.sandbox.reset()
        self._requests = []
        self.sandbox.set_settings(token_lifetime=lifetime or self.lifetime)
        self.delete_variables()
        self.history.begin(run_id, shares=shares)
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

    def one_expiry(self, run_id: str, *, shares: int = 1) -> Result:
        """Run a batch, whose tasks need another token when the first one has expired."""
        self.reset(run_id, shares=shares)
        self.start(run_id)
        self.end(run_id)
        return self.result(run_id)

    def changed_password(self, run_id: str) -> Result:
        """Change the password at the service during a batch; then run another one."""
        self.reset(run_id)
        self.start(run_id)
        self.wait_until("pricing tasks", lambda: self.sandbox.counters().price >= self.tasks)
        self.sandbox.change_password(COMPANY.users[0].username, CHANGED_PASSWORD)
        try:
            self.end(run_id)
            self.start(f"{run_id}_again")
            self.end(f"{run_id}_again")
        finally:
            self.sandbox.set_accounts([COMPANY])
        result = self.result(run_id, may_fail=True)
        result.verdict.problems += self._wrong_notifications(run_id)
        return result

    def _wrong_notifications(self, run_id: str) -> list[str]:
        """Return a sentence for each DAG run in which not each task that failed has told of it."""
        rows = self.database.rows(
            "SELECT failed.dag_id, failed.run_id, COUNT(*), COUNT(told.key) "  # noqa: S608 - no input of a user
            "FROM task_instance failed LEFT JOIN xcom told ON told.key = 'notified' "
            "AND (told.dag_id, told.run_id, told.task_id, told.map_index) "
            "= (failed.dag_id, failed.run_id, failed.task_id, failed.map_index) "
            f"WHERE failed.state = 'failed' AND failed.run_id LIKE '{run_id}%' GROUP BY 1, 2"
        )
        if len(rows) < len(self.dag_ids):
            return [f"tasks of {len(rows)} DAG runs failed, instead of {len(self.dag_ids)} or more"]
        return [
            f"{told} of {failed} tasks told of {dag} {run}"
            for dag, run, failed, told in rows
            if int(told) < int(failed)
        ]

    def withdrawn_token(self, run_id: str) -> Result:
        """Change the password and withdraw the token; run twice; correct it, and clear a task of each kind."""
        self.reset(run_id, lifetime=3600)
        self.start(run_id, wait=0)
        self.end(run_id)
        # In the first run, an authenticating task may still hand the token on; in the second one, each knows better.
        for task_id, number in (("price", 1), ("authenticate", 2)):
            self.sandbox.change_password(USER.username, CHANGED_PASSWORD, revoke=True)
            self.history.record("revoked")
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
        return self.result(run_id, may_fail=True)

    def _clear(self, dag_id: str, run_id: str, task_id: str) -> None:
        self.airflow.clear(dag_id, run_id, task_id)
        path = f"/dags/{dag_id}/dagRuns/{run_id}"
        self.wait_until(f"{task_id} of {run_id}", lambda: bool(self.airflow.get(path)[1]["state"] == "success"))

    def wait_until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""

        def holds() -> bool:
            self._collect_requests()
            return condition()

        self.programs.wait(what, holds, seconds=RUN_TIMEOUT)

    def _collect_requests(self) -> None:
        """Keep what the sandbox has logged since the last time. It drops old requests."""
        found, last = self.sandbox.requests(), self._requests[-1:]
        if last and last[0] not in found:
            raise EndToEndError("the sandbox has dropped requests from its log")
        self._requests += found[found.index(last[0]) + 1 :] if last else found

    def states(self, run_id: str) -> Counter[str]:
        """Return the number of tasks in each state, without authenticating tasks."""
        rows = self.database.rows(
            "SELECT state, COUNT(*) FROM task_instance "  # noqa: S608 - no input of a user
            f"WHERE run_id = '{run_id}' AND task_id != 'authenticate' GROUP BY state"
        )
        time.sleep(0.3)
        return Counter({state or "none": int(count) for state, count in rows})

    def end(self, run_id: str) -> None:
        """Wait until a batch has ended."""
        self.wait_until(f"the batch {run_id}", lambda: self.has_ended(run_id))

    def has_ended(self, run_id: str) -> bool:
        """Return whether a batch has ended."""
        self._collect_requests()
        time.sleep(0.3)
        rows = self.database.rows(f"SELECT state FROM dag_run WHERE run_id = '{run_id}'")  # noqa: S608
        return [row[0] in ("success", "failed") for row in rows] == [True] * len(self.dag_ids)

    def result(self, run_id: str, *, may_fail: bool = False) -> Result:
        """Write the history of a batch that has ended, of all runs whose id begins so, and return its result."""
        of_run = f"WHERE run_id LIKE '{run_id}%'"
        self._collect_requests()
        self.history.record_requests(self._requests, self.sandbox.state.settings.token_lifetime)
        times = "EXTRACT(epoch FROM start_date), EXTRACT(epoch FROM end_date)"
        columns = f"dag_id, task_id, map_index, run_id, try_number, state, {times}"
        tries = {
            tuple(row[:5]): row
            # The last try is in both tables for a moment.
            for table in ("task_instance_history", "task_instance")
            for row in self.database.rows(f"SELECT {columns} FROM {table} {of_run}")  # noqa: S608
        }
        for dag_id, task_id, index, run, number, state, started, ended in tries.values():
            self.history.record(
                "task",
                run=run,
                task=task_name(dag_id, task_id, index),
                **{"try": int(number), "state": state or "none"},
                started=float(started) if started else None,
                ended=float(ended) if ended else time.time(),
            )
        self.history.record("variables", keys=[*self.variables()])
        (slowest,) = self.database.rows(
            f"SELECT MAX(duration) FROM task_instance {of_run} AND task_id = 'authenticate'"  # noqa: S608
        )
        waits = self.database.rows(f"SELECT CAST(value AS TEXT) FROM xcom {of_run} AND key = 'waited'")  # noqa: S608
        return Result(
            states=self.states(run_id),
            verdict=check(self.history.batch, may_fail=may_fail),
            seconds=time.monotonic() - self._started,
            authenticating=float(slowest[0] or 0),
            waits=tuple(float(_value(text)) for (text,) in waits),
        )


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _value(text: str) -> Any:
    """Return the value of a row of XCom: 2.11 stores JSON as bytes, 3.0 and later a JSON string in JSON."""
    value: Any = bytes.fromhex(text[2:]).decode() if text.startswith("\\x") else text
    while isinstance(value, str):
        value = json.loads(value)
    return value
