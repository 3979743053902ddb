"""When an access token expires, and how long it lives: by the claims of the token, else by ``expires_in``."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from airflow_provider_loanauth.models import ApiSecretResponse, TokenResponse


def read_expiry(
    response: TokenResponse | ApiSecretResponse, *, requested_at: datetime
) -> tuple[datetime | None, float | None]:
    """Return when a credential expires (UTC), and its lifetime in seconds; each is None if it is not known."""
    if isinstance(response, ApiSecretResponse):
        return None, None
    import jwt

    try:
        # Without verifying it (RFC 7519).
        claims = jwt.decode(response.access_token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError):  # it is no JSON web token
        claims = {}
    # In seconds (RFC 6749 §5.1), because the interface states no unit.
    given = _instant(response.expires_in, since=requested_at.timestamp())
    # Both by the clock of the service (RFC 7519 §4.1.4, §4.1.6): for the lifetime, no clock has to be right.
    expires_at, start = _instant(claims.get("exp")), _instant(claims.get("iat")) or requested_at
    if expires_at is None:
        expires_at, start = given, requested_at
    if expires_at is None:
        return None, None
    lifetime = expires_at - start
    if given is not None and given > requested_at:
        # Less than the claims say, if the service has returned a token that it issued earlier.
        lifetime = min(lifetime, given - requested_at)
    # Expired when it was received: a clock is wrong. Treat the lifetime as unknown and rely on a 401.
    return expires_at, max(0.0, lifetime.total_seconds()) or None


def _instant(seconds: Any, *, since: float = 0.0) -> datetime | None:
    """Return the time of a NumericDate (RFC 7519 §2); None if the value is not a number, or out of range."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return None
    try:
        return datetime.fromtimestamp(since + seconds, tz=timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None
