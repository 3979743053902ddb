"""Between uvicorn and the service: the protocol that gives access to its socket, and the ASGI application.

What may live here: reading a request, sending an answer whole or in parts. What may not: what to answer.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from loanauth_sandbox import sabotage
from loanauth_sandbox.answers import Answer, oauth_refusal
from loanauth_sandbox.case import Case
from loanauth_sandbox.service import decide, find_place
from loanauth_sandbox.state import Entry, State
from loanauth_sandbox.wire import WireRequest

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket
    from collections.abc import AsyncIterator

    from starlette.types import Message, Receive, Scope, Send

    from loanauth_sandbox.case import Place

log = logging.getLogger("loanauth_sandbox")

PROTOCOL = "sandbox.protocol"
"""Where a request's state holds its protocol."""

LARGEST_BODY = 1_048_576
"""Bytes of a request body that are read."""

CLOSING = 5.0
"""Seconds for a client to take what is left when a connection is closed."""


class SandboxProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 over one connection, which the application can reach."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.app_state = {**self.app_state, PROTOCOL: self}
        # Paths hold the API key: no access log, whatever the surrounding program makes of the loggers.
        self.access_log = False
        self.lost = False

    def connection_lost(self, exc: Exception | None) -> None:
        """Remember it, and close the transport: under TLS, Python 3.10 does neither after an error."""
        self.lost = True
        super().connection_lost(exc)
        self.transport.close()


class Exchange:
    """One request and what goes back over its connection."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, entry: Entry, place: Place) -> None:
        self._protocol: SandboxProtocol = scope["state"][PROTOCOL]
        self._receive, self._send, self._entry = receive, send, entry
        self._closes = (b"connection", b"close") in scope["headers"]
        self.place = place

    @property
    def gone(self) -> bool:
        """Whether the connection is closed or closing."""
        return self._protocol.lost or self._protocol.transport.is_closing()

    @property
    def socket(self) -> TransportSocket:
        """The socket under the connection, also under TLS."""
        found: TransportSocket = self._protocol.transport.get_extra_info("socket")
        return found

    async def send(self, answer: Answer) -> None:
        """Send a whole answer, chunked."""
        await self._start(answer)
        await self._send({"type": "http.response.body", "body": answer.body})

    async def send_half(self, answer: Answer) -> None:
        """Send the head of an answer and half its body."""
        await self._start(answer)
        half = answer.body[: max(1, len(answer.body) // 2)]
        await self._send({"type": "http.response.body", "body": half, "more_body": True})

    async def stream(self, answer: Answer, pieces: AsyncIterator[bytes]) -> None:
        """Send the head of an answer and another body, until the client leaves."""
        await self._start(answer)
        async for piece in pieces:
            if self.gone:
                return
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)
        await self._send({"type": "http.response.body", "body": b""})

    async def _start(self, answer: Answer) -> None:
        self._entry.status = answer.status
        headers = answer.wire_headers()
        if self._closes:
            headers = [pair for pair in headers if pair[0] != b"Connection"]
        await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})

    async def write(self, raw: bytes, status: int) -> None:
        """Write raw bytes, past uvicorn's framing."""
        self._entry.status = status
        self._protocol.transport.write(raw)
        await self._protocol.flow.drain()
        # Neither writing nor draining lets the event loop see that the client has left.
        await asyncio.sleep(0)

    async def wait(self, seconds: float) -> None:
        """Wait until the client leaves, or for this long."""
        leaving = asyncio.ensure_future(self._until_gone())
        await asyncio.wait({leaving}, timeout=seconds)
        leaving.cancel()

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def abort(self) -> None:
        """Drop the connection with all that is unsent."""
        self._protocol.transport.abort()
        # uvicorn takes an application that ends early for a mistake, unless the connection ended first.
        await self._until_gone()

    async def close(self) -> None:
        """Close the connection after what is written."""
        self._protocol.transport.close()
        await self.wait(CLOSING)
        await self.abort()


class ServiceApp:
    """The ASGI application of the service listener."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read, log, and answer one request, or play the fault that meets it."""
        body = bytearray()
        more = True
        while more:
            message: Message = await receive()
            if message["type"] == "http.disconnect":
                return
            # What is too long is still read, or the client would see a reset instead of the refusal.
            body += message["body"] if len(body) <= LARGEST_BODY else b""
            more = message["more_body"]
        request = WireRequest(
            scope["method"], scope["raw_path"], scope["query_string"], tuple(scope["headers"]), bytes(body)
        )
        place = find_place(request.raw_path, self._state.prefix)
        entry = Entry(self._state.clock(), request.method, place.shown, place.endpoint)
        self._state.log(entry)
        exchange = Exchange(scope, receive, send, entry, place)
        try:
            await self._answer(request, place, entry, exchange)
        except Exception as error:  # noqa: BLE001 - its text could quote the request, so only its type is told
            log.error("the sandbox failed: %s", type(error).__name__)  # noqa: TRY400 - see above
            await exchange.abort()
        log.log(
            logging.DEBUG if place.endpoint in {"price", "probe"} else logging.INFO,
            "%s %s -> %s%s%s",
            entry.method,
            entry.path,
            entry.status or "no answer",
            f", fault {entry.fault}" if entry.fault else "",
            f", refused: {entry.refused}" if entry.refused else "",
        )

    async def _answer(self, request: WireRequest, place: Place, entry: Entry, exchange: Exchange) -> None:
        state = self._state
        if len(request.body) > LARGEST_BODY:
            entry.refused = "the body is too long"
            await exchange.send(oauth_refusal("invalid_request", "The body is too long", 413))
            return
        fault = state.faults.take(place.endpoint)
        if fault:
            entry.fault = fault.kind
            state.counters.faults[fault.kind] = state.counters.faults.get(fault.kind, 0) + 1
            if fault.kind in sabotage.BEFORE:
                await sabotage.BEFORE[fault.kind](exchange, fault)
                return
        verdict = decide(Case(request, place, state, fault))
        entry.refused = verdict.refused
        if fault:
            await sabotage.AFTER[fault.kind](exchange, fault, verdict.answer)
        else:
            await exchange.send(verdict.answer)
