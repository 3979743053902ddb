"""When an access token ends, as far as the answer says. Reads tokens, verifies none; knows no clock and no Airflow."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_loanauth.models import TokenResponse


def claims_of(token: str) -> Mapping[str, Any]:
    """
    Read the claims of a JSON web token (RFC 7519) without verifying it: the service that signed it verifies it.

    :param token: the token
    :return: its claims; nothing where it is not a JSON web token
    """
    import jwt  # noqa: PLC0415 - loads a crypto stack that DAG parsing must not pay for

    try:
        claims: Mapping[str, Any] = jwt.decode(token, options={"verify_signature": False, "verify_exp": False})
    except (jwt.PyJWTError, ValueError, RecursionError):
        return {}
    return claims


def lifetime(response: TokenResponse, *, requested_at: datetime) -> tuple[datetime | None, float | None]:
    """
    Tell when the access token ends.

    The token's own ``exp`` claim comes first: seconds since the epoch, no guess (RFC 7519 §4.1.4). Then ``expires_in``
    read as seconds (RFC 6749 §5.1; the interface states no unit), counted from before the request was sent.

    :param response: the answer
    :param requested_at: when the request was sent (UTC)
    :return: the instant (UTC), and the seconds from the request until then by the service's own clock where the token
        has an ``iat`` claim (RFC 7519 §4.1.6), so that a wrong clock here does not matter; None and None where nobody
        says
    """
    claims = claims_of(response.access_token)
    ends, begins = (_seconds(claims.get(name)) for name in ("exp", "iat"))
    asked = requested_at.timestamp()
    counted = _seconds(response.expires_in)
    if ends is None and counted is not None:
        ends, begins = asked + counted, asked
    if ends is None:
        return None, None
    try:
        instant = datetime.fromtimestamp(ends, tz=timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None, None
    seconds = ends - (asked if begins is None else begins)
    # No service issues what has ended: one of two clocks is wrong, and then nobody knows.
    return instant, seconds if seconds > 0 else None


def _seconds(claim: Any) -> float | None:
    """Read a NumericDate (RFC 7519 §2), or None where it is no number or one that no clock has."""
    if isinstance(claim, bool) or not isinstance(claim, (int, float)):
        return None
    try:
        return float(claim)
    except OverflowError:
        return None
