"""
One refresh for all processes of a DAG run, on any number of hosts.

The processes share a register (``auth/register.py``) that they can read and write. The last write wins, and nothing can
be compared and written in one step. Fischer's mutual exclusion needs no more: a process writes a claim, waits for
longer than any other process needs to write one, and reads the claim again. If it is still its own, the process
authenticates for all.
"""

from __future__ import annotations

import logging
import math
import random
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from airflow_provider_loanauth._compat import XComConflictError, xcom_status
from airflow_provider_loanauth.auth.active import GRACE_PERIOD, ActiveCredential
from airflow_provider_loanauth.auth.register import Claim
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, SealError, UnavailableError
from airflow_provider_loanauth.service.memory import seconds_to_remember

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider_loanauth.auth.register import Refreshed, Register
    from airflow_provider_loanauth.connection.settings import Settings
    from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
    from airflow_provider_loanauth.service.client import AuthenticationResult

#: Seconds after the timeout of a request until a process that has claimed the refresh is considered dead.
CLAIM_MARGIN = 10.0
#: Shortest time, in seconds, between writing a claim and reading it again.
MIN_CLAIM_DELAY = 1.0
#: The same, as a multiple of the time that reading and writing took. The longer of both times counts, but
#: at most ``CLAIM_MARGIN``: otherwise the others would consider the process dead before it authenticates.
CLAIM_DELAY_FACTOR = 4.0
#: Seconds between two readings while another process refreshes: a random number between these.
POLL_SECONDS = (0.5, 1.0)
#: Seconds after which a process no longer waits for others.
MAX_WAIT = 300.0
#: How often the result is written if other processes write at the same moment.
MAX_WRITES = 3

# A child of Airflow's logger, so that its lines reach the log of the task.
_log = logging.getLogger(f"airflow.task.hooks.{__name__}")


class RegisterError(Exception):
    """
    The register cannot be used. The process authenticates on its own then.

    :param cause: why
    """

    def __init__(self, cause: str) -> None:
        super().__init__(cause)


class SharedRefresh:
    """
    One refresh of a credential, together with the other processes that use it.

    :param register: the register of the issuing task
    :param settings: the settings of this process
    :param stale: the credential that expires soon, has expired or was rejected; None if there was none
    :param rejected: whether the service rejected it (401)
    :param min_ttl: seconds that must be left; see :meth:`ActiveCredential.is_fresh`
    :param authenticate: function that authenticates, and returns the new credential in both forms. Its argument is a
        function that waits for a number of seconds before the next attempt
    :param check: function that raises the error of an earlier request, if the same credentials must not be sent yet
    :param monotonic: function that returns seconds, of a clock that is never adjusted
    :param sleep: function that waits for a number of seconds
    """

    def __init__(
        self,
        register: Register,
        settings: Settings,
        *,
        stale: ActiveCredential | None,
        rejected: bool,
        min_ttl: float,
        authenticate: Callable[[Callable[[float], None]], tuple[ActiveCredential, AuthenticationResult]],
        check: Callable[[], None],
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._register = register
        self._settings = settings
        self._stale = stale
        self._min_ttl = min_ttl
        self._authenticate = authenticate
        self._check = check
        self._monotonic = monotonic
        self._sleep = sleep
        #: What is used while another process refreshes.
        self._usable = None if rejected else stale
        self._waiting_for: Claim | None = None
        self._waiting_since = 0.0

    def refresh(self) -> ActiveCredential:
        """
        Return a fresh credential: one that another process has refreshed, or a new one.

        While the stale credential, or that of another process, is still valid, this does not wait for a process that
        is refreshing it.

        :return: a fresh credential; or a valid one that another process is refreshing, or whose refresh failed
        :raises RegisterError: the register cannot be used; nothing was sent
        :raises LoanAuthError: any error of ``authenticate``, in this process or in another one
        """
        started = self._monotonic()
        while self._monotonic() - started < MAX_WAIT:
            began = self._monotonic()
            refreshed = self._read_refreshed()
            shared = self._take_over(refreshed)
            if shared is not None:
                return shared
            if refreshed.error is not None:
                return self._continue_or_raise(self._repeated(refreshed.error, refreshed))
            if not self._is_claimed(refreshed):
                self._check()
                claim = Claim.new(self._settings.timeout + CLAIM_MARGIN)
                if self._claim(claim, began=began) and self._is_unchanged(claim, refreshed):
                    try:
                        return self._refresh_for_all(claim, refreshed)
                    except UnavailableError as error:
                        return self._continue_or_raise(error)
            # Another process refreshes.
            if self._usable is not None and self._usable.start_grace_period():
                return self._usable
            self._poll()
        raise RegisterError(f"other processes took longer than {MAX_WAIT:.0f} s")

    def _read_refreshed(self) -> Refreshed:
        with _register_errors():
            return self._register.read_refreshed()

    def _read_claim(self) -> Claim | None:
        with _register_errors():
            return self._register.read_claim()

    def _poll(self) -> None:
        self._sleep(random.uniform(*POLL_SECONDS))  # noqa: S311 - not for cryptography

    def _take_over(self, refreshed: Refreshed) -> ActiveCredential | None:
        """Return the credential of another process if it is fresh. Remember it if it is only valid."""
        credential = self._open(refreshed.credential)
        if credential is None or not credential.is_valid():
            return None
        self._usable = credential
        if not credential.is_fresh(self._min_ttl):
            return None
        _log.info("Took over the %s that %s has refreshed.", credential.credential_type.label, refreshed.by)
        return credential

    def _open(self, sealed: AccessToken | ApiSecret | None) -> ActiveCredential | None:
        """Return a credential of the register; None if it is the stale one, or does not open."""
        if sealed is None:
            return None
        try:
            credential = ActiveCredential.open(sealed)
        except SealError:
            return None
        if self._stale is not None and credential.value == self._stale.value:
            return None
        credential.company_id = self._settings.company_id
        return credential

    def _is_claimed(self, refreshed: Refreshed) -> bool:
        """
        Return whether another process has claimed the refresh, and may still be alive.

        :param refreshed: the last result. It ends the claim under which it was made
        """
        claim = self._read_claim()
        if claim is None or claim.name == refreshed.claim:
            return False
        if claim != self._waiting_for:
            # Its age counts from here, because the clocks of two hosts may differ.
            self._waiting_for, self._waiting_since = claim, self._monotonic()
        return self._monotonic() - self._waiting_since < claim.seconds

    def _claim(self, claim: Claim, *, began: float) -> bool:
        """
        Claim the refresh; return whether it succeeded.

        :param claim: a new claim
        :param began: when this process began to read the register
        """
        try:
            with _register_errors():
                self._register.write_claim(claim)
        except XComConflictError:
            return False
        delay = max(MIN_CLAIM_DELAY, CLAIM_DELAY_FACTOR * (self._monotonic() - began))
        self._sleep(min(delay, CLAIM_MARGIN))
        return self._read_claim() == claim

    def _is_unchanged(self, claim: Claim, refreshed: Refreshed) -> bool:
        """Return whether no other process has refreshed in the meantime. If one has, withdraw the claim."""
        if self._read_refreshed().claim == refreshed.claim:
            return True
        with _register_errors(), suppress(XComConflictError):
            self._register.write_claim(claim.next_attempt(0.0))
        return False

    def _refresh_for_all(self, claim: Claim, before: Refreshed) -> ActiveCredential:
        """
        Authenticate, and write the result, whatever it is.

        :param claim: the claim of this process
        :param before: the last result
        """

        def sleep(seconds: float) -> None:
            nonlocal claim
            claim = claim.next_attempt(seconds + self._settings.timeout + CLAIM_MARGIN)
            # If this fails, another process may authenticate too.
            with suppress(Exception):
                self._register.write_claim(claim)
            self._sleep(seconds)

        try:
            credential, result = self._authenticate(sleep)
        except BaseException as error:
            self._write(claim, lambda: before.credential, error if isinstance(error, LoanAuthError) else None)
            raise
        if self._write(claim, result.seal, None):
            label = credential.credential_type.label
            _log.info("Refreshed the %s for all tasks that got it from task %r.", label, self._register.task.task_id)
        return credential

    def _write(
        self, claim: Claim, seal: Callable[[], AccessToken | ApiSecret | None], error: LoanAuthError | None
    ) -> bool:
        """
        Write the result of a refresh, and return whether it was written. If not, another process refreshes too.

        :param claim: the claim under which it was made
        :param seal: function that returns the sealed credential; after a failure, the last one
        :param error: why the refresh failed, or None
        """
        seconds = 0.0 if error is None else seconds_to_remember(error)
        if isinstance(error, UnavailableError):
            seconds = max(seconds, GRACE_PERIOD)
        shared = error if seconds else None
        try:
            for _ in range(MAX_WRITES):
                with suppress(XComConflictError), _register_errors():
                    self._register.write_refreshed(claim, credential=seal(), error=shared, seconds=seconds)
                    return True
                self._poll()
        except RegisterError as failed:
            log_not_shared(failed)
        return False

    def _repeated(self, error: LoanAuthError, refreshed: Refreshed) -> LoanAuthError:
        """Return the error of another process, whose message says that this one sent nothing, and why."""
        if isinstance(error, RejectedError):
            reason = (
                "the tasks that share this credential do not send these credentials again until the Connection "
                "changes, or the authenticating task is cleared."
            )
        else:
            left = math.ceil(refreshed.seconds)
            reason = f"the tasks that share this credential authenticate again in {left} s at the earliest."
        if isinstance(error, UnavailableError):
            error.retry_after = refreshed.seconds
        message = str(error.args[0]).removesuffix(".")
        error.args = (f"{message}. Nothing was sent this time: {refreshed.by} sent the request, and {reason}",)
        error.conn_id, error.method = self._settings.conn_id, self._settings.method
        return error

    def _continue_or_raise(self, error: LoanAuthError) -> ActiveCredential:
        """Return a credential that is still valid, if the error is that the service was unavailable; else raise it."""
        if isinstance(error, UnavailableError) and self._usable is not None and self._usable.start_grace_period():
            return self._usable
        raise error


def log_not_shared(error: RegisterError) -> None:
    """
    Log that other tasks are not told of a refresh.

    :param error: why
    """
    _log.warning("The refresh cannot be shared with other tasks (%s): each process authenticates on its own.", error)


@contextmanager
def _register_errors() -> Iterator[None]:
    """Raise a :class:`RegisterError` for any error of the register except a conflict. Its text may contain a URL."""
    try:
        yield
    except XComConflictError:
        raise
    except Exception as error:  # noqa: BLE001 - which errors Airflow raises differs between its versions
        status = xcom_status(error)
        raise RegisterError(type(error).__name__ + ("" if status is None else f", status {status}")) from None
