"""What a process remembers of its logins, by settings. A Connection that has changed has other settings."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_loanauth._compat import ForkSafeLock
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.exceptions import UnavailableError
from airflow_provider_loanauth.login.credential import ActiveCredential
from airflow_provider_loanauth.login.refusal import Refusal
from airflow_provider_loanauth.redaction import NotForXCom


@dataclass(eq=False)
class Memory(NotForXCom):
    """What a process remembers of one set of settings. Forked children keep it."""

    #: Held by the thread that logs in.
    lock: ForkSafeLock = field(default_factory=ForkSafeLock)
    #: The last credential that this process requested or took over.
    credential: ActiveCredential | None = field(default=None, repr=False)
    #: What the service has refused to this process, since its last success.
    refusal: Refusal | None = None
    #: With what its last login failed while the service was unavailable: also for the threads that waited for it.
    error: UnavailableError | None = None
    #: Until when Variables are not used, because they could not be.
    not_shared_until: float = -math.inf
    #: The id of the last claim of another process, and when this one first saw it.
    claim_seen: tuple[str, float] = ("", -math.inf)
    #: The try of a cleared task whose request was refused: a clear is good for one.
    cleared_try: Any = None


_MEMORIES: dict[Settings, Memory] = {}
_LOCK = ForkSafeLock()


def memory_of(settings: Settings) -> Memory:
    """Return what this process remembers of these settings."""
    with _LOCK.current:
        return _MEMORIES.setdefault(settings, Memory())
