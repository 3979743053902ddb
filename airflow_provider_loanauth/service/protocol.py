"""
The wire of the service (``service-interface.md`` §4): three requests built, answers and refusals read.

The one place with paths, headers, form fields and status codes. Knows neither Airflow nor sockets, never reads the
clock and never tries again.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from airflow_provider_loanauth import models
from airflow_provider_loanauth.exceptions import RejectedError, ResponseError, UnavailableError
from airflow_provider_loanauth.in_clear import InClear
from airflow_provider_loanauth.redaction import Secret
from airflow_provider_loanauth.service.error_responses import raise_for_status, retry_after

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

#: Path of Authen JWT and Authen LOS (§4.1, §4.2), and the first segment of PPE API secret (§4.3).
TOKEN_PATH = "/oauth/token"  # noqa: S105 - a path, not a secret
SECRET_PATH = "/encodeAES128"  # noqa: S105 - a path, not a secret

# RFC 6750 §2.1: what may follow "Bearer ". Anything else could not be sent, or would smuggle a header.
_B64TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
# RFC 9110 §5.5: what a header may carry without dispute. The secret travels in one later.
_HEADER_TEXT = re.compile(r"[\x21-\x7e]+")

M = TypeVar("M", models.TokenResponse, models.ApiSecretResponse)


@dataclass(frozen=True, kw_only=True)
class WireRequest(InClear):
    """
    A request, ready to be sent by any HTTP client. Holds secrets, so only the redacted parts are in its ``repr``.

    :param verb: HTTP method
    :param url: full address
    :param shown_url: the address as it may be shown: no API key, no query
    :param headers: header names to values, without ``Authorization``
    :param form: multipart fields in their order, or None where there is no body
    :param basic: client id and client secret for HTTP Basic (RFC 7617), or None
    :param secrets: every value in it that must not be shown
    """

    verb: str
    url: str
    shown_url: str
    headers: Mapping[str, str]
    form: tuple[tuple[str, str], ...] | None = None
    basic: tuple[str, str] | None = None
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<{self.verb} {self.shown_url}>"


@dataclass(frozen=True, kw_only=True)
class WireAnswer(InClear):
    """
    An answer as it came, its body decoded and whole.

    :param status: HTTP status
    :param headers: header names, in lower case, to values
    :param body: octets of the body, content coding removed
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"<answer {self.status}, {len(self.body)} bytes>"


def token_request(
    auth_url: str, *, username: str, password: str, origin: str, client_id: str, client_secret: str
) -> WireRequest:
    """
    Build the request of Authen JWT or Authen LOS: they differ only in whose client credentials they carry (§4.1, §4.2).

    .. code-block:: text

        POST {auth_url}/oauth/token
        Origin: {origin}
        Authorization: Basic base64({client_id}:{client_secret})
        Content-Type: multipart/form-data, the parts username, password, grant_type, client_id
    """
    url = auth_url + TOKEN_PATH
    return WireRequest(
        verb="POST",
        url=url,
        shown_url=url,
        headers={"Accept": "application/json", "Accept-Encoding": "gzip", "Origin": origin},
        form=(
            ("username", username),
            ("password", Secret(password)),
            ("grant_type", "password"),
            ("client_id", client_id),
        ),
        basic=(client_id, Secret(client_secret)),
        # The pair is what the service sees in Base64, and may repeat.
        secrets=(Secret(password), Secret(client_secret), Secret(f"{client_id}:{client_secret}")),
    )


def secret_request(auth_url: str, *, api_key: str, user_id: str, in_headers: bool = False) -> WireRequest:
    """
    Build the request of PPE API secret (§4.3): ``GET {auth_url}/encodeAES128/{apiKey}/{userId}``, no body.

    :param auth_url: address without a slash at its end
    :param api_key: one path segment, whatever characters it holds
    :param user_id: one path segment, whatever characters it holds
    :param in_headers: send both as the headers ``apiKey`` and ``userId`` too, which takes ASCII values;
        the reference lists these headers, its sample does not send them
    """
    headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
    if in_headers:
        headers |= {"apiKey": Secret(api_key), "userId": user_id}
    return WireRequest(
        verb="GET",
        url=Secret(f"{auth_url}{SECRET_PATH}/{quote(api_key, safe='')}/{quote(user_id, safe='')}"),
        shown_url=f"{auth_url}{SECRET_PATH}/***/***",
        headers=headers,
        secrets=(Secret(api_key),),
    )


def read_token(request: WireRequest, answer: WireAnswer, *, now: datetime) -> models.TokenResponse:
    """
    Read the answer of Authen JWT or Authen LOS (§2.1).

    :param request: what was asked; its secrets are kept out of messages
    :param answer: what came back
    :param now: the time (UTC), to read a ``Retry-After`` that is a date
    :raises RejectedError: the service refused the credentials
    :raises UnavailableError: the service cannot serve now
    :raises ResponseError: the answer is not what the interface says
    """
    response = _read(models.TokenResponse, request, answer, now)
    if not _B64TOKEN.fullmatch(response.access_token):
        problem = (
            "The field access_token of the answer is empty or holds characters that a bearer token cannot have "
            "(RFC 6750 §2.1)."
        )
    elif response.token_type is not None and response.token_type.lower() != "bearer":
        problem = "The field token_type of the answer is not 'bearer', the only type that the interface names."
    else:
        return response
    # As in _read: what the service repeats in a field of no secret would stand here.
    del response
    raise ResponseError(problem, status=answer.status)


def read_secret(request: WireRequest, answer: WireAnswer, *, now: datetime) -> models.ApiSecretResponse:
    """Read the answer of PPE API secret (§2.2). Parameters and errors are those of :func:`read_token`."""
    response = _read(models.ApiSecretResponse, request, answer, now)
    if not _HEADER_TEXT.fullmatch(response.secret):
        raise ResponseError(
            "The field secret of the answer is empty or holds characters that a header cannot carry.",
            status=answer.status,
        )
    return response


def _read(model: type[M], request: WireRequest, answer: WireAnswer, now: datetime) -> M:
    parsed = parse_json(answer.body)
    try:
        raise_for_status(
            answer.status,
            parsed,
            location=answer.headers.get("location"),
            retry_after=retry_after(answer.headers.get("retry-after"), now=now),
            secrets=request.secrets,
        )
        return models.read(model, _object(answer, parsed))
    except (RejectedError, UnavailableError, ResponseError) as error:
        failure = error
    # What collects the locals of a traceback, as a test runner does, finds no answer here, nor in the frames below.
    del parsed
    failure.__traceback__ = None
    failure.status = answer.status
    raise failure


def _object(answer: WireAnswer, parsed: Any) -> dict[str, Any]:
    if not isinstance(parsed, dict):
        raise ResponseError(_not_the_json(answer, parsed))
    return parsed


def _not_the_json(answer: WireAnswer, parsed: Any) -> str:
    if parsed is not None or answer.body.strip() == b"null":
        return f"The service answered {answer.status} with JSON that is not an object."
    if b"<html" in answer.body[:1024].lower() or b"<!doctype" in answer.body[:1024].lower():
        return (
            f"The service answered {answer.status} with an HTML page instead of JSON: a proxy or a login page stands "
            "between this machine and the service, or the Auth URL is not the address of its API."
        )
    return f"The service answered {answer.status} with something that is not JSON ({len(answer.body)} bytes)."


def parse_json(body: bytes) -> Any:
    """
    Parse an answer that may be anything.

    :param body: octets
    :return: the parsed value, or None where it is not JSON
    """
    try:
        return json.loads(body)
    # RecursionError: deep nesting. The service's octets are the only input, so nothing else is hidden here.
    except (ValueError, RecursionError):
        return None
