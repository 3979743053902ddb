"""Runs of the DAG ``late_batch``: the logins that the sandbox counted, and the waits that the tasks measured."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from e2e.marked_secrets import COMPANY, USER
from e2e.steps import EndToEndError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from e2e.marked_secrets import Recorder
    from e2e.standalone import Airflow
    from loanauth_sandbox.server import Sandbox
    from scripts.programs import Programs

DAG_ID = "late_batch"
RUN_TIMEOUT = 900.0  # seconds of a DAG run
CONNECTION_TIMEOUT = 5  # seconds, the field Timeout of the Connection
#: Fraction of the lifetime that must lie between two logins. A credential is refreshed when a tenth is left.
MIN_FRACTION = 0.8


class Database(Protocol):
    """A metadata database."""

    def rows(self, sql: str) -> list[list[str]]:
        """Return the rows of a query, with each value as text."""


@dataclass(frozen=True)
class SQLite:
    """
    A metadata database in a file.

    :param path: the file
    """

    path: Path

    def rows(self, sql: str) -> list[list[str]]:
        """Return the rows of a query, with each value as text."""
        with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True, timeout=30)) as database:
            return [[str(value) for value in row] for row in database.execute(sql)]


@dataclass(frozen=True)
class Result:
    """
    The result of one DAG run.

    :param lifetime: lifetime of a token, in seconds
    :param states: number of pricing tasks in each state
    :param seconds: duration of the run
    :param logins: when each login succeeded, in seconds since the epoch
    :param rejected: number of rejected logins
    :param waits: seconds from the beginning of each task that used a refreshed credential until it had it
    :param fresh_waits: the same of the tasks that used the issued credential
    """

    lifetime: float
    states: Counter[str]
    seconds: float
    logins: list[float]
    rejected: int
    waits: list[float]
    fresh_waits: list[float]

    @property
    def extra_logins(self) -> int:
        """Number of logins that followed another one too soon: more than one for one lifetime."""
        pairs = zip(self.logins, self.logins[1:], strict=False)
        return sum(later - earlier < self.lifetime * MIN_FRACTION for earlier, later in pairs)

    def problems(self, tasks: int, *, max_extra: int = 0) -> list[str]:
        """
        Return a sentence for each wrong number.

        :param tasks: number of pricing tasks, all of which should succeed
        :param max_extra: maximum of logins beyond one for each lifetime
        """
        problems = []
        if self.states != {"success": tasks}:
            problems.append("some tasks did not succeed")
        if len(self.logins) < 2:  # noqa: PLR2004 - the first one and a refresh
            problems.append("the token did not expire during the batch")
        if self.extra_logins > max_extra:
            problems.append(f"{self.extra_logins} tasks logged in too soon after another one")
        if self.rejected:
            problems.append(f"{self.rejected} logins were rejected")
        return problems

    def __str__(self) -> str:
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items(), reverse=True))
        waits = "".join(
            f"; wait of {len(seconds)} tasks with {kind} credential: median {median(seconds):.2f} s, slowest "
            f"{max(seconds):.2f} s"
            for kind, seconds in (("a refreshed", self.waits), ("the issued", self.fresh_waits))
            if seconds
        )
        return (
            f"{states} in {self.seconds:.0f} s; {len(self.logins)} logins, {self.extra_logins} of them extra; "
            f"{self.rejected} rejected logins{waits}"
        )


@dataclass
class Batches:
    """
    Runs of the DAG on one Airflow.

    :param database: the metadata database of this Airflow
    """

    airflow: Airflow
    programs: Programs
    sandbox: Sandbox
    recorder: Recorder
    database: Database
    _lifetime: int = 0
    _started: float = 0.0

    def add_connection(self, conn_id: str = "loanauth_jwt") -> None:
        """
        Add a Connection.

        :raises EndToEndError: Airflow rejects it
        """
        extra = {
            "method": "jwt",
            "origin": COMPANY.origin,
            "client_id": COMPANY.client_id,
            "client_secret": COMPANY.client_secret,
            "timeout": CONNECTION_TIMEOUT,
        }
        connection = {
            "connection_id": conn_id,
            "conn_type": "loanauth",
            "host": self.sandbox.url,
            "login": USER.username,
            "password": USER.password,
            "extra": json.dumps(extra),
        }
        status, response = self.airflow.request("POST", "/connections", connection)
        self.check(status < 300, f"the connection was rejected: {status} {response}")  # noqa: PLR2004 - RFC 9110 §15.3

    def unpause(self) -> None:
        """Wait until Airflow has parsed the DAG, and unpause it."""
        self.airflow.wait_for_dag(self.programs, DAG_ID)
        self.airflow.unpause(DAG_ID)

    def check(self, condition: object, message: str) -> None:
        """
        Fail unless a condition holds.

        :raises EndToEndError: it does not hold
        """
        if not condition:
            raise EndToEndError(message)

    def start(self, run_id: str, *, tasks: int, lifetime: int) -> None:
        """
        Start a DAG run.

        :param tasks: number of pricing tasks
        :param lifetime: lifetime of a token, in seconds
        """
        self.sandbox.reset()
        self.sandbox.set_settings(token_lifetime=lifetime)
        self.recorder.step = run_id
        self._lifetime, self._started = lifetime, time.monotonic()
        params: dict[str, Any] = {"url": f"{self.sandbox.url}/sandbox/price", "tasks": tasks}
        self.airflow.trigger(DAG_ID, run_id, params)

    def states(self, run_id: str) -> Counter[str]:
        """Return the number of pricing tasks in each state."""
        rows = self.database.rows(
            "SELECT state, COUNT(*) FROM task_instance "  # noqa: S608 - no input of a user
            f"WHERE dag_id = '{DAG_ID}' AND run_id = '{run_id}' AND task_id = 'price' GROUP BY state"
        )
        return Counter({state or "none": int(count) for state, count in rows})

    def xcom(self, run_id: str, key: str, task_id: str) -> list[tuple[int, Any]]:
        """Return map index and value of each XCom with this key."""
        rows = self.database.rows(
            "SELECT map_index, CAST(value AS TEXT) FROM xcom "  # noqa: S608 - no input of a user
            f"WHERE dag_id = '{DAG_ID}' AND run_id = '{run_id}' AND key = '{key}' AND task_id = '{task_id}'"
        )
        return [(int(index), _value(text)) for index, text in rows]

    def wait_until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        self.programs.wait(what, condition, seconds=RUN_TIMEOUT)

    def has_ended(self, run_id: str) -> bool:
        """Return whether a DAG run has ended."""
        sql = f"SELECT state FROM dag_run WHERE dag_id = '{DAG_ID}' AND run_id = '{run_id}'"  # noqa: S608 - no input
        time.sleep(0.1)
        return self.database.rows(sql)[0][0] in ("success", "failed")

    def host(self, run_id: str, map_index: int) -> str:
        """Return the name of the host that runs a pricing task."""
        (row,) = self.database.rows(
            "SELECT hostname FROM task_instance "  # noqa: S608 - no input of a user
            f"WHERE dag_id = '{DAG_ID}' AND run_id = '{run_id}' AND task_id = 'price' AND map_index = {map_index}"
        )
        return row[0]

    def end(self, run_id: str) -> Result:
        """Wait until a DAG run has ended, and return its result."""
        self.wait_until(f"the batch {run_id}", lambda: self.has_ended(run_id))
        requests = self.sandbox.requests()
        values = [value for _, value in self.xcom(run_id, "return_value", "price")]
        return Result(
            lifetime=self._lifetime,
            states=self.states(run_id),
            seconds=time.monotonic() - self._started,
            logins=[one.at for one in requests if one.endpoint == "token" and one.status == 200],  # noqa: PLR2004
            rejected=self.sandbox.counters().authentications.rejected,
            waits=[value["waited"] for value in values if value["refreshed"]],
            fresh_waits=[value["waited"] for value in values if not value["refreshed"]],
        )


def _value(text: str) -> Any:
    """Return the value of a row of XCom: 2.11 stores JSON as bytes, 3.0 and later a JSON string in JSON."""
    value: Any = bytes.fromhex(text[2:]).decode() if text.startswith("\\x") else text
    while isinstance(value, str):
        value = json.loads(value)
    return value
