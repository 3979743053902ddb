"""Responses that are broken on purpose: their body, their head, or a part that never ends."""

from __future__ import annotations

import functools
import gzip
import zlib
from http import HTTPStatus
from typing import TYPE_CHECKING

from loanauth_sandbox.connection import CHUNK_SIZE
from loanauth_sandbox.responses import spelling

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.responses import Response

    from loanauth_sandbox.connection import Connection

SLOW_SECONDS = 3600.0
"""Seconds after which a slow body ends."""

HUGE_BODY = 10_485_760
"""Bytes of a huge body."""

FILLER_LINE = b"X-Filler: x\r\n"
"""A header or trailer line."""

FILLER_CHUNK = b"40\r\n" + b" " * 0x40 + b"\r\n"
"""A chunk of 64 octets."""


# --- Bodies ---


async def send_cut(connection: Connection, response: Response) -> None:
    """Send half of a response, then close."""
    await connection.send_half(response)
    await connection.close()


async def send_reset(connection: Connection, response: Response) -> None:
    """Send half of a response, then a TCP RST."""
    await connection.send_half(response)
    await connection.reset()


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


async def send_two_lengths(connection: Connection, response: Response) -> None:
    """Send a whole response with its length and a different one, then close."""
    response.headers["Content-Length"] = str(len(response.body))
    response.headers.append("Content-Length", str(len(response.body) + 1))
    await _send_raw(connection, response, bytes(response.body))


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


async def send_coded(connection: Connection, response: Response, *, label: str, encode: bool) -> None:
    """Send a body with a content coding.

    :param label: the ``Content-Encoding`` header.
    :param encode: whether the body is encoded as the header says.
    """
    uncompress(response)
    if encode:
        for coding in label.split(", "):
            response.body = CODINGS[coding](bytes(response.body))
    response.headers["Content-Encoding"] = label
    await connection.send(response)


async def _send_whole(connection: Connection, response: Response) -> None:
    await connection.send(response)


async def _send_raw(connection: Connection, response: Response, body: bytes) -> None:
    await connection.write(_head(response) + body, response.status_code)
    await connection.close()


def uncompress(response: Response) -> None:
    """Remove the content coding of a response of the service."""
    if response.headers.get("Content-Encoding") == "gzip":
        response.body = gzip.decompress(response.body)
        del response.headers["Content-Encoding"]


def _brotli(data: bytes) -> bytes:
    """Return data in the Brotli format without compression (RFC 7932 §9).

    :param data: at most 64 KiB.
    """
    if not data:
        return b"\x06"
    # A window of 64 KiB, then a meta-block: not the last one, its length less one in 16 bits, and not compressed. The
    # last octet is an empty meta-block that is the last one.
    return ((len(data) - 1) << 4 | 1 << 20).to_bytes(3, "little") + data + b"\x03"


CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": functools.partial(gzip.compress, mtime=0),
    "deflate": zlib.compress,
    "br": _brotli,
}
"""The content codings of RFC 9110 §8.4.1 and RFC 7932."""

BODIES: dict[str, Callable[[Connection, Response], Awaitable[None]]] = {
    "whole": _send_whole,
    "cut": send_cut,
    "reset": send_reset,
    "slow": send_slow,
    "wrong-length": send_wrong_length,
    "two-lengths": send_two_lengths,
    "bad-chunk": send_bad_chunk,
    "huge": send_huge,
    "not-gzip": functools.partial(send_coded, label="gzip", encode=False),
    "gzip-twice": functools.partial(send_coded, label="gzip, gzip", encode=True),
    "not-gzip-twice": functools.partial(send_coded, label="gzip, gzip", encode=False),
    "deflate": functools.partial(send_coded, label="deflate", encode=True),
    "not-deflate": functools.partial(send_coded, label="deflate", encode=False),
    "br": functools.partial(send_coded, label="br", encode=True),
    "not-br": functools.partial(send_coded, label="br", encode=False),
}
"""Ways to send the body of a response."""


# --- Heads ---


def _status_line(response: Response) -> bytes:
    code = response.status_code
    phrase = HTTPStatus(code).phrase if code in {*HTTPStatus} else "Error"
    return f"HTTP/1.1 {code} {phrase}\r\n".encode()


def _head(response: Response) -> bytes:
    """Return the head of a response after which the connection is closed."""
    response.headers["Connection"] = "close"
    lines = [spelling(name) + b": " + value + b"\r\n" for name, value in response.raw_headers]
    return b"".join([_status_line(response), *lines, b"\r\n"])


def _bad_header(response: Response) -> bytes:
    response.headers["Content-Length"] = str(len(response.body))
    line = _status_line(response)
    return _head(response).replace(line, line + b"this is not a header\r\n", 1) + bytes(response.body)


HEADS: dict[str, Callable[[Response], bytes]] = {
    "garbage": lambda _: b"\x00\xff this is not HTTP",
    "half-status-line": lambda response: _status_line(response)[: len("HTTP/1.1 40")],
    "half-headers": lambda response: _status_line(response) + b"Content-Type: appl",
    "bad-header": _bad_header,
}
"""What is sent of a response whose head is broken."""


# --- Parts that never end ---


def _with_headers(response: Response, **headers: str) -> bytes:
    uncompress(response)
    for name, value in headers.items():
        response.headers[name.replace("_", "-")] = value
    return _head(response)


def _chunked(response: Response) -> bytes:
    """Return a response whose body is one chunk, up to its last chunk."""
    head = _with_headers(response, Transfer_Encoding="chunked")
    return head + b"%x\r\n%b\r\n0\r\n" % (len(response.body), bytes(response.body))


def _gzip_members(response: Response) -> tuple[bytes, bytes]:
    head = _with_headers(response, Content_Encoding="gzip")
    return head + gzip.compress(response.body, mtime=0), gzip.compress(b"", mtime=0)


def _deflate_blocks(response: Response) -> tuple[bytes, bytes]:
    head = _with_headers(response, Content_Encoding="gzip")
    compressor = zlib.compressobj(wbits=31)
    body = compressor.compress(response.body) + compressor.flush(zlib.Z_SYNC_FLUSH)
    return head + body, b"\x00\x00\x00\xff\xff"


ENDLESS: dict[str, Callable[[Response], tuple[bytes, bytes]]] = {
    "continue": lambda _: (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "status-line": lambda response: (_status_line(response).rstrip(), b"x"),
    "headers": lambda response: (_status_line(response), FILLER_LINE),
    "header-line": lambda response: (_status_line(response) + b"X-Filler: ", b"x"),
    "body": lambda response: (_with_headers(response) + bytes(response.body), b" "),
    "chunks": lambda response: (_with_headers(response, Transfer_Encoding="chunked"), FILLER_CHUNK),
    "chunk-size": lambda response: (_with_headers(response, Transfer_Encoding="chunked") + b"1;", b"x"),
    "trailers": lambda response: (_chunked(response), FILLER_LINE),
    "trailer-line": lambda response: (_chunked(response) + b"X-Filler: ", b"x"),
    "gzip-members": _gzip_members,
    "deflate-blocks": _deflate_blocks,
}
"""What is sent first, and what is then sent again and again, of a response one part of which never ends."""
