"""Applying a fault to one request. There is one function for each kind; it sends octets over a real socket."""

from __future__ import annotations

import functools
import json
import socket
import struct
import time
import zlib
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from loanauth_sandbox.responses import (
    JSON_TYPE,
    ChunkedResponse,
    ServiceResponse,
    html_response,
    oauth_error,
    spelling,
    spring_error,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.responses import Response

    from loanauth_sandbox import faults
    from loanauth_sandbox.connection import Connection
    from loanauth_sandbox.context import Target

RESET_DELAY = 0.02
"""Seconds for sent octets to arrive before a reset, which may discard them."""

SLOW_SECONDS = 3600.0
"""Seconds after which a slow body ends."""

HUGE_BODY = 10_485_760
"""Bytes of a huge body of an error response."""

CHUNK_SIZE = 65_536
"""Bytes sent at a time."""

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


async def send_cut(connection: Connection, response: Response) -> None:
    """Send half of a response, then close."""
    await connection.send_half(response)
    await connection.close()


async def send_reset(connection: Connection, response: Response) -> None:
    """Send half of a response, then a TCP RST."""
    await connection.send_half(response)
    await connection.wait(RESET_DELAY)
    # With a linger time of 0 the operating system sends RST instead of FIN.
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await connection.abort()


async def send_slow(connection: Connection, response: Response) -> None:
    """Send half of a response, then nothing."""
    await connection.send_half(response)
    await connection.wait(SLOW_SECONDS)
    await connection.abort()


async def send_wrong_length(connection: Connection, response: Response, delta: int = 100) -> None:
    """Send a whole response with a wrong length, then close. uvicorn would refuse to send it.

    :param delta: bytes to add to the length.
    """
    response.headers["Content-Length"] = str(max(0, len(response.body) + delta))
    await _send_raw(connection, response, bytes(response.body))


async def send_not_gzip(connection: Connection, response: Response) -> None:
    """Send a plain body that is labelled as gzip."""
    response.headers["Content-Encoding"] = "gzip"
    await connection.send(response)


async def send_bad_chunk(connection: Connection, response: Response) -> None:
    """Send a chunked body whose first chunk size is not a number, then close."""
    response.headers["Transfer-Encoding"] = "chunked"
    await _send_raw(connection, response, b"not a chunk size\r\n" + bytes(response.body))


async def send_huge(connection: Connection, response: Response) -> None:
    """Send a body that is far too large."""

    async def chunks() -> AsyncIterator[bytes]:
        for _start in range(0, HUGE_BODY, CHUNK_SIZE):
            yield b" " * CHUNK_SIZE

    await connection.stream(response, chunks())


async def _send_raw(connection: Connection, response: Response, body: bytes) -> None:
    response.headers["Connection"] = "close"
    lines = [spelling(name) + b": " + value for name, value in response.raw_headers]
    raw = b"\r\n".join([b"HTTP/1.1 %d OK" % response.status_code, *lines, b"", body])
    await connection.write(raw, response.status_code)
    await connection.close()


async def _send_whole(connection: Connection, response: Response) -> None:
    await connection.send(response)


BODIES: dict[str, Callable[[Connection, Response], Awaitable[None]]] = {
    "whole": _send_whole,
    "cut": send_cut,
    "reset": send_reset,
    "slow": send_slow,
    "wrong-length": send_wrong_length,
    "not-gzip": send_not_gzip,
    "bad-chunk": send_bad_chunk,
    "huge": send_huge,
}
"""Ways to send the body of an error response."""


async def invalid_json(connection: Connection, _: faults.Fault, __: Target) -> None:
    """Send half a JSON object."""
    await connection.send(ChunkedResponse(b'{"access_token": "half a', media_type=JSON_TYPE))


async def gzip_bomb(connection: Connection, fault: faults.GzipBomb, _: Target) -> None:
    """Send a body that decompresses to a thousand times its size."""
    await connection.send(
        ChunkedResponse(_compressed_zeros(fault.size), headers={"Content-Encoding": "gzip"}, media_type=JSON_TYPE)
    )


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


async def endless_headers(connection: Connection, fault: faults.EndlessHeaders, _: Target) -> None:
    """Send headers without end."""
    line = b"X-Filler: " + b"x" * 1000 + b"\r\n"
    await connection.write(b"HTTP/1.1 200 OK\r\n", 200)
    for _start in range(0, fault.size, len(line)):
        if connection.is_closed:
            break
        await connection.write(line, 200)
    await connection.abort()


INSTEAD: dict[str, Callable[[Connection, Any, Target], Awaitable[None]]] = {
    "hang": hang,
    "html-200": html_200,
    "redirect": redirect,
    "status": status,
    "invalid-json": invalid_json,
    "gzip-bomb": gzip_bomb,
    "huge-body": huge_body,
    "endless-headers": endless_headers,
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


async def wrong_content_type(connection: Connection, fault: faults.WrongContentType, response: Response) -> None:
    """Send the correct body with a different media type."""
    response.headers["Content-Type"] = fault.content_type
    await connection.send(response)


async def _send_changed(connection: Connection, response: Response, change: Callable[[Any], Any]) -> None:
    """Send the response with changed JSON, uncompressed. An error response stays unchanged."""
    if response.status_code == 200:  # noqa: PLR2004 - OK
        compressed = response.headers.get("Content-Encoding") == "gzip"
        value = json.loads(zlib.decompress(response.body, 31) if compressed else bytes(response.body))
        del response.headers["Content-Encoding"]
        response.body = response.render(change(value))
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
    "wrong-content-type": wrong_content_type,
    "wrong-shape": wrong_shape,
    "string-expires-in": string_expires_in,
    "no-expires-in": no_expires_in,
    "short-lived-token": unchanged,
    "no-exp": unchanged,
}
"""Faults that change the response of the service."""
