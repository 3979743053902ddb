"""After a failure: for how long the same values are not sent again, and when a login tries again by itself."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from datetime import datetime, timezone

from airflow_provider_loanauth import exceptions
from airflow_provider_loanauth._compat import task_logger
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, ResponseError, UnavailableError, changed
from airflow_provider_loanauth.redaction import NotForXCom
from airflow_provider_loanauth.system import system

#: Seconds for which a password that the service rejected by name is not sent again.
DAY = 86_400.0
#: Seconds of the pause after another refusal. Each further one about the values is longer by this factor, up to a day.
#: So a fault of the service stops nobody for more than about four times its own length.
MIN_PAUSE, PAUSE_FACTOR = 30.0, 4.0
#: Pauses in a row that are counted, and seconds after the last one when the count begins again. Otherwise, each run of
#: a DAG that runs every hour would send the same values with each of its retries.
MAX_COUNT, COUNT_SECONDS = 10, 21_600.0
#: Seconds for which a cleared task obeys a refusal that another one has met, so that one of many tries for the others.
CLEARED_SECONDS = 300.0
#: Seconds after the first failure of a login within which its last attempt must start.
MAX_SECONDS = 60.0

_log = task_logger(__name__)


def is_about_values(error: LoanAuthError) -> bool:
    """Return whether everybody who sends the same values can expect this error."""
    return isinstance(error, RejectedError) or (isinstance(error, ResponseError) and error.is_about_values)


@dataclass(frozen=True, kw_only=True)
class Refusal(NotForXCom):
    """A response because of which the same values rest for a while."""

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
    def of(cls, error: LoanAuthError, earlier: Refusal | None, *, by: str, is_cleared: bool) -> Refusal | None:
        """Return the refusal that an error is, after an earlier one; None if the next request need not wait."""
        now, count = system.time(), 1
        if earlier is not None and now < earlier.until + COUNT_SECONDS:
            # A request that was under way when a pause began does not make the next one longer.
            count = min(MAX_COUNT, earlier.count + (not earlier.holds()))
        seconds = _pause(error, count)
        if not seconds:
            return None
        return cls(
            kind=type(error).__name__,
            message=str(error.args[0]).removesuffix("."),
            status=error.status,
            code=error.code,
            by=by,
            at=now,
            seconds=seconds,
            count=count,
            is_cleared=is_cleared,
        )

    @property
    def until(self) -> float:
        """The end of the pause."""
        return self.at + self.seconds

    @property
    def public(self) -> dict[str, str]:
        """What people read of it."""
        return {"by": self.by, "at": as_utc(self.at), "until": as_utc(self.until), "error": self.kind}

    def holds(self, *, is_cleared: bool = False) -> bool:
        """Return whether the values rest now; ``is_cleared``: for a task that a person has cleared."""
        age = abs(system.time() - self.at)
        if is_cleared and (not self.is_cleared or age >= CLEARED_SECONDS):
            return False
        # Also for a clock that is behind that of the other host, but never for more than twice the pause.
        return age < self.seconds

    def error(self, settings: Settings) -> LoanAuthError:
        """Return the error of a login that sends nothing."""
        kind: type[LoanAuthError] = getattr(exceptions, self.kind, ResponseError)
        return kind(
            # The cause comes first, so that whoever cuts a message keeps it.
            f"{self.message}. This was the result of {self.by} at {as_utc(self.at)}. Nothing was sent, because "
            f"{self._advice(settings)}",
            status=self.status,
            code=self.code,
            retry_after=self.until - system.time(),
            conn_id=settings.conn_id,
            method=settings.method,
        )

    def explain(self, error: LoanAuthError, settings: Settings) -> LoanAuthError:
        """Return the error of the request that was refused, with what to do until the end of the pause."""
        advice = self._advice(settings)
        return changed(error, f"{self.message}. {advice[0].upper()}{advice[1:]}", retry_after=self.seconds)

    def _advice(self, settings: Settings) -> str:
        if self.kind == UnavailableError.__name__:
            return f"the service asked to wait until {as_utc(self.until)}."
        remedy = "correct the Connection, or if the cause was corrected at the service, clear the authenticating task"
        if self.is_cleared:
            remedy += f" after {as_utc(self.at + CLEARED_SECONDS)}"
        command = f"python -m airflow_provider_loanauth forget {shlex.quote(settings.conn_id)}"
        remedy += f", run `{command}`, or delete the Variables 'loanauth.{settings.method}.{settings.conn_id}.…'"
        return f"the same values rest until {as_utc(self.until)}. Before that, {remedy}."


def _pause(error: LoanAuthError, count: int) -> float:
    """Return for how many seconds an error is a refusal."""
    if isinstance(error, RejectedError):
        return DAY
    if is_about_values(error):
        return min(DAY, MIN_PAUSE * PAUSE_FACTOR ** (count - 1))
    if isinstance(error, ResponseError):
        return MIN_PAUSE
    return error.retry_after or 0.0


def as_utc(seconds: float) -> str:
    """Return seconds since the epoch as a time for people."""
    return datetime.fromtimestamp(seconds, tz=timezone.utc).isoformat(timespec="seconds")


class Backoff:
    """The attempts of one login: exponential, with full jitter, or as the service asked."""

    def __init__(self, max_attempts: int) -> None:
        self._max_attempts = max_attempts
        self._count = 0
        #: When the last attempt must start.
        self._ends_at = math.inf

    def seconds(self, error: UnavailableError, *, is_patient: bool) -> float:
        """Return for how many seconds to wait after a failed attempt; raise the error if there is no other one."""
        self._count += 1
        now = system.monotonic()
        self._ends_at = min(self._ends_at, now + MAX_SECONDS)
        # Up to 1 s, 2 s, 4 s …
        seconds = system.uniform(0, 2.0 ** (self._count - 1))
        if error.retry_after:
            # A little longer than requested, so that not all clients retry at the same moment.
            seconds = error.retry_after + system.uniform(0, 1)
        message = f"{str(error.args[0]).removesuffix('.')}."
        if is_patient and self._count < self._max_attempts and now + seconds < self._ends_at:
            text = "Attempt %d of %d failed: %s Retrying in %.1f s."
            _log.warning(text, self._count, self._max_attempts, message, seconds)
            return seconds
        if is_patient and self._max_attempts > 1:
            message += f" Gave up after {self._count} attempt{'s' * (self._count > 1)}."
        if error.retry_after is not None:
            message += f" The service asked to wait {error.retry_after:.0f} s."
        raise changed(error, message) from None
