"""What the service has refused: for how long the same values are not sent again, and the error of who obeys that."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from airflow_provider_loanauth import exceptions
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, ResponseError, changed
from airflow_provider_loanauth.redaction import NotForXCom
from airflow_provider_loanauth.system import system

#: Seconds for which a password that the service rejected by name is not sent again.
DAY = 86_400.0
#: Seconds of the first pause after another refusal. The next ones are longer by this factor, up to a day: the values
#: are sent after 1, 6 and 31 minutes, 2.6 and 13 hours.
MIN_PAUSE, PAUSE_FACTOR = 60.0, 5.0
#: Refusals in a row that are counted. The pause of the last one is a day.
MAX_COUNT = 6
#: Seconds for which a cleared task obeys the refusal of another cleared one, so that one of many tries for the others.
CLEARED_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True)
class Refusal(NotForXCom):
    """A response because of which the same values are not sent for a while."""

    #: Class, message, status and error code of the exception.
    kind: str
    message: str
    status: int | None
    code: str | None
    #: The process that sent the request, as text for people.
    by: str
    #: When (seconds since the epoch, UTC), and the seconds of the pause.
    at: float
    seconds: float
    #: How many have followed one another.
    count: int
    #: Whether a person had cleared the task.
    is_cleared: bool

    @classmethod
    def of(cls, error: LoanAuthError, earlier: Refusal | None, *, by: str, is_cleared: bool) -> Refusal:
        """Return the refusal that an error is, after an earlier one."""
        count = 1
        if earlier is not None:
            # A request that was under way when a pause began does not make the next one longer.
            count = min(MAX_COUNT, earlier.count + (not earlier.holds()))
        seconds = min(DAY, MIN_PAUSE * PAUSE_FACTOR ** (count - 1))
        if isinstance(error, RejectedError):
            seconds = DAY
        return cls(
            kind=type(error).__name__,
            message=str(error.args[0]).removesuffix("."),
            status=error.status,
            code=error.code,
            by=by,
            at=system.time(),
            seconds=seconds,
            count=count,
            is_cleared=is_cleared,
        )

    @classmethod
    def from_row(cls, stored: Mapping[str, Any]) -> Refusal:
        """Return the refusal that a process has stored for all. Another shape raises one of several errors."""
        return cls(
            kind=str(stored["kind"]),
            message=str(stored.get("message", "The service refused the login")),
            status=stored.get("status"),
            code=stored.get("code"),
            by=str(stored.get("by", "another task")),
            at=float(stored["at"]),
            seconds=float(stored.get("seconds", MIN_PAUSE)),
            count=int(stored.get("count", 1)),
            is_cleared=bool(stored.get("is_cleared")),
        )

    @property
    def until(self) -> float:
        """The end of the pause."""
        return self.at + self.seconds

    def holds(self, *, is_cleared: bool = False) -> bool:
        """Return whether the pause lasts; ``is_cleared``: for a task that a person has cleared."""
        # Also for a clock that is behind that of the other host, but never for more than twice the pause.
        age = abs(system.time() - self.at)
        if is_cleared and (not self.is_cleared or age >= CLEARED_SECONDS):
            return False
        return age < self.seconds

    def error(self, settings: Settings) -> LoanAuthError:
        """Return the error of a login that sends nothing."""
        kind: type[LoanAuthError] = getattr(exceptions, self.kind, ResponseError)
        return kind(
            f"{self.message}. The service said so to {self.by} at {as_utc(self.at)}. {self._advice(settings)}",
            status=self.status,
            code=self.code,
            retry_after=self.until - system.time(),
            conn_id=settings.conn_id,
            method=settings.method,
        )

    def explain(self, error: LoanAuthError, settings: Settings) -> LoanAuthError:
        """Return the error of the request that was refused, with what to do until the end of the pause."""
        return changed(error, f"{self.message}. {self._advice(settings)}", retry_after=self.seconds)

    def _advice(self, settings: Settings) -> str:
        command = f"python -m airflow_provider_loanauth forget {shlex.quote(settings.conn_id)}"
        until = f"The same values are not sent again before {as_utc(self.until)}"
        return f"{until}: correct the Connection, or after a fault of the service, run `{command}`."


def as_utc(seconds: float) -> str:
    """Return seconds since the epoch as a time for people."""
    return datetime.fromtimestamp(seconds, tz=timezone.utc).isoformat(timespec="seconds")
