"""Applying a fault to one request. There is one function for each kind; it sends octets over a real socket."""

from __future__ import annotations

import functools
import gzip
import json
import time
import zlib
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from loanauth_sandbox.broken import BODIES, ENDLESS, HEADS, send_cut, send_reset, send_wrong_length, uncompress
from loanauth_sandbox.connection import CHUNK_SIZE
from loanauth_sandbox.faults import BrokenHead, Endless
from loanauth_sandbox.responses import (
    JSON_TYPE,
    ChunkedResponse,
    ServiceResponse,
    html_response,
    oauth_error,
    spring_error,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.responses import Response

    from loanauth_sandbox import faults
    from loanauth_sandbox.connection import Connection
    from loanauth_sandbox.context import Target

LOGIN_PAGE = "<!doctype html><title>Sign in</title><form method=post><input name=user></form>"

OTHER_SHAPES = {"list": [1, 2], "string": "text", "number": 7, "null": None, "empty": {}}
"""JSON values that are not the object of the interface."""


# --- Faults that respond instead of the service, which does not handle the request ---


async def hang(connection: Connection, fault: faults.Hang, _: Target) -> None:
    """Send nothing."""
    await connection.wait(fault.seconds)
    await connection.abort()


async def html_200(connection: Connection, _: faults.Fault, __: Target) -> None:
    """Send the login page of a proxy."""
    await connection.send(html_response(200, LOGIN_PAGE))


async def redirect(connection: Connection, fault: faults.Redirect, _: Target) -> None:
    """Redirect to a different host."""
    await connection.send(ChunkedResponse(status_code=fault.status, headers={"Location": fault.location}))


async def status(connection: Connection, fault: faults.Status, target: Target) -> None:
    """Send an error status."""
    code = fault.status
    if fault.shape == "oauth":
        response = oauth_error(fault.error, fault.description or "Bad credentials", code)
    elif fault.shape == "html":
        response = html_response(code, f"<!doctype html><title>{code}</title><h1>{code}</h1>")
    elif fault.shape == "empty":
        response = ChunkedResponse(status_code=code)
    else:
        response = spring_error(code, fault.description or "No message available", target.path)
    if fault.retry_after is not None:
        response.headers.append("Retry-After", str(fault.retry_after))
    if fault.retry_at is not None:
        response.headers.append("Retry-After", formatdate(time.time() + fault.retry_at, usegmt=True))
    await BODIES[fault.body](connection, response)


def error_response(fault: faults.Fault, target: Target) -> Response | None:
    """Return the error response that a fault breaks; None if it breaks the correct response."""
    if isinstance(fault, (BrokenHead, Endless)) and fault.status:
        return spring_error(fault.status, "No message available", target.path)
    return None


async def invalid_json(connection: Connection, _: faults.Fault, __: Target) -> None:
    """Send half a JSON object."""
    await connection.send(ChunkedResponse(b'{"access_token": "half a', media_type=JSON_TYPE))


async def gzip_bomb(connection: Connection, fault: faults.GzipBomb, _: Target) -> None:
    """Send a body that decompresses to a thousand times its size, or with two layers to many times more."""
    body = _compressed_zeros(fault.size)
    for _layer in range(1, fault.layers):
        body = gzip.compress(body, mtime=0)
    headers = {"Content-Encoding": ", ".join(["gzip"] * fault.layers)}
    await connection.send(ChunkedResponse(body, fault.status, headers, JSON_TYPE))


@functools.lru_cache(maxsize=4)
def _compressed_zeros(size: int) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = bytes(1_048_576)
    chunks = [compressor.compress(block) for _ in range(size // len(block))]
    return b"".join([*chunks, compressor.compress(bytes(size % len(block))), compressor.flush()])


async def huge_body(connection: Connection, fault: faults.HugeBody, _: Target) -> None:
    """Send an object with one enormous member."""

    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"padding":"'
        for start in range(0, fault.size, CHUNK_SIZE):
            yield b"x" * min(CHUNK_SIZE, fault.size - start)
        yield b'"}'

    await connection.stream(ServiceResponse({}), chunks())


INSTEAD: dict[str, Callable[[Connection, Any, Target], Awaitable[None]]] = {
    "hang": hang,
    "html-200": html_200,
    "redirect": redirect,
    "status": status,
    "invalid-json": invalid_json,
    "gzip-bomb": gzip_bomb,
    "huge-body": huge_body,
}
"""Faults that respond instead of the service."""


# --- Faults that change the response of the service, which has handled and counted the request ---


async def latency(connection: Connection, fault: faults.Latency, response: Response) -> None:
    """Send the response late."""
    await connection.wait(fault.seconds)
    if not connection.is_closed:
        await connection.send(response)


async def reset(connection: Connection, _: faults.Fault, response: Response) -> None:
    """Send half of the response, then a TCP RST."""
    await send_reset(connection, response)


async def cut_body(connection: Connection, _: faults.Fault, response: Response) -> None:
    """Send half of the response, then close."""
    await send_cut(connection, response)


async def wrong_content_length(connection: Connection, fault: faults.WrongContentLength, response: Response) -> None:
    """Send the whole response with a wrong length, then close."""
    await send_wrong_length(connection, response, fault.delta)


async def broken_body(connection: Connection, fault: faults.BrokenBody, response: Response) -> None:
    """Send the response with a broken body."""
    await BODIES[fault.body](connection, response)


async def broken_head(connection: Connection, fault: faults.BrokenHead, response: Response) -> None:
    """Send what is left of the response when its head is broken, then end the connection."""
    raw = HEADS[fault.head](response)
    await connection.write(raw, response.status_code if b"\r\n" in raw else None)
    await (connection.reset() if fault.end == "reset" else connection.close())


async def endless(connection: Connection, fault: faults.Endless, response: Response) -> None:
    """Send a response one part of which never ends."""
    start, unit = ENDLESS[fault.part](response)
    await connection.repeat(start, unit, fault.interval, response.status_code if b"\r\n" in start else None)


async def wrong_content_type(connection: Connection, fault: faults.WrongContentType, response: Response) -> None:
    """Send the correct body with a different media type."""
    response.headers["Content-Type"] = fault.content_type
    await connection.send(response)


async def _send_changed(connection: Connection, response: Response, change: Callable[[Any], Any]) -> None:
    """Send the response with changed JSON, uncompressed. An error response stays unchanged."""
    if response.status_code == 200:  # noqa: PLR2004 - OK
        uncompress(response)
        response.body = response.render(change(json.loads(bytes(response.body))))
    await connection.send(response)


async def wrong_shape(connection: Connection, fault: faults.WrongShape, response: Response) -> None:
    """Send JSON that is not the object of the interface."""

    def change(value: dict[str, Any]) -> Any:
        if fault.shape in OTHER_SHAPES:
            return OTHER_SHAPES[fault.shape]
        name = next((one for one in ("access_token", "secret", "rate") if one in value), "status")
        rest = {key: member for key, member in value.items() if key != name}
        return {**rest, name: 12345} if fault.shape == "wrong-type" else rest

    await _send_changed(connection, response, change)


async def long_credential(connection: Connection, fault: faults.LongCredential, response: Response) -> None:
    """Send a long access token or API secret."""

    def change(value: dict[str, Any]) -> dict[str, Any]:
        names = value.keys() & {"access_token", "secret"}
        return {**value, **dict.fromkeys(names, "x" * fault.length)}

    await _send_changed(connection, response, change)


async def string_expires_in(connection: Connection, _: faults.Fault, response: Response) -> None:
    """Send ``expires_in`` as a string."""
    await _send_changed(connection, response, lambda value: {**value, "expires_in": str(value.get("expires_in"))})


async def no_expires_in(connection: Connection, _: faults.Fault, response: Response) -> None:
    """Leave ``expires_in`` out."""
    await _send_changed(connection, response, lambda value: {k: v for k, v in value.items() if k != "expires_in"})


async def unchanged(connection: Connection, _: faults.Fault, response: Response) -> None:
    """Send the response unchanged, because the fault is in the credential itself."""
    await connection.send(response)


AFTERWARDS: dict[str, Callable[[Connection, Any, Response], Awaitable[None]]] = {
    "latency": latency,
    "reset": reset,
    "cut-body": cut_body,
    "wrong-content-length": wrong_content_length,
    "broken-body": broken_body,
    "broken-head": broken_head,
    "endless": endless,
    "wrong-content-type": wrong_content_type,
    "wrong-shape": wrong_shape,
    "long-credential": long_credential,
    "string-expires-in": string_expires_in,
    "no-expires-in": no_expires_in,
    "short-lived-token": unchanged,
    "no-exp": unchanged,
}
"""Faults that change the response of the service."""
