"""The protocol of the service (``service-interface.md`` §2, §4): URLs, headers, form, and parsing a response."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import quote

from airflow_provider_loanauth.connection.methods import METHODS, ApiKeyGrant
from airflow_provider_loanauth.connection.settings import Settings
from airflow_provider_loanauth.credentials import HEADER_TEXT
from airflow_provider_loanauth.exceptions import LoanAuthError, ResponseError, changed
from airflow_provider_loanauth.metadata import LABELS
from airflow_provider_loanauth.models import ApiSecretResponse, TokenResponse, from_json
from airflow_provider_loanauth.redaction import NotForXCom, SecretStr
from airflow_provider_loanauth.service.error_responses import PAGE_MESSAGE, raise_for_status

#: Octets. Common servers accept fewer in one header, and parsing a much longer token takes seconds.
MAX_CREDENTIAL_BYTES = 16 * 1024

# Not compiled here: a login without a fault does not need it.
_PAGE = rb"(?i)<html|<!doctype"


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
    auth_url, grant = settings.auth_url, settings.grant
    if isinstance(grant, ApiKeyGrant):
        # The interface also lists both as headers, but its sample request has none.
        headers = {}
        if grant.in_headers:
            headers = {"apiKey": grant.api_key, "userId": grant.user}
        path = f"{quote(grant.api_key, safe='')}/{quote(grant.user, safe='')}"
        return WireRequest(
            url=SecretStr(f"{auth_url}/encodeAES128/{path}"),
            target=f"GET {auth_url}/encodeAES128/***/***",
            headers=headers,
        )
    # Authen JWT and Authen LOS differ only in their client credentials.
    return WireRequest(
        url=f"{auth_url}/oauth/token",
        target=f"POST {auth_url}/oauth/token",
        headers={"Origin": grant.origin},
        form=(
            ("username", grant.user),
            ("password", grant.password),
            ("grant_type", "password"),
            ("client_id", grant.client_id),
        ),
        basic=(grant.client_id, grant.client_secret),
    )


def parse_response(settings: Settings, response: WireResponse, *, now: datetime) -> TokenResponse | ApiSecretResponse:
    """Parse a response (§2.1, §2.2), or raise its error with the status; ``now`` (UTC): for a ``Retry-After`` date."""
    try:
        return _parse(settings, response, now)
    except LoanAuthError as error:
        raise changed(error, status=response.status) from error


def _parse(settings: Settings, response: WireResponse, now: datetime) -> TokenResponse | ApiSecretResponse:
    document, is_page = _parse_body(response), False
    if document is None:
        is_page = re.search(_PAGE, response.body[:1024]) is not None
    raise_for_status(
        response.status,
        document,
        response.headers,
        now=now,
        fields=[LABELS[name] for name in METHODS[settings.method].fields.values()],
        # A proxy may repeat its own password, which is one of these secrets.
        secrets=settings.secrets,
        is_page=is_page,
    )
    if response.failure is not None:
        raise response.failure
    if is_page:
        raise ResponseError(PAGE_MESSAGE.format(response.status))
    if not isinstance(document, dict):
        size = len(response.body)
        raise ResponseError(f"The service responded with {response.status} and no JSON object ({size} bytes).")
    model: Any = ApiSecretResponse if isinstance(settings.grant, ApiKeyGrant) else TokenResponse
    parsed: TokenResponse | ApiSecretResponse = from_json(model, document)
    _check_credential(parsed)
    return parsed


def _parse_body(response: WireResponse) -> Any:
    """Return the JSON of a body, or None."""
    # JSON is UTF-8 (RFC 8259 §8.1). A token is ASCII, so it is usable also if a name has another charset.
    for body in (response.body, response.body.decode("latin-1")):
        # RecursionError: the JSON is nested too deeply.
        with suppress(ValueError, RecursionError):
            return json.loads(body)
    return None


def _check_credential(response: TokenResponse | ApiSecretResponse) -> None:
    # Also the refresh token, because masking a long value takes seconds.
    if any(len(secret) > MAX_CREDENTIAL_BYTES for secret in response.secrets):
        raise ResponseError(
            f"The credential in the response is longer than {MAX_CREDENTIAL_BYTES // 1024} KiB: check Auth URL."
        )
    if not HEADER_TEXT.fullmatch(response.credential):
        name = "secret" if isinstance(response, ApiSecretResponse) else "access_token"
        raise ResponseError(f"The field {name} of the response is empty, or cannot be sent in a header.")
    # The model has None if it is not a string.
    token_type = getattr(response, "token_type", None)
    if token_type is not None and token_type.lower() != "bearer":
        raise ResponseError("The field token_type of the response is not bearer (RFC 6749 §7.1).")
