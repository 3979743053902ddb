"""A listening socket that can be closed and opened again on the same port, and its connections.

What may live here: sockets and the asyncio server on them. What may not: HTTP, which uvicorn's protocol does.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from uvicorn.config import Config
from uvicorn.server import ServerState

from loanauth_sandbox.framing import SandboxProtocol

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from starlette.types import ASGIApp

BACKLOG = 2048
"""Connections that wait to be accepted: a thousand triggers may come at once."""

KEEP_ALIVE = 75
"""Seconds that an idle connection is kept."""

PATIENCE = 0.5
"""Seconds for requests under way to notice that their connection is gone."""


TURNS = 5
"""Turns of the event loop in which connections that were just made or aborted say so."""


class Listener:
    """One port.

    :param accepted: called for each TCP connection, before its TLS handshake.
    :param established: called for each connection that is ready for a request.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        *,
        context: ssl.SSLContext | None = None,
        accepted: Callable[[], None] = lambda: None,
        established: Callable[[], None] = lambda: None,
    ) -> None:
        self._config = Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE,
        )
        self._config.load()
        self._context = context
        self._accepted, self._established = accepted, established
        self._host = host
        self._uvicorn = ServerState()
        self._server: asyncio.Server | None = None
        self._refusing = False
        self._socket = self._bind(port)
        self.port: int = self._socket.getsockname()[1]

    def _bind(self, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        # asyncio turns off the delay of small writes only where the socket says that it is TCP.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((self._host, port))
        except OSError:
            bound.close()
            raise
        bound.setblocking(False)
        return bound

    async def listen(self) -> None:
        """Accept connections, also those that came while it stalled."""
        self._refusing = False
        if self._server is None:
            self._server = await asyncio.get_running_loop().create_server(
                self._protocol, sock=self._socket.dup(), ssl=self._context, backlog=BACKLOG
            )

    def _protocol(self) -> SandboxProtocol:
        self._accepted()
        return _Greeted(self._greet, self._config, self._uvicorn)

    def _greet(self, transport: asyncio.Transport) -> None:
        self._established()
        if self._refusing:
            # It was accepted just before the port closed.
            transport.abort()

    async def stall(self) -> None:
        """Leave new connections to the system, which completes them, and read nothing from them."""
        # The socket of the server is a copy of ours, so the port goes on listening.
        await self._close_server()
        self._refusing = False
        self._socket.listen(BACKLOG)

    async def refuse(self) -> None:
        """Close the port and its connections. The port stays ours: it is bound, and refuses who connects."""
        await self._close_server()
        self._socket.close()
        self._socket = self._bind(self.port)
        self.drop()

    async def _close_server(self) -> None:
        self._refusing = True
        server, self._server = self._server, None
        if server is None:
            return
        # A connection accepted in the same turn of the event loop would be lost, open, if its server closed now.
        for listening in server.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        for _ in range(TURNS):
            await asyncio.sleep(0)
        server.close()

    def drop(self) -> None:
        """Abort all connections, also those in their TLS handshake, which uvicorn does not know yet."""
        for protocol in list(self._uvicorn.connections):
            protocol.transport.abort()
        # Before Python 3.13 only the event loop itself knows a connection in its handshake.
        for transport in list(getattr(asyncio.get_running_loop(), "_transports", {}).values()):
            if (transport.get_extra_info("sockname") or ("", 0))[1] == self.port:
                transport.abort()

    async def close(self) -> None:
        """Close the port and its connections for good, and wait until their requests have ended."""
        await self._close_server()
        self._socket.close()
        self.drop()
        tasks = set(self._uvicorn.tasks)
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=PATIENCE)
            for task in stuck:
                task.cancel()
        for _ in range(TURNS):
            await asyncio.sleep(0)


class _Greeted(SandboxProtocol):
    """A protocol that tells when its connection is ready."""

    def __init__(self, greet: Callable[[asyncio.Transport], None], config: Config, server_state: ServerState) -> None:
        super().__init__(config=config, server_state=server_state, app_state={})
        self._greet = greet

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Go on, and tell."""
        super().connection_made(transport)
        self._greet(transport)
