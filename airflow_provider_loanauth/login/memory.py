"""What a process remembers of its logins, by settings. A Connection that has changed has other settings."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_loanauth._compat import ForkSafeLock
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.login.credential import ActiveCredential
from airflow_provider_loanauth.login.rules import Row
from airflow_provider_loanauth.redaction import NotForXCom
from airflow_provider_loanauth.system import system

#: Seconds for which a row that was read need not be read again, if nothing may be sent because of it.
ROW_SECONDS = 10.0


@dataclass(eq=False)
class Memory(NotForXCom):
    """What a process remembers of one set of settings. Forked children keep it."""

    #: Held by the thread that logs in.
    lock: ForkSafeLock = field(default_factory=ForkSafeLock)
    #: The last credential that this process requested or took over.
    credential: ActiveCredential | None = field(default=None, repr=False)
    #: The last row that this process read or wrote, and when.
    row: Row = field(default_factory=Row, repr=False)
    read_at: float = -math.inf
    #: Ids of the last requests of this process that found the service unavailable, and of those that got a credential.
    sent: deque[str] = field(default_factory=lambda: deque(maxlen=100))
    #: The last claim of another process, and when this one first saw it, or its last renewal.
    claim_seen: tuple[Any, float] = (None, -math.inf)
    #: Until when Variables are not used, because they could not be.
    not_shared_until: float = -math.inf
    #: Until when a valid credential is used instead of them, because they took too long.
    slow_until: float = -math.inf
    #: The try of a cleared task whose request failed: a clear is good for one.
    cleared_try: Any = None

    def remember(self, row: Row) -> Row:
        """Remember a row that was read or written now, and return it."""
        self.row, self.read_at = row, system.monotonic()
        return row

    def trust_row(self) -> None:
        """Do not read the row again as long as a failure in it blocks this host: others may not have it."""
        self.read_at = math.inf

    def is_recent(self) -> bool:
        """Return whether the row was read or written a moment ago."""
        return system.monotonic() < self.read_at + ROW_SECONDS


_MEMORIES: dict[Settings, Memory] = {}
_LOCK = ForkSafeLock()


def forget_failures(settings: Settings) -> None:
    """Let this process send these values again."""
    if memory := _MEMORIES.get(settings):
        memory.remember(replace(memory.row, failures={}))


def memory_of(settings: Settings) -> Memory:
    """Return what this process remembers of these settings."""
    with _LOCK.current:
        return _MEMORIES.setdefault(settings, Memory())
