"""Playing a fault on one request: real bytes on a real socket.

What may live here: one function a fault. What may not: which fault is on, nor anything of the accounts.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import socket
import struct
import time
import zlib
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from loanauth_sandbox import answers
from loanauth_sandbox.answers import Answer, as_json, json_answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from loanauth_sandbox.faults import Fault
    from loanauth_sandbox.framing import Exchange

PAUSE = 0.02
"""Seconds for bytes to arrive before the connection is reset: a reset may discard what is under way."""

CHUNK = 65_536
"""Bytes written at a time."""

LOGIN_PAGE = "<!doctype html><title>Sign in</title><form method=post><input name=user></form>"


# --- before the answer: the request is not decided ---


async def hang(exchange: Exchange, fault: Fault) -> None:
    """Never answer."""
    await exchange.wait(fault["seconds"])
    await exchange.abort()


async def html_200(exchange: Exchange, fault: Fault) -> None:
    """Answer as a proxy with a login form does."""
    del fault
    await exchange.send(_html(200, LOGIN_PAGE))


def _html(status: int, page: str, *headers: tuple[str, str]) -> Answer:
    return Answer(status, (("Content-Type", "text/html;charset=UTF-8"), *headers), page.encode())


async def redirect(exchange: Exchange, fault: Fault) -> None:
    """Point elsewhere."""
    await exchange.send(Answer(fault["status"], (("Location", fault["location"]),), b""))


async def status(exchange: Exchange, fault: Fault) -> None:
    """Answer with an error status."""
    code, words = fault["status"], fault["description"]
    headers: list[tuple[str, str]] = []
    if fault["retry_after"] is not None:
        headers.append(("Retry-After", str(fault["retry_after"])))
    if fault["retry_at"] is not None:
        headers.append(("Retry-After", formatdate(time.time() + float(fault["retry_at"]), usegmt=True)))
    if fault["shape"] == "oauth":
        answer = answers.oauth_refusal(fault["error"], words or "Bad credentials", code)
    elif fault["shape"] == "html":
        answer = _html(code, f"<!doctype html><title>{code}</title><h1>{code}</h1>")
    elif fault["shape"] == "empty":
        answer = Answer(code, (), b"")
    else:
        answer = answers.spring_refusal(code, words or "No message available", exchange.place.shown)
    await exchange.send(dataclasses.replace(answer, headers=(*answer.headers, *headers)))


async def invalid_json(exchange: Exchange, fault: Fault) -> None:
    """Answer something that looks like JSON for half a line."""
    del fault
    await exchange.send(dataclasses.replace(json_answer(200, {}), body=b'{"access_token": "half a'))


async def gzip_bomb(exchange: Exchange, fault: Fault) -> None:
    """Answer a body that grows a thousandfold."""
    bomb = _bomb(fault["size"])
    await exchange.send(Answer(200, (("Content-Type", answers.JSON_TYPE), ("Content-Encoding", "gzip")), bomb))


@functools.lru_cache(maxsize=4)
def _bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = bytes(1_048_576)
    pieces = [packer.compress(block) for _ in range(size // len(block))]
    return b"".join([*pieces, packer.compress(bytes(size % len(block))), packer.flush()])


async def huge_body(exchange: Exchange, fault: Fault) -> None:
    """Answer an object with one enormous member."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"padding":"'
        for start in range(0, fault["size"], CHUNK):
            yield b"x" * min(CHUNK, fault["size"] - start)
        yield b'"}'

    await exchange.stream(json_answer(200, {}), pieces())


async def endless_headers(exchange: Exchange, fault: Fault) -> None:
    """Send header after header."""
    line = b"X-Filler: " + b"x" * 1000 + b"\r\n"
    await exchange.write(b"HTTP/1.1 200 OK\r\n", 200)
    for _ in range(0, fault["size"], len(line)):
        if exchange.gone:
            break
        await exchange.write(line, 200)
    await exchange.abort()


BEFORE: dict[str, Callable[[Exchange, Fault], Awaitable[None]]] = {
    "hang": hang,
    "html-200": html_200,
    "redirect": redirect,
    "status": status,
    "invalid-json": invalid_json,
    "gzip-bomb": gzip_bomb,
    "huge-body": huge_body,
    "endless-headers": endless_headers,
}
"""Faults that take the place of deciding the request."""


# --- on the answer: the request was decided, and counted ---


async def reset(exchange: Exchange, fault: Fault, answer: Answer) -> None:
    """Send half the answer, then a TCP RST."""
    del fault
    await exchange.send_half(answer)
    await exchange.wait(PAUSE)
    # Lingering for no time makes the system send RST instead of FIN.
    exchange.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await exchange.abort()


async def cut_body(exchange: Exchange, fault: Fault, answer: Answer) -> None:
    """Send half the answer, then close."""
    del fault
    await exchange.send_half(answer)
    await exchange.close()


async def wrong_content_length(exchange: Exchange, fault: Fault, answer: Answer) -> None:
    """Send the whole answer under a wrong length, then close."""
    length = max(0, len(answer.body) + fault["delta"])
    headers = [*answer.wire_headers(), (b"Content-Length", b"%d" % length), (b"Connection", b"close")]
    lines = [name + b": " + value for name, value in headers if (name, value) != (b"Connection", b"keep-alive")]
    raw = b"\r\n".join([b"HTTP/1.1 %d OK" % answer.status, *lines, b"", answer.body])
    await exchange.write(raw, answer.status)
    await exchange.close()


async def wrong_content_type(exchange: Exchange, fault: Fault, answer: Answer) -> None:
    """Send the right body under another media type."""
    others = tuple(pair for pair in answer.headers if pair[0] != "Content-Type")
    await exchange.send(
        dataclasses.replace(answer, headers=(("Content-Type", fault["content_type"]), *others)),
    )


async def _changed(exchange: Exchange, answer: Answer, change: Callable[[Any], Any]) -> None:
    """Send the answer with other JSON, without compression: a client must read both."""
    if answer.status == 200:  # noqa: PLR2004 - a refusal stays as it is
        encoded = ("Content-Encoding", "gzip")
        body = zlib.decompress(answer.body, 31) if encoded in answer.headers else answer.body
        headers = tuple(pair for pair in answer.headers if pair != encoded)
        answer = Answer(answer.status, headers, as_json(change(json.loads(body))))
    await exchange.send(answer)


async def wrong_shape(exchange: Exchange, fault: Fault, answer: Answer) -> None:
    """Send other JSON."""
    others = {"list": [1, 2], "string": "text", "number": 7, "null": None, "empty": {}}
    shape = fault["shape"]

    def change(value: dict[str, Any]) -> Any:
        if shape in others:
            return others[shape]
        name = next((one for one in ("access_token", "secret", "rate") if one in value), "status")
        rest = {key: member for key, member in value.items() if key != name}
        return {**rest, name: 12345} if shape == "wrong-type" else rest

    await _changed(exchange, answer, change)


async def string_expires_in(exchange: Exchange, fault: Fault, answer: Answer) -> None:
    """Send ``expires_in`` as a string."""
    del fault
    await _changed(exchange, answer, lambda value: {**value, "expires_in": str(value.get("expires_in"))})


async def no_expires_in(exchange: Exchange, fault: Fault, answer: Answer) -> None:
    """Leave ``expires_in`` out."""
    del fault
    await _changed(exchange, answer, lambda value: {k: v for k, v in value.items() if k != "expires_in"})


async def latency(exchange: Exchange, fault: Fault, answer: Answer) -> None:
    """Send the right answer late."""
    await exchange.wait(fault["seconds"])
    if not exchange.gone:
        await exchange.send(answer)


async def plain(exchange: Exchange, fault: Fault, answer: Answer) -> None:
    """Send the answer: the fault is in the credential itself."""
    del fault
    await exchange.send(answer)


AFTER: dict[str, Callable[[Exchange, Fault, Answer], Awaitable[None]]] = {
    "latency": latency,
    "reset": reset,
    "cut-body": cut_body,
    "wrong-content-length": wrong_content_length,
    "wrong-content-type": wrong_content_type,
    "wrong-shape": wrong_shape,
    "string-expires-in": string_expires_in,
    "no-expires-in": no_expires_in,
    "short-lived-token": plain,
    "no-exp": plain,
}
"""Faults that spoil how the decided answer is sent."""
