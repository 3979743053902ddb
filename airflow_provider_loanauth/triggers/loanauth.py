"""The trigger that waits until an address responds, and the probe that all triggers of an address share.

It reads no Connection and sends no credentials, because Airflow shows arguments and events.
"""

from __future__ import annotations

import asyncio
import math
from asyncio import AbstractEventLoop, Task
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import Context
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_loanauth._compat import run_in_thread
from airflow_provider_loanauth.connection.proxy import Proxy
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
#: Seconds that one request may take; less if an interval is shorter.
REQUEST_TIMEOUT = 10.0
#: Seconds after which a trigger sends its event without a response, at the latest; or four intervals, if these are
#: longer. A login on a worker may succeed where the requests of the triggerer fail: its network is another one, or the
#: address responds to them with 5xx.
MAX_SECONDS_WITHOUT_RESPONSE = 3600.0
#: Addresses, with proxies and intervals, to which a request is under way: one at most for each.
_PENDING: set[tuple[str, str | None, float]] = set()


class LoanAuthSensorTrigger(BaseTrigger):
    """Wait until an address responds with a status other than 408, 429 and 5xx, or only a login can say what is wrong.

    All triggers of a process that wait for the same address through the same proxy, with the same interval, share one
    request per interval. The first one is sent after one interval, because the service was unavailable a moment ago. It
    takes at most 10 seconds, or one interval if that is shorter. The trigger logs why it waits, at growing intervals.

    After a response, these triggers send their events in random order, about 20 per second, so that the sensors do not
    all log in at the same moment. They send more if that would take longer than a ``poke_interval`` or a deadline.
    Without a response, each sends its event after half an hour to an hour, and not before two intervals, so that its
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
        """Yield one event: ``{"status": "ready"}``, or ``{"status": "timeout"}`` at the deadline."""
        # The clock of the event loop, which a change of the system time does not affect.
        now = asyncio.get_running_loop().time
        began = now()
        ends = math.inf if self.deadline is None else began + self.deadline - system.time()
        interval = max(self.poke_interval, MIN_INTERVAL)
        # Random, so that a thousand triggers do not write their logs at the same moment.
        pause = interval * system.uniform(1, 2)
        seconds = max(MAX_SECONDS_WITHOUT_RESPONSE, 4 * interval) * system.uniform(0.5, 1)
        latest = min(ends, began + seconds)
        with shared_probe(self.address, self.proxy, interval) as probe:
            await asyncio.wait([probe.task], timeout=min(pause, latest - now()))
            while not probe.task.done() and now() < latest:
                self.log.info("Still waiting for %s: %s.", self.address, probe.reason)
                pause *= 2
                await asyncio.wait([probe.task], timeout=min(pause, latest - now()))
        if not probe.task.done():
            yield TriggerEvent({"status": "timeout" if latest == ends else "ready"})  # type: ignore[no-untyped-call]
            return
        # Another trigger may have needed the request. This one waits for an interval, because its sensor just poked.
        earliest = min(max(began + interval, now()), ends)
        spread = min((probe.task.result() - 1) / EVENTS_PER_SECOND, interval, ends - earliest)
        await asyncio.sleep(earliest + system.uniform(0, spread) - now())
        yield TriggerEvent({"status": "ready"})  # type: ignore[no-untyped-call]


class Probe:
    """Sends a request once per interval, until the address responds."""

    def __init__(self, address: str, proxy: str | None, interval: float) -> None:
        self.waiters = 0
        #: Why the address was unavailable at the last request.
        self.reason = "no response so far"
        # In an empty context, because it may outlive the trigger that starts it, and would write to that one's log.
        self.task: Task[int] = Context().run(asyncio.create_task, self._run(address, proxy, interval))

    async def _run(self, address: str, proxy: str | None, interval: float) -> int:
        """Return how many triggers wait for the response."""
        now = asyncio.get_running_loop().time
        started, reason = now(), self.reason
        while reason:
            self.reason = reason
            started = max(started + interval, now())
            await asyncio.sleep(started - now())
            # Its thread must have ended when the next request is due.
            reason = await why_unavailable(address, min(REQUEST_TIMEOUT, 0.9 * interval), proxy, interval) or ""
        return self.waiters


_PROBES: dict[tuple[AbstractEventLoop, str, str | None, float], Probe] = {}


@contextmanager
def shared_probe(address: str, proxy: str | None, interval: float) -> Iterator[Probe]:
    """Wait together with others: the first trigger starts the probe, the last one to leave stops it."""
    key = asyncio.get_running_loop(), address, proxy, interval
    if key not in _PROBES:
        _PROBES[key] = Probe(address, proxy, interval)
    probe = _PROBES[key]
    probe.waiters += 1
    try:
        yield probe
    finally:
        probe.waiters -= 1
        if not probe.waiters:
            del _PROBES[key]
            probe.task.cancel()


async def why_unavailable(address: str, timeout: float, proxy: str | None, interval: float) -> str | None:
    """Return why an address is unavailable: 408, 429, 5xx or no response; None if it responds, or a login must tell."""
    # Nothing can interrupt the lookup of a host name, so a request has a thread of its own, which may outlast it.
    if (address, proxy, interval) not in _PENDING:
        request = partial(_request, address, timeout, proxy, interval)
        try:
            return await asyncio.wait_for(run_in_thread(request, name=f"probe of {address}"), timeout)
        except asyncio.TimeoutError:
            pass
        except RuntimeError as error:
            # No thread can be started now. That must not end the wait of all triggers.
            return f"no request could be sent ({type(error).__name__})"
    return f"no response within {timeout:g} s"


def _request(address: str, timeout: float, proxy: str | None, interval: float) -> str | None:
    _PENDING.add((address, proxy, interval))
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
    finally:
        _PENDING.discard((address, proxy, interval))
    if is_unavailable(status):
        return f"status {status}"
    return None
