"""
Where a credential comes from: this process, another process, or a new login; and one refresh for all threads.

Refreshing means authenticating again. The service's ``refresh_token`` is not used, because the interface does not show
how to use it (``service-interface.md`` §5). ``auth/refresh_policy.py`` says when a credential is refreshed,
``auth/shared_login.py`` who logs in, and ``service/logins.py`` when a login that failed is not repeated.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth._compat import is_cleared_by_person
from airflow_provider_loanauth.auth.refresh_policy import ActiveCredential
from airflow_provider_loanauth.auth.shared_login import SharedLogin
from airflow_provider_loanauth.credentials import ApiSecret
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, ResponseError
from airflow_provider_loanauth.redaction import mask
from airflow_provider_loanauth.service import telemetry
from airflow_provider_loanauth.service.logins import LOGINS
from airflow_provider_loanauth.service.telemetry import Labels

if TYPE_CHECKING:
    from airflow_provider_loanauth.connection.settings import Settings
    from airflow_provider_loanauth.credentials import AccessToken
    from airflow_provider_loanauth.service.client import AuthenticationResult, Client


def get_credential(client: Client, settings: Settings, *, reuse: bool) -> ActiveCredential:
    """Return a credential for an authenticating task: the shared one if enough of its life is left, or a new one."""
    began = time.monotonic()

    def accepts(credential: ActiveCredential) -> bool:
        # Without reuse, one that another task has requested since will do: it is as new.
        return credential.can_be_taken_over() if reuse else credential.current_age < time.monotonic() - began

    with LOGINS.one_at_a_time(settings) as failure:
        if failure is not None:
            raise failure
        return SharedLogin(client, settings, accepts, is_cleared=is_cleared_by_person()).get()


def authenticate(client: Client, settings: Settings) -> AuthenticationResult:
    """Send one login, unless the service rejected it before; the other processes hear the result."""
    return SharedLogin(client, settings, is_cleared=is_cleared_by_person()).authenticate()


def get_or_refresh(
    client: Client, old: ActiveCredential | None, min_ttl: float, *, is_rejected: bool = False
) -> ActiveCredential:
    """
    Return a credential other than the old one: one that another thread or process requested, or a new one.

    It is the old one, if that is still valid and another process is refreshing it or it cannot be refreshed now, or if
    it was rejected (401) and may not be replaced yet.
    """

    def is_usable(credential: ActiveCredential) -> bool:
        # Two objects may have opened the same credential.
        is_old = credential is old or (is_rejected and old is not None and credential.value == old.value)
        return credential.is_fresh(min_ttl) and not is_old

    try:
        settings = client.settings()
        state = LOGINS.of(settings)
        known: ActiveCredential | None = state.credential
        # Do not wait for another thread if there is a usable credential.
        if known is not None and is_usable(known):
            return known
        with LOGINS.one_at_a_time(settings) as failure:
            known = state.credential
            if known is None or not is_usable(known):
                if failure is not None:
                    raise failure
                known = _refresh(client, settings, accepts=is_usable, old=old, is_rejected=is_rejected)
                state.credential = known
            return known
    except LoanAuthError as error:
        # The service, its proxy or the source of the Connection does not work now.
        is_answer = isinstance(error, (RejectedError, ResponseError))
        if is_answer or old is None or is_rejected or not old.start_grace_period():
            raise
        return old


def _refresh(client: Client, settings: Settings, *, old: ActiveCredential | None, **how: Any) -> ActiveCredential:
    """Return another credential than the old one, for requests; record it in metrics and spans."""
    login = SharedLogin(client, settings, old=old, **how)
    if old is None:
        # The first credential of a LoanAuth from a Connection replaces none.
        credential = login.get()
    else:
        labels = Labels(settings.conn_id, settings.method)
        with telemetry.refresh(labels):
            credential = login.get()
        if credential is old:
            return old
        telemetry.count_refresh(labels, shared=not credential.issued_here)
        if not credential.issued_here:
            telemetry.set_expiry(labels, credential.seconds_left)
    # A request will reveal it. An authenticating task only seals its credential.
    mask([credential.value])
    return credential


def open_credential(credential: AccessToken | ApiSecret, client: Client) -> ActiveCredential:
    """Open a credential from XCom."""
    active = ActiveCredential.open(credential)
    telemetry.set_expiry(Labels(active.conn_id, active.method), active.seconds_left)
    if isinstance(credential, ApiSecret):
        # Only an API secret needs the Connection: the company id is sent with it. Read the Connection only now: the
        # connection id is text from XCom, and opening the credential has checked it.
        active.company_id = client.settings().company_id
    return active
