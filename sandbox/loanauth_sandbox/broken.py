"""Responses that are broken on purpose: their body, their head, or a part that never ends."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

from loanauth_sandbox.responses import phrase

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.responses import Response

    from loanauth_sandbox.connection import Connection


async def _send_cut(connection: Connection, response: Response) -> None:
    await connection.send_half(response)
    await connection.close()


async def _send_reset(connection: Connection, response: Response) -> None:
    await connection.send_half(response)
    await connection.reset()


async def _send_falsely_labelled(connection: Connection, response: Response) -> None:
    uncompress(response)
    response.headers["Content-Encoding"] = "gzip"
    await connection.send(response)


async def send_wrong_length(connection: Connection, response: Response, delta: int) -> None:
    """Send a whole response with a wrong length, then close. uvicorn would refuse to send it."""
    response.headers["Content-Length"] = str(max(0, len(response.body) + delta))
    await connection.write(_head(response) + bytes(response.body), response.status_code)
    await connection.close()


def uncompress(response: Response) -> None:
    """Remove the content coding of a response of the service."""
    if response.headers.get("Content-Encoding") == "gzip":
        response.body = gzip.decompress(response.body)
        del response.headers["Content-Encoding"]


#: Ways to send the body of a response.
BODIES: dict[str, Callable[[Connection, Response], Awaitable[None]]] = {
    "whole": lambda connection, response: connection.send(response),
    "cut": _send_cut,
    "reset": _send_reset,
    "not-gzip": _send_falsely_labelled,
}


def _status_line(response: Response) -> bytes:
    return f"HTTP/1.1 {response.status_code} {phrase(response.status_code)}\r\n".encode()


def _head(response: Response) -> bytes:
    """Return the head of a response after which the connection is closed."""
    response.headers["Connection"] = "close"
    lines = [name + b": " + value + b"\r\n" for name, value in response.raw_headers]
    return b"".join([_status_line(response), *lines, b"\r\n"])


def _bad_header(response: Response) -> bytes:
    line = _status_line(response)
    response.headers["Content-Length"] = str(len(response.body))
    return _head(response).replace(line, line + b"this is not a header\r\n", 1) + bytes(response.body)


#: What is sent of a response whose head is broken.
HEADS: dict[str, Callable[[Response], bytes]] = {
    "garbage": lambda _: b"\x00\xff this is not HTTP",
    "half-headers": lambda response: _status_line(response) + b"Content-Type: appl",
    "bad-header": _bad_header,
}


def _body(response: Response) -> bytes:
    uncompress(response)
    return _head(response) + bytes(response.body)


#: What is sent first, and what is then sent again and again, of a response one part of which never ends.
ENDLESS: dict[str, Callable[[Response], tuple[bytes, bytes]]] = {
    "header-line": lambda response: (_status_line(response) + b"X-Filler: ", b"x"),
    "body": lambda response: (_body(response), b" "),
}
