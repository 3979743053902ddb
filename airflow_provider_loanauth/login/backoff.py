"""When a login that failed tries again by itself: exponential back-off with full jitter, or as the service asked."""

from __future__ import annotations

import math

from airflow_provider_loanauth._compat import task_logger
from airflow_provider_loanauth.exceptions import UnavailableError, changed
from airflow_provider_loanauth.system import system

#: Seconds after the first failure of a login within which its last attempt must start.
MAX_SECONDS = 60.0

_log = task_logger(__name__)


class Backoff:
    """The attempts of one login."""

    def __init__(self) -> None:
        self._count = 0
        #: When the last attempt must start.
        self._ends_at = math.inf

    def seconds(self, error: UnavailableError, max_attempts: int) -> float:
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
        if self._count < max_attempts and now + seconds < self._ends_at:
            text = "Attempt %d of %d failed: %s Retrying in %.1f s."
            _log.warning(text, self._count, max_attempts, message, seconds)
            return seconds
        if max_attempts > 1:
            message += f" Gave up after {self._count} attempt{'s' * (self._count > 1)}."
        if error.retry_after:
            message += f" The service asked to wait {error.retry_after:.0f} s."
        raise changed(error, message) from None
