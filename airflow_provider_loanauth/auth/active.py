"""A credential in use in this process: when it expires, and whether a 401 is a reason to refresh it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

from airflow_provider_loanauth.redaction import NotForXCom

if TYPE_CHECKING:
    from airflow_provider_loanauth.credentials import AccessToken, ApiSecret

#: Largest fraction of the lifetime that must be left. With ``min_ttl`` alone, a token with a lifetime below ``min_ttl``
#: would be refreshed for every request.
MAX_REFRESH_FRACTION = 0.1
#: Seconds without another refresh if a request still gets a 401 after a refresh.
REFRESH_COOLDOWN = 60.0
#: Seconds between two attempts to refresh a credential that is still valid.
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
    :param age: seconds since it was requested
    """

    value: str = field(repr=False)
    credential_type: type[AccessToken | ApiSecret]
    conn_id: str
    method: str
    company_id: str | None
    lifetime: float | None
    deadline: float | None
    issued_here: bool
    age: float = 0.0
    _requested_at: float = field(init=False)
    _accepted: bool = field(default=False, init=False)
    _cooldown_until: float = field(default=-math.inf, init=False)
    _grace_until: float = field(default=-math.inf, init=False)

    @classmethod
    def open(cls, credential: AccessToken | ApiSecret) -> ActiveCredential:
        """
        Open a sealed credential. The company id that is sent with an API secret is in the Connection: set it later.

        :param credential: a credential from XCom
        :raises SealError: it cannot be opened
        """
        lifetime = deadline = None
        # Only here the wall clock is used, because the credential may have been issued on a different machine.
        now = time.time()
        if credential.expires_at is not None:
            lifetime = (credential.expires_at - credential.issued_at).total_seconds()
            deadline = time.monotonic() + credential.expires_at.timestamp() - now
        if lifetime is not None and lifetime <= 0:
            # It expired before it was issued: a clock is wrong. Treat the lifetime as unknown and rely on a 401.
            lifetime = deadline = None
        return cls(
            value=credential.value,
            credential_type=type(credential),
            conn_id=credential.conn_id,
            method=credential.method,
            company_id=None,
            lifetime=lifetime,
            deadline=deadline,
            issued_here=False,
            age=now - credential.issued_at.timestamp(),
        )

    def __post_init__(self) -> None:
        """Record when it was requested."""
        self._requested_at = time.monotonic() - self.age

    @property
    def seconds_left(self) -> float | None:
        """Seconds until it expires, negative if it has expired; None if its lifetime is not known."""
        return None if self.deadline is None else self.deadline - time.monotonic()

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

    def is_valid(self) -> bool:
        """Return whether the credential has not expired. Without a known lifetime, only a 401 shows that it has."""
        return self.deadline is None or time.monotonic() < self.deadline

    def start_grace_period(self) -> bool:
        """
        Return whether the credential has a known lifetime and has not expired. If so, treat it as fresh for
        ``GRACE_PERIOD`` seconds, so that requests continue with it while it is refreshed, and during an outage.
        """
        if self.deadline is None or not self.is_valid():
            return False
        self._grace_until = time.monotonic() + GRACE_PERIOD
        return True

    def record_response(self, status: int) -> None:
        """
        Record the status of a response. Only a 2xx shows that the service accepted the credential.

        :param status: HTTP status
        """
        if 200 <= status < 300:  # noqa: PLR2004 - RFC 9110 §15.3
            self._accepted = True

    def should_retry_again(self, status: int) -> bool:
        """
        Record the status of the response to a request that was retried with this credential after a 401, and return
        whether it is a reason to refresh the credential and to retry once more.

        It is, if the credential was requested long ago, by another process or thread: it may have expired as well.
        Otherwise the 401 is about the request.

        :param status: HTTP status
        """
        self.record_response(status)
        if status != HTTPStatus.UNAUTHORIZED:
            return False
        now = time.monotonic()
        if now >= max(self._requested_at + REFRESH_COOLDOWN, self._cooldown_until):
            return True
        self._cooldown_until = now + REFRESH_COOLDOWN
        return False

    def should_refresh_on_401(self) -> bool:
        """
        Return whether a 401 is a reason to refresh.

        It is not, for ``REFRESH_COOLDOWN`` seconds, in two cases. If this process has just requested the credential and
        the service has not accepted it yet, a new credential would be rejected too. If a request got a 401 also after a
        refresh, the 401 is about the request and not about the credential.
        """
        now = time.monotonic()
        untested = self.issued_here and not self._accepted and now < self._requested_at + REFRESH_COOLDOWN
        return not untested and now >= self._cooldown_until
