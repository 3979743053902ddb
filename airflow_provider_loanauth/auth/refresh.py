"""
Refreshing of credentials: when a credential is refreshed, and how often.

Refreshing means authenticating again. The service's ``refresh_token`` is not used, because the interface does not show
how to use it (``service-interface.md`` §5). A process runs one refresh at a time for each Connection, however many
threads need it, and shares it with the other processes of the DAG run (``auth/shared.py``). ``service/memory.py``
decides when it does not repeat a refresh that failed.
"""

from __future__ import annotations

import math
import os
import time
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_loanauth._compat import ForkSafeLock
from airflow_provider_loanauth.auth.active import ActiveCredential
from airflow_provider_loanauth.auth.register import Register
from airflow_provider_loanauth.auth.shared import RegisterError, SharedRefresh, log_not_shared
from airflow_provider_loanauth.connection.methods import METHODS
from airflow_provider_loanauth.credentials import ApiSecret
from airflow_provider_loanauth.exceptions import UnavailableError
from airflow_provider_loanauth.redaction import mask, sanitize_exceptions
from airflow_provider_loanauth.service import telemetry
from airflow_provider_loanauth.service.client import Client
from airflow_provider_loanauth.service.memory import PROCESS_FAILURES
from airflow_provider_loanauth.service.telemetry import Labels

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_loanauth._compat import TaskKey
    from airflow_provider_loanauth.auth.register import Claim
    from airflow_provider_loanauth.connection.settings import Settings
    from airflow_provider_loanauth.credentials import AccessToken
    from airflow_provider_loanauth.service.client import AuthenticationResult

#: After the register could not be used, seconds without another attempt to use it. Airflow retries a request to its API
#: server for up to 90 seconds, so without the pause each refresh could take that long.
REGISTER_PAUSE = 60.0


class CredentialCache:
    """The credentials that this process requested or took over, by settings."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove all credentials. A forked process must not share them with its parent."""
        self._credentials: dict[Settings, ActiveCredential] = {}
        self._claims: dict[Settings, dict[TaskKey, tuple[Claim, float]]] = {}
        self._unshared_until = -math.inf
        self._logged = False

    def get_or_refresh(
        self,
        client: Client,
        stale: ActiveCredential | None,
        min_ttl: float,
        *,
        issued: AccessToken | ApiSecret | None = None,
        rejected: bool = False,
    ) -> ActiveCredential:
        """
        Return a credential other than the stale one: one that another thread or process requested in the meantime, or a
        new one.

        :param client: client that authenticates
        :param stale: the credential that expires soon, has expired or was rejected; None if there was none
        :param min_ttl: seconds that must be left; see :meth:`ActiveCredential.is_fresh`
        :param issued: the credential of the issuing task, whose register is used; None: this process refreshes on its
            own
        :param rejected: whether the service rejected the stale credential (401)
        :return: the credential; or the stale one, if it is still valid and another process is refreshing it, or the
            service is unavailable
        :raises LoanAuthError: any error of :meth:`Client.settings` and :meth:`Client.authenticate`. Threads and
            processes that waited for a refresh of another one get the error of that refresh
        """
        settings = client.settings()
        find = partial(self._find, settings, stale, min_ttl, rejected=rejected)
        # Do not wait for another thread if there is a usable credential.
        credential = find()
        if credential is not None:
            return credential
        with PROCESS_FAILURES.one_at_a_time(settings) as failure:
            credential = find()
            if credential is None:
                if failure is not None:
                    raise failure
                request = partial(self._request, client, settings, stale, min_ttl, issued, rejected=rejected)
                # The first credential of a LoanAuth from a Connection replaces none.
                credential = request() if stale is None else _recorded_refresh(request, settings, stale)
                self._credentials[settings] = credential
            return credential

    def _find(
        self, settings: Settings, stale: ActiveCredential | None, min_ttl: float, *, rejected: bool
    ) -> ActiveCredential | None:
        """Return the cached credential if it is fresh and not the stale one, else None."""
        credential = self._credentials.get(settings)
        if credential is None or credential is stale or not credential.is_fresh(min_ttl):
            return None
        # Two objects may have opened the same credential.
        return None if rejected and stale is not None and credential.value == stale.value else credential

    def _request(
        self,
        client: Client,
        settings: Settings,
        stale: ActiveCredential | None,
        min_ttl: float,
        issued: AccessToken | ApiSecret | None,
        *,
        rejected: bool,
    ) -> ActiveCredential:
        """Refresh together with other processes, or authenticate if that is not possible."""
        if issued is None or issued.task is None or time.monotonic() < self._unshared_until:
            return _authenticate(client, settings)[0]
        shared = SharedRefresh(
            Register(issued.task, settings, issued_at=issued.issued_at),
            settings,
            stale=stale,
            rejected=rejected,
            min_ttl=min_ttl,
            authenticate=partial(_authenticate, client, settings),
            check=partial(PROCESS_FAILURES.check, settings),
            claims=self._claims.setdefault(settings, {}),
        )
        try:
            return shared.refresh()
        except RegisterError as error:
            self._unshared_until = time.monotonic() + REGISTER_PAUSE
            if not self._logged:
                log_not_shared(error)
                self._logged = True
        return _authenticate(client, settings)[0]


def _recorded_refresh(
    request: Callable[[], ActiveCredential], settings: Settings, stale: ActiveCredential
) -> ActiveCredential:
    """Request a credential, and record the refresh in metrics and spans."""
    labels = Labels(settings.conn_id, settings.method)
    with telemetry.refresh(labels):
        credential = request()
    # It is the stale one while another process refreshes it, and while the service is unavailable.
    if credential is not stale:
        telemetry.count_refresh(labels, shared=not credential.issued_here)
        if not credential.issued_here:
            telemetry.set_expiry(labels, credential.seconds_left)
    return credential


def _authenticate(
    client: Client, settings: Settings, sleep: Callable[[float], None] = time.sleep
) -> tuple[ActiveCredential, AuthenticationResult]:
    requested_at = time.monotonic()
    result = client.authenticate(settings, sleep=sleep)
    mask(result.response.secrets)
    credential = ActiveCredential(
        value=result.response.credential,
        credential_type=METHODS[settings.method].credential_type,
        conn_id=settings.conn_id,
        method=settings.method,
        company_id=settings.company_id,
        lifetime=result.lifetime,
        deadline=None if result.lifetime is None else requested_at + result.lifetime,
        issued_here=True,
    )
    return credential, result


_PROCESS_CACHE = CredentialCache()
os.register_at_fork(after_in_child=_PROCESS_CACHE.clear)


class CredentialProvider:
    """
    Provides a fresh credential for each request. Threads may share one provider.

    :param client: client that authenticates
    :param credential: the first credential; None: authenticate when a credential is first needed
    :param min_ttl: seconds that must be left; see :meth:`ActiveCredential.is_fresh`
    """

    def __init__(self, client: Client, credential: AccessToken | ApiSecret | None, min_ttl: float) -> None:
        self._client = client
        self._credential = credential
        self._min_ttl = min_ttl
        self._active: ActiveCredential | None = None
        self._opening = ForkSafeLock()
        #: The process in which a thread is refreshing. A forked child must not wait for a thread of its parent.
        self._refreshing_pid: int | None = None

    @classmethod
    def from_connection(
        cls, conn_id: str, method: str | None, credential: AccessToken | ApiSecret | None, min_ttl: float
    ) -> CredentialProvider:
        """
        Return a provider that authenticates with a Connection.

        Other parameters are those of the class.

        :param conn_id: connection id
        :param method: ``jwt``, ``los`` or ``ppe``; None: the Connection's own, else ``jwt``
        """
        return cls(Client(conn_id, method), credential, min_ttl)

    @sanitize_exceptions
    def get(self) -> ActiveCredential:
        """
        Return a fresh credential, refreshed if necessary.

        While the service is unavailable, a credential that is still valid is returned instead. The other threads get it
        also while one thread refreshes it.

        :raises SealError: the first credential cannot be opened
        :raises LoanAuthError: any error of :meth:`CredentialCache.get_or_refresh`
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
            return self._refresh(stale, rejected=False)
        except UnavailableError:
            if stale is None or not stale.start_grace_period():
                raise
            return stale
        finally:
            self._refreshing_pid = None

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
        """
        Return a credential other than one that the service rejected.

        :param rejected: the credential that was rejected
        :raises LoanAuthError: any error of :meth:`CredentialCache.get_or_refresh`
        """
        return self._refresh(rejected, rejected=True)

    def _refresh(self, stale: ActiveCredential | None, *, rejected: bool) -> ActiveCredential:
        self._active = _PROCESS_CACHE.get_or_refresh(
            self._client, stale, self._min_ttl, issued=self._credential, rejected=rejected
        )
        return self._active

    def _open(self, credential: AccessToken | ApiSecret) -> ActiveCredential:
        active = ActiveCredential.open(credential)
        telemetry.set_expiry(Labels(active.conn_id, active.method), active.seconds_left)
        if isinstance(credential, ApiSecret):
            # Only an API secret needs the Connection: the company id is sent with it. Read the Connection only now:
            # the connection id is text from XCom, and opening the credential has checked it.
            active.company_id = self._client.settings().company_id
        return active
