"""The trigger that waits until an address responds, and the request that all triggers of an address share.

It reads no Connection and sends no credentials, because Airflow shows arguments and events.
"""

from __future__ import annotations

import asyncio
import math
from asyncio import AbstractEventLoop
from collections.abc import AsyncIterator
from contextvars import Context
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_loanauth._compat import run_in_thread
from airflow_provider_loanauth.connection.address import Proxy
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError
from airflow_provider_loanauth.service.environment import proxy_for
from airflow_provider_loanauth.service.error_responses import is_unavailable
from airflow_provider_loanauth.service.protocol import WireRequest
from airflow_provider_loanauth.service.transport import send
from airflow_provider_loanauth.system import system

__all__ = ["LoanAuthSensorTrigger"]

#: Minimum of the interval in seconds, so that no probe becomes a busy loop.
MIN_INTERVAL = 0.05
#: How many triggers send their events per second after a response.
EVENTS_PER_SECOND = 20.0
#: Seconds for the connection and for each wait of a request; less if an interval is shorter.
REQUEST_TIMEOUT = 10.0
#: Seconds after which a trigger sends its event without a response, at the latest; or four intervals, if these are
#: longer. A login may succeed where these requests fail, for example from another network.
MAX_SECONDS_WITHOUT_RESPONSE = 3600.0


class LoanAuthSensorTrigger(BaseTrigger):
    """Wait until an address responds with a status other than 408, 429 and 5xx, or only a login can say what is wrong.

    All triggers of a process with the same address, proxy and interval share one request in each interval. After a
    response, they send their events in random order, about 20 per second, so that not all sensors log in at the same
    moment. Without one, each sends its event after half an hour to an hour, and not before two intervals, so that its
    sensor tries to log in.

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
                raise ValueError(f"The {name} of a trigger must be an http or https address without user information.")
        self.address, self.proxy = address, proxy
        self.poke_interval, self.deadline = poke_interval, deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class and the arguments, which Airflow stores to create this trigger again."""
        names = ("address", "poke_interval", "deadline", "proxy")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: ``{"status": "ready"}`` if a login should be tried, or ``{"status": "timeout"}``."""
        # The clock of the event loop, which a change of the system time does not affect.
        now = asyncio.get_running_loop().time
        began = now()
        ends = began + (self.deadline or math.inf) - system.time()
        interval = max(self.poke_interval, MIN_INTERVAL)
        seconds = max(MAX_SECONDS_WITHOUT_RESPONSE, 4 * interval) * system.uniform(0.5, 1)
        latest = min(ends, began + seconds)
        logged = None
        while now() < latest:
            probe = next_probe(self.address, self.proxy, interval)
            probe.waiters += 1
            # Not wait_for(): before Python 3.12, it loses the cancellation of this trigger at the moment of a response.
            await asyncio.wait([probe.task], timeout=latest - now())
            if not probe.task.done():
                break
            reason = probe.task.result()
            if reason is None:
                # A probe that others had begun may end at once, but the sensor of this trigger has just poked.
                earliest = max(began + interval, now())
                spread = min((probe.waiters - 1) / EVENTS_PER_SECOND, interval)
                await asyncio.sleep(min(earliest + system.uniform(0, spread), ends) - now())
                yield TriggerEvent({"status": "ready"})  # type: ignore[no-untyped-call]
                return
            if reason != logged:
                self.log.info("Still waiting for %s: %s.", self.address, reason)
                logged = reason
        yield TriggerEvent({"status": "timeout" if latest == ends else "ready"})  # type: ignore[no-untyped-call]


class Probe:
    """The next request to an address, for all triggers of an event loop that wait for it with one interval."""

    def __init__(self, address: str, proxy: str | None, interval: float) -> None:
        self.waiters = 0
        # In an empty context, because it may outlive the trigger that starts it, and would write to that one's log.
        self.task = Context().run(asyncio.create_task, self._send(address, proxy, interval))

    async def _send(self, address: str, proxy: str | None, interval: float) -> str | None:
        await asyncio.sleep(interval)
        request = partial(why_unavailable, address, min(REQUEST_TIMEOUT, interval), proxy)
        try:
            # In a thread of its own, because nothing can interrupt the lookup of a host name.
            return await run_in_thread(request, name=f"probe of {address}")
        except RuntimeError as error:
            # No thread can be started now. That must not end the wait.
            return f"no request could be sent ({type(error).__name__})"


_PROBES: dict[tuple[AbstractEventLoop, str, str | None, float], Probe] = {}


def next_probe(address: str, proxy: str | None, interval: float) -> Probe:
    """Return the probe that others wait for too; one trigger starts it, and it ends also if that one leaves."""
    key = asyncio.get_running_loop(), address, proxy, interval
    if key not in _PROBES or _PROBES[key].task.done():
        _PROBES[key] = Probe(address, proxy, interval)
    return _PROBES[key]


def why_unavailable(address: str, timeout: float, proxy: str | None) -> str | None:
    """Return why an address is unavailable: 408, 429, 5xx or no response; None if it responds, or a login must tell."""
    try:
        used = proxy_for(address, Proxy(proxy) if proxy else None)
        # Only plain http, because an https proxy must not receive its password over TLS that is not checked.
        if used is not None and not used.url.startswith("http:"):
            return None
        # Certificates are not checked, because nothing secret is sent. A login checks them.
        request = WireRequest(url=address, target=f"GET {address}")
        status = send(request, timeout=timeout, verify=False, proxy=used).status
    except LoanAuthError as error:
        # An error with a status is that of a proxy that requires authentication.
        if error.status or isinstance(error, SettingsError):
            return None
        return str(error)
    return f"status {status}" if is_unavailable(status) else None
