"""A clock that a test moves forward. This is the one place that replaces the clock of the package."""

import time
from datetime import datetime, timezone
from types import SimpleNamespace

from airflow_provider_loanauth.check import network
from airflow_provider_loanauth.login import credential, memory, shared, variables
from airflow_provider_loanauth.sensors import loanauth as sensors
from airflow_provider_loanauth.service import client, telemetry


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
    """Let a clock decide when credentials expire, and failures and waits end."""
    for module in (credential, memory, sensors, shared, telemetry, variables):
        monkeypatch.setattr(module, "time", clock)
    return clock


def replace_all_clocks(monkeypatch, clock):
    """Let it also decide when a login was requested, and what ``check`` compares with the clock of the service."""
    now = SimpleNamespace(now=lambda _: clock.now(), fromtimestamp=datetime.fromtimestamp)
    for module in (client, network):
        monkeypatch.setattr(module, "datetime", now)
    return replace_clock(monkeypatch, clock)


def replace_waits(monkeypatch, wait):
    """Call ``wait(seconds)`` instead of waiting before a retry of an authentication."""
    now = shared.time
    monkeypatch.setattr(shared, "time", SimpleNamespace(time=now.time, monotonic=now.monotonic, sleep=wait))
