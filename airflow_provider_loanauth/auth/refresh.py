"""
Keeping a credential usable: when it is refreshed, and how often.

Refreshing means authenticating again; the service's ``refresh_token`` is not used, because the interface does not show
how (``service-interface.md`` §5). One refresh at a time runs per process and Connection, however many threads need it,
and a rejected refresh is not repeated.
"""

from __future__ import annotations

import copy
import math
import os
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth.auth.origin import COMPANY_HEADER, SECRET_HEADER, OriginGuard
from airflow_provider_loanauth.connection.methods import METHODS
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, UnavailableError
from airflow_provider_loanauth.get_provider_info import DEFAULT_CONN_ID
from airflow_provider_loanauth.redaction import NotForXCom, mask
from airflow_provider_loanauth.service.client import Client

if TYPE_CHECKING:
    from typing_extensions import Self

    from airflow_provider_loanauth.connection.methods import Method
    from airflow_provider_loanauth.connection.settings import Settings

#: Default number of seconds that must be left of a credential before it is used.
MIN_TTL = 60.0
#: A credential is refreshed in this last part of its lifetime at most: with a fixed window, a token that lives shorter
#: than the window would be refreshed for every request.
MAX_REFRESH_FRACTION = 0.1
#: Seconds without another refresh after a 401, when the last refresh did not help.
REFRESH_COOLDOWN = 60.0
#: Seconds without another refresh of a credential that is still valid, after the service was unavailable for one.
GRACE_PERIOD = 10.0
#: The status that rejects a credential (RFC 6750 §3.1).
UNAUTHORIZED = 401

BODY_NOT_REPLAYABLE = (
    "The service rejected the credential (401). The credential was refreshed, but the request was not retried, "
    "because its body is a stream that cannot be rewound. Send the request again, or use bytes or a seekable file so "
    "that it is retried automatically."
)


@dataclass(eq=False, kw_only=True)
class ActiveCredential(NotForXCom):
    """
    A credential in use in this process.

    :param value: the plaintext access token or API secret
    :param credential_type: which of the two it is
    :param conn_id: the connection that it belongs to
    :param method: the method that issued it
    :param company_id: what goes with an API secret, or None
    :param lifetime: seconds from issue to expiry; None where they are not known
    :param deadline: when it expires, by the monotonic clock, which clock adjustments do not affect; None where it is
        not known
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
        Return whether enough of its lifetime is left.

        :param min_ttl: seconds that must be left, at most a tenth of the lifetime
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
        """Record the status of a response; only a success shows that the service accepted the credential."""
        if 200 <= status < 300:  # noqa: PLR2004 - RFC 9110 §15.3
            self._accepted = True

    def record_retry_response(self, status: int) -> None:
        """Record the status of the response to a request that was retried with this credential after a 401."""
        self.record_response(status)
        if status == UNAUTHORIZED:
            self._cooldown_until = time.monotonic() + REFRESH_COOLDOWN

    def should_refresh_on_401(self) -> bool:
        """
        Return whether a 401 is a reason to refresh.

        No, if it was just issued and never accepted: a new one would be rejected too. No, if the last refresh did not
        help: the 401 is then about the request, not the credential.
        """
        now = time.monotonic()
        untested = self.issued_here and not self._accepted and now < self._obtained_at + REFRESH_COOLDOWN
        return not untested and now >= self._cooldown_until


@dataclass(eq=False)
class _CacheEntry:
    """Cached credential for one set of settings; the lock serialises refreshes."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    credential: ActiveCredential | None = None
    failure: LoanAuthError | None = None
    failures: int = 0


class CredentialCache:
    """The credentials that this process requested, by settings."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._entries: dict[Settings, _CacheEntry] = {}

    def reset_after_fork(self) -> None:
        """Forget locks and credentials, which a forked process does not share; keep rejections."""
        self._entries = {
            settings: _CacheEntry(failure=entry.failure)
            for settings, entry in self._entries.items()
            if isinstance(entry.failure, RejectedError)
        }

    def get_or_refresh(self, client: Client, stale: ActiveCredential | None, min_ttl: float) -> ActiveCredential:
        """
        Return a credential other than the stale one: one that another thread requested in the meantime, or a new one.

        :param client: what to authenticate with
        :param stale: the credential that has expired or was rejected; None where there was none
        :param min_ttl: seconds that must be left
        :raises RejectedError: the service rejected this refresh, or an earlier one with the same settings
        :raises LoanAuthError: as :meth:`Client.authenticate`; a thread that waited for a refresh that failed gets its
            error
        """
        settings = client.settings()
        entry = self._entries.setdefault(settings, _CacheEntry())
        failures = entry.failures
        with entry.lock:
            if entry.failure is not None and (isinstance(entry.failure, RejectedError) or entry.failures > failures):
                # A copy: one exception raised in many threads would collect all their tracebacks.
                raise copy.copy(entry.failure)
            if entry.credential is None or entry.credential is stale or not entry.credential.is_fresh(min_ttl):
                entry.credential = self._authenticate(client, settings, entry)
            return entry.credential

    @staticmethod
    def _authenticate(client: Client, settings: Settings, entry: _CacheEntry) -> ActiveCredential:
        requested_at = time.monotonic()
        try:
            result = client.authenticate(settings)
        except LoanAuthError as error:
            # A copy, because the original has a traceback, which keeps everything on it alive.
            entry.failure = copy.copy(error)
            entry.failures += 1
            raise
        mask(result.response.secrets)
        entry.failure = None
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
os.register_at_fork(after_in_child=_PROCESS_CACHE.reset_after_fork)


class CredentialProvider:
    """
    Provides the credential to use now; threads may share it.

    :param client: what to authenticate with
    :param credential: the first credential; None: the first one is requested
    :param min_ttl: seconds that must be left
    """

    def __init__(self, client: Client, credential: AccessToken | ApiSecret | None, min_ttl: float) -> None:
        self._client = client
        self._credential = credential
        self._min_ttl = min_ttl
        self._active: ActiveCredential | None = None
        self._opening = threading.Lock()

    def get(self) -> ActiveCredential:
        """
        Return a fresh credential, refreshed if necessary.

        While the service is unavailable, a credential that is still valid is returned instead.

        :raises SealError: the first credential cannot be opened
        :raises LoanAuthError: as :meth:`CredentialCache.get_or_refresh`
        """
        cached = self.get_cached()
        if cached is not None:
            return cached
        with self._opening:
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

    def refresh(self, rejected: ActiveCredential | None) -> ActiveCredential:
        """Return another credential than the rejected one; raises as :meth:`CredentialCache.get_or_refresh`."""
        self._active = _PROCESS_CACHE.get_or_refresh(self._client, rejected, self._min_ttl)
        return self._active

    def _open(self, credential: AccessToken | ApiSecret) -> ActiveCredential:
        lifetime = deadline = company_id = None
        if credential.expires_at is not None:
            lifetime = (credential.expires_at - credential.issued_at).total_seconds()
            # The wall clock is read only here: the credential comes from another host.
            deadline = time.monotonic() + credential.expires_at.timestamp() - time.time()
        if lifetime is not None and lifetime <= 0:
            # Expired on arrival: one of the two clocks is wrong. Treat the lifetime as unknown and rely on a 401.
            lifetime = deadline = None
        if isinstance(credential, ApiSecret):
            # An access token needs no Connection while it is fresh.
            company_id = self._client.settings().company_id
        return ActiveCredential(
            value=credential.value,
            credential_type=type(credential),
            conn_id=credential.conn_id,
            method=credential.method,
            company_id=company_id,
            lifetime=lifetime,
            deadline=deadline,
            issued_here=False,
        )


class BaseLoanAuth:
    """
    What both ``LoanAuth`` classes share: their constructors, and being pickled.

    :param credential: a credential pulled from XCom
    :param min_ttl: refresh when fewer seconds than this are left; of a short lifetime, when less than a tenth is left
    :param secret_header: header for an API secret
    :param company_header: header for the company id that goes with it
    :raises TypeError: ``credential`` is not a credential, or ``min_ttl`` is not a number
    :raises ValueError: ``min_ttl`` is negative
    """

    _provider: CredentialProvider
    _guard: OriginGuard
    _arguments: dict[str, Any]

    def __init__(
        self,
        credential: AccessToken | ApiSecret,
        min_ttl: float = MIN_TTL,
        *,
        secret_header: str = SECRET_HEADER,
        company_header: str = COMPANY_HEADER,
    ) -> None:
        given: type[Any] = type(credential)
        if not issubclass(given, (AccessToken, ApiSecret)):
            # Tools that capture local variables (Sentry, pytest) must not record what may be a plaintext token.
            del credential
            if issubclass(given, str):
                raise TypeError(
                    "LoanAuth was given a str instead of a credential. Pull a sealed credential (seal=True, the "
                    'default of operator and sensor), or use LoanAuth.from_connection("connection id"). A plaintext '
                    "token cannot be refreshed."
                )
            raise TypeError(
                f"LoanAuth was given {given.__name__} instead of a credential: did the authenticating task run, and is "
                "its task id right in xcom_pull?"
            )
        self._set_up(
            credential=credential,
            conn_id=credential.conn_id,
            method=credential.method,
            min_ttl=min_ttl,
            secret_header=secret_header,
            company_header=company_header,
        )

    @classmethod
    def from_connection(
        cls,
        conn_id: str = DEFAULT_CONN_ID,
        method: Method | None = None,
        min_ttl: float = MIN_TTL,
        *,
        secret_header: str = SECRET_HEADER,
        company_header: str = COMPANY_HEADER,
    ) -> Self:
        """
        Return an object that authenticates by itself, at its first request.

        Other parameters are those of the class.

        :param conn_id: connection id
        :param method: ``jwt``, ``los`` or ``ppe``; None: the Connection's own, else ``jwt``
        :raises TypeError: ``conn_id`` is not a string, or ``min_ttl`` is not a number
        :raises ValueError: ``conn_id`` is empty, or ``min_ttl`` is negative
        """
        given: type[Any] = type(conn_id)
        if not issubclass(given, str):
            # As in the constructor.
            del conn_id
            raise TypeError(f"LoanAuth.from_connection was given {given.__name__} instead of a connection id.")
        if not conn_id:
            raise ValueError("LoanAuth.from_connection was given an empty connection id.")
        self = cls.__new__(cls)
        self._set_up(
            credential=None,
            conn_id=conn_id,
            method=method,
            min_ttl=min_ttl,
            secret_header=secret_header,
            company_header=company_header,
        )
        return self

    @classmethod
    def from_client(cls, client: Client, credential: AccessToken | ApiSecret | None = None) -> Self:
        """
        Return an object that authenticates with an existing client.

        :param client: what to authenticate with
        :param credential: a credential to start with; None: the first request authenticates
        """
        self = cls.__new__(cls)
        self._set_up(
            credential=credential,
            conn_id=client.conn_id,
            method=client.method,
            min_ttl=MIN_TTL,
            secret_header=SECRET_HEADER,
            company_header=COMPANY_HEADER,
            client=client,
        )
        return self

    def _set_up(
        self,
        *,
        credential: AccessToken | ApiSecret | None,
        conn_id: str,
        method: str | None,
        min_ttl: float,
        secret_header: str,
        company_header: str,
        client: Client | None = None,
    ) -> None:
        if isinstance(min_ttl, bool) or not isinstance(min_ttl, (int, float)):
            raise TypeError("min_ttl must be a number of seconds, 0 or greater.")
        if not min_ttl >= 0:
            raise ValueError("min_ttl must be a number of seconds, 0 or greater.")
        self._provider = CredentialProvider(client or Client(conn_id, method), credential, min_ttl)
        self._guard = OriginGuard(secret_header=secret_header, company_header=company_header)
        self._arguments = {
            "credential": credential,
            "conn_id": conn_id,
            "method": method,
            "min_ttl": min_ttl,
            "secret_header": secret_header,
            "company_header": company_header,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        # Locks cannot be pickled. The arguments can; a credential among them stays sealed.
        return _unpickle, (type(self), self._arguments)


def _unpickle(cls: type[BaseLoanAuth], arguments: dict[str, Any]) -> BaseLoanAuth:
    self = cls.__new__(cls)
    self._set_up(**arguments)
    return self
