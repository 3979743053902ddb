"""
One readiness probe for all who wait for an address on one event loop.

A probe sends at most one unauthenticated ``GET`` per interval, however many wait. It sends it from a thread of its own:
on the event loop, or in the loop's default thread pool, a service that hangs would hold up others.
"""

from __future__ import annotations

import asyncio
import http.client
import math
import ssl
import threading
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from airflow_provider_loanauth._compat import run_in_thread
from airflow_provider_loanauth.connection.address import is_loopback
from airflow_provider_loanauth.get_provider_info import USER_AGENT
from airflow_provider_loanauth.service.protocol import is_unavailable

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future, Task

#: Seconds that one request may take; at most the probe's interval.
REQUEST_TIMEOUT = 10.0
#: Maximum number of requests of one probe that run at the same time; later ones wait for a thread to end.
MAX_THREADS = 4
#: Seconds; a shorter interval is raised to this, so that no probe becomes a busy loop.
MIN_INTERVAL = 0.05


@dataclass(eq=False, frozen=True, slots=True)
class _Waiter:
    """
    Someone who waits for a probe. It is passive: only the probe has a timer.

    :param interval: seconds that this waiter needs between two requests, before any back-off
    :param max_interval: seconds to which back-off may lengthen its interval
    :param not_before: loop time before which it is not released, because the service was unavailable when it joined
    :param released: done when its wait is over
    """

    interval: float
    max_interval: float
    not_before: float
    released: Future[None]

    def release(self) -> None:
        """End the wait, unless it has ended."""
        if not self.released.done():
            self.released.set_result(None)

    def fail(self, error: Exception) -> None:
        """Raise an error where it waits, unless the wait has ended."""
        if not self.released.done():
            self.released.set_exception(error)


class Probe:
    """
    Requests one address for all who wait for it on one event loop. The first waiter starts it, the last one stops it.

    It has one interval: the smallest of its waiters. After each unsuccessful request the interval doubles, as far as
    ``max_interval`` of every waiter allows. A waiter that joins shortens it to its own interval again.

    :param address: ``http`` or ``https`` address
    :param loop: the running event loop
    """

    def __init__(self, address: str, loop: AbstractEventLoop) -> None:
        self._address = address
        self._loop = loop
        self._waiters: set[_Waiter] = set()
        self._task: Task[None] | None = None
        self._threads = threading.Semaphore(MAX_THREADS)
        self._interval = math.inf
        # Both in loop time: when the last request began (at first: when the probe did), and when to send the next one.
        self._requested_at = loop.time()
        self._due = math.inf
        self._wake = asyncio.Event()

    async def wait(self, interval: float, max_interval: float | None) -> None:
        """
        Wait until the address responds, and for at least one interval; parameters as for :func:`wait_until_ready`.

        :raises Exception: what the request raised, where the address cannot be requested at all
        """
        interval = max(interval, MIN_INTERVAL)
        not_before = self._loop.time() + interval
        waiter = _Waiter(interval, max(interval, max_interval or 0.0), not_before, self._loop.create_future())
        self._waiters.add(waiter)
        self._interval = min(self._interval, interval)
        if not_before < self._due:
            self._due = not_before
            self._wake.set()
        if self._task is None:
            self._task = self._loop.create_task(self._run(), name=f"probe of {self._address}")
        try:
            await waiter.released
        finally:
            # Also on cancellation; the last waiter stops the probe.
            self._waiters.discard(waiter)
            if not self._waiters:
                self._unregister()
                self._task.cancel()

    def _unregister(self) -> None:
        """Give another probe to whoever waits for the address from now on."""
        probes = _PROBES.get(self._loop, {})
        if probes.get(self._address) is self:
            del probes[self._address]

    async def _run(self) -> None:
        try:
            await self._sleep_until_due()
            while not await self._request():
                self._reschedule()
                await self._sleep_until_due()
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not leave anyone waiting for ever
            self._unregister()
            for waiter in self._waiters:
                waiter.fail(error)
        else:
            self._unregister()
            for waiter in self._waiters:
                self._loop.call_at(waiter.not_before, waiter.release)

    def _reschedule(self) -> None:
        """Back off and plan the next request. A waiter that joined less than an interval ago does not back off yet."""
        limit = min(
            waiter.max_interval if waiter.not_before <= self._requested_at else waiter.interval
            for waiter in self._waiters
        )
        self._interval = min(self._interval * 2, limit)
        self._due = self._requested_at + self._interval

    async def _sleep_until_due(self) -> None:
        while True:
            # The waiter with the shortest interval may have left.
            self._interval = max(self._interval, min(waiter.interval for waiter in self._waiters))
            self._due = max(self._due, self._requested_at + self._interval)
            if self._due <= self._loop.time():
                return
            self._wake.clear()
            timer = self._loop.call_at(self._due, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()

    async def _request(self) -> bool:
        """Return whether the address responds; False without a request while too many earlier ones still run."""
        self._requested_at = self._loop.time()
        if not self._threads.acquire(blocking=False):
            return False
        timeout = min(REQUEST_TIMEOUT, self._interval)

        def request() -> bool:
            try:
                # The interval counts from here: on a busy machine a thread begins later than it was started.
                self._requested_at = self._loop.time()
                return is_reachable(self._address, timeout)
            finally:
                self._threads.release()

        response = self._loop.create_task(run_in_thread(request, name=f"probe of {self._address}"))
        try:
            # A service that sends its response octet by octet may keep the thread busy, but not hold up the waiters.
            await asyncio.wait([response], timeout=timeout)
            return response.done() and response.result()
        finally:
            response.cancel()


_PROBES: WeakKeyDictionary[AbstractEventLoop, dict[str, Probe]] = WeakKeyDictionary()


async def wait_until_ready(address: str, interval: float, *, max_interval: float | None = None) -> None:
    """
    Wait until an address responds. All who wait for it on this event loop share the requests.

    :param address: ``http`` or ``https`` address
    :param interval: seconds between two requests; also the least time that this takes
    :param max_interval: seconds up to which the interval doubles after each request; None: it does not change
    :raises Exception: what the request raised, where the address cannot be requested at all
    """
    loop = asyncio.get_running_loop()
    probes = _PROBES.setdefault(loop, {})
    if address not in probes:
        probes[address] = Probe(address, loop)
    await probes[address].wait(interval, max_interval)


def is_reachable(address: str, timeout: float) -> bool:
    """
    Readiness check: send an unauthenticated ``GET`` through the same proxies as a login. Blocks.

    Proxy settings of the environment apply, except to plain http, which is for loopback addresses.

    Certificates are not checked: nothing secret is sent, only the status is read, and the worker that authenticates
    afterwards does check them. So a private certificate authority needs no settings here, where no Connection is read.

    :param address: ``http`` or ``https`` address
    :param timeout: seconds to wait for a connection, and for each part of the response's head
    :return: False for a network error and for a status that means "unavailable"; True for any other response, also a
        redirect. True as well behind a proxy that urllib cannot use (SOCKS, or one spoken to over TLS): then the worker
        tries once per interval
    """
    proxies = _proxies(address)
    if any("://" in proxy and not proxy.lower().startswith("http://") for proxy in proxies.values()):
        return True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # Only these handlers: redirects, error statuses and file addresses are not handled.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(proxies),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=context),
    ):
        opener.add_handler(handler)
    request = urllib.request.Request(  # noqa: S310 - the opener has handlers for http and https only
        address, headers={"User-Agent": USER_AGENT, "Connection": "close"}
    )
    try:
        with opener.open(request, timeout=timeout) as response:
            return not is_unavailable(response.status)
    except (OSError, http.client.HTTPException):
        return False


def _proxies(address: str) -> dict[str, str]:
    """Return the proxy for an address, by its scheme; urllib itself ignores ``ALL_PROXY``."""
    parts = urlsplit(address)
    scheme, host = parts.scheme, parts.hostname or ""
    known = urllib.request.getproxies()
    proxy = known.get(scheme) or known.get("all")
    if not proxy or (scheme == "http" and is_loopback(host)) or urllib.request.proxy_bypass(host):
        return {}
    return {scheme: proxy}
