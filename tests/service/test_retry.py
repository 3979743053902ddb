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
    return UnavailableError(text, **attributes)


def test_success_at_the_last_attempt(monkeypatch):
    simulation = Simulation(monkeypatch, down("First"), down("Second."), "result")
    assert simulation.run() == "result"
    assert simulation.attempts == MAX_ATTEMPTS == 3
    assert simulation.lines == [
        f"Attempt 1 of 3 failed: First. Retrying in {simulation.waits[0]:.1f} s.",
        f"Attempt 2 of 3 failed: Second. Retrying in {simulation.waits[1]:.1f} s.",
    ]


@pytest.mark.parametrize(
    ("max_attempts", "message"), [(3, "It is down. Gave up after 3 attempts."), (1, "It is down.")]
)
def test_so_many_attempts_and_no_more(max_attempts, message, monkeypatch):
    simulation = Simulation(monkeypatch, *[down(status=503)] * 9)
    error = simulation.fails(max_attempts=max_attempts)
    assert simulation.attempts == max_attempts
    assert len(simulation.waits) == len(simulation.lines) == max_attempts - 1
    assert (str(error), error.status, error.retry_after) == (message, 503, None)


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
    # From zero up to the whole wait.
    for longest, found in zip((1, 2), zip(*waits, strict=True), strict=True):
        assert 0 <= min(found) < 0.2 * longest
        assert 0.8 * longest < max(found) <= longest


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
