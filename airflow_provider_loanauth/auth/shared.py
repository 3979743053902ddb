"""
One refresh for all processes of a DAG run, on any number of hosts.

The processes share a register (``auth/register.py``) that they can read and write. The last write wins, and no
operation compares and writes in one step. Fischer's algorithm for mutual exclusion works with such a register: a
process writes a claim, waits for longer than any other process needs to write one, and reads the claim again. If the
register still contains the claim of this process, the process authenticates for all.
"""

from __future__ import annotations

import logging
import math
import random
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from airflow_provider_loanauth._compat.xcom import XComConflictError, is_transient, xcom_status
from airflow_provider_loanauth.auth.active import GRACE_PERIOD, ActiveCredential
from airflow_provider_loanauth.auth.register import Claim
from airflow_provider_loanauth.exceptions import (
    LoanAuthError,
    RejectedError,
    SealError,
    SettingsError,
    UnavailableError,
)
from airflow_provider_loanauth.service.memory import seconds_to_remember

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider_loanauth._compat import TaskKey
    from airflow_provider_loanauth.auth.register import Refreshed, Register
    from airflow_provider_loanauth.connection.settings import Settings
    from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
    from airflow_provider_loanauth.service.client import AuthenticationResult

#: Seconds after the timeout of a request until a process that has claimed the refresh is considered dead.
CLAIM_MARGIN = 10.0
#: Minimum of the delay, in seconds, between writing a claim and reading it again. The maximum is ``CLAIM_MARGIN``:
#: after a longer delay, the others would consider the process dead before it authenticates.
MIN_CLAIM_DELAY = 1.0
#: If reading and writing took long, the delay is this many times as long.
CLAIM_DELAY_FACTOR = 4.0
#: While another process refreshes, a process waits between two reads for a random number of seconds between these.
POLL_SECONDS = (0.5, 1.0)
#: Seconds after which a process no longer waits for others.
MAX_WAIT = 300.0
#: Maximum number of failed attempts to use the register, if its errors are transient. Airflow retries each on its own.
MAX_FAILURES = 3
#: Maximum number of attempts to write the result, if other processes write at the same moment.
MAX_WRITES = 3

# A child of Airflow's logger, so that its lines reach the log of the task.
_log = logging.getLogger(f"airflow.task.hooks.{__name__}")


class RegisterError(Exception):
    """
    The register cannot be used, so the process authenticates on its own.

    :param cause: why it cannot be used
    :param transient: whether the same operation may succeed later
    """

    def __init__(self, cause: str, *, transient: bool = False) -> None:
        super().__init__(cause)
        self.transient = transient


class SharedRefresh:
    """
    One refresh of a credential, together with the other processes that use it.

    :param register: the register of the issuing task
    :param settings: the settings of this process
    :param stale: the credential that expires soon, has expired or was rejected; None if there was none
    :param rejected: whether the service rejected it (401)
    :param min_ttl: seconds that must be left; see :meth:`ActiveCredential.is_fresh`
    :param authenticate: function that authenticates. It returns the new credential for this process, and the result
        that can be sealed for the others. Its argument is a function that waits for a number of seconds before the next
        attempt
    :param check: function that raises the error of an earlier request, if the same credentials must not be sent yet
    :param claims: the claim of another process that this process saw last, by issuing task, and when it first saw it.
        All refreshes of a process share it: while the stale credential is valid, no refresh waits for a claim
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
        claims: dict[TaskKey, tuple[Claim, float]],
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
        #: The credential to use while another process refreshes.
        self._usable = None if rejected else stale
        self._claims = claims
        #: Name of the last claim of this process. After a transient error it may be in the register.
        self._own_claim = ""

    def refresh(self) -> ActiveCredential:
        """
        Return a fresh credential: one that another process has refreshed, or a new one.

        If another process is refreshing, and there is a credential that is still valid, this method returns that
        credential and does not wait.

        :return: a fresh credential; or one that is still valid, if another process is refreshing it, or if the service
            is unavailable
        :raises RegisterError: the register cannot be used; nothing was sent
        :raises LoanAuthError: any error of ``authenticate``, in this process or in another one
        """
        started, failures = self._monotonic(), 0
        while self._monotonic() - started < MAX_WAIT:
            try:
                credential = self._attempt()
            except RegisterError as error:
                failures += 1
                if not error.transient or failures == MAX_FAILURES:
                    raise
                credential = None
            if credential is not None:
                return credential
            if self._usable is not None and self._usable.start_grace_period():
                return self._usable
            self._poll()
        raise RegisterError(f"other processes took longer than {MAX_WAIT:.0f} s")

    def _attempt(self) -> ActiveCredential | None:
        """Take a credential over, or refresh it; return None if another process is refreshing it."""
        began = self._monotonic()
        refreshed = self._read_refreshed()
        shared = self._take_over(refreshed)
        if shared is not None:
            return shared
        if refreshed.error is not None:
            return self._continue_or_raise(self._repeated(refreshed.error, refreshed))
        if self._is_claimed(refreshed):
            return None
        try:
            return self._try_to_refresh(refreshed, began=began)
        except UnavailableError as error:
            return self._continue_or_raise(error)

    def _read_refreshed(self) -> Refreshed:
        with _register_errors():
            return self._register.read_refreshed()

    def _read_claim(self) -> Claim | None:
        with _register_errors():
            return self._register.read_claim()

    def _poll(self) -> None:
        self._sleep(random.uniform(*POLL_SECONDS))  # noqa: S311 - not for cryptography

    def _take_over(self, refreshed: Refreshed) -> ActiveCredential | None:
        """Return the credential of another process if it is fresh. If it is only valid, keep it for later."""
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
        if claim is None or claim.name in (refreshed.claim, self._own_claim):
            return False
        now, task = self._monotonic(), self._register.task
        seen, since = self._claims.get(task, (None, now))
        if claim != seen:
            # Measure its age from now on, because the clocks of two hosts may differ.
            since = now
            self._claims[task] = claim, since
        return now - since < claim.seconds

    def _try_to_refresh(self, refreshed: Refreshed, *, began: float) -> ActiveCredential | None:
        """
        Claim the refresh, and authenticate; return None if another process was faster.

        :param refreshed: the last result
        :param began: when this process began to read the register
        """
        self._check()
        claim = Claim.new(self._settings.timeout + CLAIM_MARGIN)
        self._own_claim = claim.name
        try:
            claimed = self._claim(claim, began=began)
            unchanged = claimed and self._is_unchanged(refreshed)
        except RegisterError:
            raise
        except BaseException:
            # The task was interrupted. The others need not wait until the claim is old.
            self._withdraw(claim)
            raise
        if unchanged:
            return self._refresh_for_all(claim, refreshed)
        if claimed:
            self._withdraw(claim)
        return None

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

    def _is_unchanged(self, before: Refreshed) -> bool:
        """Return whether the result is still the one that this process has read before."""
        return self._read_refreshed().claim == before.claim

    def _withdraw(self, claim: Claim) -> None:
        """End a claim without a result. If this fails, it ends when it is old."""
        with suppress(Exception):
            self._register.write_claim(claim.next_attempt(0.0))

    def _refresh_for_all(self, claim: Claim, before: Refreshed) -> ActiveCredential:
        """
        Authenticate, and write the result, whatever it is.

        :param claim: the claim of this process
        :param before: the last result
        """

        def sleep(seconds: float) -> None:
            nonlocal claim
            claim = claim.next_attempt(seconds + self._settings.timeout + CLAIM_MARGIN)
            # If this fails, another process may authenticate at the same time, which is no error.
            with suppress(Exception):
                self._register.write_claim(claim)
            self._sleep(seconds)

        try:
            credential, result = self._authenticate(sleep)
        except BaseException as error:
            with suppress(RegisterError):
                # Another process may have considered this one dead, and have refreshed.
                if self._is_unchanged(before):
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
        seconds = 0.0 if error is None else self._seconds_to_share(error)
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

    def _seconds_to_share(self, error: LoanAuthError) -> float:
        """Return for how many seconds the other processes do not send the same credentials after an error."""
        if isinstance(error, SettingsError) and self._settings.proxy is None:
            # The proxy is that of this host's environment.
            return 0.0
        seconds = seconds_to_remember(error)
        return max(seconds, GRACE_PERIOD) if isinstance(error, UnavailableError) else seconds

    def _repeated(self, error: LoanAuthError, refreshed: Refreshed) -> LoanAuthError:
        """Return the error of another process, whose message says that this one sent nothing, and why."""
        if isinstance(error, RejectedError):
            reason = (
                "the tasks that share this login do not repeat it until the Connection changes, or the authenticating "
                "task is cleared."
            )
        else:
            left = math.ceil(refreshed.seconds)
            reason = f"the tasks that share this login repeat it in {left} s at the earliest."
        if isinstance(error, UnavailableError):
            error.retry_after = refreshed.seconds
        message = str(error.args[0]).removesuffix(".")
        error.args = (f"{message}. Nothing was sent this time: {refreshed.by} sent the request, and {reason}",)
        error.conn_id, error.method = self._settings.conn_id, self._settings.method
        return error

    def _continue_or_raise(self, error: LoanAuthError) -> ActiveCredential:
        """Raise the error. If the service is unavailable, return a credential instead that is still valid, if any."""
        if isinstance(error, UnavailableError) and self._usable is not None and self._usable.start_grace_period():
            return self._usable
        raise error


def log_not_shared(error: RegisterError) -> None:
    """
    Log that a refresh is not shared with other tasks.

    :param error: why it is not shared
    """
    _log.warning("The refresh cannot be shared with other tasks (%s): each process authenticates on its own.", error)


@contextmanager
def _register_errors() -> Iterator[None]:
    """Replace any error of the register, except a conflict, by a :class:`RegisterError` without its text."""
    try:
        yield
    except XComConflictError:
        raise
    except Exception as error:  # noqa: BLE001 - the errors of Airflow differ between its versions
        # Not the text of the error, which may contain a URL.
        status = xcom_status(error)
        cause = type(error).__name__ + ("" if status is None else f", status {status}")
        raise RegisterError(cause, transient=is_transient(error)) from None
