"""An event loop on which sleeping takes no real time."""

from __future__ import annotations

import asyncio
import selectors


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
