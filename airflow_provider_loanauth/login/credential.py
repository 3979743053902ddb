"""A credential in use in this process: when it is refreshed before its expiry, and when after a 401."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from airflow_provider_loanauth.connection.methods import METHODS
from airflow_provider_loanauth.metadata import Method
from airflow_provider_loanauth.redaction import NotForXCom, SecretStr
from airflow_provider_loanauth.system import system

if TYPE_CHECKING:
    from airflow_provider_loanauth.connection.settings import PricingHeaders, Settings
    from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
    from airflow_provider_loanauth.service.client import AuthenticationResult

#: Largest fraction of the lifetime that must be left, so that a token with a short lifetime is not refreshed each time.
MAX_REFRESH_FRACTION = 0.1
#: Seconds between two attempts to refresh a credential that is still valid.
GRACE_PERIOD = 10.0
#: Seconds for which a credential that has replaced a rejected one (401) is not replaced after a 401 itself.
MIN_401_AGE = 60.0
#: An authenticating task takes a shared credential over, if this fraction of its lifetime is left, or, without a known
#: lifetime, if it is younger than this many seconds.
MIN_TAKEOVER_FRACTION, MAX_TAKEOVER_AGE = 0.5, 600.0
#: What a sealed credential says of itself in plaintext.
_METADATA = ("conn_id", "method", "issued_at", "expires_at", "lifetime")


def _spread(value: str) -> float:
    """Return a factor from 1 to 2 of a credential and a process, so that not all refresh it at the same moment."""
    digest = hashlib.sha256(f"{system.process_key()} {value}".encode()).digest()
    return 1 + int.from_bytes(digest[:4], "big") / 2**32


@dataclass(eq=False, kw_only=True)
class ActiveCredential(NotForXCom):
    """A credential in use in this process. Its age is that of the monotonic clock, which never jumps."""

    value: str = field(repr=False)
    conn_id: str
    method: Method
    #: How requests carry an API secret; None: an access token.
    pricing: PricingHeaders | None = None
    #: When it was requested, and when it expires (UTC; None if not known).
    issued_at: datetime
    expires_at: datetime | None = None
    #: Seconds from issue to expiry; None if they are not known.
    lifetime: float | None = None
    #: Whether it has replaced one that got a 401.
    after_401: bool = False
    _requested_at: float = field(init=False)
    _grace_until: float = field(default=-math.inf, init=False)

    def __post_init__(self) -> None:
        # Only here the wall clock counts: another machine may have requested the credential.
        self._requested_at = system.monotonic() - max(0.0, system.time() - self.issued_at.timestamp())

    @classmethod
    def from_xcom(cls, credential: AccessToken | ApiSecret) -> ActiveCredential:
        """Open a sealed credential, which masks it. How requests carry it is not in it."""
        return cls(value=credential.value, **{name: getattr(credential, name) for name in _METADATA})

    def seal(self) -> AccessToken | ApiSecret:
        """Return the sealed credential, which can be stored in XCom."""
        return self.credential_type.seal(self.value, **{name: getattr(self, name) for name in _METADATA})

    @classmethod
    def from_result(cls, result: AuthenticationResult, *, after_401: bool) -> ActiveCredential:
        """Return the credential of a login of this process."""
        return cls(
            value=SecretStr(result.response.credential),
            conn_id=result.settings.conn_id,
            method=result.settings.method,
            pricing=result.settings.pricing,
            issued_at=result.requested_at,
            expires_at=result.expires_at,
            lifetime=result.lifetime,
            after_401=after_401,
        )

    @classmethod
    def from_row(cls, stored: Mapping[str, Any], settings: Settings) -> ActiveCredential:
        """Return the credential that a process has stored for all. Another shape raises one of several errors."""
        issued_at = datetime.fromisoformat(stored["issued_at"])
        expires_at, lifetime = stored.get("expires_at"), stored.get("lifetime")
        return cls(
            value=SecretStr(stored["value"]),
            conn_id=settings.conn_id,
            method=settings.method,
            pricing=settings.pricing,
            issued_at=issued_at,
            expires_at=expires_at and datetime.fromisoformat(expires_at),
            lifetime=lifetime and float(lifetime),
            # If the clock of who requested it is ahead, its age is not known.
            after_401=bool(stored.get("after_401")) and issued_at.timestamp() < system.time() + MIN_401_AGE,
        )

    def for_row(self) -> dict[str, Any]:
        """Return what all processes need of it."""
        return {
            "value": self.value,
            "issued_at": self.issued_at.isoformat(),
            "expires_at": self.expires_at and self.expires_at.isoformat(),
            "lifetime": self.lifetime,
            "after_401": self.after_401,
        }

    @property
    def credential_type(self) -> type[AccessToken | ApiSecret]:
        """The class of the sealed credential."""
        return METHODS[self.method].grant.credential_type

    @property
    def _age(self) -> float:
        return system.monotonic() - self._requested_at

    @property
    def seconds_left(self) -> float | None:
        """Seconds until it expires, negative if it has expired; None if its lifetime is not known."""
        if self.lifetime is None:
            return None
        return self.lifetime - self._age

    def is_valid(self) -> bool:
        """Return whether the credential has not expired. Without a known lifetime, only a 401 shows that it has."""
        left = self.seconds_left
        return left is None or left > 0

    def is_fresh(self, min_ttl: float) -> bool:
        """Return whether more is left than the smaller of ``min_ttl`` and a tenth of the lifetime, times one to two."""
        left = self.seconds_left
        if left is None or self.lifetime is None or (left > 0 and system.monotonic() < self._grace_until):
            return True
        return left > min(min_ttl, self.lifetime * MAX_REFRESH_FRACTION) * _spread(self.value)

    def can_be_taken_over(self) -> bool:
        """Return whether enough of its life is left for an authenticating task to hand it on."""
        if self.lifetime is None:
            return self._age < MAX_TAKEOVER_AGE
        return self._age <= self.lifetime * (1 - MIN_TAKEOVER_FRACTION)

    def start_grace_period(self) -> None:
        """Treat it as fresh for some seconds, while it is valid."""
        self._grace_until = system.monotonic() + GRACE_PERIOD

    def should_refresh_on(self, status: int) -> bool:
        """Return whether a response to a request with this credential is a reason to log in, and to try again."""
        # If it has just replaced a rejected one, the 401 is about the request, or the service is broken.
        return status == HTTPStatus.UNAUTHORIZED and (not self.after_401 or self._age >= MIN_401_AGE)


@dataclass(eq=False, kw_only=True)
class Need:
    """What a login is for: a first credential, or one in place of an old one."""

    #: Whether another one's credential will do; the flag says whether it was requested since the login began.
    accepts: Callable[[ActiveCredential, bool], bool]
    #: The credential of a pricing request, and whether it got a 401.
    old: ActiveCredential | None = None
    got_401: bool = False

    @property
    def must_log_in(self) -> bool:
        """Whether there is no valid credential. If there is one, the login waits for nobody, and is tried once."""
        return self.old is None or self.got_401 or not self.old.is_valid()

    def is_unusable(self, credential: ActiveCredential | None) -> bool:
        """Return whether it is the credential that got a 401, which is handed to nobody."""
        return self.got_401 and credential is not None and self.old is not None and credential.value == self.old.value

    def choose(self, found: ActiveCredential | None, *, is_new: bool) -> ActiveCredential | None:
        """Return the credential of another thread or process if it will do, or the old one if that must stay."""
        if found is None:
            return None
        old = self.old
        if old is not None and found.value == old.value:
            if self.got_401 and found.should_refresh_on(HTTPStatus.UNAUTHORIZED):
                return None
            # A service may return the same token again, which is valid again.
            if self.got_401:
                return max(old, found, key=lambda one: one.issued_at)
            # Or with the seconds that are left.
            if found.issued_at <= old.issued_at:
                return None
        if not self.accepts(found, is_new):
            return None
        return found

    def keep_old(self) -> ActiveCredential:
        """Return the old credential, which is used for some seconds more."""
        old = cast("ActiveCredential", self.old)
        old.start_grace_period()
        return old
