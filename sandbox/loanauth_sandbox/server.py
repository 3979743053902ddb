"""The whole sandbox: both listeners in one event loop, which may run in a thread of another program."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import re
import tempfile
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from loanauth_sandbox.accounts import Company, connections, default_accounts, with_labels
from loanauth_sandbox.app import ServiceApp
from loanauth_sandbox.control import Commands, control_app
from loanauth_sandbox.listener import Listener
from loanauth_sandbox.state import Settings, State
from loanauth_sandbox.tls import Certificates
from loanauth_sandbox.tokens import signing_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence

    from loanauth_sandbox.faults import Fault

TIMEOUT = 10.0
"""Seconds for a command to finish in the thread of the sandbox. A command normally takes milliseconds."""

_PATH_PREFIX = re.compile(r"(?:/[A-Za-z0-9\-._~!$&'()*+,;=:@%]+)*")


@dataclass(frozen=True)
class Options:
    """The options of a sandbox.

    :param accounts: companies with their users.
    :param settings: lifetimes and lockout at the start.
    :param host: a loopback address.
    :param port: port of the service; 0 for a free one.
    :param control_port: port of the control listener; 0 for a free one.
    :param tls: None for plain HTTP, or the name of a certificate: ``good``, ``unknown-ca``, ``wrong-name``.
    :param tls_dir: directory for the certificates; None for a temporary one, which is removed at the end.
    :param path_prefix: empty, or a path like ``/tenant1`` before the paths of §4, percent-encoded.
    :param faults: faults that are on from the start.
    :param clock: function that returns the time in seconds since the epoch.
    :raises ValueError: when the address is not loopback, or the prefix is not such a path.
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
        if not _PATH_PREFIX.fullmatch(self.path_prefix):
            raise ValueError("a path prefix begins with /, does not end with it, and is percent-encoded")


@dataclass(frozen=True)
class Server:
    """A sandbox that listens in the running event loop.

    :param url: the authentication address, ``{auth_url}`` of §4, with the path prefix.
    :param control_url: the address of the control listener.
    :param state: the state; only the event loop of the sandbox may change it.
    :param commands: the commands for this sandbox.
    :param port: port of the service.
    :param ca_path: the CA file that a client must trust; None for plain HTTP.
    """

    state: State
    commands: Commands
    url: str
    control_url: str
    port: int
    ca_path: str | None

    def connections(self, company: int = 0) -> dict[str, dict[str, Any]]:
        """Return the three Airflow Connections of a company, by environment variable.

        :param company: its position among the accounts.
        """
        return connections(self.state.accounts[company], self.url, self.ca_path)


@contextlib.asynccontextmanager
async def serve(options: Options) -> AsyncIterator[Server]:
    """Run a sandbox in the running event loop until the context is left.

    :raises OSError: when a port is taken, or the certificates cannot be written.
    """
    signing_key()
    state = State(
        accounts=with_labels(options.accounts),
        settings=options.settings,
        prefix=options.path_prefix,
        clock=options.clock,
    )

    def count_accepted() -> None:
        state.counters.connections_accepted += 1

    def count_established() -> None:
        state.counters.connections_established += 1

    async with contextlib.AsyncExitStack() as stack:
        certificates = None
        if options.tls:
            directory = options.tls_dir or Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="loanauth-sandbox-"))
            )
            directory.mkdir(parents=True, exist_ok=True)
            certificates = Certificates(directory, options.tls)
        service = Listener(
            ServiceApp(state),
            options.host,
            options.port,
            context=certificates.context if certificates else None,
            accepted=count_accepted,
            established=count_established,
        )
        stack.push_async_callback(service.close)
        commands = Commands(state, service, certificates)
        control = Listener(control_app(commands), options.host, options.control_port)
        stack.push_async_callback(control.close)
        await commands.set_faults(options.faults)
        await control.listen()
        scheme = "https" if certificates else "http"
        yield Server(
            state=state,
            commands=commands,
            url=f"{scheme}://{_authority(options.host, service.port)}{options.path_prefix}",
            control_url=f"http://{_authority(options.host, control.port)}",
            port=service.port,
            ca_path=str(certificates.ca_path) if certificates else None,
        )


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _in_thread(
    command: Callable[Concatenate[Commands, Parameters], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Sandbox, Parameters], Result]:
    """Return a method that runs a command in the thread of the sandbox and waits for it."""

    def method(sandbox: Sandbox, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return sandbox.run(command(sandbox.commands, *args, **kwargs))

    functools.update_wrapper(method, command)
    return method


class Sandbox:
    """A sandbox that runs in another thread. Its methods are those of :class:`..control.Commands`.

    :param server: the sandbox, with ``url``, ``control_url``, ``port`` and ``ca_path``.
    :param loop: the event loop of its thread.
    """

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.commands = server.commands
        self.url = server.url
        self.control_url = server.control_url
        self.port = server.port
        self.ca_path = server.ca_path
        self.connections = server.connections
        self.state = server.state
        """The state. It belongs to the other thread, so read only values that do not change at the same time."""

    def run(self, command: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the thread of the sandbox and return its result.

        :raises concurrent.futures.TimeoutError: when it takes longer than :data:`TIMEOUT` seconds.
        """
        return asyncio.run_coroutine_threadsafe(command, self.loop).result(TIMEOUT)

    counters = _in_thread(Commands.counters)
    requests = _in_thread(Commands.requests)
    reset = _in_thread(Commands.reset)
    revoke = _in_thread(Commands.revoke)
    set_accounts = _in_thread(Commands.set_accounts)
    settings = _in_thread(Commands.settings)
    set_settings = _in_thread(Commands.set_settings)
    faults = _in_thread(Commands.faults)
    set_faults = _in_thread(Commands.set_faults)
    add_faults = _in_thread(Commands.add_faults)
    set_fault = _in_thread(Commands.set_fault)
    add_fault = _in_thread(Commands.add_fault)
    clear_faults = _in_thread(Commands.clear_faults)
    stop_listening = _in_thread(Commands.stop_listening)
    start_listening = _in_thread(Commands.start_listening)


@contextlib.contextmanager
def running_sandbox(
    *,
    accounts: Sequence[Company] | None = None,
    token_lifetime: int = 3600,
    secret_lifetime: int = 86_400,
    lockout_after: int = 0,
    tls: str | None = None,
    tls_dir: Path | None = None,
    path_prefix: str = "",
    host: str = "127.0.0.1",
    port: int = 0,
    control_port: int = 0,
    faults: Sequence[Fault] = (),
    clock: Callable[[], float] = time.time,
) -> Iterator[Sandbox]:
    """Run a sandbox in a background thread. It listens when the context is entered and is gone when it is left.

    The parameters are those of :class:`Options` and :class:`..state.Settings`.

    :param accounts: None for two made-up companies.
    :raises OSError: when a port is taken.
    :raises ValueError: when a parameter has a wrong value.
    """
    options = Options(
        accounts=default_accounts() if accounts is None else tuple(accounts),
        settings=Settings().changed(
            token_lifetime=token_lifetime, secret_lifetime=secret_lifetime, lockout_after=lockout_after
        ),
        host=host,
        port=port,
        control_port=control_port,
        tls=tls,
        tls_dir=tls_dir,
        path_prefix=path_prefix,
        faults=tuple(faults),
        clock=clock,
    )
    started: Future[Sandbox] = Future()
    stop = asyncio.Event()
    thread = threading.Thread(target=_run, args=(options, started, stop), name="loanauth-sandbox", daemon=True)
    thread.start()
    try:
        sandbox = started.result()
    except Exception:
        thread.join()
        raise
    try:
        yield sandbox
    finally:
        sandbox.loop.call_soon_threadsafe(stop.set)
        thread.join()


def _run(options: Options, started: Future[Sandbox], stop: asyncio.Event) -> None:
    async def main() -> None:
        async with serve(options) as server:
            started.set_result(Sandbox(server, asyncio.get_running_loop()))
            await stop.wait()

    try:
        asyncio.run(main())
    except BaseException as error:
        if started.done():
            raise
        started.set_exception(error)
