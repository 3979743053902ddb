"""
A credential that does not run out: who renews it, and how often. Knows no HTTP library and no hook.

One renewal at a time per process and Connection, however many threads ask; a refused one is not repeated. What is
shared is found by a digest of the settings, never by the connection id alone: after a change of the Connection, or for
another tenant, nothing old is found.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider_loanauth._compat import one_question_at_a_time
from airflow_provider_loanauth.auth.active import Grant
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, UnavailableError

if TYPE_CHECKING:
    from airflow_provider_loanauth.connection.settings import Settings
    from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
    from airflow_provider_loanauth.service.results import Outcome


class Source(Protocol):
    """What renewals are made of; the hook is one."""

    def settings(self) -> Settings:
        """Read and check the Connection."""

    def issue(self, settings: Settings) -> Outcome[Any]:
        """Authenticate."""


@dataclass(eq=False)
class _Line:
    """Where those who need the same renewal stand in line."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    grant: Grant | None = None
    failure: LoanAuthError | None = None
    failures: int = 0


class Renewals:
    """Renewals of this process; :data:`RENEWALS` is the one that is used."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew."""
        self._lines: dict[bytes, _Line] = {}

    def forked(self) -> None:
        """Start anew in a forked process, which shares neither locks nor credentials; a refusal holds there too."""
        self._lines = {
            digest: _Line(failure=line.failure)
            for digest, line in self._lines.items()
            if isinstance(line.failure, RejectedError)
        }

    @staticmethod
    def settings(source: Source) -> Settings:
        """Read the Connection, one thread at a time."""
        with one_question_at_a_time():
            return source.settings()

    def renewed(self, source: Source, stale: Grant | None, min_ttl: float) -> Grant:
        """
        Return a credential that is not the stale one: what another thread has fetched meanwhile, or a new one.

        :param source: what to authenticate with
        :param stale: the credential that has run out or was refused; None where there was none
        :param min_ttl: seconds that must be left
        :raises RejectedError: the service refused the renewal, now or before; it is not repeated while the Connection
            stays as it is
        :raises LoanAuthError: see :meth:`LoanAuthHook.authen_jwt`; who waited for a renewal that failed does not repeat
            it
        """
        settings = self.settings(source)
        line = self._lines.setdefault(settings.digest(), _Line())
        failures = line.failures
        with line.lock:
            if line.failure is not None and (isinstance(line.failure, RejectedError) or line.failures > failures):
                # A copy: one exception raised in many threads would collect all their tracebacks.
                raise copy.copy(line.failure)
            if line.grant is None or line.grant is stale or not line.grant.is_fresh(min_ttl):
                line.grant = self._fetch(source, settings, line)
            return line.grant

    @staticmethod
    def _fetch(source: Source, settings: Settings, line: _Line) -> Grant:
        asked_at = time.monotonic()
        try:
            issued = source.issue(settings)
        except LoanAuthError as error:
            # A copy, here as above: the original has a traceback, which keeps everything on it alive.
            line.failure = copy.copy(error)
            line.failures += 1
            raise
        line.failure = None
        return Grant(
            value=issued.value,
            conn_id=settings.conn_id,
            method=settings.method,
            company_id=settings.company_id,
            lifetime=issued.lifetime,
            ends=None if issued.lifetime is None else asked_at + issued.lifetime,
            renewed=True,
        )


RENEWALS = Renewals()
os.register_at_fork(after_in_child=RENEWALS.forked)


class Keyring:
    """
    Hands out the credential to use now; threads may share it.

    :param source: what to authenticate with
    :param credential: the credential to begin with; None: the first is fetched
    :param min_ttl: seconds that must be left
    """

    def __init__(self, source: Source, credential: AccessToken | ApiSecret | None, min_ttl: float) -> None:
        self._source = source
        self._credential = credential
        self._min_ttl = min_ttl
        self._grant: Grant | None = None
        self._opening = threading.Lock()

    def current(self) -> Grant:
        """
        Return a credential that is fresh, renewed if need be; raises as :meth:`Renewals.renewed`. While the service
        cannot serve, what is still good goes on being used.

        :raises SealError: the credential to begin with cannot be opened
        """
        found = self.at_hand()
        if found is not None:
            return found
        with self._opening:
            if self._grant is None and self._credential is not None:
                self._grant = self._opened(self._credential)
            stale = self._grant
        try:
            return self.at_hand() or self.another_than(stale)
        except UnavailableError:
            if stale is None or not stale.spared():
                raise
            return stale

    def at_hand(self) -> Grant | None:
        """Return the credential where it is open and fresh: what needs no waiting."""
        grant = self._grant
        return grant if grant is not None and grant.is_fresh(self._min_ttl) else None

    def another_than(self, stale: Grant | None) -> Grant:
        """Return another credential than the one that was refused; raises as :meth:`Renewals.renewed`."""
        self._grant = RENEWALS.renewed(self._source, stale, self._min_ttl)
        return self._grant

    def _opened(self, credential: AccessToken | ApiSecret) -> Grant:
        lifetime = ends = company_id = None
        if credential.expires_at is not None:
            lifetime = (credential.expires_at - credential.issued_at).total_seconds()
            # The one look at the wall clock: the credential comes from another host.
            ends = time.monotonic() + credential.expires_at.timestamp() - time.time()
        if lifetime is not None and lifetime <= 0:
            # No service issues what has ended: one of two clocks is wrong, and then nobody knows. A 401 will tell.
            lifetime = ends = None
        if credential.method == "ppe":
            # Only an API secret needs the Connection while it is good.
            company_id = RENEWALS.settings(self._source).company_id
        return Grant(
            value=credential.value,
            conn_id=credential.conn_id,
            method=credential.method,
            company_id=company_id,
            lifetime=lifetime,
            ends=ends,
            renewed=False,
        )
