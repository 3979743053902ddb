"""
The protocol of the service (``service-interface.md`` §2, §4): paths, headers, form fields and status codes, for
requests, responses and error responses.

The interface shows no error responses (§7). This module reads two formats, which ``service-notes.md`` assumes: RFC 6749
§5.2, and the error page of a common framework. Messages therefore name likely causes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider_loanauth.connection.methods import ApiKeyCredentials
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, ResponseError, UnavailableError
from airflow_provider_loanauth.models import ApiSecretResponse, TokenResponse, from_json
from airflow_provider_loanauth.redaction import NotForXCom, SecretStr
from airflow_provider_loanauth.service.http_date import parse_http_date
from airflow_provider_loanauth.service.safe_text import redacted_host, safe_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from airflow_provider_loanauth.connection.methods import MethodCredentials, PasswordCredentials

#: Path of Authen JWT and Authen LOS (§4.1, §4.2), and the first segment of PPE API secret (§4.3).
TOKEN_PATH = "/oauth/token"  # noqa: S105 - a path, not a secret
SECRET_PATH = "/encodeAES128"  # noqa: S105 - a path, not a secret

_COMMON_HEADERS = {"Accept": "application/json", "Accept-Encoding": "gzip"}
# RFC 6750 §2.1: the syntax of a bearer token.
_B64TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
# RFC 9110 §5.5: characters that every server accepts in a header. The API secret is later sent in one.
_HEADER_TEXT = re.compile(r"[\x21-\x7e]+")
#: Octets. Common servers accept fewer in one header, and parsing a much longer token takes seconds.
MAX_CREDENTIAL_BYTES = 16 * 1024

#: 4xx statuses that are not about the credentials.
_TRANSIENT_4XX = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})

_LIKELY_CAUSES = {
    400: (
        "The request was not accepted: check Username, Password, Origin and the client credentials of the method in "
        "the Connection."
    ),
    401: (
        "The client credentials were rejected: check Client ID and Client secret (method jwt), LOS client ID and LOS "
        "client secret (method los), or API key and User ID (method ppe) in the Connection."
    ),
    403: (
        "Access denied. Likely causes: the Group of the user does not permit it; Origin is not the domain in the "
        "company settings; the address of this machine is not on the service's allow-list."
    ),
    404: "Nothing exists at this address: check Auth URL in the Connection (host and path prefix).",
    407: "A proxy requires authentication: check Proxy in the Connection, or HTTPS_PROXY on this machine.",
    408: "The service timed out while waiting for the request.",
    429: "The service is rate-limiting requests.",
}
#: Error codes of RFC 6749 §5.2, which mean a rejection whatever the status is, and their likely causes.
_CAUSES_BY_CODE = {
    "invalid_client": _LIKELY_CAUSES[401],
    "invalid_grant": (
        "Username or Password is wrong, or the user is locked. The password is not sent again, because repeated "
        "failures can lock the account: correct the Connection, or have the user unlocked, then clear the task."
    ),
    "invalid_request": _LIKELY_CAUSES[400],
    "invalid_scope": _LIKELY_CAUSES[400],
    "unauthorized_client": _LIKELY_CAUSES[401],
    "unsupported_grant_type": _LIKELY_CAUSES[400],
}
#: Error codes of RFC 6749 §5.2.
ERROR_CODES = frozenset(_CAUSES_BY_CODE)
# An error code in a body that cannot be parsed: cut off, in Latin-1, with a number of thousands of digits, or nested
# too deeply. It still means that the password must not be sent again.
_ERROR_CODE = re.compile(rf'"error"\s*:\s*"({"|".join(_CAUSES_BY_CODE)})"'.encode())
_OTHER_4XX = "The service rejected the request: check Auth URL and the credentials of the method in the Connection."
_SERVER_ERROR = "The service, or a gateway in front of it, is failing or overloaded."


@dataclass(frozen=True, kw_only=True)
class WireRequest(NotForXCom):
    """
    A request, ready to be sent by any HTTP client. It contains secrets, so its ``repr`` shows redacted parts only.

    :param http_method: HTTP method
    :param url: full URL, which may contain the API key
    :param redacted_url: the URL without API key and user id, for messages
    :param headers: header names to values, without ``Authorization``
    :param response_model: the model of a successful response
    :param form: names and values of the multipart form, in order; None for a request without a body
    :param basic: client id and client secret for HTTP Basic (RFC 7617), or None
    :param secrets: every value of the request that must not be shown
    """

    http_method: str
    url: str
    redacted_url: str
    headers: Mapping[str, str]
    response_model: type[TokenResponse | ApiSecretResponse]
    form: tuple[tuple[str, str], ...] | None = None
    basic: tuple[str, str] | None = None
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<{self.http_method} {self.redacted_url}>"


@dataclass(frozen=True, kw_only=True)
class WireResponse(NotForXCom):
    """
    A response.

    :param status: HTTP status
    :param headers: header names, in lower case, to values
    :param body: octets of the body that arrived, after decoding its content coding; empty if it cannot be decoded
    :param failure: why the headers or the whole body could not be read; None if they were read
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    failure: LoanAuthError | None = None

    def __repr__(self) -> str:
        return f"<response {self.status}, {len(self.body)} bytes>"


def build_request(auth_url: str, credentials: MethodCredentials) -> WireRequest:
    """
    Build the request that authenticates with these credentials.

    :param auth_url: base address without a slash at its end
    :param credentials: the credentials of the Connection; their class decides the kind of request
    """
    if isinstance(credentials, ApiKeyCredentials):
        return secret_request(auth_url, credentials)
    return token_request(auth_url, credentials)


def token_request(auth_url: str, credentials: PasswordCredentials) -> WireRequest:
    """
    Build the request of Authen JWT or Authen LOS, which differ only in their client credentials (§4.1, §4.2).

    .. code-block:: text

        POST {auth_url}/oauth/token
        Origin: {origin}
        Authorization: Basic base64({client_id}:{client_secret})
        Content-Type: multipart/form-data, the parts username, password, grant_type, client_id

    Parameters are those of :func:`build_request`.
    """
    url = auth_url + TOKEN_PATH
    return WireRequest(
        http_method="POST",
        url=url,
        redacted_url=url,
        headers=_COMMON_HEADERS | {"Origin": credentials.origin},
        response_model=TokenResponse,
        form=(
            ("username", credentials.username),
            ("password", SecretStr(credentials.password)),
            ("grant_type", "password"),
            ("client_id", credentials.client_id),
        ),
        basic=(credentials.client_id, SecretStr(credentials.client_secret)),
        secrets=credentials.secrets,
    )


def secret_request(auth_url: str, credentials: ApiKeyCredentials) -> WireRequest:
    """
    Build the request of PPE API secret (§4.3): ``GET {auth_url}/encodeAES128/{apiKey}/{userId}``, without a body.

    API key and user id are one percent-encoded path segment each. The interface also lists them as headers, but its
    sample request has no such headers. They are sent only if ``credentials.in_headers`` is true.

    Parameters are those of :func:`build_request`.
    """
    api_key, user_id = credentials.api_key, credentials.user_id
    headers = dict(_COMMON_HEADERS)
    if credentials.in_headers:
        headers |= {"apiKey": SecretStr(api_key), "userId": user_id}
    return WireRequest(
        http_method="GET",
        url=SecretStr(f"{auth_url}{SECRET_PATH}/{quote(api_key, safe='')}/{quote(user_id, safe='')}"),
        redacted_url=f"{auth_url}{SECRET_PATH}/***/***",
        headers=headers,
        response_model=ApiSecretResponse,
        secrets=credentials.secrets,
    )


def parse_response(request: WireRequest, response: WireResponse, *, now: datetime) -> TokenResponse | ApiSecretResponse:
    """
    Parse a response (§2.1, §2.2).

    :param request: the request that was sent; messages never contain its secrets
    :param response: the response that was received
    :param now: the time (UTC), needed if ``Retry-After`` is a date
    :return: the model that the request expects
    :raises RejectedError: the service rejected the credentials
    :raises UnavailableError: the service is temporarily unable to respond, or the body is broken
    :raises ResponseError: the response does not follow the interface
    """
    try:
        return _parse(request, response, now)
    except (RejectedError, UnavailableError, ResponseError) as error:
        error.status = response.status
        raise


def _parse(request: WireRequest, response: WireResponse, now: datetime) -> TokenResponse | ApiSecretResponse:
    document = parse_json(response.body)
    if document is None and (match := _ERROR_CODE.search(response.body)):
        document = {"error": match[1].decode()}
    raise_for_status(
        response.status,
        document,
        location=response.headers.get("location"),
        retry_after=parse_retry_after(response.headers.get("retry-after"), now=now),
        secrets=request.secrets,
    )
    if response.failure is not None:
        raise response.failure
    if not isinstance(document, dict):
        raise ResponseError(_describe_non_object(response, document))
    parsed = from_json(request.response_model, document)
    # Also the refresh token, because masking a long value takes seconds.
    if any(len(secret) > MAX_CREDENTIAL_BYTES for secret in parsed.secrets):
        raise ResponseError(
            f"The credential in the response is longer than {MAX_CREDENTIAL_BYTES // 1024} KiB, which is more than "
            "common servers accept in a header: check Auth URL in the Connection."
        )
    if isinstance(parsed, TokenResponse) and not _B64TOKEN.fullmatch(parsed.access_token):
        raise ResponseError(
            "The field access_token of the response is empty or contains characters that a bearer token cannot have "
            "(RFC 6750 §2.1)."
        )
    if not _HEADER_TEXT.fullmatch(parsed.credential):
        raise ResponseError(
            "The field secret of the response is empty or contains characters that a header cannot carry."
        )
    return parsed


def parse_json(body: bytes) -> Any:
    """
    Parse a body that may not be JSON.

    :param body: octets
    :return: the parsed value, or None if the body is not JSON
    """
    try:
        return json.loads(body, parse_int=_parse_int)
    # RecursionError: the JSON is nested too deeply.
    except (ValueError, RecursionError):
        return None


def _parse_int(digits: str) -> int | float:
    """Return an integer; a float if it has more digits than ``int`` accepts. JSON has no limit (RFC 8259 §6)."""
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def _describe_non_object(response: WireResponse, document: Any) -> str:
    responded = f"The service responded with {response.status} and"
    if document is not None or response.body.strip() == b"null":
        return f"{responded} JSON that is not an object."
    if is_html(response.body):
        return (
            f"{responded} an HTML page instead of JSON, probably a login page or the page of a proxy: check Auth URL "
            "in the Connection, and the proxies between this machine and the service."
        )
    return f"{responded} a body that is not JSON ({len(response.body)} bytes)."


def is_html(body: bytes) -> bool:
    """
    Return whether a body is an HTML page.

    :param body: octets
    """
    start = body[:1024].lower()
    return b"<html" in start or b"<!doctype" in start


def is_unavailable(status: int) -> bool:
    """
    Return whether a status means that the same request may succeed later: 408, 429 and 5xx (RFC 9110 §15.5, §15.6).

    :param status: HTTP status
    """
    return status in _TRANSIENT_4XX or 500 <= status < 600  # noqa: PLR2004 - RFC 9110 §15.6


def raise_for_status(
    status: int,
    document: Any,
    *,
    location: str | None = None,
    retry_after: float | None = None,
    secrets: Sequence[str] = (),
) -> None:
    """
    Raise the exception for an error status or an error code; do nothing for 2xx without an error code.

    An error code of RFC 6749 §5.2 is a rejection under any status: a gateway may replace the status of the service, and
    a rejected password must not be sent again.

    :param status: HTTP status
    :param document: the parsed JSON of the body, or None if it is not JSON
    :param location: the ``Location`` header, or None
    :param retry_after: seconds of the ``Retry-After`` header, or None
    :param secrets: secrets that were sent; an error text of the service that contains one is not shown
    :raises RejectedError: 4xx other than 408 and 429; an error code of RFC 6749 §5.2
    :raises UnavailableError: 408, 429, 5xx
    :raises ResponseError: 1xx, 3xx, and numbers that are not a status
    """
    code = str(document.get("error")) if isinstance(document, dict) else ""
    has_code = code in _CAUSES_BY_CODE
    if 200 <= status < 300 and not has_code:  # noqa: PLR2004 - RFC 9110 §15.3
        return
    details = ": ".join(text for text in error_details(document, secrets) if text)
    responded = f"The service responded with {status}" + (f" ({details})." if details else ".")
    is_rejection = 400 <= status < 500 and not is_unavailable(status)  # noqa: PLR2004 - RFC 9110 §15.5
    if has_code or is_rejection:
        # A rejection other than 400 names its cause by its status.
        by_code = has_code and (status == HTTPStatus.BAD_REQUEST or not is_rejection)
        cause = _CAUSES_BY_CODE[code] if by_code else _LIKELY_CAUSES.get(status, _OTHER_4XX)
        raise RejectedError(f"{responded} {cause}", status=status)
    if is_unavailable(status):
        cause = _LIKELY_CAUSES.get(status, _SERVER_ERROR)
        raise UnavailableError(f"{responded} {cause}", status=status, retry_after=retry_after)
    if 300 <= status < 400:  # noqa: PLR2004 - RFC 9110 §15.4
        target = f" to {redacted_host(location, secrets)}" if location else ""
        raise ResponseError(
            f"The service responded with {status}, a redirect{target}. It was not followed, because that could send "
            "the credentials to a different server: check Auth URL in the Connection. If it leads to a login page, "
            "also check Username and Password.",
            status=status,
        )
    raise ResponseError(
        f"The service responded with {status}, which is not a valid final status: check Auth URL in the Connection.",
        status=status,
    )


def error_details(document: Any, secrets: Iterable[str]) -> tuple[str | None, str | None]:
    """
    Return the error and its description from an error response, if they are safe to show.

    Reads ``{"error", "error_description"}`` (RFC 6749 §5.2) and ``{"timestamp", "status", "error", "message",
    "path"}`` (``service-notes.md``).

    :param document: the parsed JSON of the body, or None
    :param secrets: secrets that were sent
    :return: error and description; each is None if it is missing, or not safe to show. An error code of RFC 6749 §5.2
        is always safe
    """
    if not isinstance(document, dict):
        return None, None
    error = document.get("error")
    description = document.get("error_description", document.get("message"))
    is_code = isinstance(error, str) and error in _CAUSES_BY_CODE
    return error if is_code else safe_text(error, secrets), safe_text(description, secrets)


def parse_retry_after(value: str | None, *, now: datetime) -> float | None:
    """
    Parse a ``Retry-After`` header (RFC 9110 §10.2.3).

    :param value: seconds or an HTTP date; None if there is no such header
    :param now: the time (UTC)
    :return: seconds to wait, not negative; None if the header is missing or invalid
    """
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        # Use 12 digits at most, because float() of hundreds of digits is infinite.
        return float(text[:12])
    moment = parse_http_date(text)
    return None if moment is None else max(0.0, (moment - now).total_seconds())
