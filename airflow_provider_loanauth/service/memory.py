"""
Memory of failed authentications, shared by everything in a process that authenticates: hook, operator, sensor and
``LoanAuth``. It decides when the same credentials are not sent again, and who waits for the authentication of another
thread.
"""

from __future__ import annotations

import copy
import math
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from airflow_provider_loanauth._compat import ForkSafeLock
from airflow_provider_loanauth.exceptions import (
    LoanAuthError,
    RejectedError,
    ResponseError,
    SettingsError,
    UnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_loanauth.connection.settings import Settings

#: Seconds without another request after a response without a usable credential, and after the 407 of a proxy. A login
#: page, or a redirect to one, may mean that the password was rejected.
RESPONSE_ERROR_SECONDS = 60.0


class _Failure(NamedTuple):
    """
    A request that failed.

    :param error: its error, without a traceback
    :param until: until when the same credentials are not sent again, in seconds of the monotonic clock
    """

    error: LoanAuthError
    until: float

    def repeated(self) -> LoanAuthError:
        """Return a copy of the error, whose message says that nothing was sent this time, and why."""
        # A copy, because one exception that many threads raise would collect all their tracebacks.
        error = copy.copy(self.error)
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
            counter = "proxy" if isinstance(error, SettingsError) else "service"
            reason = (
                f"the same credentials are sent again in {math.ceil(left)} s at the earliest, because the {counter} "
                "may have counted a failed login."
            )
        error.args = (f"{str(error.args[0]).removesuffix('.')}. Nothing was sent this time: {reason}",)
        return error


class _Entry:
    """
    What is known about one set of settings.

    :ivar lock: held by the thread that authenticates
    :ivar failure: the last request, if it failed
    :ivar failures: number of requests that failed
    """

    def __init__(self) -> None:
        self.lock = ForkSafeLock()
        self.failure: _Failure | None = None
        self.failures = 0


class FailureMemory:
    """
    The failed authentications of a process, by settings. After a Connection has changed, its settings differ, so no
    failure of the old ones is found.

    ===================================  ================================================
    Error of a request                   The same credentials are not sent again
    ===================================  ================================================
    ``RejectedError``                    until the Connection changes
    ``ResponseError``                    for ``RESPONSE_ERROR_SECONDS``
    ``SettingsError``: 407 of a proxy    for ``RESPONSE_ERROR_SECONDS``
    ``UnavailableError``                 until its ``Retry-After`` is over, if it has one
    ===================================  ================================================

    A forked child keeps what its parent remembers.
    """

    def __init__(self) -> None:
        self._entries: dict[Settings, _Entry] = {}

    def clear(self) -> None:
        """Forget everything."""
        self._entries = {}

    def _entry(self, settings: Settings) -> _Entry:
        return self._entries.get(settings) or self._entries.setdefault(settings, _Entry())

    @contextmanager
    def one_at_a_time(self, settings: Settings) -> Iterator[LoanAuthError | None]:
        """
        Wait until no other thread authenticates with these settings, and make the others wait for this one.

        A thread may enter again with the same settings.

        :param settings: the settings
        :return: the error of a request that failed while this thread waited, or None. The caller raises it and sends no
            request. If each thread sent one, each would wait again for a service that does not respond
        """
        entry = self._entry(settings)
        failures = entry.failures
        with entry.lock.current:
            failure = entry.failure
            if failure is None or entry.failures == failures:
                yield None
            else:
                error = failure.repeated()
                error.conn_id, error.method = settings.conn_id, settings.method
                yield error

    def check(self, settings: Settings) -> None:
        """
        Raise the error of an earlier request, if the same credentials must not be sent again yet.

        :param settings: the settings
        :raises RejectedError: the service rejected the credentials
        :raises ResponseError: the service sent no usable credential, less than ``RESPONSE_ERROR_SECONDS`` ago
        :raises UnavailableError: the service asked to wait, and the time is not over; ``retry_after`` is what is left
        """
        failure = self._entry(settings).failure
        if failure is not None and failure.until > time.monotonic():
            raise failure.repeated()

    def record(self, settings: Settings, error: LoanAuthError) -> None:
        """
        Record that a request failed.

        :param settings: the settings that were used
        :param error: its error
        """
        entry = self._entry(settings)
        # A copy, because the traceback of the original keeps all local variables of its frames alive.
        entry.failure = _Failure(copy.copy(error), time.monotonic() + seconds_to_remember(error))
        entry.failures += 1

    def forget(self, settings: Settings) -> None:
        """
        Forget the last failure, because the service has accepted the credentials.

        :param settings: the settings
        """
        # Without a new entry: Airflow tests a Connection with another random id each time.
        if entry := self._entries.get(settings):
            entry.failure = None


def seconds_to_remember(error: LoanAuthError) -> float:
    """
    Return for how many seconds the same credentials are not sent again after an error: see :class:`FailureMemory`.

    :param error: error of a request
    """
    if isinstance(error, RejectedError):
        return math.inf
    if isinstance(error, ResponseError) or (isinstance(error, SettingsError) and error.status is not None):
        return RESPONSE_ERROR_SECONDS
    return (error.retry_after or 0.0) if isinstance(error, UnavailableError) else 0.0


#: The memory that everything in this process shares.
PROCESS_FAILURES = FailureMemory()
