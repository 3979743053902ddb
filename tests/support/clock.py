"""A clock that a test moves forward, in place of the module ``time`` of a module of the package."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from types import SimpleNamespace

from airflow_provider_loanauth.login import shared


class Clock:
    """The time of this process, and the seconds that a test has added to it."""

    def __init__(self):
        self.passed = 0.0

    def monotonic(self):
        return time.monotonic() + self.passed

    def time(self):
        return time.time() + self.passed

    def now(self):
        return datetime.fromtimestamp(self.time(), tz=timezone.utc)

    def sleep(self, seconds):
        self.pass_time(seconds)

    def pass_time(self, seconds):
        """Move the clock forward, without waiting."""
        self.passed += seconds


def replace_waits(monkeypatch, wait):
    """Call ``wait(seconds)`` instead of waiting before a retry of an authentication."""
    now = shared.time
    monkeypatch.setattr(shared, "time", SimpleNamespace(time=now.time, monotonic=now.monotonic, sleep=wait))
