"""
The trigger: an address and seconds in, a word out. It holds no secret and no Connection, because its arguments, its
``repr`` and its event are logged and stored in clear by Airflow.
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

#: The events: the address answers; or it did not until the deadline.
READY = "ready"
TIMEOUT = "timeout"


class ServiceReadyTrigger(BaseTrigger):
    """
    Wait until an address answers with anything but an error of the network, 429 or 5xx.

    All triggers of a process that wait for the same address share one request per interval. The first is sent when one
    interval has passed: who defers was just turned away.

    :param address: the Auth URL; nothing is sent to it but a ``GET`` without credentials
    :param poke_interval: seconds between two requests
    :param deadline: when to give up, in seconds since the epoch (UTC); None: never
    :param max_interval: let the interval double with each request up to this many seconds; None: it stays as it is
    :raises ValueError: the address is not ``http`` or ``https``, or holds user information
    """

    def __init__(
        self,
        address: str,
        poke_interval: float = 60.0,
        deadline: float | None = None,
        max_interval: float | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError(
                "The address of a ServiceReadyTrigger is an http or https address without user information."
            )
        self.address = address
        self.poke_interval = poke_interval
        self.deadline = deadline
        self.max_interval = max_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what Airflow stores to make this trigger again."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "address": self.address,
                "poke_interval": self.poke_interval,
                "deadline": self.deadline,
                "max_interval": self.max_interval,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: the word ``ready`` or ``timeout``."""
        # From here on the event loop's clock counts, which no step of the wall clock moves.
        left = None if self.deadline is None else max(self.deadline - time.time(), 0.0)
        waiting = wait_until_ready(self.address, self.poke_interval, ceiling=self.max_interval)
        try:
            await asyncio.wait_for(waiting, left)
        except asyncio.TimeoutError:
            yield TriggerEvent(TIMEOUT)  # type: ignore[no-untyped-call]
        else:
            yield TriggerEvent(READY)  # type: ignore[no-untyped-call]
