"""The protocol of the service (``service-interface.md`` §2, §4): URLs, headers, form, and parsing a response."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from airflow_provider_loanauth.connection.methods import METHODS, ApiKeyLogin
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.exceptions import LoanAuthError, ResponseError
from airflow_provider_loanauth.metadata import LABELS
from airflow_provider_loanauth.models import ApiSecretResponse, TokenResponse, from_json
from airflow_provider_loanauth.redaction import NotForXCom, SecretStr
from airflow_provider_loanauth.service.error_responses import CODES, raise_for_status

# RFC 9110 §5.5: characters that every server accepts in a header. Both credentials are later sent in one.
_HEADER_TEXT = re.compile(r"[\x21-\x7e]+")
#: Octets. Common servers accept fewer in one header, and parsing a much longer token takes seconds.
MAX_CREDENTIAL_BYTES = 16 * 1024

# An error code in a body that cannot be parsed: cut off, in Latin-1, or nested too deeply. It still means that the
# password must not be sent again.
_ERROR_CODE = re.compile(rf'"error"\s*:\s*"({"|".join(CODES)})"'.encode())

_PAGE = re.compile(rb"(?i)<html|<!doctype")
# What a server that expects TLS says to a request without.
_EXPECTS_TLS = re.compile(rb"(?i)\b(https|ssl|tls)\b")


@dataclass(frozen=True, kw_only=True)
class WireRequest(NotForXCom):
    """A request. Its secrets are of :class:`SecretStr`, so ``repr`` does not show them."""

    url: str
    #: Method and URL without API key and user id, for messages.
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Names and values of the multipart form, in order.
    form: tuple[tuple[str, str], ...] | None = None
    #: Client id and client secret for HTTP Basic (RFC 7617).
    basic: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class WireResponse(NotForXCom):
    """A response: its status, its headers by name in lower case, and its body, decoded."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    #: What arrived of the body before the failure, if there is one.
    body: bytes = field(repr=False)
    #: Why the whole body could not be read.
    failure: LoanAuthError | None = None


def build_request(settings: Settings) -> WireRequest:
    """Build the request of a login."""
    auth_url, login = settings.auth_url, settings.login
    if isinstance(login, ApiKeyLogin):
        # The interface also lists both as headers, but its sample request has none.
        headers = {"apiKey": login.api_key, "userId": login.user} if login.in_headers else {}
        path = f"{quote(login.api_key, safe='')}/{quote(login.user, safe='')}"
        return WireRequest(
            url=SecretStr(f"{auth_url}/encodeAES128/{path}"),
            target=f"GET {auth_url}/encodeAES128/***/***",
            headers=headers,
        )
    # Authen JWT and Authen LOS differ only in their client credentials.
    return WireRequest(
        url=f"{auth_url}/oauth/token",
        target=f"POST {auth_url}/oauth/token",
        headers={"Origin": login.origin},
        form=(
            ("username", login.user),
            ("password", login.password),
            ("grant_type", "password"),
            ("client_id", login.client_id),
        ),
        basic=(login.client_id, login.client_secret),
    )


def parse_response(settings: Settings, response: WireResponse, *, now: datetime) -> TokenResponse | ApiSecretResponse:
    """Parse a response (§2.1, §2.2), or raise its error with the status; ``now`` (UTC): for a ``Retry-After`` date."""
    document: Any = None
    # RecursionError: the JSON is nested too deeply.
    with suppress(ValueError, RecursionError):
        document = json.loads(response.body)
    if document is None and (match := _ERROR_CODE.search(response.body)):
        document = {"error": match[1].decode()}
    try:
        if response.status == HTTPStatus.BAD_REQUEST and document is None:
            if settings.auth_url.startswith("http:") and _EXPECTS_TLS.search(response.body):
                raise ResponseError("The port expects https (it responded with 400): begin Auth URL with https.")
            if _PAGE.search(response.body[:1024]):
                # A gateway or a login page; the service itself would respond with JSON.
                raise ResponseError(_describe_non_object(response, document))
        fields = [LABELS[name] for name in METHODS[settings.method].fields.values()]
        # A proxy may repeat its own password, which is one of these secrets.
        secrets = settings.secrets
        raise_for_status(response.status, document, response.headers, now=now, fields=fields, secrets=secrets)
        if response.failure is not None:
            raise response.failure
        if not isinstance(document, dict):
            raise ResponseError(_describe_non_object(response, document))
        model: Any = ApiSecretResponse if isinstance(settings.login, ApiKeyLogin) else TokenResponse
        parsed: TokenResponse | ApiSecretResponse = from_json(model, document)
        _check_credential(parsed)
    except LoanAuthError as error:
        error.status = response.status
        raise
    return parsed


def _check_credential(response: TokenResponse | ApiSecretResponse) -> None:
    # Also the refresh token, because masking a long value takes seconds.
    if any(len(secret) > MAX_CREDENTIAL_BYTES for secret in response.secrets):
        raise ResponseError(
            f"The credential in the response is longer than {MAX_CREDENTIAL_BYTES // 1024} KiB: check Auth URL."
        )
    if not _HEADER_TEXT.fullmatch(response.credential):
        name = "secret" if isinstance(response, ApiSecretResponse) else "access_token"
        raise ResponseError(f"The field {name} of the response is empty, or cannot be sent in a header.")
    # RFC 6749 §7.1 forbids to use a token of a type that is not understood. The model has None if it is not a string.
    token_type = getattr(response, "token_type", None)
    if token_type is not None and token_type.lower() != "bearer":
        raise ResponseError("The field token_type of the response is not bearer (RFC 6749 §7.1).")


def _describe_non_object(response: WireResponse, document: Any) -> str:
    responded = f"The service responded with {response.status} and"
    if document is not None or response.body.strip() == b"null":
        return f"{responded} JSON that is not an object."
    if _PAGE.search(response.body[:1024]):
        return (
            f"{responded} an HTML page instead of JSON, probably a login page or the page of a proxy: check Auth URL "
            "in the Connection, and the proxies between this machine and the service."
        )
    return f"{responded} a body that is not JSON ({len(response.body)} bytes)."
