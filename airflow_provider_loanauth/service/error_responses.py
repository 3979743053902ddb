"""
What a status that is not success means: which exception, the service's own words where they are safe, likely causes.

Part of the wire: knows neither Airflow nor sockets. ``service-interface.md`` §7 shows no error; the two shapes read
here are those of ``service-notes.md`` (RFC 6749 §5.2, and a framework's default error page), and causes are worded as
likely.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_provider_loanauth.exceptions import RejectedError, ResponseError, UnavailableError
from airflow_provider_loanauth.redaction import derived_forms, holds_any

if TYPE_CHECKING:
    from collections.abc import Sequence

#: 4xx that speak of the moment, not of the credentials.
_PASSING = frozenset({408, 429})
_LONGEST_WORDS = 200
# A longer word is more likely a token, a key or an identifier than prose.
_LONGEST_WORD = 40

_LIKELY_CAUSES = {
    400: (
        "The service did not accept the request. Check Origin and the client credentials of the method in the "
        "Connection."
    ),
    401: (
        "The service refused the client credentials: check Client ID and Client secret (method jwt), LOS client ID and "
        "LOS client secret (method los), or API key and User ID (method ppe) in the Connection."
    ),
    403: (
        "The service knows the caller but does not let it in. Likely causes: the Group of the user does not allow it; "
        "Origin is not the domain in the company settings; the address of this machine is not allow-listed."
    ),
    404: "Nothing is at this address: check the Auth URL in the Connection (host and path prefix).",
    407: "A proxy on the way demands authentication: check the proxy settings of this machine's environment.",
    408: "The service gave up waiting for the request.",
    429: "The service says that it is asked too often.",
}
_INVALID_GRANT = (
    "Wrong Username or Password, or a locked user. The password is not sent again, because repeating it can lock the "
    "account: correct the Connection, or have the user unlocked, then clear the task."
)
_OTHER_REFUSAL = "The service refused the request."
_SERVER_ERROR = "The service, or a gateway before it, has a fault or is overloaded."


def raise_for_status(
    status: int,
    parsed: Any,
    *,
    location: str | None = None,
    retry_after: float | None = None,
    secrets: Sequence[str] = (),
) -> None:
    """
    Raise what a status means, and nothing for 2xx.

    :param status: HTTP status
    :param parsed: the body's JSON, or None where it is not JSON
    :param location: the ``Location`` header
    :param retry_after: seconds that the service asked to wait
    :param secrets: values that were sent; the service's words are not shown if they hold one
    :raises RejectedError: 400, 401, 403 and other 4xx
    :raises UnavailableError: 408, 429, 5xx
    :raises ResponseError: 1xx, 3xx and what is no status
    """
    if 200 <= status < 300:  # noqa: PLR2004 - RFC 9110 §15.3
        return
    error, description = words_of(parsed, secrets)
    said = f" ({': '.join(word for word in (error, description) if word)})" if error or description else ""
    answered = f"The service answered {status}{said}."
    if status in _PASSING or 500 <= status < 600:  # noqa: PLR2004 - RFC 9110 §15.6
        message = f"{answered} {_LIKELY_CAUSES.get(status, _SERVER_ERROR)}"
        raise UnavailableError(message, status=status, retry_after=retry_after)
    if 400 <= status < 500:  # noqa: PLR2004 - RFC 9110 §15.5
        invalid_grant = status == 400 and error == "invalid_grant"  # noqa: PLR2004 - RFC 6749 §5.2
        cause = _INVALID_GRANT if invalid_grant else _LIKELY_CAUSES.get(status, _OTHER_REFUSAL)
        raise RejectedError(f"{answered} {cause}", status=status)
    if 300 <= status < 400:  # noqa: PLR2004 - RFC 9110 §15.4
        target = f" to {host_of(location, secrets)}" if location else ""
        raise ResponseError(
            f"The service answered {status}, a redirect{target}. It is not followed, because that could send the "
            "credentials elsewhere: check the Auth URL in the Connection.",
            status=status,
        )
    raise ResponseError(f"The service answered with status {status}, which no answer should have.", status=status)


def words_of(parsed: Any, secrets: Sequence[str]) -> tuple[str | None, str | None]:
    """
    Return the service's own words for a refusal, where they are safe to show.

    Reads ``{"error", "error_description"}`` (RFC 6749 §5.2) and ``{"timestamp", "status", "error", "message",
    "path"}``.

    :param parsed: parsed JSON of the body, or None
    :param secrets: values that were sent
    :return: the error and its description; None for what is missing or not safe
    """
    if not isinstance(parsed, dict):
        return None, None
    description = parsed.get("error_description", parsed.get("message"))
    return _safe(parsed.get("error"), secrets), _safe(description, secrets)


def _safe(words: Any, secrets: Sequence[str]) -> str | None:
    if not isinstance(words, str) or not words.strip() or len(words) > _LONGEST_WORDS or not words.isprintable():
        return None
    if any(len(word) > _LONGEST_WORD for word in re.split(r"\s+", words)) or holds_any(words, secrets):
        return None
    return words.strip().rstrip(".")


def retry_after(value: str | None, *, now: datetime) -> float | None:
    """
    Read a ``Retry-After`` header (RFC 9110 §10.2.3).

    :param value: seconds or an HTTP date
    :param now: the time (UTC)
    :return: seconds to wait, not negative; None where the header is missing or unreadable
    """
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        # Longer than any wait that somebody means; float() of a thousand digits would be infinite.
        return float(text[:12])
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return max(0.0, (moment - now).total_seconds())


def host_of(url: str, secrets: Sequence[str] = ()) -> str:
    """
    Return the host of an address, for messages; never its path, query or user information.

    :param url: an address
    :param secrets: values that were sent; the host is not named if it holds one, in whatever case
    """
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return "an unreadable address"
    if host and any(form.lower() in host for secret in secrets if secret for form in derived_forms(secret)):
        return "an address that repeats what was sent"
    return host if host and host.isprintable() else "another path of the same host"
