"""How often and for how long one login tries: its own requests, and those of its host for which it has waited."""

from __future__ import annotations

import math
from collections.abc import Collection

from airflow_provider_loanauth._compat import task_logger
from airflow_provider_loanauth.exceptions import UnavailableError, changed
from airflow_provider_loanauth.login.rules import UNAVAILABLE, WAIT, Failure, Row, number_of
from airflow_provider_loanauth.redaction import NotForXCom
from airflow_provider_loanauth.system import system

#: Seconds after the first failure within which the last attempt must start.
MAX_SECONDS = 60.0

_log = task_logger(__name__)


class Attempts(NotForXCom):
    """The attempts of one login: its requests that failed, and those of other processes of its host since it began.

    A request of another host is none: it says nothing about the network of this one.
    """

    def __init__(self, limit: int, host: str, sent: Collection[str]) -> None:
        self.limit, self._host = limit, host
        #: Ids of the last requests of this process. A thread that waits also counts those of the thread it waits for.
        self._sent, self._sent_before = sent, {*sent}
        #: Ids of the requests that began before this login, and of those that count and have failed.
        self._earlier: set[str | None] = set()
        self._failed: set[str] = set()
        #: Whether a row was read, and whether a turn was asked for.
        self.has_begun = self._has_asked = False
        #: Seconds for which this login has waited for the ends of pauses.
        self.rested = 0.0
        #: When the last attempt must start.
        self._ends_at = math.inf

    @property
    def tries_once(self) -> bool:
        """Whether the caller tries again later, such as a sensor at its next poke."""
        return self.limit == 1

    def note_earlier(self, row: Row) -> None:
        """Take note of what was there before this login. Only the first call counts."""
        if not self.has_begun:
            # What another thread of this process has sent while this login waited for it counts as new.
            sent_meanwhile = {*self._sent} - self._sent_before
            self._earlier = {row.credential_id, *row.attempts()} - sent_meanwhile
        self.has_begun = True

    def note_under_way(self, under_way: str | None) -> None:
        """Take note of the request that was under way when this login first asked for its turn."""
        if not self._has_asked:
            self._earlier.add(under_way)
        self._has_asked = True

    def is_new(self, id_: str | None) -> bool:
        """Return whether a credential was requested since this login began."""
        return id_ not in self._earlier

    def add(self, id_: str) -> None:
        """Count a request of this login that failed."""
        self._failed.add(id_)

    def last_failure(self, row: Row) -> Failure | None:
        """Count what this host has tried meanwhile; return the last failure if no attempt is left."""
        self._failed |= row.attempts(self._host) - self._earlier
        if len(self._failed) < self.limit:
            return None
        return row.failures.get(UNAVAILABLE) or row.failures.get(WAIT)

    def __len__(self) -> int:
        return len(self._failed)

    def seconds_to_retry(self, error: UnavailableError, *, is_patient: bool) -> float:
        """Return for how many seconds to wait before the next attempt; raise the error if there is none."""
        count, message = len(self), f"{str(error.args[0]).removesuffix('.')}."
        # Exponential with full jitter: up to 1 s, 2 s, 4 s …
        seconds = system.uniform(0, 2.0 ** (count - 1))
        if error.retry_after:
            # A little longer than requested, so that not all clients retry at the same moment.
            seconds = error.retry_after + system.uniform(0, 1)
        now = system.monotonic()
        self._ends_at = min(self._ends_at, now + MAX_SECONDS)
        if is_patient and count < self.limit and now + seconds < self._ends_at:
            text = "Attempt %d of %d failed: %s Retrying in %.1f s."
            _log.warning(text, count, self.limit, message, seconds)
            return seconds
        if is_patient and not self.tries_once:
            message += f" Gave up after {number_of(count, 'attempt')}."
        if error.retry_after is not None:
            message += f" The service asked to wait {error.retry_after:.0f} s."
        raise changed(error, message) from None
