"""A clock that a test moves forward, in place of the module ``time`` of a module of the package."""

from __future__ import annotations

import time


class Clock:
    """The time of this process, and the seconds that a test has added to it."""

    def __init__(self):
        self.passed = 0.0

    def monotonic(self):
        return time.monotonic() + self.passed

    def time(self):
        return time.time() + self.passed

    def pass_time(self, seconds):
        """Move the clock forward, without waiting."""
        self.passed += seconds
