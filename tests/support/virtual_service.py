"""Triggers that wait for a service, on an event loop with virtual time: waits take no time. Times are in seconds."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import selectors
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from airflow_provider_loanauth.system import system
from airflow_provider_loanauth.triggers import loanauth
from airflow_provider_loanauth.triggers.loanauth import LoanAuthSensorTrigger


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Its clock goes to the next timer when nothing else is left to do, but for other threads."""

    def __init__(self):
        self.now = 0.0
        selector = selectors.DefaultSelector()
        self._select, selector.select = selector.select, self._go_to_the_next_timer
        super().__init__(selector)

    def time(self):
        return self.now

    def _go_to_the_next_timer(self, timeout=None):
        if not timeout:  # None: there is no timer
            return self._select(timeout)
        events = self._select(0)
        if not events:
            self.now += timeout
        return events


ADDRESS = "http://lender.invalid"
#: The system time when the loop starts.
EPOCH = 1_790_000_000.0


@dataclass(frozen=True)
class Sensor:
    """A trigger: when it starts, its intervals, how many seconds it may take, and when it is cancelled."""

    joins: float = 0.0
    interval: float = 60.0
    time_left: float = math.inf
    leaves: float | None = None
    address: str = ADDRESS
    proxy: str | None = None

    @property
    def deadline(self):
        return self.joins + self.time_left


class Event(NamedTuple):
    """The status that a trigger has sent, and when; None: it was cancelled."""

    status: str | None
    at: float


class Request(NamedTuple):
    at: float
    address: str
    timeout: float
    proxy: str | None


class Service:
    """A service that is unavailable until it recovers. Each of its responses takes some seconds."""

    def __init__(self, recovers=math.inf, takes=0.0):
        self.recovers = recovers
        self.takes = takes
        self.requests = []

    @property
    def times(self):
        return [request.at for request in self.requests]

    async def run_in_thread(self, request, *, name):
        """Replace the function that sends a request in a thread."""
        address, timeout, proxy = request.args
        at = asyncio.get_running_loop().time()
        self.requests.append(Request(at, address, timeout, proxy))
        await asyncio.sleep(min(self.takes, timeout))
        return None if at >= self.recovers and self.takes <= timeout else "made up"


def wait_for(service, sensors, *, seed=0):
    """Run triggers until each has ended, and check that nothing is left; return their events."""

    async def run_trigger(sensor):
        loop = asyncio.get_running_loop()
        await asyncio.sleep(sensor.joins)
        options = {"poke_interval": sensor.interval, "deadline": EPOCH + sensor.deadline, "proxy": sensor.proxy}
        trigger = LoanAuthSensorTrigger(sensor.address, **options)
        try:
            [event] = [event async for event in trigger.run()]
            return Event(event.payload["status"], loop.time())
        except asyncio.CancelledError:
            return Event(None, loop.time())

    async def main():
        loop = asyncio.get_running_loop()
        tasks = [asyncio.ensure_future(run_trigger(sensor)) for sensor in sensors]
        for sensor, task in zip(sensors, tasks, strict=True):
            if sensor.leaves is not None:
                loop.call_at(sensor.leaves, task.cancel)
        events = await asyncio.gather(*tasks)
        sent = len(service.requests)
        # A last request, for which nobody waits any more.
        await asyncio.sleep(86_400)
        del service.requests[sent:]
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return events

    with pytest.MonkeyPatch.context() as patch, contextlib.closing(VirtualTimeLoop()) as virtual:
        patch.setattr(system, "uniform", random.Random(seed).uniform)
        patch.setattr(loanauth, "run_in_thread", service.run_in_thread)
        patch.setattr(system, "time", lambda: EPOCH + asyncio.get_running_loop().time())
        return virtual.run_until_complete(main())
