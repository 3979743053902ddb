"""
When an access token expires, and how long it lives.

The ``exp`` claim of the token is used if it is a time: seconds since the epoch (RFC 7519 §4.1.4). Otherwise
``expires_in`` is added to the time of the request; it is read as seconds (RFC 6749 §5.1), because the interface states
no unit. If the token has an ``iat`` claim (RFC 7519 §4.1.6), the lifetime is ``exp`` minus ``iat``. Both come from the
service's clock, so that a wrong clock on this machine does not matter.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_loanauth.models import TokenResponse


def read_expiry(response: TokenResponse, *, requested_at: datetime) -> tuple[datetime | None, float | None]:
    """Return when an access token expires (UTC), and its lifetime in seconds; each is None if it is not known."""
    claims = unverified_claims(response.access_token)
    expires_at, start = _instant(claims.get("exp")), _instant(claims.get("iat")) or requested_at
    if expires_at is None:
        expires_at, start = _instant(response.expires_in, since=requested_at.timestamp()), requested_at
    if expires_at is None:
        return None, None
    seconds = expires_at.timestamp() - start.timestamp()
    given = _instant(response.expires_in)
    if given is not None and given.timestamp() > 0:
        # Less than the claims say, if the service has returned a token that it issued earlier.
        seconds = min(seconds, given.timestamp())
    # Expired when it was received: a clock is wrong. Treat the lifetime as unknown and rely on a 401.
    return expires_at, seconds if seconds > 0 else None


def unverified_claims(token: str) -> Mapping[str, Any]:
    """Return the claims of a JSON web token without verifying them (RFC 7519); empty if it is no such token."""
    import jwt

    try:
        claims: Mapping[str, Any] = jwt.decode(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError):
        return {}
    return claims


def _instant(seconds: Any, *, since: float = 0.0) -> datetime | None:
    """Return the time of a NumericDate (RFC 7519 §2); None if the value is not a number, or out of range."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return None
    try:
        return datetime.fromtimestamp(since + seconds, tz=timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None
