"""A description of the response to a login: names of the interface, JSON types and lengths, and no value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth.exceptions import ResponseError
from airflow_provider_loanauth.models import differences, from_json, interface_fields
from airflow_provider_loanauth.service.expiry import read_token
from airflow_provider_loanauth.service.protocol import parse_json

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from airflow_provider_loanauth.service.protocol import WireRequest, WireResponse

#: Header fields of the responses in the interface (§4.1, §4.3), in lower case.
_HEADERS = """
    access-control-allow-credentials access-control-allow-origin access-control-expose-headers cache-control connection
    content-encoding content-type date pragma transfer-encoding vary x-content-type-options x-frame-options
    x-xss-protection
"""
# Registered claims (RFC 7519 §4.1), and types of a token (RFC 7519 §5.1, RFC 9068 §2.1).
CLAIMS = ("iss", "sub", "aud", "exp", "nbf", "iat", "jti")
TOKEN_TYPES = ("JWT", "at+jwt")
# Seconds. A longer duration is rounded to whole days, so that no long number of the service is shown. One over 400 days
# is not shown, because it is probably a time or something else.
DAY = 86_400
MAX_DURATION = 400 * DAY
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object", list: "array"}


def describe(request: WireRequest, response: WireResponse, requested_at: datetime) -> dict[str, Any]:
    """Describe a response, successful or not, to a request that was sent at a time (UTC)."""
    from jwt.algorithms import get_default_algorithms

    document = parse_json(response.body)
    fields = document if isinstance(document, dict) else {}
    interface = interface_fields(request.response_model)
    objects = {name: value for name, value in fields.items() if name in interface and isinstance(value, dict)}
    values = fields | {f"{name}.{inner}": objects[name][inner] for name in objects for inner in objects[name]}
    known = {path: _described(value) for path, value in values.items() if path in interface}
    headers = {name: len(response.headers[name]) for name in _HEADERS.split() if name in response.headers}
    token: Any = fields.get("access_token")
    header, claims = read_token(token)
    try:
        parsed: Any = from_json(request.response_model, fields)
    except ResponseError:  # there is no credential
        parsed = None
    differing = parsed and zip(("missing", "null_or_of_another_type"), differences(parsed), strict=True)
    requested, valid = int(requested_at.timestamp()), getattr(parsed, "valid", None)
    return {
        "status": response.status,
        "headers": headers,
        "other_headers": len(response.headers) - len(headers),
        "body": "not JSON" if document is None else _described(document),
        "failure": response.failure and type(response.failure).__name__,
        "fields": known,
        "other_fields": len(values) - len(known),
        "token": {
            "alg": _registered(header.get("alg"), get_default_algorithms()),
            "typ": _registered(header.get("typ"), TOKEN_TYPES),
            "claims": {name: _described(claims[name]) for name in CLAIMS if name in claims},
            "other_claims": len(claims.keys() - CLAIMS),
        },
        "seconds": {
            "exp - iat": _duration(claims.get("iat"), claims.get("exp")),
            "expires_in": _duration(0, getattr(parsed, "expires_in", None)),
            # What the number means, if it is a time.
            "valid - request, if in seconds": _duration(requested, valid),
            "valid - request, if in milliseconds": _duration(requested, valid and valid // 1000),
        },
        "differences": differing and dict(differing),
    }


def _described(value: Any) -> str:
    """Return the type of a JSON value, with its number of characters, digits or members."""
    kind = _JSON_TYPES.get(type(value), "null")
    if kind == "integer":
        return f"integer, length {len(str(abs(value)))}"
    return f"{kind}, length {len(value)}" if isinstance(value, (str, dict, list)) else kind


def _registered(value: Any, registered: Collection[str]) -> str | None:
    return value if value is None or (isinstance(value, str) and value in registered) else "another value"


def _duration(start: Any, end: Any) -> int | None:
    """Return seconds; whole days if it is longer than one; None without two integers, or if it is too long."""
    if type(start) is not int or type(end) is not int or abs(end - start) > MAX_DURATION:
        return None
    seconds = end - start
    return seconds if abs(seconds) <= DAY else round(seconds / DAY) * DAY
