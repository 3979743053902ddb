"""One probe for all triggers of an event loop that wait for the same address through the same proxy."""

from __future__ import annotations

import asyncio
import math
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_loanauth.triggers.reachability import why_unavailable

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future, Task
    from collections.abc import Iterator

#: Seconds that one request may take; less if an interval is shorter.
REQUEST_TIMEOUT = 10.0


@dataclass(eq=False, frozen=True, slots=True)
class Waiter:
    """A trigger that waits: its interval in seconds, and when it began. No request comes within its first interval."""

    interval: float
    began: float


class Probe:
    """Sends one request at a time, whenever the next one of any waiter is due."""

    def __init__(self, address: str, proxy: str | None) -> None:
        loop = asyncio.get_running_loop()
        self.waiters: set[Waiter] = set()
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
            pause = min(max(last, waiter.began) + waiter.interval for waiter in self.waiters) - loop.time()
            if pause > 0:
                # Triggers may join or leave meanwhile.
                await asyncio.wait([self.joined], timeout=pause)
                continue
            last = loop.time()
            timeout = min(REQUEST_TIMEOUT, *(waiter.interval for waiter in self.waiters))
            reason = await why_unavailable(address, timeout, proxy)
            if reason is None:
                break
            self.reason = reason
        return len(self.waiters)


_PROBES: dict[tuple[AbstractEventLoop, str, str | None], Probe] = {}


@contextmanager
def shared_probe(address: str, proxy: str | None, waiter: Waiter) -> Iterator[Probe]:
    """Wait together with others: the first trigger starts the probe, the last one to leave stops it."""
    key = asyncio.get_running_loop(), address, proxy
    if key not in _PROBES:
        _PROBES[key] = Probe(address, proxy)
    probe = _PROBES[key]
    probe.waiters.add(waiter)
    if not probe.joined.done():
        probe.joined.set_result(None)
    try:
        yield probe
    finally:
        probe.waiters.remove(waiter)
        if not probe.waiters:
            del _PROBES[key]
            probe.task.cancel()
