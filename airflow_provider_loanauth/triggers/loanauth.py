"""Trigger that waits until an address responds. It reads no Connection, because Airflow shows arguments and events."""

from __future__ import annotations

import asyncio
import math
import random
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_loanauth.triggers.probe import shared_probe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["LoanAuthSensorTrigger"]

#: Minimum of the interval in seconds, so that no probe becomes a busy loop.
MIN_INTERVAL = 0.05
#: How many triggers send their events per second after a response.
EVENTS_PER_SECOND = 20.0


class LoanAuthSensorTrigger(BaseTrigger):
    """
    Wait until an address responds with a status other than 408, 429 and 5xx.

    All triggers of a process that wait for the same address through the same proxy share one request per interval. The
    first one is sent after one interval, because the service was unavailable a moment ago. It takes at most 10 seconds,
    or one interval if that is shorter. The trigger logs why it waits, at growing intervals.

    After a response, these triggers send their events in random order, about 20 per second, so that the sensors do not
    all log in at the same moment. They send more if that would take longer than a ``poke_interval`` or a deadline.

    :param address: the Auth URL, which receives only unauthenticated ``GET`` requests
    :param poke_interval: seconds between two requests
    :param deadline: when to give up, in seconds since the epoch (UTC); None: never
    :param proxy: scheme, host and port of a proxy for an https address; None: that of the environment. It has no user
        information, because Airflow may show the arguments. A proxy that requires authentication counts as a response
    :raises ValueError: the address or the proxy is not ``http`` or ``https``, or contains user information
    """

    def __init__(
        self, address: str, *, poke_interval: float = 60.0, deadline: float | None = None, proxy: str | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        for name, url in (("address", address), ("proxy", proxy)):
            parts = urlsplit(url or "")
            if url is not None and (parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc):
                raise ValueError(
                    f"The {name} of a LoanAuthSensorTrigger must be an http or https address without user information."
                )
        self.address, self.proxy = address, proxy
        self.poke_interval, self.deadline = poke_interval, deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class and the arguments, which Airflow stores to create this trigger again."""
        names = ("address", "poke_interval", "deadline", "proxy")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: ``{"status": "ready"}``, or ``{"status": "timeout"}`` at the deadline."""
        # The clock of the event loop, which a change of the system time does not affect.
        now = asyncio.get_running_loop().time
        began = now()
        ends = math.inf if self.deadline is None else began + self.deadline - time.time()
        interval = max(self.poke_interval, MIN_INTERVAL)
        # Random, so that a thousand triggers do not write their logs at the same moment.
        pause = interval * random.uniform(1, 2)  # noqa: S311 - not for cryptography
        with shared_probe(self.address, self.proxy, interval, began) as probe:
            await asyncio.wait([probe.task], timeout=min(pause, ends - now()))
            while not probe.task.done() and now() < ends:
                self.log.info("Still waiting for %s: %s.", self.address, probe.reason)
                pause *= 2
                await asyncio.wait([probe.task], timeout=min(pause, ends - now()))
        if not probe.task.done():
            yield TriggerEvent({"status": "timeout"})  # type: ignore[no-untyped-call]
            return
        # Another trigger may have needed the request. This one waits for an interval, because its sensor just poked.
        earliest = min(max(began + interval, now()), ends)
        spread = min((probe.task.result() - 1) / EVENTS_PER_SECOND, interval, ends - earliest)
        await asyncio.sleep(earliest + random.uniform(0, spread) - now())  # noqa: S311 - not for cryptography
        yield TriggerEvent({"status": "ready"})  # type: ignore[no-untyped-call]
