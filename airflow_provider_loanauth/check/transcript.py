"""
A transcript of a response of the service without secrets and personal data.

It consists of constants of this package, of lengths, and of durations in seconds. Of the texts that the service sent,
it has only those that equal a constant of ``known_names.py``, and names that consist of its words. So nothing else can
be in it, wherever the service puts it.
"""

from __future__ import annotations

import json
import math
import re
from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth import __version__
from airflow_provider_loanauth.check.known_names import (
    ALGORITHMS,
    AUTH_SCHEMES,
    CHARSETS,
    FIELD_NAMES,
    HEADER_NAMES,
    HEADER_VALUES,
    MAX_NAME_LENGTH,
    MEDIA_TYPES,
    TOKEN_TYPES,
    shown_name,
)
from airflow_provider_loanauth.connection.methods import METHODS
from airflow_provider_loanauth.models import ApiSecretResponse, TokenResponse, differences, from_json, interface_fields
from airflow_provider_loanauth.redaction import sanitize_exceptions
from airflow_provider_loanauth.service.http_date import parse_http_date
from airflow_provider_loanauth.service.protocol import ERROR_CODES, MAX_CREDENTIAL_BYTES, is_html, parse_json
from airflow_provider_loanauth.service.safe_text import repeats_any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from airflow_provider_loanauth.service.protocol import WireRequest, WireResponse

#: Version of the transcript's format.
FORMAT = 1
#: Limits of what is described: levels of objects and arrays, members of an array, and lines of one part.
MAX_DEPTH = 6
MAX_ITEMS = 3
MAX_LINES = 200
#: Seconds of a day. Longer durations are rounded to whole days, so that no long number of the service is shown.
DAY = 86_400
#: Seconds; a longer duration is not shown, because it is probably a time or something else.
MAX_SECONDS = 400 * DAY

#: Clause of the interface that shows the response of a method, its status, and the clause of its fields.
_CLAUSES = {"jwt": ("§4.1", "§2.1"), "los": ("§4.2", "§2.1"), "ppe": ("§4.3", "§2.2")}
#: Header fields of a token response (§4.1) and of an API secret response (§4.3), with their values as :func:`_value`
#: shows them. None: the interface does not state one that can be compared.
TOKEN_HEADERS: Mapping[str, str | None] = {
    "content-type": "application/json;charset=utf-8",
    "cache-control": "no-store",
    "pragma": "no-cache",
    "x-content-type-options": "nosniff",
    "x-xss-protection": "1, mode=block",
    "x-frame-options": "deny",
    "access-control-allow-credentials": "true",
    "access-control-expose-headers": "authorization, content-type",
    "access-control-allow-origin": None,
    "vary": "access-control-request-headers, access-control-request-method, origin",
    "transfer-encoding": "chunked",
    "connection": "keep-alive",
    "date": None,
}
SECRET_HEADERS: Mapping[str, str | None] = {
    "content-type": "application/json;charset=utf-8",
    "content-encoding": "gzip",
    "vary": "accept-encoding",
    "transfer-encoding": "chunked",
    "date": None,
}
#: Forms of a string, in the order in which they are tried.
_FORMS = {
    "digits": re.compile(r"[0-9]+"),
    "UUID": re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    "JSON web token": re.compile(r"eyJ[\w-]*(?:\.[\w-]*){2}", re.ASCII),
    "hexadecimal": re.compile(r"[0-9a-fA-F]{16,}"),
    "Base64": re.compile(r"(?:[A-Za-z0-9+/]{4}){4,}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"),
}
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object", list: "array"}


@sanitize_exceptions
def transcribe(request: WireRequest, response: WireResponse, *, method: str, requested_at: datetime) -> str:
    """
    Return a transcript of a response as indented JSON.

    Its keys: ``format``, ``provider`` (its version), ``method``, ``status``, ``headers``, ``body``, ``tokens``,
    ``seconds`` (durations), ``error`` (a code of RFC 6749 §5.2, or null), and ``differences`` from
    ``service-interface.md``. A name that is not shown is replaced by its length.

    :param request: the request that was sent
    :param response: its response, successful or not
    :param method: ``jwt``, ``los`` or ``ppe``
    :param requested_at: when the request was sent (UTC)
    """
    document = parse_json(response.body)
    fields = document if isinstance(document, dict) else {}
    tokens = {
        name: decoded
        for name in ("access_token", "refresh_token")
        if (decoded := _decoded(fields.get(name))) is not None
    }
    scribe = _Scribe(request.secrets)
    error = fields.get("error")
    transcript = {
        "format": FORMAT,
        "provider": __version__,
        "method": METHODS[method].name,
        "status": response.status if 100 <= response.status <= 599 else "not a status",  # noqa: PLR2004 - RFC 9110 §15
        "headers": scribe.headers(response.headers),
        "body": {
            "octets": len(response.body),
            "content": _content(response.body, document),
            "failure": response.failure and type(response.failure).__name__,
            "fields": scribe.fields(document),
        },
        "tokens": {
            name: {"header": scribe.fields(header), "claims": scribe.fields(claims)}
            for name, (header, claims) in tokens.items()
        },
        "seconds": _durations(response, fields, tokens, requested_at.timestamp(), request.secrets),
        "error": error if isinstance(error, str) and error in ERROR_CODES else None,
        "differences": list(_differences(request, response, document, _CLAUSES[method], scribe)),
    }
    return json.dumps(transcript, indent=2, ensure_ascii=False) + "\n"


class _Scribe:
    """
    Describes what the service sent.

    :param secrets: secrets that were sent
    """

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._secrets = secrets

    def field_name(self, name: str) -> str:
        """Return the name of a field or claim, or its length."""
        return shown_name(name, known=FIELD_NAMES, secrets=self._secrets)

    def headers(self, headers: Mapping[str, str]) -> list[str]:
        """Return a line for each header field: its name, and its value or its length."""
        lines = []
        for name, value in islice(headers.items(), MAX_LINES):
            shown = shown_name(name, known=HEADER_NAMES, secrets=self._secrets)
            known = _value(name, value)
            is_number = (known or "").isdigit()
            is_shown = known is not None and not (is_number and repeats_any(known, self._secrets))
            lines.append(f"{shown}: {known if is_shown else f'(length {len(value)})'}")
        return lines

    def fields(self, document: Any) -> list[str]:
        """Return a line for each field of an object, at any depth: its path, type and length."""
        lines = [*islice(self._lines(document, "", 1), MAX_LINES + 1)]
        return [*lines[:MAX_LINES], "(more fields)"] if len(lines) > MAX_LINES else lines

    def _lines(self, value: Any, path: str, depth: int) -> Iterator[str]:
        members: Iterator[tuple[str, Any]] = iter(())
        if isinstance(value, dict):
            prefix = f"{path}." if path else ""
            members = ((f"{prefix}{self.field_name(name)}", inner) for name, inner in value.items())
        elif isinstance(value, list):
            members = ((f"{path}[{index}]", inner) for index, inner in enumerate(value[:MAX_ITEMS]))
        for inner_path, inner in members:
            yield f"{inner_path}: {_described(inner_path, inner)}"
            if depth < MAX_DEPTH:
                yield from self._lines(inner, inner_path, depth + 1)


def _described(path: str, value: Any) -> str:
    """Return the type of a JSON value, with its length and form; registered values of a token's header as they are."""
    json_type = _json_type(value)
    if isinstance(value, str):
        if value in {"alg": ALGORITHMS, "typ": TOKEN_TYPES}.get(path, ()):
            return value
        form = next((name for name, pattern in _FORMS.items() if pattern.fullmatch(value)), None)
        return f"{json_type}, length {len(value)}" + (f", {form}" if form else "")
    if json_type == "integer":
        return f"{json_type}, length {len(str(abs(value)))}"
    if isinstance(value, (dict, list)):
        return f"{json_type}, length {len(value)}"
    return json_type


def _json_type(value: Any) -> str:
    return _JSON_TYPES.get(type(value), "null")


def _content(body: bytes, document: Any) -> str:
    if document is not None or body.strip() == b"null":
        return f"JSON, {_json_type(document)}"
    if not body.strip():
        return "empty"
    return "HTML" if is_html(body) else "not JSON"


# --- header fields


def _value(name: str, value: str) -> str | None:
    """Return the value of a header field with registered values, in lower case; None if it is not shown."""
    text = value.strip()
    if name == "content-type":
        return _content_type(text)
    if name in ("www-authenticate", "proxy-authenticate"):
        scheme = text.partition(" ")[0].lower()
        return scheme if scheme in AUTH_SCHEMES else None
    if name in ("content-length", "age", "retry-after"):
        return text if re.fullmatch("[0-9]{1,7}", text) else None
    members = sorted({member.strip().lower() for member in re.split("[,;]", text)})
    return ", ".join(members) if HEADER_VALUES.get(name, frozenset()).issuperset(members) else None


def _content_type(text: str) -> str | None:
    media_type, *parameters = (part.strip().lower() for part in text.split(";"))
    if media_type not in MEDIA_TYPES:
        return None
    charsets = [part[8:].strip('"') for part in parameters if part.startswith("charset=")]
    return ";charset=".join([media_type, *(charset for charset in charsets[:1] if charset in CHARSETS)])


# --- durations


def _durations(
    response: WireResponse,
    fields: Mapping[str, Any],
    tokens: Mapping[str, Any],
    requested: float,
    secrets: tuple[str, ...],
) -> dict[str, int | str]:
    """
    Return durations in seconds. None of them reveals a time, because the transcript has no time.

    :param response: the response
    :param fields: the fields of its body
    :param tokens: header and claims of its tokens
    :param requested: when the request was sent, in seconds since the epoch
    :param secrets: secrets that were sent; a number that contains a part of one is left out
    """

    def number(value: Any) -> float | None:
        found = _number(value)
        # Comparing a longer text takes long, and no time has that many digits.
        is_shown = found is not None and len(str(value)) <= MAX_NAME_LENGTH and not repeats_any(str(value), secrets)
        return found if is_shown else None

    date = parse_http_date(response.headers.get("date", ""))
    moments: dict[str, float | None] = {"date": None if date is None else date.timestamp()}
    found: dict[str, float | None] = {}
    for token, (_, claims) in tokens.items():
        exp, iat = (number(claims.get(claim)) for claim in ("exp", "iat"))
        moments |= {f"{token} {claim}": number(claims.get(claim)) for claim in ("exp", "iat", "nbf")}
        found[f"{token} exp - iat"] = None if exp is None or iat is None else exp - iat
    valid = number(fields.get("valid"))
    moments["valid, if in seconds"] = valid
    moments["valid, if in milliseconds"] = None if valid is None else valid / 1000
    found["expires_in"] = number(fields.get("expires_in"))
    found |= {f"{name} - request": None if moment is None else moment - requested for name, moment in moments.items()}
    return {
        name: _rounded(seconds)
        for name, seconds in found.items()
        if seconds is not None and not repeats_any(str(_rounded(seconds)), secrets)
    }


def _rounded(seconds: float) -> int | str:
    """Return a duration in whole seconds, or in seconds of whole days if it is longer than one."""
    if abs(seconds) > MAX_SECONDS:
        return f"more than {MAX_SECONDS // DAY} days"
    return round(seconds) if abs(seconds) <= DAY else round(seconds / DAY) * DAY


def _number(value: Any) -> float | None:
    """Return a number, also one that is written as digits; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _decoded(token: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """Return header and claims of a JSON web token without verifying them (RFC 7519); None if it is no such token."""
    import jwt

    # Parsing a longer one takes seconds.
    if not isinstance(token, str) or len(token) > MAX_CREDENTIAL_BYTES:
        return None
    try:
        decoded = jwt.decode_complete(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError):
        return None
    return decoded["header"], decoded["payload"]


# --- differences from service-interface.md


def _differences(
    request: WireRequest, response: WireResponse, document: Any, clauses: tuple[str, str], scribe: _Scribe
) -> Iterator[str]:
    """Yield in what a response differs from the interface, one line for each difference, with its clause."""
    of_response, of_fields = clauses
    if not 200 <= response.status < 300:  # noqa: PLR2004 - RFC 9110 §15.3
        yield "§7 The interface shows no error responses, so nothing is compared."
        return
    if response.status != 200:  # noqa: PLR2004 - §4.1, §4.3
        yield f"{of_response} status: 200 in the interface, {response.status} in the response"
    is_token = request.response_model is TokenResponse
    for name, expected in (TOKEN_HEADERS if is_token else SECRET_HEADERS).items():
        if name not in response.headers:
            yield f"{of_response} {name}: missing"
        elif expected is not None and _value(name, response.headers[name]) != expected:
            yield f"{of_response} {name}: {expected!r} in the interface, another value in the response"
    if not isinstance(document, dict):
        yield f"{of_fields} body: an object in the interface, {_content(response.body, document)} in the response"
        return
    yield from _field_differences(request.response_model, document, of_fields, scribe)


def _field_differences(
    model: type[TokenResponse | ApiSecretResponse], document: dict[str, Any], clause: str, scribe: _Scribe
) -> Iterator[str]:
    expected = interface_fields(model)
    required = "access_token" if model is TokenResponse else "secret"
    missing, unusable = differences(from_json(model, document | {required: "any"}))
    if required not in document:
        missing.insert(0, required)
    elif not isinstance(document[required], str):
        unusable.insert(0, required)
    yield from (f"{clause} {path}: missing" for path in missing)
    for path in unusable:
        found: Any = document
        for name in path.split("."):
            found = found[name]
        yield f"{clause} {path}: {expected[path]} in the interface, {_json_type(found)} in the response"
    token_type = document.get("token_type")
    if isinstance(token_type, str) and token_type.lower() != "bearer":
        yield f"{clause} token_type: 'bearer' in the interface, another value in the response"
    parents = {"": document} | {path: document.get(path) for path, kind in expected.items() if kind == "object"}
    for parent, fields in parents.items():
        prefix = f"{parent}." if parent else ""
        for name in islice(fields, MAX_LINES) if isinstance(fields, dict) else ():
            if prefix + name not in expected:
                yield f"{clause} {prefix}{scribe.field_name(name)}: not in the interface"
