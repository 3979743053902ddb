"""A clock that a test moves forward. This is the one place that replaces the clock of the package."""

import time
from datetime import datetime, timezone

from airflow_provider_loanauth.system import system


class Clock:
    """The time of this process, or one that stands still; and the seconds that a test has added to it."""

    def __init__(self, standing=None):
        self.passed = 0.0
        self._standing = standing

    def monotonic(self):
        return (time.monotonic() if self._standing is None else 0.0) + self.passed

    def time(self):
        return (time.time() if self._standing is None else self._standing) + self.passed

    def now(self):
        return datetime.fromtimestamp(self.time(), tz=timezone.utc)

    def sleep(self, seconds):
        self.pass_time(seconds)

    def pass_time(self, seconds):
        """Move the clock forward, without waiting."""
        self.passed += seconds


def replace_clock(monkeypatch, clock):
    """Let a clock decide when credentials expire, when a login was requested, and when failures and waits end."""
    for name in ("monotonic", "time", "sleep"):
        # Looked up with each call, because a test may replace a method of the clock.
        monkeypatch.setattr(system, name, lambda *seconds, name=name: getattr(clock, name)(*seconds))
    return clock
