"""Waiting for an address: one probe for all triggers that wait for it, which sends requests without credentials."""

from __future__ import annotations

import asyncio
import math
import socket
from contextlib import AsyncExitStack, contextmanager
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from airflow_provider_loanauth._compat import run_in_thread
from airflow_provider_loanauth.metadata import USER_AGENT
from airflow_provider_loanauth.service.error_responses import is_unavailable
from airflow_provider_loanauth.service.transport import proxy_url

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future, Task
    from collections.abc import Iterator

#: Seconds that one request may take; less if an interval is shorter.
REQUEST_TIMEOUT = 10.0
#: Addresses, with their proxies, for which a host name is being looked up.
_LOOKUPS: set[tuple[str, str | None]] = set()


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
    # A login must tell if the proxy requires authentication or is not plain http, or if a name is invalid.
    try:
        proxy = proxy or proxy_url(address)
        if proxy is not None and not proxy.lower().startswith("http://"):
            return None
        status = await asyncio.wait_for(_request(address, proxy), timeout)
    except asyncio.TimeoutError:
        return f"no response within {timeout:g} s"
    except httpx.ProxyError as error:
        return None if str(error).startswith("407") else "the proxy rejected the request"
    except (httpx.HTTPError, OSError) as error:
        return f"no response ({type(error).__name__})"
    except (httpx.InvalidURL, ValueError):
        return None
    return f"status {status}" if is_unavailable(status) else None


async def _request(address: str, proxy: str | None) -> int:
    # httpx looks a name up in the event loop's pool of threads, where lookups that hang would starve other triggers.
    # Nothing can interrupt a lookup, so the first one has a thread of its own, and there is one at most for an address.
    if (address, proxy) in _LOOKUPS:
        raise asyncio.TimeoutError
    await run_in_thread(partial(_look_up, address, proxy), name=f"lookup for {address}")
    async with AsyncExitStack() as stack:

        async def trace(event: str, details: dict[str, Any]) -> None:
            # httpcore leaves the socket open if it is cancelled during a TLS handshake.
            if event == "connection.connect_tcp.complete":
                stack.push_async_callback(details["return_value"].aclose)

        # Certificates are not checked, and no CA bundle is loaded, because nothing secret is sent. A login checks them.
        client = httpx.AsyncClient(verify=False, proxy=proxy, trust_env=False, timeout=None)  # noqa: S501, S113
        await stack.enter_async_context(client)
        request = client.stream("GET", address, headers={"User-Agent": USER_AGENT}, extensions={"trace": trace})
        response = await stack.enter_async_context(request)
        return response.status_code


def _look_up(address: str, proxy: str | None) -> None:
    target = urlsplit(proxy or address)
    _LOOKUPS.add((address, proxy))
    try:
        socket.getaddrinfo(target.hostname, target.port)
    finally:
        _LOOKUPS.discard((address, proxy))
