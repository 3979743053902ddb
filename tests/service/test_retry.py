from __future__ import annotations

import pytest

from airflow_provider_loanauth.exceptions import (
    RejectedError,
    ResponseError,
    SealError,
    SettingsError,
    UnavailableError,
)
from airflow_provider_loanauth.service import retry as module
from airflow_provider_loanauth.service.client import MAX_ATTEMPTS
from airflow_provider_loanauth.service.retry import MAX_SECONDS, call_with_retries


class Simulation:
    """Attempts with the given outcomes, and a clock that advances only by sleeping or by slow attempts."""

    def __init__(self, monkeypatch, *outcomes, attempt_seconds=0.0):
        self.outcomes, self.attempt_seconds = [*outcomes], attempt_seconds
        self.attempts, self.waits, self.lines, self.time = 0, [], [], 1000.0
        monkeypatch.setattr("tenacity.time.monotonic", lambda: self.time)
        monkeypatch.setattr(module, "time", self)

    def attempt(self):
        self.attempts += 1
        self.time += self.attempt_seconds
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def sleep(self, seconds):
        self.waits.append(seconds)
        self.time += seconds

    def log(self, text, *args):
        self.lines.append(text % args)

    def run(self, **options):
        return call_with_retries(
            self.attempt, sleep=self.sleep, **{"max_attempts": MAX_ATTEMPTS, "log_retry": self.log} | options
        )


def down(text="It is down", **attributes):
    return UnavailableError(text, **attributes)


def test_success_at_once(monkeypatch):
    simulation = Simulation(monkeypatch, "result")
    assert simulation.run() == "result"
    assert (simulation.attempts, simulation.waits, simulation.lines) == (1, [], [])


def test_success_at_the_last_attempt(monkeypatch):
    simulation = Simulation(monkeypatch, down("First"), down("Second."), "result")
    assert simulation.run() == "result"
    assert simulation.attempts == MAX_ATTEMPTS == 3
    assert [line.partition(" Retrying in ")[0] for line in simulation.lines] == [
        "Attempt 1 of 3 failed: First.",
        "Attempt 2 of 3 failed: Second.",
    ]
    assert [line.rpartition(" in ")[2] for line in simulation.lines] == [f"{wait:.1f} s." for wait in simulation.waits]


def test_three_attempts_and_no_more(monkeypatch):
    simulation = Simulation(monkeypatch, *[down(status=503)] * 9)
    with pytest.raises(UnavailableError) as caught:
        simulation.run()
    assert simulation.attempts == 3
    assert str(caught.value) == "It is down. Gave up after 3 attempts."
    assert caught.value.status == 503
    assert caught.value.retry_after is None
    assert len(simulation.lines) == 2


def test_max_attempts_limits_the_attempts(monkeypatch):
    simulation = Simulation(monkeypatch, *[down()] * 9)
    with pytest.raises(UnavailableError, match=r"after 1 attempt\."):
        simulation.run(max_attempts=1)
    assert (simulation.attempts, simulation.waits) == (1, [])


@pytest.mark.parametrize(
    "kind", [RejectedError, SettingsError, ResponseError, SealError, ValueError, KeyboardInterrupt]
)
def test_no_other_error_is_retried(monkeypatch, kind):
    error = kind("made up")
    simulation = Simulation(monkeypatch, "never")
    simulation.attempt = lambda: (_ for _ in ()).throw(error)
    with pytest.raises(kind) as caught:
        simulation.run()
    assert caught.value is error
    assert simulation.lines == []


def test_a_rejection_ends_the_attempts(monkeypatch):
    simulation = Simulation(monkeypatch, down(), RejectedError("no"), "never")
    with pytest.raises(RejectedError):
        simulation.run()
    assert simulation.attempts == 2


def test_full_jitter(monkeypatch):
    first, second = [], []
    for _ in range(200):
        simulation = Simulation(monkeypatch, down(), down(), "result")
        simulation.run()
        first.append(simulation.waits[0])
        second.append(simulation.waits[1])
    assert all(0 <= wait <= 1 for wait in first)
    assert all(0 <= wait <= 2 for wait in second)
    # Full jitter: from zero up to the whole wait.
    assert min(first) < 0.2
    assert max(first) > 0.8
    assert min(second) < 0.4
    assert max(second) > 1.6


@pytest.mark.parametrize("seconds", [0.0, 1.0, 7.5, 40.0])
def test_retry_after_is_obeyed(monkeypatch, seconds):
    simulation = Simulation(monkeypatch, down(retry_after=seconds), "result")
    assert simulation.run() == "result"
    [wait] = simulation.waits
    # A little later, so that not all clients come back in the same instant.
    assert seconds <= wait <= seconds + 1


def test_clients_with_the_same_retry_after_do_not_retry_at_the_same_moment(monkeypatch):
    waits = []
    for _ in range(200):
        simulation = Simulation(monkeypatch, down(retry_after=5.0), "result")
        simulation.run()
        waits += simulation.waits
    assert 5 <= min(waits) < 5.2
    assert 5.8 < max(waits) <= 6


@pytest.mark.parametrize("seconds", [60.0, 61.0, 3600.0, 1e12])
def test_a_longer_wait_ends_the_attempts_at_once(monkeypatch, seconds):
    simulation = Simulation(monkeypatch, down(retry_after=seconds), "never")
    with pytest.raises(
        UnavailableError, match=rf"after 1 attempt; the service asked to wait {seconds:.0f} s\."
    ) as caught:
        simulation.run()
    assert (simulation.attempts, simulation.waits, simulation.lines) == (1, [], [])
    assert caught.value.retry_after == seconds


def test_the_last_attempt_starts_within_the_total(monkeypatch):
    simulation = Simulation(monkeypatch, *[down()] * 9, attempt_seconds=31)
    with pytest.raises(UnavailableError, match="after 2 attempts"):
        simulation.run(max_attempts=9)
    slow = Simulation(monkeypatch, *[down()] * 9, attempt_seconds=MAX_SECONDS + 1)
    with pytest.raises(UnavailableError, match=r"after 1 attempt\."):
        slow.run()
    assert slow.attempts == 1


def test_requested_waits_count_for_the_total(monkeypatch):
    simulation = Simulation(monkeypatch, *[down(retry_after=25.0)] * 9)
    with pytest.raises(UnavailableError, match=r"after 3 attempts; the service asked to wait 25 s\."):
        simulation.run(max_attempts=9)
    assert sum(simulation.waits) < MAX_SECONDS


def test_the_error_has_no_context(monkeypatch):
    simulation = Simulation(monkeypatch, *[down()] * 3)
    with pytest.raises(UnavailableError) as caught:
        simulation.run()
    # tenacity may keep the error of the last attempt as the cause; it must be one of this package.
    for inner in (caught.value.__cause__, caught.value.__context__):
        assert inner is None or isinstance(inner, UnavailableError)
