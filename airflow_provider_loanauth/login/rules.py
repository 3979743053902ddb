"""What holds after a login has failed: functions of the class of the failure, the row, and the clock, and nothing else.

All processes that would send the same values share one *row*. It has the last credential, and for each class of failure
what is known of its last ones. A process that shares nothing has a row of its own, to which the same rules apply.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, NamedTuple

from airflow_provider_loanauth import exceptions
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, ResponseError, UnavailableError, changed
from airflow_provider_loanauth.redaction import NotForXCom

# Classes of failures. An error of no class concerns this process alone.
#: The service has rejected the password by name.
FINAL = "final"
#: The response is about the values that were sent.
ABOUT_VALUES = "values"
#: The response may be about the host that sent them.
ABOUT_HOST = "host"
#: The service asked to wait.
WAIT = "wait"
UNAVAILABLE = "unavailable"
#: Seconds for which a rejected password is not sent again.
DAY = 86_400.0
#: Seconds of the pause after another response without a credential. Each consecutive one is longer by this factor. So a
#: fault of the service stops nobody for more than about four times its own length.
MIN_PAUSE, PAUSE_FACTOR = 30.0, 4.0
#: Seconds for which a cleared task obeys a rejection that another cleared task has met.
CLEARED_FINAL_SECONDS = 300.0
#: What so many consecutive hosts have met holds for all. Fewer may have no network, or may not be on an allow-list.
MIN_HOSTS_FOR_ALL = 5
#: Failed requests of a class that are remembered.
MAX_FAILURES = 12
#: Seconds after a request during which an unavailable service is considered to be unavailable still.
OUTAGE_SECONDS = 60.0


class _Rule(NamedTuple):
    """How long the failures of a class hold, and for whom. All times are in seconds."""

    #: The first pause, and the longest one; None: as long as the service asked.
    pauses: tuple[float, float] | None
    #: After the end of a pause: when failures of the class begin to count again.
    forget: float = 600.0
    #: A pause that begins so far in the future is of a host whose clock is wrong.
    max_skew: float = 60.0
    #: How long a cleared task obeys a failure that another cleared task has met; None: it obeys every failure.
    cleared: float | None = 10.0
    #: Whether it holds for all hosts, and is remembered after failures of other classes. Otherwise, it holds for the
    #: hosts that have met it.
    is_for_all: bool = False


_RULES = {
    FINAL: _Rule((DAY, DAY), max_skew=7200.0, cleared=CLEARED_FINAL_SECONDS, is_for_all=True),
    # That a host cannot reach the service says nothing about the values that another one has sent. They are remembered
    # for six hours: otherwise each run of a DAG that runs every hour would send them with each of its retries.
    ABOUT_VALUES: _Rule((MIN_PAUSE, DAY), forget=21_600.0, is_for_all=True),
    ABOUT_HOST: _Rule((MIN_PAUSE, 3600.0), forget=21_600.0),
    WAIT: _Rule(None, cleared=None),
    UNAVAILABLE: _Rule(None),
}


def class_of(error: LoanAuthError) -> str | None:
    """Return the class of a failure; None if it concerns this process alone."""
    if isinstance(error, RejectedError):
        return FINAL
    if isinstance(error, ResponseError):
        if error.is_about_values:
            return ABOUT_VALUES
        return ABOUT_HOST
    if isinstance(error, UnavailableError):
        if error.retry_after:
            return WAIT
        return UNAVAILABLE
    return None


class Attempt(NamedTuple):
    """A request that failed."""

    id: str
    host: str
    #: The end of the pause that it began, in seconds since the epoch (UTC), and how many have followed one another.
    until: float
    pauses: int


@dataclass(frozen=True, kw_only=True)
class Failure(NotForXCom):
    """The last failure of a class. Times are seconds since the epoch (UTC)."""

    #: Class name, message, status and error code of the exception.
    error: Mapping[str, Any]
    by: str
    at: float
    #: The end of the pause.
    until: float
    #: The last requests that have failed in this way, since another class of failures. The last one is last.
    attempts: tuple[Attempt, ...]
    #: Whether the task had been cleared by a person.
    is_cleared: bool

    @property
    def kind(self) -> type[LoanAuthError]:
        """The class of the exception."""
        return getattr(exceptions, str(self.error["type"]), ResponseError)

    @property
    def public(self) -> dict[str, str]:
        """What people read of it."""
        return {"by": self.by, "at": as_utc(self.at), "until": as_utc(self.until), "error": self.error["type"]}

    @property
    def hosts(self) -> set[str]:
        """The hosts that have met it one after another."""
        return {attempt.host for attempt in self.attempts}


@dataclass(frozen=True, kw_only=True)
class Row(NotForXCom):
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
                name: Failure(**one | {"attempts": tuple(Attempt(*attempt) for attempt in one["attempts"])})
                for name, one in content["failures"].items()
                if name in _RULES
            }
            return cls(id=content["id"], credential=content["credential"], failures=failures)
        except (AttributeError, KeyError, TypeError, ValueError):
            return cls()

    @property
    def credential_id(self) -> str | None:
        """The id of the credential; None if there is none."""
        if not self.credential:
            return None
        return self.credential.get("id")

    @property
    def public(self) -> Mapping[str, str]:
        """What people read of it: the failure whose pause ends last, or who logged in last; without secrets."""
        if self.failures:
            return max(self.failures.values(), key=lambda failure: failure.until).public
        credential = self.credential
        if credential is None:
            return {}
        times = {"at": credential["issued_at"], "expires_at": credential["expires_at"]}
        # Without microseconds.
        return {"by": credential["by"]} | {name: f"{text[:19]}+00:00" for name, text in times.items() if text}

    @property
    def last_class(self) -> str:
        """The class of the last failure, if there is one."""
        return [*self.failures][-1]

    def blocking_failure(self, host: str, now: float, *, is_cleared: bool) -> Failure | None:
        """Return the failure because of which a host sends nothing now; None if it may send."""
        found = [
            replace(failure, until=until)
            for name, failure in self.failures.items()
            # A failure in the future is one of a host whose clock is wrong.
            if now < (until := _until_for(name, failure, host)) and failure.at <= now + _RULES[name].max_skew
            if not (is_cleared and _may_clear(name, failure, now))
        ]
        return max(found, key=lambda failure: failure.until, default=None)

    def attempts(self, host: str | None = None) -> set[str]:
        """Return the ids of the requests of a host that found the service unavailable; None: of all hosts."""
        return {
            attempt.id
            for name in (UNAVAILABLE, WAIT)
            if name in self.failures
            for attempt in self.failures[name].attempts
            if host in {None, attempt.host}
        }

    def unavailable_for(self, now: float) -> set[str]:
        """Return the hosts for which the service was unavailable a moment ago, one after another."""
        failure = self.failures.get(UNAVAILABLE)
        if failure is None or abs(now - failure.at) > OUTAGE_SECONDS:
            return set()
        return failure.hosts

    def after(self, error: LoanAuthError, *, id_: str, host: str, by: str, now: float, is_cleared: bool) -> Row:
        """Return the row after a failed request with an id; the same one if the error concerns this process alone."""
        name = class_of(error)
        if name is None:
            return self
        pauses: int = 1
        attempts: tuple[Attempt, ...] = ()
        if earlier := self._counted(name, now):
            attempts = earlier.attempts
            pauses = attempts[-1].pauses
            # A request that was under way when a pause began does not make the next one longer.
            if now >= min(attempt.until for attempt in attempts if attempt.pauses == pauses):
                pauses += 1
        until = now + _pause(_RULES[name], pauses, error)
        failure = Failure(
            error={
                "type": type(error).__name__,
                "message": str(error.args[0]),
                "status": error.status,
                "code": error.code,
            },
            by=by,
            at=now,
            until=until,
            attempts=(*attempts, Attempt(id_, host, until, pauses))[-MAX_FAILURES:],
            is_cleared=is_cleared,
        )
        # No class ends the pause of another one, or the count of refused values.
        others = {
            other: one for other, one in self.failures.items() if other != name and now < _remembered_until(other, one)
        }
        return replace(self, failures=others | {name: failure})

    def _counted(self, name: str, now: float) -> Failure | None:
        """Return the last failure of a class; None if the count begins again."""
        rule, last = _RULES[name], self.failures.get(name)
        if last is None or now >= last.until + rule.forget:
            return None
        if self.last_class != name and not rule.is_for_all:
            return None
        return last


def _until_for(name: str, failure: Failure, host: str) -> float:
    """Return until when a failure holds for a host: the end of everybody's pause, or of the last one that it began."""
    if _RULES[name].is_for_all or len(failure.hosts) >= MIN_HOSTS_FOR_ALL:
        return failure.until
    return max((attempt.until for attempt in failure.attempts if attempt.host == host), default=0.0)


def _remembered_until(name: str, failure: Failure) -> float:
    """Return until when a failure stays in the row after one of another class."""
    if _RULES[name].is_for_all:
        return failure.until + _RULES[name].forget
    return failure.until


def _may_clear(name: str, failure: Failure, now: float) -> bool:
    """Return whether a task that a person has cleared may try in spite of a failure."""
    # A person clears a task after a correction at the service. One of all cleared tasks tries for the others.
    seconds = _RULES[name].cleared
    if seconds is None:
        return False
    return not failure.is_cleared or abs(now - failure.at) >= seconds


def _pause(rule: _Rule, pauses: int, error: LoanAuthError) -> float:
    """Return for how many seconds a failure holds."""
    if rule.pauses is None:
        return error.retry_after or 0.0
    first, longest = rule.pauses
    return min(longest, first * PAUSE_FACTOR ** min(pauses - 1, 10))


def error_in_pause(
    failure: Failure, key: str | None, settings: Settings, now: float, *, is_temporary: bool
) -> LoanAuthError:
    """Return the error of a login that sends nothing because of a failure.

    ``key``: of the Variable that has the row. ``is_temporary``: as an error for which a sensor waits.
    """
    kind = UnavailableError if is_temporary else failure.kind
    advice = f"Nothing was sent, because {_advice(failure, key, settings)}"
    return _error_of(kind, failure, advice, settings, retry_after=failure.until - now)


def with_advice(error: LoanAuthError, failure: Failure, key: str | None, settings: Settings) -> LoanAuthError:
    """Return the error of a request that begins a pause, with what to do until its end."""
    advice = _advice(failure, key, settings)
    message = f"{str(error.args[0]).removesuffix('.')}. {advice[0].upper()}{advice[1:]}"
    return changed(error, message, retry_after=failure.until - failure.at)


def _advice(failure: Failure, key: str | None, settings: Settings) -> str:
    until = as_utc(failure.until)
    if failure.kind is UnavailableError:
        return f"the service asked to wait until {until}."
    remedy = "correct the Connection, or if the cause was corrected at the service, clear the authenticating task"
    if key:
        if failure.kind is RejectedError and failure.is_cleared:
            remedy += f" after {as_utc(failure.at + CLEARED_FINAL_SECONDS)}"
        command = f"python -m airflow_provider_loanauth forget {shlex.quote(settings.conn_id)}"
        remedy += f", run `{command}`, or delete the Variable {key!r}"
    return f"the same values rest until {until}. Before that, {remedy}."


def error_after_waiting(
    failure: Failure, attempts: int, settings: Settings, blocking: Failure | None, now: float
) -> LoanAuthError:
    """Return the error of a login that has waited for so many requests of its host, which have failed.

    ``blocking``: the failure that still blocks this host, if any.
    """
    advice = f"This task gave up after {number_of(attempts, 'failed request')} of this host."
    retry_after = None
    if blocking is not None:
        retry_after = blocking.until - now
    return _error_of(UnavailableError, failure, advice, settings, retry_after=retry_after)


def _error_of(
    kind: type[LoanAuthError], failure: Failure, advice: str, settings: Settings, *, retry_after: float | None
) -> LoanAuthError:
    stored = failure.error
    # The cause comes first, so that whoever cuts a message keeps it.
    cause = str(stored["message"]).removesuffix(".")
    return kind(
        f"{cause}. This was the result of {failure.by} at {as_utc(failure.at)}. {advice}",
        status=stored["status"],
        code=stored["code"],
        retry_after=retry_after,
        conn_id=settings.conn_id,
        method=settings.method,
    )


def number_of(count: int, name: str) -> str:
    """Return a number of things for people."""
    if count == 1:
        return f"1 {name}"
    return f"{count} {name}s"


def as_utc(seconds: float) -> str:
    """Return seconds since the epoch as a time for people."""
    return datetime.fromtimestamp(seconds, tz=timezone.utc).isoformat(timespec="seconds")
