"""
Trigger that waits until an address responds.

Airflow logs and stores the arguments and the event of a trigger unencrypted. The arguments are therefore only an
address and numbers of seconds, the event is a word, and the trigger reads no Connection.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_loanauth.triggers.probe import wait_until_ready

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["ServiceReadyTrigger"]

#: The two events: the address has responded; it has not responded before the deadline.
READY = "ready"
TIMEOUT = "timeout"


class ServiceReadyTrigger(BaseTrigger):
    """
    Wait until an address responds with a status other than 408, 429 and 5xx.

    All triggers of a process that wait for the same address through the same proxy share one request per interval. The
    first probe is sent after one interval, because the service was unavailable a moment ago. A request takes at most
    10 seconds, or one interval if that is shorter.

    After a response, these triggers send their events one after the other, in random order and about 20 per second, so
    that the sensors do not all log in at the same moment. A single trigger sends its event at once. No trigger waits
    longer than one ``poke_interval`` for its turn, or until its deadline, so thousands of triggers send more events per
    second.

    :param address: the Auth URL, which receives only unauthenticated ``GET`` requests
    :param poke_interval: seconds between two requests
    :param deadline: when to give up, in seconds since the epoch (UTC); None: never
    :param max_interval: the interval doubles after each request, up to this many seconds; None: it does not change
    :param proxy: scheme, host and port of a proxy for an https address; None: the proxy settings of the environment
        apply. It has no user information, because Airflow may show the arguments. A proxy that requires authentication
        counts as a response
    :raises ValueError: the address or the proxy is not ``http`` or ``https``, or contains user information
    """

    def __init__(
        self,
        address: str,
        poke_interval: float = 60.0,
        deadline: float | None = None,
        max_interval: float | None = None,
        proxy: str | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        for name, url in (("address", address), ("proxy", proxy)):
            parts = urlsplit(url or "")
            if url is not None and (parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc):
                raise ValueError(
                    f"The {name} of a ServiceReadyTrigger must be an http or https address without user information."
                )
        self.address = address
        self.poke_interval = poke_interval
        self.deadline = deadline
        self.max_interval = max_interval
        self.proxy = proxy

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class and the arguments, which Airflow stores to create this trigger again."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "address": self.address,
                "poke_interval": self.poke_interval,
                "deadline": self.deadline,
                "max_interval": self.max_interval,
                # A triggerer with an older release of this provider does not know this argument.
                **({} if self.proxy is None else {"proxy": self.proxy}),
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """
        Yield one event: the word ``ready`` or ``timeout``.

        :raises Exception: no request can be sent to the address at all
        """
        # From here on, the event loop's clock is used, which a change of the system time does not affect.
        left = None if self.deadline is None else max(self.deadline - time.time(), 0.0)
        waiting = wait_until_ready(
            self.address, self.poke_interval, max_interval=self.max_interval, time_left=left, proxy=self.proxy
        )
        try:
            await asyncio.wait_for(waiting, left)
        except asyncio.TimeoutError:
            yield TriggerEvent(TIMEOUT)  # type: ignore[no-untyped-call]
        else:
            yield TriggerEvent(READY)  # type: ignore[no-untyped-call]
