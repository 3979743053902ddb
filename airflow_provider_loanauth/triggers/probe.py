"""
Readiness probes: all triggers that wait for the same address, through the same proxy, on one event loop share one
probe.

A probe sends at most one unauthenticated ``GET`` per interval, however many triggers wait. Each request runs in a
thread of its own. On the event loop, or in the loop's default thread pool, a service that hangs would delay other
triggers.
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

#: Seconds that one request may take. If the interval of the probe is shorter, a request may take only that long.
REQUEST_TIMEOUT = 10.0
#: Maximum number of requests of one probe that run at the same time. While they run, no further request is sent.
MAX_THREADS = 4
#: Minimum of the interval in seconds, so that no probe becomes a busy loop.
MIN_INTERVAL = 0.05


@dataclass(eq=False, frozen=True, slots=True)
class _Waiter:
    """
    One call of :meth:`Probe.wait`. It has no timer; only the probe has one.

    :param interval: seconds between two requests, before any back-off
    :param max_interval: seconds up to which back-off may lengthen the interval
    :param not_before: loop time before which the wait does not end, because the service was unavailable when it began
    :param released: future that is done when the wait has ended
    """

    interval: float
    max_interval: float
    not_before: float
    released: Future[None]

    def release(self) -> None:
        """End the wait, unless it has already ended."""
        if not self.released.done():
            self.released.set_result(None)

    def fail(self, error: Exception) -> None:
        """
        End the wait with an error, unless it has already ended.

        :param error: :meth:`Probe.wait` raises it
        """
        if not self.released.done():
            self.released.set_exception(error)


class Probe:
    """
    Sends requests to one address for all waiters of one event loop. The first waiter starts it, the last one stops it.

    The probe has one interval: the shortest interval of its waiters. After each unsuccessful request, the interval
    doubles, up to the smallest ``max_interval`` of its waiters. If a waiter with a shorter interval joins, the interval
    becomes that one.

    :param address: ``http`` or ``https`` address
    :param loop: the running event loop
    :param proxy: see :func:`is_reachable`
    """

    def __init__(self, address: str, loop: AbstractEventLoop, proxy: str | None = None) -> None:
        self._address = address
        self._proxy = proxy
        self._loop = loop
        self._waiters: set[_Waiter] = set()
        self._task: Task[None] | None = None
        self._threads = threading.Semaphore(MAX_THREADS)
        self._interval = math.inf
        # Loop time of the last request, or of the start of the probe.
        self._requested_at = loop.time()
        # Loop time of the next request.
        self._due = math.inf
        self._wake = asyncio.Event()

    async def wait(self, interval: float, max_interval: float | None) -> None:
        """
        Wait until the address responds, and for at least one interval.

        Parameters and errors are those of :func:`wait_until_ready`.
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
            # This also runs if the wait is cancelled. The last waiter stops the probe.
            self._waiters.discard(waiter)
            if not self._waiters:
                self._unregister()
                self._task.cancel()

    def _unregister(self) -> None:
        """Remove this probe from the registry, so that a later waiter starts a new probe."""
        probes = _PROBES.get(self._loop, {})
        if probes.get((self._address, self._proxy)) is self:
            del probes[self._address, self._proxy]

    async def _run(self) -> None:
        try:
            await self._sleep_until_due()
            while not await self._request():
                self._reschedule()
                await self._sleep_until_due()
        except Exception as error:  # noqa: BLE001 - after any error, no waiter may wait for ever
            self._unregister()
            for waiter in self._waiters:
                waiter.fail(error)
        else:
            self._unregister()
            for waiter in self._waiters:
                self._loop.call_at(waiter.not_before, waiter.release)

    def _reschedule(self) -> None:
        """Back off and schedule the next request. A waiter does not back off during its first interval."""
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
        """Return whether the address responds. While too many earlier requests run, send none and return False."""
        self._requested_at = self._loop.time()
        if not self._threads.acquire(blocking=False):
            return False
        timeout = min(REQUEST_TIMEOUT, self._interval)

        def request() -> bool:
            try:
                # The interval starts here, because on a busy machine a thread may run later than it was started.
                self._requested_at = self._loop.time()
                return is_reachable(self._address, timeout, self._proxy)
            finally:
                self._threads.release()

        response = self._loop.create_task(run_in_thread(request, name=f"probe of {self._address}"))
        try:
            # A service that responds very slowly may keep the thread busy, but must not delay the waiters.
            await asyncio.wait([response], timeout=timeout)
            return response.done() and response.result()
        finally:
            response.cancel()


#: The probes of each event loop, by address and proxy.
_PROBES: WeakKeyDictionary[AbstractEventLoop, dict[tuple[str, str | None], Probe]] = WeakKeyDictionary()


async def wait_until_ready(
    address: str, interval: float, *, max_interval: float | None = None, proxy: str | None = None
) -> None:
    """
    Wait until an address responds. All callers that wait for the address, through the same proxy, on this event loop
    share the requests.

    :param address: ``http`` or ``https`` address
    :param interval: seconds between two requests, and the minimum duration of the wait
    :param max_interval: the interval doubles after each request, up to this many seconds; None: it does not change
    :param proxy: see :func:`is_reachable`
    :raises Exception: no request can be sent to the address at all
    """
    loop = asyncio.get_running_loop()
    probes = _PROBES.setdefault(loop, {})
    key = address, proxy
    if key not in probes:
        probes[key] = Probe(address, loop, proxy)
    await probes[key].wait(interval, max_interval)


def is_reachable(address: str, timeout: float, proxy: str | None = None) -> bool:
    """
    Return whether an address responds to an unauthenticated ``GET``. The call blocks.

    The request uses the proxy, or else the proxy settings of the environment, as an authentication does. Requests to
    loopback addresses over plain http use no proxy.

    Certificates are not checked, because no Connection is read here that could name the CA bundle. This is safe:
    nothing secret is sent, only the status is read, and the worker that authenticates afterwards does check
    certificates.

    :param address: ``http`` or ``https`` address
    :param timeout: seconds to wait for a connection, and for each part of the response's head
    :param proxy: URL of a proxy without user information; None: the proxy settings of the environment apply
    :return: False for a network error and for a status that means "unavailable" (408, 429, 5xx); True for any other
        response, including a redirect, and a 407 of a proxy. Also True without a request if urllib cannot use the proxy
        (SOCKS, or a proxy with an ``https`` URL): a worker then pokes once per interval
    """
    proxies = _proxies(address, proxy)
    if any("://" in url and not url.lower().startswith("http://") for url in proxies.values()):
        return True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # Use only these handlers, so that redirects are not followed and error statuses raise no exception.
    opener = urllib.request.OpenerDirector()
    for handler in (
        # This handler obeys NO_PROXY, which the proxy of a Connection has precedence over.
        urllib.request.ProxyHandler(proxies if proxy is None else {}),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=context),
    ):
        opener.add_handler(handler)
    request = urllib.request.Request(  # noqa: S310 - the opener has handlers for http and https only
        address, headers={"User-Agent": USER_AGENT, "Connection": "close"}
    )
    if proxy is not None and proxies:
        request.set_proxy(urlsplit(proxy).netloc, "http")
    try:
        with opener.open(request, timeout=timeout) as response:
            return not is_unavailable(response.status)
    except (OSError, http.client.HTTPException) as error:
        # The text of http.client. A login may have the credentials of the proxy, which the probe does not have.
        return "Tunnel connection failed: 407" in str(error)


def _proxies(address: str, proxy: str | None) -> dict[str, str]:
    """Return the proxy for an address, by its scheme, or an empty dict; urllib itself ignores ``ALL_PROXY``."""
    parts = urlsplit(address)
    scheme, host = parts.scheme, parts.hostname or ""
    if scheme == "http" and is_loopback(host):
        return {}
    if proxy is not None:
        return {scheme: proxy}
    known = urllib.request.getproxies()
    url = known.get(scheme) or known.get("all")
    return {scheme: url} if url and not urllib.request.proxy_bypass(host) else {}
