"""Waiting for an address: one probe for all triggers that wait for it, which sends requests without credentials."""

from __future__ import annotations

import asyncio
import math
from contextlib import contextmanager, suppress
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_loanauth._compat import run_in_thread
from airflow_provider_loanauth.connection.proxy import Proxy
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError
from airflow_provider_loanauth.service.error_responses import is_unavailable
from airflow_provider_loanauth.service.protocol import WireRequest
from airflow_provider_loanauth.service.transport import proxy_url, send

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future, Task
    from collections.abc import Iterator

#: Seconds that one request may take; less if an interval is shorter.
REQUEST_TIMEOUT = 10.0
#: Addresses, with their proxies, to which a request is under way: one at most for each.
_PENDING: set[tuple[str, str | None]] = set()


class Probe:
    """Sends one request at a time, whenever the next one of any waiter is due."""

    def __init__(self, address: str, proxy: str | None) -> None:
        loop = asyncio.get_running_loop()
        #: Of each trigger that waits: its interval in seconds, and when it began.
        self.waiters: dict[object, tuple[float, float]] = {}
        #: Why the address was unavailable at the last request.
        self.reason = "no response so far"
        self.joined: Future[None] = loop.create_future()
        # In an empty context, because it may outlive the trigger that starts it, and would write to that one's log.
        self.task: Task[int] = Context().run(loop.create_task, self._run(address, proxy))

    async def _run(self, address: str, proxy: str | None) -> int:
        """Send requests until the address responds; return how many triggers wait for it."""
        loop = asyncio.get_running_loop()
        last = -math.inf
        while self.waiters:
            self.joined = loop.create_future()
            # No request comes within the first interval of a trigger.
            pause = min(max(last, began) + interval for interval, began in self.waiters.values()) - loop.time()
            if pause > 0:
                # Triggers may join or leave meanwhile.
                await asyncio.wait([self.joined], timeout=pause)
                continue
            last = loop.time()
            timeout = min(REQUEST_TIMEOUT, *(interval for interval, _ in self.waiters.values()))
            reason = await why_unavailable(address, timeout, proxy)
            if reason is None:
                break
            self.reason = reason
        return len(self.waiters)


_PROBES: dict[tuple[AbstractEventLoop, str, str | None], Probe] = {}


@contextmanager
def shared_probe(address: str, proxy: str | None, interval: float, began: float) -> Iterator[Probe]:
    """Wait together with others: the first trigger starts the probe, the last one to leave stops it."""
    key = asyncio.get_running_loop(), address, proxy
    if key not in _PROBES:
        _PROBES[key] = Probe(address, proxy)
    probe, waiter = _PROBES[key], object()
    probe.waiters[waiter] = interval, began
    if not probe.joined.done():
        probe.joined.set_result(None)
    try:
        yield probe
    finally:
        del probe.waiters[waiter]
        if not probe.waiters:
            del _PROBES[key]
            probe.task.cancel()


async def why_unavailable(address: str, timeout: float, proxy: str | None = None) -> str | None:
    """Return why an address is unavailable: 408, 429, 5xx or no response; None if it responds, or a login must tell."""
    # Nothing can interrupt the lookup of a host name, so a request has a thread of its own, which may outlast it.
    if (address, proxy) not in _PENDING:
        with suppress(asyncio.TimeoutError):
            request = partial(_request, address, timeout, proxy)
            return await asyncio.wait_for(run_in_thread(request, name=f"probe of {address}"), timeout)
    return f"no response within {timeout:g} s"


def _request(address: str, timeout: float, proxy: str | None) -> str | None:
    _PENDING.add((address, proxy))
    try:
        used = proxy or proxy_url(address)
        # Only plain http, because an https proxy must not receive its password over TLS that is not checked.
        if used is not None and not used.lower().startswith("http://"):
            return None
        # Certificates are not checked, because nothing secret is sent. A login checks them.
        request = WireRequest(url=address, target=f"GET {address}")
        status = send(request, timeout=timeout, verify=False, proxy=Proxy(proxy) if proxy else None).status
    except LoanAuthError as error:
        # An error with a status is that of a proxy that requires authentication.
        return None if error.status or isinstance(error, SettingsError) else str(error)
    except ValueError:
        return None
    finally:
        _PENDING.discard((address, proxy))
    return f"status {status}" if is_unavailable(status) else None
