"""Which status or error code becomes which exception, its likely cause, ``Retry-After``, and the text that is shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_loanauth.exceptions import RejectedError, ResponseError, UnavailableError
from airflow_provider_loanauth.redaction import encoded_forms

#: Characters; a longer text of the service is not shown.
MAX_TEXT_LENGTH = 200
#: Plain words and numbers. Escapes, tags, and what is encoded in Base64 or as hexadecimal digits, are others.
_WORDS = r"(?:[ .,:;'@()-]*(?:[A-Za-z_]{1,20}\d{0,3}|\d{1,5})(?=[ .,:;'@()-]|$))+[ .,:;'@()-]*"
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
    401: "The credentials were not accepted: check {client} in the Connection.",
    403: (
        "Access denied. Likely causes: the Group of the user forbids it; Origin, if sent, is not the domain in the "
        "company settings; this host is not on the allow-list."
    ),
    404: "Nothing exists at this address: check Auth URL in the Connection (host and path prefix).",
    408: "The service timed out while waiting for the request.",
    423: "{user} is wrong, or the user is locked: correct the Connection, or have the user unlocked at the service.",
    429: "The service is rate-limiting requests.",
    5: "The service, or a gateway in front of it, is failing or overloaded.",
}
_INVALID = "It is not a valid final status: check Auth URL in the Connection."
#: Of a status that would otherwise be about the values that were sent; the service itself would respond with JSON.
PAGE_MESSAGE = (
    "The service responded with {} and an HTML page instead of JSON, probably a login page or the page of a proxy: "
    "check Auth URL in the Connection, and the proxies between this machine and the service."
)
#: What a person should know who tests a Connection with a password that is rejected.
SENT_BY_EACH_TEST = "Each test sends the password once, and how many wrong ones lock a user is not known."
#: The one error code of RFC 6749 §5.2 that names the user and the password.
REJECTED_CODE = "invalid_grant"
#: Statuses that are about the values that were sent. Like the codes, they are assumed (``service-notes.md``).
_ABOUT_VALUES = (400, 401, 423)
#: The known error codes, each with the status that has the same cause.
CODES = {
    **dict.fromkeys(["invalid_client", "unauthorized_client"], 401),
    **dict.fromkeys(["invalid_request", "invalid_scope", "unsupported_grant_type"], 400),
    REJECTED_CODE: 423,
    # They say that the fault is temporary (RFC 6749 §4.1.2.1, RFC 8628 §3.5).
    **dict.fromkeys(["server_error", "slow_down", "temporarily_unavailable"], 503),
}


def is_unavailable(status: int) -> bool:
    """Return whether the same request may succeed later: 408, 429 and 5xx (RFC 9110 §15.5, §15.6)."""
    return status in (408, 429) or 500 <= status < 600  # noqa: PLR2004


def raise_for_status(
    status: int,
    document: Any,
    headers: Mapping[str, str],
    *,
    now: datetime,
    fields: list[str],
    secrets: Iterable[str],
    is_page: bool,
) -> None:
    """Raise the exception for a status and the parsed body, if there is one; nothing for 2xx without an error code."""
    if not isinstance(document, dict):
        document = {}
    # It counts under any status, which a gateway may replace.
    code = _code_of(document)
    if 200 <= status < 300 and code is None:  # noqa: PLR2004 - RFC 9110 §15.3
        return
    meaning = CODES.get(code or "", status)
    cause = _cause(meaning, headers, fields, secrets)
    message = f"The service responded with {status}{error_details(document, secrets)}. {cause}"
    if code == REJECTED_CODE:
        raise RejectedError(message, code=code)
    retry_after = parse_retry_after(headers, now=now)
    is_about_values = meaning in _ABOUT_VALUES
    # A locked user may get a Retry-After too, and must not get another wrong password.
    if is_unavailable(meaning) or is_unavailable(status) or (retry_after and not is_about_values):
        raise UnavailableError(message, code=code, retry_after=retry_after and min(retry_after, MAX_RETRY_AFTER))
    if is_about_values and is_page:
        raise ResponseError(PAGE_MESSAGE.format(status))
    raise ResponseError(message, code=code, is_about_values=is_about_values)


def _code_of(document: dict[str, Any]) -> str | None:
    return next((code for code in CODES if code == document.get("error")), None)


def _cause(meaning: int, headers: Mapping[str, str], fields: list[str], secrets: Iterable[str]) -> str:
    target = ""
    if location := headers.get("location"):
        target = f" to {_host_of(location, secrets)}"
    cause = _CAUSES.get(meaning) or _CAUSES.get(meaning // 100, _INVALID)
    # In the order of ``AuthMethod.fields``.
    user, client = " or ".join(fields[:2]), " and ".join(fields[-2:])
    return cause.format(all=", ".join(fields), user=user, client=client, target=target)


def error_details(document: dict[str, Any], secrets: Iterable[str]) -> str:
    """Return the error and its description from an error response in parentheses, as far as they may be shown."""
    # The interface shows no error response (``service-interface.md`` §7). ``service-notes.md`` assumes two formats: RFC
    # 6749 §5.2, and the error page of a common framework. A code repeats no secret, whatever the password is.
    error = _code_of(document) or safe_text(document.get("error"), secrets)
    description = safe_text(document.get("error_description", document.get("message")), secrets)
    shown = ": ".join(filter(None, (error, description)))
    return shown and f" ({shown})"


def safe_text(text: Any, secrets: Iterable[str]) -> str | None:
    """Return a text of the service if it is short, of plain words, and contains no secret that was sent."""
    if not isinstance(text, str) or len(text) > MAX_TEXT_LENGTH or not re.fullmatch(_WORDS, text, re.ASCII):
        return None
    forms = {_folded(form) for secret in secrets for form in encoded_forms(secret)}
    if any(form in _folded(text) for form in forms if form):
        return None
    return text.strip().removesuffix(".") or None


def _folded(text: str) -> str:
    # Servers write the other characters of a secret in many ways, or leave them out.
    return re.sub(r"[\W_]", "", text).casefold()


def _host_of(location: str, secrets: Iterable[str]) -> str:
    """Return host and port of a redirect; its path and query may contain a secret."""
    with suppress(ValueError):
        if shown := safe_text(urlsplit(location).netloc.rpartition("@")[2], secrets):
            return shown
    return "an address that is not shown"


def parse_retry_after(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """Return the seconds to wait (RFC 9110 §10.2.3), 0 or more; None if the header is missing or invalid."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        # float() of hundreds of digits is infinite, which is too long as well.
        return float(text)
    moment = parse_http_date(text)
    if moment is None:
        return None
    # By the clock of the service, if it says what that shows: the clock of this machine may be wrong.
    now = parse_http_date(headers.get("date")) or now
    return max(0.0, (moment - now).total_seconds())


def parse_http_date(text: str | None) -> datetime | None:
    """Return a date of a header (RFC 9110 §5.6.7), in UTC if it states no zone; None if it is not a date."""
    try:
        moment = parsedate_to_datetime(text or "")
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if moment.tzinfo is None:
        return moment.replace(tzinfo=timezone.utc)
    return moment
