"""The sandbox as a whole, inside one event loop: state, both listeners, the faults that concern a listener.

What may live here: starting, stopping, switching. What may not: threads, signals, printing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from loanauth_sandbox.accounts import default_accounts, labelled
from loanauth_sandbox.control import control_app
from loanauth_sandbox.faults import FaultError
from loanauth_sandbox.framing import ServiceApp
from loanauth_sandbox.issuer import signing_key
from loanauth_sandbox.listener import Listener
from loanauth_sandbox.state import Settings, State
from loanauth_sandbox.tls import Certificates

if TYPE_CHECKING:
    from collections.abc import Callable

    from loanauth_sandbox.accounts import Company
    from loanauth_sandbox.faults import Fault


@dataclass(frozen=True)
class Options:
    """What a sandbox is started with.

    :param host: a loopback address.
    :param port: of the service; 0 for a free one.
    :param control_port: of the control listener; 0 for a free one.
    :param tls: None for plain HTTP, or one of ``good``, ``unknown-ca``, ``wrong-name``.
    :param tls_dir: where certificates go; None for a temporary directory, removed at the end.
    :param path_prefix: empty, or a path like ``/tenant1`` before the paths of §4.
    :param clock: seconds since the epoch.
    """

    accounts: tuple[Company, ...] = field(default_factory=default_accounts)
    settings: Settings = field(default_factory=Settings)
    host: str = "127.0.0.1"
    port: int = 0
    control_port: int = 0
    tls: str | None = None
    tls_dir: Path | None = None
    path_prefix: str = ""
    faults: tuple[Fault, ...] = ()
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        if self.host != "localhost" and not ipaddress.ip_address(self.host).is_loopback:
            raise ValueError("the sandbox listens on loopback addresses only")
        if self.path_prefix and (self.path_prefix[0] != "/" or self.path_prefix[-1] == "/"):
            raise ValueError("a path prefix begins with / and does not end with it")


class Core:
    """A sandbox in the running event loop."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.state = State(
            accounts=labelled(options.accounts),
            settings=options.settings,
            prefix=options.path_prefix,
            clock=options.clock,
        )
        self._closed_by_hand = False
        self._switching = asyncio.Lock()
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self.certificates: Certificates | None = None
        self._service: Listener | None = None
        self._control: Listener | None = None

    async def start(self) -> None:
        """Listen on both ports.

        :raises OSError: when a port is taken.
        """
        signing_key()
        options, counters = self.options, self.state
        if options.tls:
            if options.tls_dir is None:
                self._directory = tempfile.TemporaryDirectory(prefix="loanauth-sandbox-")
            directory = options.tls_dir or Path(self._directory.name if self._directory else "")
            directory.mkdir(parents=True, exist_ok=True)
            self.certificates = Certificates(directory, options.tls)

        def accepted() -> None:
            counters.counters.connections_accepted += 1

        def established() -> None:
            counters.counters.connections_established += 1

        try:
            self._service = Listener(
                ServiceApp(self.state),
                options.host,
                options.port,
                context=self.certificates.context if self.certificates else None,
                accepted=accepted,
                established=established,
            )
            self._control = Listener(control_app(self), options.host, options.control_port)
            await self.set_faults(list(options.faults))
            await self._control.listen()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close both ports and all connections, answered or not."""
        for listener in (self._service, self._control):
            if listener is not None:
                await listener.close()
        if self._directory is not None:
            self._directory.cleanup()

    @property
    def service(self) -> Listener:
        """The service listener of a started sandbox."""
        if self._service is None:
            raise RuntimeError("the sandbox is not started")
        return self._service

    @property
    def url(self) -> str:
        """The authentication address, ``{auth_url}`` of §4, with the path prefix."""
        scheme = "https" if self.options.tls else "http"
        return f"{scheme}://{self._netloc(self.service)}{self.options.path_prefix}"

    @property
    def control_url(self) -> str:
        """The address of the control listener."""
        if self._control is None:
            raise RuntimeError("the sandbox is not started")
        return f"http://{self._netloc(self._control)}"

    def _netloc(self, listener: Listener) -> str:
        host = self.options.host
        return f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"

    @property
    def ca_path(self) -> Path | None:
        """The CA file that a client must trust, with TLS."""
        return self.certificates.ca_path if self.certificates else None

    async def set_faults(self, faults: list[Fault]) -> None:
        """Replace all faults by these, which are used up in this order.

        :raises FaultError: when a certificate is asked for without TLS.
        """
        if self.certificates is None and any(fault.kind == "certificate" for fault in faults):
            raise FaultError("the certificate fault needs a sandbox started with TLS")
        self.state.faults.faults = faults
        await self._switch()

    async def add_faults(self, faults: list[Fault]) -> None:
        """Add faults behind those that are on."""
        await self.set_faults([*self.state.faults.faults, *faults])

    async def stop_listening(self) -> None:
        """Close the service port until :meth:`start_listening`, whatever the faults say."""
        self._closed_by_hand = True
        await self._switch()

    async def start_listening(self) -> None:
        """Open the service port again on the same number, unless a fault keeps it closed."""
        self._closed_by_hand = False
        await self._switch()

    async def _switch(self) -> None:
        async with self._switching:
            await self._switch_alone()

    async def _switch_alone(self) -> None:
        faults = {fault.kind: fault for fault in self.state.faults.faults if fault.scope == "listener"}
        if self.certificates:
            self.certificates.present(faults["certificate"]["name"] if "certificate" in faults else None)
        if self._closed_by_hand or "refuse" in faults:
            await self.service.refuse()
        elif "stall" in faults:
            await self.service.stall()
        else:
            await self.service.listen()
