"""What this process knows of its logins, by settings: one lock, the last failure, and the last credential."""

from __future__ import annotations

import copy
import math
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth._compat import ForkSafeLock
from airflow_provider_loanauth.exceptions import (
    LoanAuthError,
    RejectedError,
    ResponseError,
    SettingsError,
    UnavailableError,
)
from airflow_provider_loanauth.service.error_responses import MAX_RETRY_AFTER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_loanauth.connection.settings import Settings

#: Seconds without another request after a response without a usable credential. A login page, or a redirect to one, may
#: mean that the password was rejected.
RESPONSE_ERROR_SECONDS = 60.0


@dataclass(eq=False)
class LoginState:
    """What is known of one set of settings."""

    #: Held by the thread that authenticates.
    lock: ForkSafeLock = field(default_factory=ForkSafeLock)
    #: The error of the last request, without a traceback; None if it succeeded.
    failure: LoanAuthError | None = None
    #: Until when the same credentials are not sent again, in seconds of the monotonic clock.
    until: float = -math.inf
    #: The last credential that this process requested or took over (``login/shared.py``).
    credential: Any = None
    #: The claim of another process and when this one first saw it; the rejection of another process; until when
    #: Variables are not used, because they could not be (``login/shared.py``).
    claim_seen: tuple[str, float] = ("", -math.inf)
    shared_rejection: LoanAuthError | None = None
    not_shared_until: float = -math.inf

    def repeated(self) -> LoanAuthError:
        """Return a copy of the failure, whose message says that nothing was sent this time, and why."""
        # A copy, because one exception that many threads raise would collect all their tracebacks.
        error: Any = copy.copy(self.failure)
        left = max(0.0, self.until - time.monotonic())
        if isinstance(error, UnavailableError) and error.retry_after is not None:
            error.retry_after = left
        if isinstance(error, RejectedError):
            reason = (
                "this process does not send these credentials again until the Connection changes. If the cause was "
                "corrected at the service, clear the task; in a process that continues, such as a notebook, call "
                "LoanAuthHook.test_connection()."
            )
        elif not left:
            reason = "another thread sent a request with the same credentials, and this is its error."
        elif isinstance(error, UnavailableError):
            reason = f"the service asked to wait, and {math.ceil(left)} s of that time are left."
        else:
            reason = (
                f"the same credentials are sent again in {math.ceil(left)} s at the earliest, because this may have "
                "been counted as a failed login."
            )
        error.args = (f"{str(error.args[0]).removesuffix('.')}. Nothing was sent this time: {reason}",)
        return error  # type: ignore[no-any-return]


class Logins:
    """The states of a process, by settings: a Connection that has changed has another one. Forked children keep it."""

    def __init__(self) -> None:
        self._states: dict[Settings, LoginState] = {}
        self._lock = ForkSafeLock()

    def of(self, settings: Settings) -> LoginState:
        """Return the state of these settings."""
        with self._lock.current:
            return self._states.setdefault(settings, LoginState())

    @contextmanager
    def one_at_a_time(self, settings: Settings) -> Iterator[None]:
        """Make threads with these settings wait for each other, and raise the error of one that failed meanwhile."""
        # If each thread sent a request, each would wait for a service that does not respond.
        state = self.of(settings)
        before = state.failure
        with state.lock.current:
            try:
                if state.failure is not None and state.failure is not before:
                    raise state.repeated()
                yield
            except LoanAuthError as error:
                error.conn_id, error.method = settings.conn_id, settings.method
                raise

    def check(self, settings: Settings) -> None:
        """Raise the error of an earlier request, if the same credentials must not be sent again yet."""
        state = self.of(settings)
        if state.failure is not None and state.until > time.monotonic():
            raise state.repeated()

    def record(self, settings: Settings, error: LoanAuthError) -> None:
        """Record that a request failed."""
        state = self.of(settings)
        # A copy, because the traceback of the original keeps all local variables of its frames alive.
        state.failure, state.until = copy.copy(error), time.monotonic() + seconds_to_remember(error)

    def forget(self, settings: Settings) -> None:
        """Forget the last failure, because the service has accepted the credentials."""
        # Without a new state: Airflow tests a Connection with another random id each time.
        if state := self._states.get(settings):
            state.failure = state.shared_rejection = None


def seconds_to_remember(error: LoanAuthError) -> float:
    """Return for how many seconds the same credentials are not sent again after an error."""
    if isinstance(error, RejectedError):
        return math.inf
    if isinstance(error, ResponseError) or (isinstance(error, SettingsError) and error.status is not None):
        return RESPONSE_ERROR_SECONDS
    return min(error.retry_after or 0.0, MAX_RETRY_AFTER) if isinstance(error, UnavailableError) else 0.0


#: What everything in this process shares.
LOGINS = Logins()
