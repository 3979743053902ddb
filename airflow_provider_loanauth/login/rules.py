"""What holds after a login has failed: functions of the class of the failure, the row, and the clock, and nothing else.

All processes that would send the same values share one *row*. It has the last credential, and for each class of failure
what is known of its last ones. A process that shares nothing has a row of its own, to which the same rules apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, ResponseError, UnavailableError

#: Classes of failures: the service has rejected the values; its response does not say whether it has; it asked to wait;
#: it is unavailable. An error of any other class concerns this process alone.
FINAL, UNCLEAR, WAIT, UNAVAILABLE = "final", "unclear", "wait", "unavailable"
#: Seconds for which rejected values are not sent again.
DAY = 86_400.0
#: Seconds of the pause after an unclear response. They double each time, up to a maximum, and last longest after so
#: many failures in a row.
MIN_PAUSE, MAX_PAUSE, LONG_PAUSE, MAX_FAILURES = 30.0, 600.0, 3600.0, 10
#: What so many hosts in a row have met holds for all. Fewer may have no network, or may not be on an allow-list.
MAX_HOSTS = 5
#: Seconds after the end of a pause when failures of its class begin to count again.
FORGET_SECONDS = 600.0
#: A pause that begins so many seconds in the future is of a host whose clock is wrong.
MAX_SKEW = 60.0
#: Seconds for which a cleared task obeys a failure that another cleared task has met.
CLEARED_SECONDS = 300.0
#: Characters that are kept of the message of an error.
MAX_MESSAGE = 200


def class_of(error: LoanAuthError) -> str | None:
    """Return the class of a failure; None if it concerns this process alone."""
    if isinstance(error, RejectedError):
        return FINAL
    if isinstance(error, ResponseError):
        return UNCLEAR
    if isinstance(error, UnavailableError):
        return WAIT if error.retry_after else UNAVAILABLE
    return None


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The last failure of a class. Times are seconds since the epoch (UTC)."""

    #: Class name, message, status and error code of the exception.
    error: Mapping[str, Any]
    by: str
    at: float
    #: The end of the pause.
    until: float
    #: Id and host of each failed request of this class, as long as no other class came between; the last one last.
    attempts: tuple[tuple[str, str], ...]
    #: Whether the task had been cleared by a person.
    is_cleared: bool

    @property
    def public(self) -> dict[str, str]:
        """What people read of it."""
        return {"by": self.by, "at": as_utc(self.at), "until": as_utc(self.until), "error": self.error["type"]}

    @property
    def hosts(self) -> set[str]:
        """The hosts that have met it one after another."""
        return {host for _, host in self.attempts}

    def concerns(self, host: str) -> bool:
        """Return whether it says anything about a host."""
        return host in self.hosts or len(self.hosts) >= MAX_HOSTS


@dataclass(frozen=True, kw_only=True)
class Row:
    """The last credential, in its stored form, and what failed since; by class."""

    id: str = ""
    credential: Mapping[str, Any] | None = field(default=None, repr=False)
    #: The class of the last failure is the last key.
    failures: Mapping[str, Failure] = field(default_factory=dict)

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> Row:
        """Return the row of a stored value; an empty one if there is none, or if it has another shape."""
        try:
            failures = {
                name: Failure(**one | {"attempts": tuple((number, host) for number, host in one["attempts"])})
                for name, one in content["failures"].items()
            }
            return cls(id=content["id"], credential=content["credential"], failures=failures)
        except (AttributeError, KeyError, TypeError, ValueError):
            return cls()

    @property
    def public(self) -> Mapping[str, str]:
        """What people read of it: who failed last and until when it holds, or who logged in last; without secrets."""
        if self.failures:
            return max(self.failures.values(), key=lambda failure: failure.until).public
        if (has := self.credential) is None:
            return {}
        times = {"at": has["issued_at"], "expires_at": has["expires_at"]}
        return {"by": has["by"]} | {name: f"{text[:19]}+00:00" for name, text in times.items() if text}

    def holding(self, host: str, now: float, *, is_cleared: bool) -> Failure | None:
        """Return the failure because of which a host sends nothing now; None if it may send."""
        found = [
            failure
            for name, failure in self.failures.items()
            if name != UNAVAILABLE and _holds(name, failure, host, now, is_cleared=is_cleared)
        ]
        return max(found, key=lambda failure: failure.until, default=None)

    def attempts(self, host: str | None) -> set[str]:
        """Return the ids of failed requests that are as good as requests of a host; all, if it is None."""
        # An unavailable service is not remembered: who comes later tries. Who waited for a request need not repeat it.
        found = [self.failures[name] for name in (UNAVAILABLE, WAIT) if name in self.failures]
        return {
            number
            for failure in found
            for number, of_host in failure.attempts
            if host in {None, of_host} or len(failure.hosts) >= MAX_HOSTS
        }

    def after(self, error: LoanAuthError, *, number: str, host: str, by: str, now: float, is_cleared: bool) -> Row:
        """Return the row after a failed request with an id; the same one if the error concerns this process alone."""
        name = class_of(error)
        if name is None:
            return self
        earlier = self.failures.get(name)
        goes_on = earlier is not None and [*self.failures][-1] == name and now < earlier.until + FORGET_SECONDS
        attempts = (*(earlier.attempts if earlier and goes_on else ()), (number, host))[-MAX_FAILURES:]
        failure = Failure(
            error={
                "type": type(error).__name__,
                "message": shortened(str(error.args[0]), MAX_MESSAGE),
                "status": error.status,
                "code": getattr(error, "code", None),
            },
            by=by,
            at=now,
            until=now,
            attempts=attempts,
            is_cleared=is_cleared,
        )
        failure = replace(failure, until=now + _pause(name, failure, error))
        # No class ends the pause of another one.
        others = {other: one for other, one in self.failures.items() if other != name and now < one.until}
        return replace(self, failures=others | {name: failure})


def _holds(name: str, failure: Failure, host: str, now: float, *, is_cleared: bool) -> bool:
    # A person clears a task after a correction at the service. One of all tasks that were cleared tries for the others.
    was_tried = failure.is_cleared and abs(now - failure.at) < CLEARED_SECONDS
    if is_cleared and name != WAIT and not was_tried:
        return False
    if name == FINAL:
        # Also if the clock of its writer is ahead.
        return now < failure.until
    return failure.at - MAX_SKEW <= now < failure.until and failure.concerns(host)


def _pause(name: str, failure: Failure, error: LoanAuthError) -> float:
    """Return for how many seconds a failure holds."""
    if name == FINAL:
        return DAY
    if name == UNCLEAR:
        if len(failure.attempts) >= MAX_FAILURES:
            return LONG_PAUSE
        # The first failure of each host, up to the number that stands for all, says nothing new.
        repeated = len(failure.attempts) - min(MAX_HOSTS, len(failure.hosts))
        return float(min(MAX_PAUSE, MIN_PAUSE * 2**repeated))
    return getattr(error, "retry_after", None) or 0.0


def as_utc(seconds: float) -> str:
    """Return seconds since the epoch as a time for people."""
    return datetime.fromtimestamp(seconds, tz=timezone.utc).isoformat(timespec="seconds")


def shortened(text: str, length: int) -> str:
    """Return the beginning of a text, with at most so many characters."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"
