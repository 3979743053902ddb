"""Which status or error code becomes which exception, its likely cause, ``Retry-After``, and the text that is shown."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_loanauth.exceptions import RejectedError, ResponseError, UnavailableError
from airflow_provider_loanauth.metadata import LABELS
from airflow_provider_loanauth.redaction import encoded_forms

#: Characters; a longer text of the service is not shown.
MAX_TEXT_LENGTH = 200
#: Longest ``Retry-After`` that is obeyed, in seconds. A service may send any number.
MAX_RETRY_AFTER = 3600.0

#: What a status means, or else its first digit. The braces stand for labels of the fields that were sent, with
#: those of the user first, and those of the client last.
_CAUSES = {
    3: (
        "It is a redirect{target}. It was not followed, because that could send the credentials to a different server: "
        "check Auth URL in the Connection. If it leads to a login page, {user} may be wrong."
    ),
    4: "The service did not accept the request: check Auth URL in the Connection.",
    400: "The request was not accepted. Check in the Connection: {all}.",
    401: "The credentials were rejected: check {client} in the Connection.",
    403: "Access denied. Likely causes: the Group of the user forbids it; {origin}this host is not on the allow-list.",
    404: "Nothing exists at this address: check Auth URL in the Connection (host and path prefix).",
    407: "A proxy requires authentication: check Proxy in the Connection, or HTTPS_PROXY on this machine.",
    408: "The service timed out while waiting for the request.",
    423: (
        "{user} is wrong, or the user is locked: correct the Connection, or have the user unlocked, then clear the "
        "task. The same values are not sent again, because that could lock the account."
    ),
    429: "The service is rate-limiting requests.",
    5: "The service, or a gateway in front of it, is failing or overloaded.",
}
_INVALID = "It is not a valid final status: check Auth URL in the Connection."
#: Statuses that mean a rejection. Like the codes, they are assumed (``service-notes.md``).
_REJECTIONS = (400, 401, 423)
#: Error codes of RFC 6749 §5.2, each with the status that has the same cause.
CODES = {
    **dict.fromkeys(["invalid_client", "unauthorized_client"], 401),
    **dict.fromkeys(["invalid_request", "invalid_scope", "unsupported_grant_type"], 400),
    "invalid_grant": 423,
}


def is_unavailable(status: int) -> bool:
    """Return whether the same request may succeed later: 408, 429 and 5xx (RFC 9110 §15.5, §15.6)."""
    return status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS) or 500 <= status < 600  # noqa: PLR2004


def raise_for_status(
    status: int, document: Any, headers: Mapping[str, str], *, now: datetime, fields: list[str], secrets: Iterable[str]
) -> None:
    """Raise the exception for a status and the parsed body, if there is one; nothing for 2xx without an error code."""
    code = _code_of(document)
    if 200 <= status < 300 and code is None:  # noqa: PLR2004 - RFC 9110 §15.3
        return
    details = error_details(document, secrets)
    cause = _CAUSES.get(CODES[code] if code else status) or _CAUSES.get(status // 100, _INVALID)
    cause = cause.format(
        all=", ".join(fields),
        user=" or ".join(fields[:2]),
        client=" and ".join(fields[-2:]),
        origin="Origin is not the domain in the company settings; " if LABELS["origin"] in fields else "",
        target=f" to {_host_of(headers['location'], secrets)}" if headers.get("location") else "",
    )
    message = f"The service responded with {status}{details and f' ({details})'}. {cause}"
    if code is not None or status in _REJECTIONS:
        raise RejectedError(message, code=code)
    if is_unavailable(status):
        raise UnavailableError(message, retry_after=parse_retry_after(headers.get("retry-after"), now=now))
    raise ResponseError(message)


def _code_of(document: Any) -> str | None:
    """Return the code of RFC 6749 §5.2 in an error response. It means a rejection under any status."""
    # A gateway may replace the status of the service, and a rejected password must not be sent again.
    error = document.get("error") if isinstance(document, dict) else None
    return error if isinstance(error, str) and error in CODES else None


def error_details(document: Any, secrets: Iterable[str]) -> str:
    """Return the error and its description from an error response, as far as they may be shown."""
    if not isinstance(document, dict):
        return ""
    # The interface shows no error response (``service-interface.md`` §7). ``service-notes.md`` assumes two formats: RFC
    # 6749 §5.2, and the error page of a common framework. A code repeats no secret, whatever the password is.
    error = _code_of(document) or safe_text(document.get("error"), secrets)
    description = safe_text(document.get("error_description", document.get("message")), secrets)
    return ": ".join(text for text in (error, description) if text)


def safe_text(text: Any, secrets: Iterable[str]) -> str | None:
    """Return a text of the service if it is short, printable and contains no form of a secret that was sent."""
    if not isinstance(text, str) or len(text) > MAX_TEXT_LENGTH or not text.isprintable():
        return None
    # A service that writes HTML may escape what it repeats.
    texts = (text, html.unescape(text))
    if any(form in one for secret in secrets if secret for form in encoded_forms(secret) for one in texts):
        return None
    return text.strip().removesuffix(".") or None


def _host_of(location: str, secrets: Iterable[str]) -> str:
    """Return host and port of a redirect; its path and query may contain a secret."""
    try:
        host = urlsplit(location).netloc.rpartition("@")[2]
    except ValueError:
        return "an unreadable address"
    return (safe_text(host, secrets) or "an unreadable address") if host else "another path on the same host"


def parse_retry_after(value: str | None, *, now: datetime) -> float | None:
    """Return the seconds to wait (RFC 9110 §10.2.3), 0 to 3,600; None if the header is missing or invalid."""
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        # float() of hundreds of digits is infinite, which is too long as well.
        return min(float(text), MAX_RETRY_AFTER)
    moment = parse_http_date(text)
    return None if moment is None else min(max(0.0, (moment - now).total_seconds()), MAX_RETRY_AFTER)


def parse_http_date(text: str) -> datetime | None:
    """Return a date of a header (RFC 9110 §5.6.7), in UTC if it states no zone; None if it is not a date."""
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
