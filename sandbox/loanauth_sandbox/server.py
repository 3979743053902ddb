"""The whole sandbox: both listeners in one event loop, which may run in a thread of another program."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import os
import re
import tempfile
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from loanauth_sandbox.accounts import Company, connections, default_accounts, load_accounts
from loanauth_sandbox.app import ServiceApp
from loanauth_sandbox.control import Commands, control_app
from loanauth_sandbox.listener import Listener
from loanauth_sandbox.state import Settings, State
from loanauth_sandbox.tls import Certificates
from loanauth_sandbox.tokens import signing_key
from loanauth_sandbox.validation import is_loopback

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence

    from loanauth_sandbox.faults import Fault

TIMEOUT = 10.0  # seconds for a command to finish in the thread of the sandbox; it normally takes milliseconds

_PATH_PREFIX = re.compile(r"(?:/[A-Za-z0-9\-._~!$&'()*+,;=:@%]+)*")


@dataclass(frozen=True)
class Options:
    """The options of a sandbox."""

    accounts: Sequence[Company] = field(default_factory=default_accounts)
    token_lifetime: int = 3600  # seconds
    secret_lifetime: int = 86_400  # seconds for which pricing accepts an API secret
    one_loan_per_session: bool = False  # whether a credential prices one loan only: invented
    host: str = "127.0.0.1"  # a loopback address
    port: int = 0  # 0: a free one
    control_port: int = 0
    tls: str | None = None  # None: plain HTTP; else the name of a certificate: good, unknown-ca, wrong-name, expired
    tls_dir: Path | None = None  # None: a temporary one, which is removed at the end
    path_prefix: str = ""  # or a path like /tenant1 before the paths of §4, percent-encoded
    faults: Sequence[Fault] = ()  # that are on from the start
    clock: Callable[[], float] = time.time  # seconds since the epoch

    def __post_init__(self) -> None:
        if not is_loopback(self.host):
            raise ValueError("the sandbox listens on loopback addresses only")
        if not _PATH_PREFIX.fullmatch(self.path_prefix):
            raise ValueError("a path prefix begins with /, does not end with it, and is percent-encoded")

    def state(self) -> State:
        """Return the state at the start."""
        settings = Settings().changed(**{one.name: getattr(self, one.name) for one in dataclasses.fields(Settings)})
        accounts = load_accounts({"companies": self.accounts})
        return State(accounts=accounts, settings=settings, prefix=self.path_prefix, clock=self.clock)


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _in_thread(
    command: Callable[Concatenate[Commands, Parameters], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Sandbox, Parameters], Result]:
    """Return a method that runs a command in the thread of the sandbox and waits for it."""

    def method(sandbox: Sandbox, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if os.getpid() != sandbox.pid:
            raise RuntimeError("the sandbox runs in the process that this one was forked from: use its control_url")
        called = command(sandbox.commands, *args, **kwargs)
        return asyncio.run_coroutine_threadsafe(called, sandbox.loop).result(TIMEOUT)

    functools.update_wrapper(method, command)
    return method


@dataclass(frozen=True)
class Sandbox:
    """A sandbox that listens. Its methods are the commands of the control API, for another thread than its own."""

    url: str  # {auth_url} of §4, with the path prefix
    pricing_url: str  # that prices one loan
    control_url: str
    port: int
    ca_path: str | None  # the CA file that a client must trust; None for plain HTTP
    state: State  # of the other thread: read only values that do not change at the same time
    commands: Commands
    loop: asyncio.AbstractEventLoop
    pid: int  # of the process that it runs in

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
    set_fault = _in_thread(Commands.set_fault)
    add_fault = _in_thread(Commands.add_fault)
    clear_faults = _in_thread(Commands.clear_faults)


@contextlib.asynccontextmanager
async def serve(options: Options) -> AsyncIterator[Sandbox]:
    """Run a sandbox in the running event loop until the context is left."""
    signing_key()
    state = options.state()

    async with contextlib.AsyncExitStack() as stack:
        certificates = None
        if options.tls:
            directory = options.tls_dir
            if directory is None:
                directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="loanauth-sandbox-")))
            directory.mkdir(parents=True, exist_ok=True)
            certificates = Certificates(directory, options.tls)
        context = certificates.context if certificates else None
        service = Listener(ServiceApp(state), options.host, options.port, context=context, state=state)
        stack.push_async_callback(service.close)
        commands = Commands(state, service, certificates)
        control = Listener(control_app(commands), options.host, options.control_port)
        stack.push_async_callback(control.close)
        await commands.set_faults(options.faults)
        await control.listen()
        host = f"[{options.host}]" if ":" in options.host else options.host
        address = f"{'https' if certificates else 'http'}://{host}:{service.port}"
        yield Sandbox(
            url=address + options.path_prefix,
            pricing_url=f"{address}/sandbox/price",
            control_url=f"http://{host}:{control.port}",
            port=service.port,
            ca_path=str(certificates.ca_path) if certificates else None,
            state=state,
            commands=commands,
            loop=asyncio.get_running_loop(),
            pid=os.getpid(),
        )


@contextlib.contextmanager
def running_sandbox(**options: Any) -> Iterator[Sandbox]:
    """Run a sandbox in a background thread. It listens when the context is entered and is gone when it is left.

    :param options: those of :class:`Options`.
    :raises OSError: when a port is taken.
    :raises ValueError: when an option has a wrong value.
    """
    started: Future[Sandbox] = Future()
    stop = asyncio.Event()
    arguments = (Options(**options), started, stop)
    thread = threading.Thread(target=_run, args=arguments, name="loanauth-sandbox", daemon=True)
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
        async with serve(options) as sandbox:
            started.set_result(sandbox)
            await stop.wait()

    try:
        asyncio.run(main())
    except BaseException as error:
        if started.done():
            raise
        started.set_exception(error)
