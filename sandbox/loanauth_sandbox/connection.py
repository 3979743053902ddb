"""The connection to the client: uvicorn's protocol with access to its socket, and sending responses in parts."""

from __future__ import annotations

import asyncio
import socket
import struct
from asyncio.trsock import TransportSocket

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from loanauth_sandbox.log import LogEntry

PROTOCOL = "sandbox.protocol"  # key in the state of an ASGI scope
CLOSE_TIMEOUT = 5.0  # seconds for the client to read the rest of a response before a closed connection is aborted
RESET_DELAY = 0.02  # seconds for sent octets to arrive before a reset, which may discard them


class SandboxProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol for one connection, which the application can reach."""

    def __init__(self, config: Config, state: ServerState) -> None:
        super().__init__(config=config, server_state=state, app_state={PROTOCOL: self})
        # Paths contain the API key, so the access log must stay off.
        self.access_log = False
        self.lost = False

    def connection_lost(self, exc: Exception | None) -> None:
        """Record the loss and close the transport: with TLS, Python 3.10 does neither after an error."""
        self.lost = True
        super().connection_lost(exc)
        self.transport.close()


class Connection:
    """The connection of one request, for its response."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, entry: LogEntry) -> None:
        self._protocol: SandboxProtocol = scope["state"][PROTOCOL]
        self._receive, self._send, self._entry = receive, send, entry

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed or closing."""
        return self._protocol.lost or self._protocol.transport.is_closing()

    async def send(self, response: Response) -> None:
        """Send a whole response."""
        await self._start(response)
        await self._send({"type": "http.response.body", "body": response.body})

    async def send_half(self, response: Response) -> None:
        """Send the head of a response and half of its body."""
        await self._start(response)
        half = response.body[: max(1, len(response.body) // 2)]
        await self._send({"type": "http.response.body", "body": half, "more_body": True})

    async def _start(self, response: Response) -> None:
        self._entry.status = response.status_code
        start = {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
        await self._send(start)

    async def write(self, raw: bytes, status: int) -> None:
        """Write octets to the transport, bypassing uvicorn. The status is for the log."""
        self._entry.status = status
        self._protocol.transport.write(raw)
        await self._protocol.flow.drain()

    async def wait(self, seconds: float | None) -> None:
        """Wait until the client disconnects, at most this long; None: without a limit."""
        disconnected = asyncio.ensure_future(self._until_disconnected())
        await asyncio.wait({disconnected}, timeout=seconds)
        disconnected.cancel()

    async def _until_disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def abort(self) -> None:
        """Close the connection at once and drop what is not sent yet."""
        self._protocol.transport.abort()
        # uvicorn logs an error if the application returns without a response before the connection is lost.
        await self._until_disconnected()

    async def reset(self) -> None:
        """Send a TCP RST after what is written."""
        await self.wait(RESET_DELAY)
        tcp: TransportSocket = self._protocol.transport.get_extra_info("socket")
        # With a linger time of 0 the operating system sends RST instead of FIN.
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.abort()

    async def close(self) -> None:
        """Close the connection after sending what is written."""
        self._protocol.transport.close()
        await self.wait(CLOSE_TIMEOUT)
        await self.abort()
