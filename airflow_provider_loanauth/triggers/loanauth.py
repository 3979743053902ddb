"""The trigger that waits until an address responds.

It reads no Connection and sends no credentials, because Airflow shows arguments and events.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
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
#: Seconds that one request may take; less if an interval is shorter.
REQUEST_TIMEOUT = 10.0
#: Seconds after which a trigger sends its event without a response, at the latest; or four intervals, if these are
#: longer. A login on a worker may succeed where the requests of the triggerer fail: its network is another one, or the
#: address responds to them with 5xx.
MAX_SECONDS_WITHOUT_RESPONSE = 3600.0


class LoanAuthSensorTrigger(BaseTrigger):
    """Wait until an address responds with a status other than 408, 429 and 5xx, or only a login can say what is wrong.

    A request is sent after half an interval to a whole one, at random, so that not all sensors log in at the same
    moment. It takes at most 10 seconds, or one interval if that is shorter. The trigger
    logs why it waits. Without a response, it sends its event after half an hour to an hour, and not before two
    intervals, so that its sensor tries to log in.

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
        ends = math.inf if self.deadline is None else now() + self.deadline - system.time()
        interval = max(self.poke_interval, MIN_INTERVAL)
        seconds = max(MAX_SECONDS_WITHOUT_RESPONSE, 4 * interval) * system.uniform(0.5, 1)
        latest = min(ends, now() + seconds)
        # Random, so that triggers that began together do not send their requests, nor their events, together.
        while (due := now() + interval * system.uniform(0.5, 1)) < latest:
            await asyncio.sleep(due - now())
            reason = await why_unavailable(self.address, min(REQUEST_TIMEOUT, interval), self.proxy)
            if reason is None:
                yield TriggerEvent({"status": "ready"})  # type: ignore[no-untyped-call]
                return
            self.log.info("Still waiting for %s: %s.", self.address, reason)
        await asyncio.sleep(latest - now())
        yield TriggerEvent({"status": "timeout" if latest == ends else "ready"})  # type: ignore[no-untyped-call]


async def why_unavailable(address: str, timeout: float, proxy: str | None) -> str | None:
    """Return why an address is unavailable: 408, 429, 5xx or no response; None if it responds, or a login must tell."""
    # Nothing can interrupt the lookup of a host name, so a request has a thread of its own, which may outlast it.
    request = asyncio.create_task(run_in_thread(partial(_request, address, timeout, proxy), name=f"probe of {address}"))
    # Not wait_for(), which loses the cancellation of a trigger at the moment of a response (before Python 3.12).
    done, _ = await asyncio.wait([request], timeout=timeout)
    if not done:
        request.cancel()
        return f"no response within {timeout:g} s"
    try:
        return request.result()
    except RuntimeError as error:
        # No thread can be started now. That must not end the wait.
        return f"no request could be sent ({type(error).__name__})"


def _request(address: str, timeout: float, proxy: str | None) -> str | None:
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
