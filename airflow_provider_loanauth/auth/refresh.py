"""
Where a credential comes from: this process, another process, or a new login; and one refresh for all threads.

Refreshing means authenticating again. The service's ``refresh_token`` is not used, because the interface does not show
how to use it (``service-interface.md`` §5). ``auth/refresh_policy.py`` says when a credential is refreshed,
``auth/shared_login.py`` who logs in, and ``service/logins.py`` when a login that failed is not repeated.
"""

from __future__ import annotations

import logging
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth._compat import ForkSafeLock, current_task, is_cleared_by_person
from airflow_provider_loanauth.auth.login_variables import NotSharedError
from airflow_provider_loanauth.auth.refresh_policy import ActiveCredential, next_min_401_age
from airflow_provider_loanauth.auth.shared_login import SharedLogin
from airflow_provider_loanauth.credentials import ApiSecret
from airflow_provider_loanauth.exceptions import LoanAuthError, UnavailableError
from airflow_provider_loanauth.redaction import sanitize_exceptions
from airflow_provider_loanauth.service import telemetry
from airflow_provider_loanauth.service.client import Client
from airflow_provider_loanauth.service.logins import LOGINS
from airflow_provider_loanauth.service.telemetry import Labels

if TYPE_CHECKING:
    from airflow_provider_loanauth.connection.settings import Settings
    from airflow_provider_loanauth.credentials import AccessToken
    from airflow_provider_loanauth.service.client import AuthenticationResult

#: After Variables could not be used, seconds without another attempt. Airflow retries a request to its API server for
#: up to 90 seconds, so without the pause each login could take that long.
NOT_SHARED_SECONDS = 60.0

_log = logging.getLogger(f"airflow.task.hooks.{__name__}")


class _Sharing:
    """Whether this process can use Variables."""

    def __init__(self) -> None:
        self.paused_until = float("-inf")
        self.is_logged = False

    def open(self, settings: Settings, client: Client, **how: Any) -> SharedLogin | None:
        """Return the shared login; None if the Connection does not share it, or if Variables cannot be used now."""
        if not settings.share_logins or time.monotonic() < self.paused_until:
            return None
        try:
            return SharedLogin(settings, lambda sleep: client.authenticate(settings, sleep=sleep), **how)
        except NotSharedError as error:
            self.pause(error)
            return None

    def pause(self, error: NotSharedError) -> None:
        self.paused_until = time.monotonic() + NOT_SHARED_SECONDS
        if not self.is_logged:
            # Outside of a task, nothing is wrong.
            level = logging.INFO if current_task() is None else logging.WARNING
            _log.log(level, "Logins cannot be shared with other tasks (%s): each process logs in on its own.", error)
            self.is_logged = True


SHARING = _Sharing()


def get_credential(client: Client, settings: Settings, *, reuse: bool) -> ActiveCredential:
    """Return a credential for an authenticating task: the shared one if enough of its life is left, or a new one."""
    began = time.monotonic()
    shared = SHARING.open(
        settings,
        client,
        # Without reuse, one that another task has requested since will do: it is as new.
        accepts=lambda credential: (
            credential.can_be_taken_over() if reuse else credential.current_age < time.monotonic() - began
        ),
        overrule=is_cleared_by_person(),
    )
    with LOGINS.one_at_a_time(settings) as failure:
        if failure is not None:
            raise failure
        return _share_or_log_in(client, settings, shared)


def authenticate(client: Client, settings: Settings) -> AuthenticationResult:
    """Send one login, unless the service rejected it before; the other processes hear the result."""
    shared = SHARING.open(settings, client, overrule=is_cleared_by_person())
    if shared is not None:
        try:
            shared.raise_shared_error()
        except NotSharedError as error:
            SHARING.pause(error)
            shared = None
    if shared is None:
        return client.authenticate(settings)
    try:
        result = client.authenticate(settings)
    except LoanAuthError as error:
        shared.publish(None, error)
        raise
    shared.publish(result)
    return result


def _share_or_log_in(
    client: Client, settings: Settings, shared: SharedLogin | None, rejected: ActiveCredential | None = None
) -> ActiveCredential:
    if shared is not None:
        try:
            return shared.get()
        except NotSharedError as error:
            SHARING.pause(error)
    started = time.monotonic()
    result = client.authenticate(settings)
    min_401_age = 0.0 if rejected is None else next_min_401_age(rejected.current_age, rejected.min_401_age)
    return ActiveCredential.issued(result, age=time.monotonic() - started, min_401_age=min_401_age)


def get_or_refresh(
    client: Client, stale: ActiveCredential | None, min_ttl: float, *, rejected: bool = False
) -> ActiveCredential:
    """
    Return a credential other than the stale one: one that another thread or process requested, or a new one.

    It is the stale one, if that is still valid and another process is refreshing it or the service is unavailable, or
    if it was rejected (401) and may not be replaced yet.
    """
    settings = client.settings()
    state = LOGINS.of(settings)

    def is_usable(credential: ActiveCredential) -> bool:
        if credential is stale or not credential.is_fresh(min_ttl):
            return False
        # Two objects may have opened the same credential.
        return not (rejected and stale is not None and credential.value == stale.value)

    # Do not wait for another thread if there is a usable credential.
    known: ActiveCredential | None = state.credential
    if known is not None and is_usable(known):
        return known
    with LOGINS.one_at_a_time(settings) as failure:
        known = state.credential
        if known is not None and is_usable(known):
            return known
        if failure is not None:
            raise failure
        refused = stale if rejected else None
        shared = SHARING.open(
            settings,
            client,
            accepts=is_usable,
            usable=None if rejected else stale,
            rejected=refused,
            bridges=True,
        )
        request = partial(_share_or_log_in, client, settings, shared, refused)
        # The first credential of a LoanAuth from a Connection replaces none.
        credential = request() if stale is None else _recorded_refresh(request, settings, stale)
        state.credential = credential
        return credential


def _recorded_refresh(request: Any, settings: Settings, stale: ActiveCredential) -> ActiveCredential:
    """Request a credential, and record the refresh in metrics and spans."""
    labels = Labels(settings.conn_id, settings.method)
    with telemetry.refresh(labels):
        credential: ActiveCredential = request()
    if credential is not stale:
        telemetry.count_refresh(labels, shared=not credential.issued_here)
        if not credential.issued_here:
            telemetry.set_expiry(labels, credential.seconds_left)
    return credential


class CredentialProvider:
    """
    Provides a fresh credential for each request. Threads may share one provider.

    Without a first credential, it logs in when one is first needed. Without a client, it makes one for the Connection.
    """

    def __init__(
        self,
        *,
        conn_id: str,
        method: str | None,
        credential: AccessToken | ApiSecret | None,
        min_ttl: float,
        client: Client | None = None,
    ) -> None:
        self._client = client or Client(conn_id, method)
        self._credential = credential
        self._min_ttl = min_ttl
        self._active: ActiveCredential | None = None
        self._opening = ForkSafeLock()
        #: The process in which a thread is refreshing. A forked child must not wait for a thread of its parent.
        self._refreshing_pid: int | None = None

    # The flow of httpx is a generator, which cannot be sanitized.
    @sanitize_exceptions
    def get(self) -> ActiveCredential:
        """
        Return a fresh credential, refreshed if necessary.

        While the service is unavailable, a credential that is still valid is returned instead. The other threads get it
        also while one thread refreshes it.
        """
        cached = self.get_cached()
        if cached is not None:
            return cached
        with self._opening.current:
            if self._active is None and self._credential is not None:
                self._active = self._open(self._credential)
            stale = self._active
        cached = self.get_cached()
        if cached is not None:
            return cached
        self._refreshing_pid = os.getpid()
        try:
            self._active = get_or_refresh(self._client, stale, self._min_ttl, rejected=False)
        except UnavailableError:
            if stale is None or not stale.start_grace_period():
                raise
            return stale
        finally:
            self._refreshing_pid = None
        return self._active

    def get_cached(self) -> ActiveCredential | None:
        """Return the credential if it is open, and fresh or still valid while it is refreshed; never blocks."""
        active = self._active
        if active is None:
            return None
        if active.is_fresh(self._min_ttl) or (self._refreshing_pid == os.getpid() and active.is_valid()):
            return active
        return None

    @sanitize_exceptions
    def refresh(self, rejected: ActiveCredential) -> ActiveCredential:
        """Return a credential other than one that the service rejected; or that one, if it may not be replaced yet."""
        self._active = get_or_refresh(self._client, rejected, self._min_ttl, rejected=True)
        return self._active

    def _open(self, credential: AccessToken | ApiSecret) -> ActiveCredential:
        active = ActiveCredential.open(credential)
        telemetry.set_expiry(Labels(active.conn_id, active.method), active.seconds_left)
        if isinstance(credential, ApiSecret):
            # Only an API secret needs the Connection: the company id is sent with it. Read the Connection only now:
            # the connection id is text from XCom, and opening the credential has checked it.
            active.company_id = self._client.settings().company_id
        return active
