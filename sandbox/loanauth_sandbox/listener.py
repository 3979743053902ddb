"""A port that can be closed and opened again, and its connections."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import ServerState

from loanauth_sandbox.connection import SandboxProtocol
from loanauth_sandbox.state import State

HOST = "127.0.0.1"
BACKLOG = 2048  # connections that wait to be accepted; a thousand triggers may connect at the same time
KEEP_ALIVE_TIMEOUT = 75  # seconds that an idle connection is kept open
CLOSE_TIMEOUT = 0.5  # seconds for requests in progress to notice that their connection is closed
LOOP_ITERATIONS = 5  # of the event loop, after which a new or aborted connection has called its protocol


class Listener:
    """One port of an ASGI application."""

    def __init__(
        self, app: ASGIApp, port: int, *, context: ssl.SSLContext | None = None, state: State | None = None
    ) -> None:
        options: dict[str, Any] = {"log_config": None, "access_log": False, "lifespan": "off", "ws": "none"}
        self._config = Config(app, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_TIMEOUT, **options)
        self._config.load()
        self._context = context
        self._state = state  # that counts the connections
        self._uvicorn = ServerState()
        self._server: asyncio.Server | None = None
        self._socket = self._bind(port)
        self.port: int = self._socket.getsockname()[1]

    def _bind(self, port: int) -> socket.socket:
        # asyncio sets TCP_NODELAY only on a socket whose protocol is given as TCP.
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((HOST, port))
        except (OSError, OverflowError) as error:
            bound.close()
            advice = "Stop the program that uses it, or choose another port (--port, --control-port)."
            raise OSError(f"port {port} cannot be opened: {error.args[-1]}.\n{advice}") from error
        bound.setblocking(False)
        return bound

    async def listen(self) -> None:
        """Accept connections, including those that the operating system completed while the listener stalled."""
        if self._server is None:
            self._server = await asyncio.get_running_loop().create_server(
                self._protocol, sock=self._socket.dup(), ssl=self._context, backlog=BACKLOG
            )

    def _protocol(self) -> SandboxProtocol:
        if self._state:
            self._state.counters.connections_accepted += 1
        return SandboxProtocol(self._config, self._uvicorn)

    async def stall(self) -> None:
        """Let the operating system complete new connections, but read nothing from them."""
        # The server uses a duplicate of the socket, so the port stays open after the server is closed.
        await self._close_server()
        self._socket.listen(BACKLOG)

    async def refuse(self) -> None:
        """Close the port and its connections. The port stays bound, so that connections are refused."""
        await self._close_server()
        self._socket.close()
        self._socket = self._bind(self.port)
        self.drop()

    async def _close_server(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        # Stop accepting before the server is closed. Otherwise, a connection that was just accepted would stay open,
        # and uvicorn would not know it.
        for listening in server.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        for _ in range(LOOP_ITERATIONS):
            await asyncio.sleep(0)
        server.close()

    def drop(self) -> None:
        """Abort all connections, including those in a TLS handshake, which uvicorn does not know yet."""
        for protocol in list(self._uvicorn.connections):
            protocol.transport.abort()
        # Before Python 3.13, only the event loop has a list of connections in a TLS handshake.
        for transport in list(getattr(asyncio.get_running_loop(), "_transports", {}).values()):
            if (transport.get_extra_info("sockname") or ("", 0))[1] == self.port:
                transport.abort()

    async def close(self) -> None:
        """Close the port and its connections permanently, and wait for requests in progress."""
        await self._close_server()
        self._socket.close()
        self.drop()
        if self._uvicorn.tasks:
            await asyncio.wait(self._uvicorn.tasks, timeout=CLOSE_TIMEOUT)
