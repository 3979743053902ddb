"""The whole sandbox: both listeners in one event loop, which may run in a thread of another program."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from anyio.from_thread import start_blocking_portal

from loanauth_sandbox.accounts import Company, connections, default_accounts
from loanauth_sandbox.app import ServiceApp
from loanauth_sandbox.control import Commands, control_app
from loanauth_sandbox.faults import Fault
from loanauth_sandbox.listener import HOST, Listener
from loanauth_sandbox.state import Settings, State
from loanauth_sandbox.tls import Certificates
from loanauth_sandbox.tokens import signing_key

TIMEOUT = 10.0  # seconds for a command to finish in the thread of the sandbox; it normally takes milliseconds

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _in_thread(
    command: Callable[Concatenate[Commands, Parameters], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Sandbox, Parameters], Result]:
    """Return a method that runs a command in the thread of the sandbox and waits for it."""

    def method(sandbox: Sandbox, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        called = command(sandbox.commands, *args, **kwargs)
        return asyncio.run_coroutine_threadsafe(called, sandbox.loop).result(TIMEOUT)

    functools.update_wrapper(method, command)
    return method


@dataclass(frozen=True)
class Sandbox:
    """A sandbox that listens. Its methods are commands, for another thread than its own."""

    url: str  # {auth_url} of §4, with the path prefix
    pricing_url: str  # that prices one loan
    control_url: str
    port: int
    ca_path: str | None  # the CA file that a client must trust; None for plain HTTP
    state: State  # of the other thread: read only values that do not change at the same time
    commands: Commands
    loop: asyncio.AbstractEventLoop

    def connections(self, company: int = 0) -> dict[str, dict[str, Any]]:
        """Return the three Airflow Connections of a company, by environment variable."""
        return connections(self.state.accounts[company], self.url, self.ca_path)

    counters = _in_thread(Commands.counters)
    requests = _in_thread(Commands.requests)
    reset = _in_thread(Commands.reset)
    revoke = _in_thread(Commands.revoke)
    set_accounts = _in_thread(Commands.set_accounts)
    change_password = _in_thread(Commands.change_password)
    unlock = _in_thread(Commands.unlock)
    set_settings = _in_thread(Commands.set_settings)
    set_faults = _in_thread(Commands.set_faults)
    set_fault = _in_thread(Commands.set_fault)
    clear_faults = _in_thread(Commands.clear_faults)


@contextlib.asynccontextmanager
async def serve(
    *,
    accounts: Sequence[Company] | None = None,
    port: int = 0,
    control_port: int = 0,
    tls: bool = False,
    path_prefix: str = "",
    faults: Sequence[Fault] = (),
    clock: Callable[[], float] = time.time,
    **settings: Any,
) -> AsyncIterator[Sandbox]:
    """Run a sandbox in the running event loop until the context is left.

    :param tls: whether it uses TLS, or plain HTTP
    :param path_prefix: a path like ``/tenant1`` before the paths of §4, percent-encoded
    :param clock: a function that returns seconds since the epoch
    :param settings: those of :class:`Settings`
    :raises OSError: when a port is taken.
    """
    signing_key()
    state = State(tuple(accounts or default_accounts()), Settings(**settings), path_prefix, clock)
    async with contextlib.AsyncExitStack() as stack:
        certificates = None
        if tls:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="loanauth-sandbox-"))
            certificates = Certificates(Path(directory))
        context = certificates.context if certificates else None
        service = Listener(ServiceApp(state), port, context=context, state=state)
        stack.push_async_callback(service.close)
        commands = Commands(state, service, certificates)
        control = Listener(control_app(commands), control_port)
        stack.push_async_callback(control.close)
        await commands.set_faults(faults)
        await control.listen()
        address = f"{'https' if certificates else 'http'}://{HOST}:{service.port}"
        yield Sandbox(
            url=address + path_prefix,
            pricing_url=f"{address}/sandbox/price",
            control_url=f"http://{HOST}:{control.port}",
            port=service.port,
            ca_path=str(certificates.ca_path) if certificates else None,
            state=state,
            commands=commands,
            loop=asyncio.get_running_loop(),
        )


@contextlib.contextmanager
def running_sandbox(**options: Any) -> Iterator[Sandbox]:
    """Run a sandbox in a background thread, with the options of :func:`serve`, until the context is left."""
    with start_blocking_portal() as portal:
        served = serve(**options)
        sandbox = portal.call(served.__aenter__)
        try:
            yield sandbox
        finally:
            portal.call(served.__aexit__, None, None, None)
