"""The sandbox inside another program: a background thread, for tests and benchmarks.

What may live here: the thread and calls into it. What may not: what the sandbox does.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

from loanauth_sandbox.accounts import Company, connections, default_accounts, labelled
from loanauth_sandbox.core import Core, Options
from loanauth_sandbox.faults import Fault, make_fault
from loanauth_sandbox.state import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence
    from pathlib import Path

    from loanauth_sandbox.state import Counters, Entry, State

Result = TypeVar("Result")

PATIENCE = 10.0
"""Seconds that a call into the thread may take before something is wrong."""


class Sandbox:
    """A running sandbox, seen from another thread."""

    def __init__(self, core: Core, loop: asyncio.AbstractEventLoop) -> None:
        self._core = core
        self._loop = loop
        self.url = core.url
        self.control_url = core.control_url
        self.ca_path: str | None = str(core.ca_path) if core.ca_path else None
        self.port = core.service.port

    @property
    def state(self) -> State:
        """The state itself, which belongs to the other thread: read only what does not change."""
        return self._core.state

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def _call(self, function: Callable[..., Result], *args: Any) -> Result:
        async def work() -> Result:
            return function(*args)

        return self._run(work())

    def counters(self) -> Counters:
        """Return a copy of the counters."""
        return self._call(self.state.snapshot)

    def requests(self) -> list[Entry]:
        """Return the log of requests, the oldest first."""
        return self._call(list, self.state.requests)

    def connections(self, company: int = 0) -> dict[str, dict[str, Any]]:
        """Return the three Airflow Connections of a company, by environment variable.

        :param company: its position among the accounts.
        """
        return connections(self.state.accounts[company], self.url, self.ca_path)

    def set_fault(self, kind: str, *, where: str = "any", times: int | None = None, **params: Any) -> None:
        """Replace all faults by this one. The kinds are in :data:`..faults.KINDS`.

        :param where: the endpoint, ``token``, ``secret``, ``price``, ``probe``, or ``any``.
        :param times: how many requests it meets; None for all.
        """
        self._run(self._core.set_faults([make_fault(kind, where=where, times=times, **params)]))

    def add_fault(self, kind: str, *, where: str = "any", times: int | None = None, **params: Any) -> None:
        """Add a fault behind those that are on: a script of faults."""
        self._run(self._core.add_faults([make_fault(kind, where=where, times=times, **params)]))

    def clear_faults(self) -> None:
        """Make the service healthy."""
        self._run(self._core.set_faults([]))

    def reset(self) -> None:
        """Forget what was asked, issued, failed and locked. Accounts, settings and faults stay."""
        self._call(self.state.reset)

    def revoke(self) -> None:
        """Make every credential issued so far worthless: pricing then answers 401."""
        self._call(self.state.issuer.forget)

    def set_accounts(self, accounts: Sequence[Company]) -> None:
        """Replace the accounts."""
        self._call(setattr, self.state, "accounts", labelled(tuple(accounts)))

    def set_settings(self, **values: int) -> None:
        """Change settings: ``token_lifetime``, ``secret_lifetime`` (seconds), ``lockout_after``."""
        self._call(setattr, self.state, "settings", self.state.settings.changed(values))

    def stop_listening(self) -> None:
        """Close the service port: connecting is refused."""
        self._run(self._core.stop_listening())

    def start_listening(self) -> None:
        """Open the service port again, on the same number."""
        self._run(self._core.start_listening())


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
    """Run a sandbox in a background thread, ready when entered, gone when left.

    The parameters are those of :class:`..core.Options` and :class:`..state.Settings`.

    :raises OSError: when a port is taken.
    """
    options = Options(
        accounts=default_accounts() if accounts is None else tuple(accounts),
        settings=Settings(token_lifetime, secret_lifetime, lockout_after),
        host=host,
        port=port,
        control_port=control_port,
        tls=tls,
        tls_dir=tls_dir,
        path_prefix=path_prefix,
        faults=tuple(faults),
        clock=clock,
    )
    thread = _Thread(options)
    thread.start()
    sandbox = thread.wait_until_ready()
    try:
        yield sandbox
    finally:
        thread.stop()


class _Thread(threading.Thread):
    def __init__(self, options: Options) -> None:
        super().__init__(name="loanauth-sandbox", daemon=True)
        self._options = options
        self._ready = threading.Event()
        self._sandbox: Sandbox | None = None
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - told to the thread that waits
            self._failure = error
        finally:
            self._ready.set()

    async def _main(self) -> None:
        core = Core(self._options)
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        await core.start()
        try:
            self._sandbox = Sandbox(core, self._loop)
            self._ready.set()
            await self._end.wait()
        finally:
            await core.stop()

    def wait_until_ready(self) -> Sandbox:
        self._ready.wait()
        if self._sandbox is None:
            self.join()
            raise self._failure or RuntimeError("the sandbox did not start")
        return self._sandbox

    def stop(self) -> None:
        if self._loop is not None and self._end is not None and self.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
        self.join()
