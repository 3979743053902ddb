"""
Refreshing of credentials: when a credential is refreshed, and how often.

Refreshing means authenticating again. The service's ``refresh_token`` is not used, because the interface does not show
how to use it (``service-interface.md`` §5). A process runs one refresh at a time for each Connection, however many
threads need it. ``service/memory.py`` decides when it does not repeat a refresh that failed.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

from airflow_provider_loanauth._compat import ForkSafeLock
from airflow_provider_loanauth.connection.methods import METHODS
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.exceptions import UnavailableError
from airflow_provider_loanauth.redaction import NotForXCom, mask, sanitize_exceptions
from airflow_provider_loanauth.service.client import Client
from airflow_provider_loanauth.service.memory import PROCESS_FAILURES

if TYPE_CHECKING:
    from airflow_provider_loanauth.connection.settings import Settings

#: Largest fraction of the lifetime that must be left. With ``min_ttl`` alone, a token with a lifetime below ``min_ttl``
#: would be refreshed for every request.
MAX_REFRESH_FRACTION = 0.1
#: Seconds without another refresh if a request still gets a 401 after a refresh.
REFRESH_COOLDOWN = 60.0
#: Seconds without another refresh of a credential that is still valid, if the service was unavailable for a refresh.
GRACE_PERIOD = 10.0


@dataclass(eq=False, kw_only=True)
class ActiveCredential(NotForXCom):
    """
    A credential in use in this process.

    :param value: the plaintext access token or API secret
    :param credential_type: :class:`AccessToken` or :class:`ApiSecret`
    :param conn_id: id of the connection that it belongs to
    :param method: the method that issued it
    :param company_id: company id that is sent with an API secret, or None
    :param lifetime: seconds from issue to expiry; None if they are not known
    :param deadline: when it expires, in seconds of the monotonic clock, which clock adjustments do not affect; None if
        that is not known
    :param issued_here: whether this process requested it from the service
    """

    value: str = field(repr=False)
    credential_type: type[AccessToken | ApiSecret]
    conn_id: str
    method: str
    company_id: str | None
    lifetime: float | None
    deadline: float | None
    issued_here: bool
    _obtained_at: float = field(init=False)
    _accepted: bool = field(default=False, init=False)
    _cooldown_until: float = field(default=-math.inf, init=False)
    _grace_until: float = field(default=-math.inf, init=False)

    def __post_init__(self) -> None:
        """Record when it was obtained."""
        self._obtained_at = time.monotonic()

    def is_fresh(self, min_ttl: float) -> bool:
        """
        Return whether enough of the lifetime is left. A credential without a known lifetime is always fresh.

        :param min_ttl: seconds that must be left; a tenth of the lifetime if that is less
        """
        if self.deadline is None or self.lifetime is None:
            return True
        now = time.monotonic()
        if now < min(self._grace_until, self.deadline):
            return True
        return self.deadline - now > min(min_ttl, self.lifetime * MAX_REFRESH_FRACTION)

    def start_grace_period(self) -> bool:
        """
        Return whether the credential is still valid after a failed refresh. If so, treat it as fresh for
        ``GRACE_PERIOD`` seconds, so that pricing continues during an outage without a refresh attempt on every request.
        """
        now = time.monotonic()
        if self.deadline is None or now >= self.deadline:
            return False
        self._grace_until = now + GRACE_PERIOD
        return True

    def record_response(self, status: int) -> None:
        """
        Record the status of a response. Only a 2xx shows that the service accepted the credential.

        :param status: HTTP status
        """
        if 200 <= status < 300:  # noqa: PLR2004 - RFC 9110 §15.3
            self._accepted = True

    def record_retry_response(self, status: int) -> None:
        """
        Record the status of the response to a request that was retried with this credential after a 401.

        :param status: HTTP status
        """
        self.record_response(status)
        if status == HTTPStatus.UNAUTHORIZED:
            self._cooldown_until = time.monotonic() + REFRESH_COOLDOWN

    def should_refresh_on_401(self) -> bool:
        """
        Return whether a 401 is a reason to refresh.

        It is not, for ``REFRESH_COOLDOWN`` seconds, in two cases. If this process has just requested the credential and
        the service has not accepted it yet, a new credential would be rejected too. If a request got a 401 also after a
        refresh, the 401 is about the request and not about the credential.
        """
        now = time.monotonic()
        untested = self.issued_here and not self._accepted and now < self._obtained_at + REFRESH_COOLDOWN
        return not untested and now >= self._cooldown_until


class CredentialCache:
    """The credentials that this process requested, by settings."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove all credentials. A forked process must not share them with its parent."""
        self._credentials: dict[Settings, ActiveCredential] = {}

    def get_or_refresh(self, client: Client, stale: ActiveCredential | None, min_ttl: float) -> ActiveCredential:
        """
        Return a credential other than the stale one: one that another thread requested in the meantime, or a new one.

        :param client: client that authenticates
        :param stale: the credential that has expired or was rejected; None if there was none
        :param min_ttl: seconds that must be left; see :meth:`ActiveCredential.is_fresh`
        :raises LoanAuthError: any error of :meth:`Client.settings` and :meth:`Client.authenticate`. Threads that waited
            for a refresh of another thread get the error of that refresh
        """
        settings = client.settings()
        # Do not wait for another thread if there is a usable credential.
        credential = self._find(settings, stale, min_ttl)
        if credential is not None:
            return credential
        with PROCESS_FAILURES.one_at_a_time(settings) as failure:
            credential = self._find(settings, stale, min_ttl)
            if credential is None:
                if failure is not None:
                    raise failure
                credential = self._credentials[settings] = self._authenticate(client, settings)
            return credential

    def _find(self, settings: Settings, stale: ActiveCredential | None, min_ttl: float) -> ActiveCredential | None:
        """Return the cached credential if it is fresh and not the stale one, else None."""
        credential = self._credentials.get(settings)
        if credential is None or credential is stale or not credential.is_fresh(min_ttl):
            return None
        return credential

    @staticmethod
    def _authenticate(client: Client, settings: Settings) -> ActiveCredential:
        requested_at = time.monotonic()
        result = client.authenticate(settings)
        mask(result.response.secrets)
        return ActiveCredential(
            value=result.response.credential,
            credential_type=METHODS[settings.method].credential_type,
            conn_id=settings.conn_id,
            method=settings.method,
            company_id=settings.company_id,
            lifetime=result.lifetime,
            deadline=None if result.lifetime is None else requested_at + result.lifetime,
            issued_here=True,
        )


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

        While the service is unavailable, a credential that is still valid is returned instead.

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
        try:
            return self.get_cached() or self.refresh(stale)
        except UnavailableError:
            if stale is None or not stale.start_grace_period():
                raise
            return stale

    def get_cached(self) -> ActiveCredential | None:
        """Return the credential if it is open and fresh, else None; never blocks."""
        active = self._active
        return active if active is not None and active.is_fresh(self._min_ttl) else None

    @sanitize_exceptions
    def refresh(self, rejected: ActiveCredential | None) -> ActiveCredential:
        """
        Return a credential other than the rejected one.

        :param rejected: the credential that has expired or was rejected; None if there was none
        :raises LoanAuthError: any error of :meth:`CredentialCache.get_or_refresh`
        """
        self._active = _PROCESS_CACHE.get_or_refresh(self._client, rejected, self._min_ttl)
        return self._active

    def _open(self, credential: AccessToken | ApiSecret) -> ActiveCredential:
        lifetime = deadline = None
        if credential.expires_at is not None:
            lifetime = (credential.expires_at - credential.issued_at).total_seconds()
            # Only this line uses the wall clock, because the credential was issued on a different machine.
            deadline = time.monotonic() + credential.expires_at.timestamp() - time.time()
        if lifetime is not None and lifetime <= 0:
            # It expired before it was issued: a clock is wrong. Treat the lifetime as unknown and rely on a 401.
            lifetime = deadline = None
        active = ActiveCredential(
            value=credential.value,
            credential_type=type(credential),
            conn_id=credential.conn_id,
            method=credential.method,
            company_id=None,
            lifetime=lifetime,
            deadline=deadline,
            issued_here=False,
        )
        if isinstance(credential, ApiSecret):
            # Only an API secret needs the Connection: the company id is sent with it. Read the Connection only now:
            # the connection id is text from XCom, and opening the credential has checked it.
            active.company_id = self._client.settings().company_id
        return active
