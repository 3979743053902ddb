"""How long between retries, and what is retried."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from airflow_provider_loanauth.exceptions import RejectedError, ResponseError, SettingsError, UnavailableError
from airflow_provider_loanauth.service import retry
from airflow_provider_loanauth.service.client import MAX_ATTEMPTS


class Simulation:
    """Attempts with the given outcomes, and a clock that advances only by sleeping or by slow attempts."""

    def __init__(self, monkeypatch, *outcomes, attempt_seconds=0.0):
        self.outcomes, self.attempt_seconds = [*outcomes], attempt_seconds
        self.attempts, self.waits, self.lines, self.time = 0, [], [], 1000.0
        monkeypatch.setattr(retry, "time", SimpleNamespace(monotonic=lambda: self.time))

    def attempt(self):
        self.attempts += 1
        self.time += self.attempt_seconds
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def sleep(self, seconds):
        self.waits.append(seconds)
        self.time += seconds

    def run(self, max_attempts=MAX_ATTEMPTS, check=lambda: None):
        return retry.call_with_retries(
            self.attempt,
            max_attempts=max_attempts,
            log_retry=lambda text, *args: self.lines.append(text % args),
            sleep=self.sleep,
            check=check,
        )

    def fails(self, **options):
        with pytest.raises(UnavailableError) as caught:
            self.run(**options)
        return caught.value


def down(text="It is down", **attributes):
    error = UnavailableError(text)
    vars(error).update(attributes)
    return error


def test_success_at_the_last_attempt(monkeypatch):
    simulation = Simulation(monkeypatch, down("First"), down("Second."), "result")
    assert simulation.run() == "result"
    assert simulation.attempts == MAX_ATTEMPTS == 3
    assert simulation.lines == [
        f"Attempt 1 of 3 failed: First. Retrying in {simulation.waits[0]:.1f} s.",
        f"Attempt 2 of 3 failed: Second. Retrying in {simulation.waits[1]:.1f} s.",
    ]


def test_three_attempts_and_no_more(monkeypatch):
    simulation = Simulation(monkeypatch, *[down(status=503)] * 9)
    error = simulation.fails()
    assert simulation.attempts == 3
    assert len(simulation.lines) == 2
    assert str(error) == "It is down. Gave up after 3 attempts."
    assert (error.status, error.retry_after) == (503, None)


def test_max_attempts_limits_the_attempts(monkeypatch):
    simulation = Simulation(monkeypatch, *[down()] * 9)
    assert str(simulation.fails(max_attempts=1)) == "It is down."
    assert (simulation.attempts, simulation.waits) == (1, [])


@pytest.mark.parametrize("kind", [RejectedError, SettingsError, ResponseError, ValueError, KeyboardInterrupt])
def test_no_other_error_is_retried(monkeypatch, kind):
    simulation = Simulation(monkeypatch, down(), kind("made up"), "never")
    with pytest.raises(kind, match="made up"):
        simulation.run()
    assert simulation.attempts == 2


def test_full_jitter(monkeypatch):
    waits = []
    for _ in range(200):
        simulation = Simulation(monkeypatch, down(), down(), "result")
        simulation.run()
        waits.append(simulation.waits)
    first, second = zip(*waits, strict=True)
    # From zero up to the whole wait.
    assert 0 <= min(first) < 0.2
    assert 0.8 < max(first) <= 1
    assert 0 <= min(second) < 0.4
    assert 1.6 < max(second) <= 2


@pytest.mark.parametrize("seconds", [0.0, 7.5, 40.0])
def test_retry_after_is_obeyed(monkeypatch, seconds):
    """A little later, so that not all clients come back in the same instant."""
    waits = []
    for _ in range(200):
        simulation = Simulation(monkeypatch, down(retry_after=seconds), "result")
        simulation.run()
        waits += simulation.waits
    assert seconds <= min(waits) < seconds + 0.2
    assert seconds + 0.8 < max(waits) <= seconds + 1


@pytest.mark.parametrize("seconds", [60.0, 3600.0, 1e12])
def test_a_longer_wait_ends_the_attempts_at_once(monkeypatch, seconds):
    simulation = Simulation(monkeypatch, down(retry_after=seconds), "never")
    error = simulation.fails()
    assert f"after 1 attempt. The service asked to wait {seconds:.0f} s." in str(error)
    assert (simulation.attempts, simulation.waits, simulation.lines) == (1, [], [])
    assert error.retry_after == seconds


@pytest.mark.parametrize(
    ("attempt_seconds", "retry_after", "attempts"), [(31, None, 2), (61, None, 1), (0, 25.0, 3), (0, 40.0, 2)]
)
def test_the_last_attempt_starts_within_60_seconds(monkeypatch, attempt_seconds, retry_after, attempts):
    failures = [down(retry_after=retry_after)] * 9
    simulation = Simulation(monkeypatch, *failures, attempt_seconds=attempt_seconds)
    simulation.fails(max_attempts=9)
    assert simulation.attempts == attempts


def test_the_check_before_an_attempt(monkeypatch):
    """Where it raises an error, nothing is sent. It may ask to wait too."""
    simulation = Simulation(monkeypatch, "result")
    checks = [down("Not yet", retry_after=5.0), down("Not yet")]

    def check():
        if checks:
            raise checks.pop(0)

    assert simulation.run(check=check) == "result"
    assert simulation.attempts == 1
    assert simulation.waits[0] >= 5
    checks = [down("Not yet")] * 3
    # Nothing was sent, so there is no number of attempts.
    assert str(simulation.fails(check=check)) == "Not yet."
