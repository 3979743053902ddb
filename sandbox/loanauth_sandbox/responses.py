"""Responses of the service with the headers of ``service-interface.md`` §4; and error responses, which are assumed."""

from __future__ import annotations

import gzip
import http.client
from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import formatdate
from typing import Any

from starlette.responses import JSONResponse, Response

JSON_TYPE = "application/json;charset=UTF-8"
NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-XSS-Protection": "1; mode=block",
    "X-Frame-Options": "DENY",
}


class HTTPError(Exception):
    """The request is rejected with an error response."""

    def __init__(self, reason: str, response: Response) -> None:
        super().__init__(reason)
        self.reason = reason
        self.response = response


class ChunkedResponse(Response):
    """A response without ``Content-Length``, which uvicorn sends chunked, as §4.1 and §4.3 show it."""

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        """Set the headers: first ``Content-Type``, last ``Date``, without the length that Starlette adds."""
        first = {"Content-Type": self.media_type} if self.media_type else {}
        super().init_headers({**first, **(headers or {})})
        del self.headers["Content-Length"]
        self.headers["Date"] = formatdate(usegmt=True)


def phrase(status: int) -> str:
    """Return the reason phrase of a status."""
    return http.client.responses.get(status, "Error")


class ServiceResponse(ChunkedResponse, JSONResponse):
    """A JSON response of the service, compact and in UTF-8."""

    media_type = JSON_TYPE


def token_response(fields: dict[str, Any], origin: str) -> Response:
    """Return the response of §4.1 with all its headers."""
    return ServiceResponse(
        fields,
        headers={
            **NO_STORE,
            **SECURITY_HEADERS,
            "Access-Control-Allow-Credentials": "true",
            "Access-Control-Expose-Headers": "Authorization, Content-Type",
            "Access-Control-Allow-Origin": origin,
            "Vary": "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
            "Connection": "keep-alive",
        },
    )


def secret_response(fields: dict[str, Any], accept_encoding: str) -> Response:
    """Return the response of §4.3, compressed with gzip if the client accepts that."""
    if "gzip" not in accept_encoding.lower():
        return ServiceResponse(fields, headers={"Vary": "accept-encoding"})
    response = ServiceResponse(fields, headers={"Vary": "accept-encoding", "Content-Encoding": "gzip"})
    response.body = gzip.compress(response.body, mtime=0)
    return response


def oauth_error(error: str, description: str, status: int = 400) -> Response:
    """Return an error response in the format of RFC 6749 §5.2."""
    value = {"error": error, "error_description": description}
    return ServiceResponse(value, status, {**NO_STORE, **SECURITY_HEADERS})


def spring_error(status: int, message: str, path: str) -> Response:
    """Return an error response in the format of Spring, which is assumed: the interface shows no error responses."""
    value = {
        "timestamp": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "status": status,
        "error": phrase(status),
        "message": message,
        "path": path,
    }
    return ServiceResponse(value, status, SECURITY_HEADERS)


def bearer_error(error: str, description: str) -> Response:
    """Return the 401 of RFC 6750 §3."""
    challenge = f'Bearer error="{error}", error_description="{description}"' if error else "Bearer"
    value = {"error": error or "unauthorized", "error_description": description}
    return ServiceResponse(value, 401, {"WWW-Authenticate": challenge})


def html_response(status: int, page: str) -> Response:
    """Return an HTML page, like the response of a proxy."""
    return ChunkedResponse(page, status, media_type="text/html;charset=UTF-8")
