"""The shapes of answers: headers of ``service-interface.md`` §4, refusals as ``service-notes.md`` has them.

What may live here: values and their bytes. What may not: deciding which answer a request gets.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

JSON_TYPE = "application/json;charset=UTF-8"

NO_STORE = (("Cache-Control", "no-store"), ("Pragma", "no-cache"))

SECURITY_HEADERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-XSS-Protection", "1; mode=block"),
    ("X-Frame-Options", "DENY"),
)
"""Headers of §4.1 that say nothing about this answer."""


@dataclass(frozen=True)
class Answer:
    """An answer before it is framed: chunked on the wire, for it has no ``Content-Length`` (§4.1, §4.3)."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def wire_headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers as bytes, with ``Date``."""
        pairs = [*self.headers, ("Date", formatdate(usegmt=True))]
        return [(name.encode("ascii"), value.encode("latin-1")) for name, value in pairs]


def as_json(value: Any) -> bytes:
    """Return JSON as the service writes it: compact, in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def json_answer(status: int, value: Any, *headers: tuple[str, str]) -> Answer:
    """Return a JSON answer with the given headers after its content type."""
    return Answer(status, (("Content-Type", JSON_TYPE), *headers), as_json(value))


def token_answer(fields: dict[str, Any], origin: str) -> Answer:
    """Return the answer of §4.1 with all its headers."""
    return json_answer(
        200,
        fields,
        *NO_STORE,
        *SECURITY_HEADERS,
        ("Access-Control-Allow-Credentials", "true"),
        ("Access-Control-Expose-Headers", "Authorization, Content-Type"),
        ("Access-Control-Allow-Origin", origin),
        ("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),
        ("Connection", "keep-alive"),
    )


def secret_answer(fields: dict[str, Any], accept_encoding: str) -> Answer:
    """Return the answer of §4.3: gzip for a client that accepts it, which is every usual one.

    :param accept_encoding: the ``Accept-Encoding`` header of the request, empty when it had none.
    """
    plain = json_answer(200, fields, ("Vary", "accept-encoding"))
    if not _accepts_gzip(accept_encoding):
        return plain
    encoded = gzip.compress(plain.body, mtime=0)
    return Answer(200, (*plain.headers, ("Content-Encoding", "gzip")), encoded)


def _accepts_gzip(accept_encoding: str) -> bool:
    for item in accept_encoding.lower().split(","):
        coding, _, weight = item.replace(" ", "").partition(";q=")
        if coding in {"gzip", "*"}:
            return weight.rstrip("0") not in {"0.", ""} if weight else True
    return False


def oauth_refusal(error: str, description: str, status: int = 400) -> Answer:
    """Return a refusal in the shape of RFC 6749 §5.2."""
    return json_answer(status, {"error": error, "error_description": description}, *NO_STORE, *SECURITY_HEADERS)


def spring_refusal(status: int, message: str, path: str, *headers: tuple[str, str]) -> Answer:
    """Return a refusal in the other shape that ``service-notes.md`` names (inferred, as it says there).

    :param path: the path as it may be shown, without credentials.
    """
    value = {
        "timestamp": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "status": status,
        "error": HTTPStatus(status).phrase if status in {*HTTPStatus} else "Error",
        "message": message,
        "path": path,
    }
    return json_answer(status, value, *SECURITY_HEADERS, *headers)


def bearer_refusal(error: str, description: str) -> Answer:
    """Return the 401 of RFC 6750 §3: the challenge names the error unless there was no credential at all."""
    challenge = f'Bearer error="{error}", error_description="{description}"' if error else "Bearer"
    value = {"error": error or "unauthorized", "error_description": description}
    return json_answer(401, value, ("WWW-Authenticate", challenge))
