"""
Triggers that wait for a service, on an event loop with virtual time.

A wait of minutes takes no time and gives the same result on any machine. Times are seconds of that loop, and random
numbers are seeded.
"""

from __future__ import annotations

import asyncio
import math
import random
import selectors
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth.triggers import loanauth, probe
from airflow_provider_loanauth.triggers.loanauth import ServiceReadyTrigger


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """
    An event loop with a clock that starts at 0 and goes to the next timer as soon as nothing else is left to do.

    Work in other threads takes no time of this clock, so a test must replace it.
    """

    def __init__(self):
        self._now = 0.0
        super().__init__(_VirtualTimeSelector(self))

    def time(self):
        return self._now

    def pass_time(self, seconds):
        self._now += seconds


class _VirtualTimeSelector(selectors.DefaultSelector):
    """Does not block until the next timer, but moves the clock forward."""

    def __init__(self, loop):
        super().__init__()
        self._loop = loop

    def select(self, timeout=None):
        if not timeout:  # None: there is no timer
            return super().select(timeout)
        events = super().select(0)
        if not events:
            self._loop.pass_time(timeout)
        return events


def run(main):
    """Run a coroutine on a new loop with virtual time; return its result."""
    loop = VirtualTimeLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


ADDRESS = "http://lender.invalid"
#: The system time when the loop starts.
EPOCH = 1_790_000_000.0


@dataclass(frozen=True)
class Sensor:
    """A trigger: when it starts, its intervals, how many seconds it may take, and when it is cancelled."""

    joins: float = 0.0
    interval: float = 60.0
    time_left: float | None = None
    leaves: float | None = None
    address: str = ADDRESS
    proxy: str | None = None

    @property
    def deadline(self):
        return math.inf if self.time_left is None else self.joins + self.time_left


@dataclass(frozen=True)
class Event:
    """What a trigger has sent, and when; a cancelled trigger sends nothing."""

    payload: str | None
    at: float


@dataclass(frozen=True)
class Request:
    """A request that a probe has sent."""

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
        #: Times at which requests were cancelled.
        self.cancelled = []

    @property
    def times(self):
        return [request.at for request in self.requests]

    async def why_unavailable(self, address, timeout, proxy):
        """Replace the function that sends a request."""
        loop = asyncio.get_running_loop()
        at = loop.time()
        self.requests.append(Request(at, address, timeout, proxy))
        try:
            await asyncio.sleep(min(self.takes, timeout))
        except asyncio.CancelledError:
            self.cancelled.append(loop.time())
            raise
        return None if at >= self.recovers and self.takes <= timeout else "made up"


def wait_for(service, sensors, *, seed=0):
    """Run triggers until each has ended, and check that nothing is left; return their events."""

    async def run_trigger(sensor):
        loop = asyncio.get_running_loop()
        await asyncio.sleep(sensor.joins)
        deadline = None if sensor.time_left is None else EPOCH + sensor.deadline
        trigger = ServiceReadyTrigger(sensor.address, sensor.interval, deadline, sensor.proxy)
        try:
            events = [(event.payload, loop.time()) async for event in trigger.run()]
        except asyncio.CancelledError:
            events = [(None, loop.time())]
        (event,) = events
        return Event(*event)

    async def main():
        loop = asyncio.get_running_loop()
        tasks = [asyncio.ensure_future(run_trigger(sensor)) for sensor in sensors]
        for sensor, task in zip(sensors, tasks, strict=True):
            if sensor.leaves is not None:
                loop.call_at(sensor.leaves, task.cancel)
        events = await asyncio.gather(*tasks)
        # On this loop, time passes only when no task has anything left to do.
        await asyncio.sleep(1)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert probe._PROBES == {}
        return events

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loanauth, "random", random.Random(seed))
        patch.setattr(probe, "why_unavailable", service.why_unavailable)
        patch.setattr(loanauth, "time", SimpleNamespace(time=lambda: EPOCH + asyncio.get_running_loop().time()))
        return run(main())
