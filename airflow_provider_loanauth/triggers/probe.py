"""
Readiness probes: all triggers that wait for the same address, through the same proxy, on one event loop share one
probe.

A probe sends at most one unauthenticated ``GET`` per interval, however many triggers wait. Each request runs in a
thread of its own. On the event loop, or in the loop's default thread pool, a service that hangs would delay other
triggers. Each request has a deadline, and ends when the last waiter leaves. A process sends at most one request at a
time to an address through the same proxy, so probes that come and go do not add up to many threads.

After a response, the probe releases its waiters one after the other, because each of them then logs in. A thousand
logins at the same moment could make the service unavailable again.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from airflow_provider_loanauth._compat import run_in_thread
from airflow_provider_loanauth.service.exchange import Exchange
from airflow_provider_loanauth.triggers.reachability import is_reachable

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future, Task

#: Seconds that one request may take. If the interval of the probe is shorter, a request may take only that long.
REQUEST_TIMEOUT = 10.0
#: Minimum of the interval in seconds, so that no probe becomes a busy loop.
MIN_INTERVAL = 0.05
#: Waiters that a probe releases per second; more, if a waiter would otherwise wait longer than its interval.
RELEASES_PER_SECOND = 20.0


@dataclass(eq=False, frozen=True, slots=True)
class _Waiter:
    """
    One call of :meth:`Probe.wait`. It has no timer; only the probe has one.

    :param interval: seconds between two requests, before any back-off
    :param max_interval: seconds up to which back-off may lengthen the interval
    :param not_before: loop time before which the wait does not end, because the service was unavailable when it began
    :param deadline: loop time at which the caller gives up
    :param released: future that is done when the wait has ended
    """

    interval: float
    max_interval: float
    not_before: float
    deadline: float
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
        # A dict, because a set does not keep the order in which they joined.
        self._waiters: dict[_Waiter, None] = {}
        self._task: Task[None] | None = None
        self._interval = math.inf
        # Loop time of the last request, or of the start of the probe.
        self._requested_at = loop.time()
        # Loop time of the next request.
        self._due = math.inf
        self._wake = asyncio.Event()

    async def wait(self, interval: float, max_interval: float | None, time_left: float | None) -> None:
        """
        Wait until the address responds, and for at least one interval.

        Parameters and errors are those of :func:`wait_until_ready`.
        """
        interval = max(interval, MIN_INTERVAL)
        now = self._loop.time()
        not_before = now + interval
        waiter = _Waiter(
            interval=interval,
            max_interval=max(interval, max_interval or 0.0),
            not_before=not_before,
            deadline=math.inf if time_left is None else now + time_left,
            released=self._loop.create_future(),
        )
        self._waiters[waiter] = None
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
            del self._waiters[waiter]
            if not self._waiters:
                self._unregister()
                self._task.cancel()

    def _unregister(self) -> None:
        """Remove this probe from the registry, so that a later waiter starts a new probe."""
        probes = _PROBES[self._loop]
        if probes.get((self._address, self._proxy)) is self:
            del probes[self._address, self._proxy]

    async def _run(self) -> None:
        try:
            await self._sleep_until_due()
            while not await self._request():
                self._back_off()
                await self._sleep_until_due()
        except Exception as error:  # noqa: BLE001 - after any error, no waiter may wait for ever
            self._unregister()
            for waiter in self._waiters:
                waiter.fail(error)
        else:
            self._unregister()
            self._release_all()

    def _release_all(self) -> None:
        """
        Release the waiters one after the other, in random order and evenly spread in time.

        No waiter waits for its turn for longer than its own interval, or beyond its deadline. If there are many
        waiters, or little time is left, they follow each other faster.
        """
        now, number = self._loop.time(), len(self._waiters)
        for position, waiter in enumerate(random.sample(list(self._waiters), number)):
            earliest = max(now, waiter.not_before)
            spread = min(number / RELEASES_PER_SECOND, waiter.interval, max(waiter.deadline - earliest, 0.0))
            self._loop.call_at(earliest + spread * position / number, waiter.release)

    def _back_off(self) -> None:
        """Double the interval. A waiter does not back off during its first interval."""
        limit = min(
            waiter.max_interval if waiter.not_before <= self._requested_at else waiter.interval
            for waiter in self._waiters
        )
        self._interval = min(self._interval * 2, limit)

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
        """Return whether the address responds. If an earlier request has not ended yet, send none and return False."""
        timeout = min(REQUEST_TIMEOUT, self._interval)
        exchange = Exchange(timeout, total=timeout)
        key = self._address, self._proxy

        def request() -> bool:
            # The interval starts here, because on a busy machine a thread may run later than it was started.
            self._requested_at = self._loop.time()
            if _EXCHANGES.setdefault(key, exchange) is not exchange:
                return False
            try:
                return is_reachable(self._address, exchange, self._proxy)
            finally:
                del _EXCHANGES[key]

        try:
            return await run_in_thread(request, name=f"probe of {self._address}")
        finally:
            # If the last waiter has left, the request need not continue until its deadline.
            exchange.cancel()


#: The exchange of each request that this process is sending, by address and proxy. A request may outlive its probe: the
#: lookup of a host name, or an attempt to connect, is not interrupted when the last waiter leaves.
_EXCHANGES: dict[tuple[str, str | None], Exchange] = {}
# The threads that send the requests do not exist in a forked child.
os.register_at_fork(after_in_child=_EXCHANGES.clear)

#: The probes of each event loop, by address and proxy.
_PROBES: WeakKeyDictionary[AbstractEventLoop, dict[tuple[str, str | None], Probe]] = WeakKeyDictionary()


async def wait_until_ready(
    address: str,
    interval: float,
    *,
    max_interval: float | None = None,
    time_left: float | None = None,
    proxy: str | None = None,
) -> None:
    """
    Wait until an address responds. All callers that wait for the address, through the same proxy, on this event loop
    share the requests. After a response, their waits end one after the other, each within its own interval.

    :param address: ``http`` or ``https`` address
    :param interval: seconds between two requests, and the minimum duration of the wait
    :param max_interval: the interval doubles after each request, up to this many seconds; None: it does not change
    :param time_left: seconds after which the caller gives up; after a response, the wait ends before that. None: never
    :param proxy: see :func:`is_reachable`
    :raises Exception: no request can be sent to the address at all
    """
    loop = asyncio.get_running_loop()
    probes = _PROBES.setdefault(loop, {})
    key = address, proxy
    if key not in probes:
        probes[key] = Probe(address, loop, proxy)
    await probes[key].wait(interval, max_interval, time_left)
