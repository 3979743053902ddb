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


class Clockwork:
    """Attempts with the given outcomes, and a clock that moves only by sleeping or by a slow attempt."""

    def __init__(self, monkeypatch, *outcomes, each_takes=0.0):
        self.outcomes, self.each_takes = [*outcomes], each_takes
        self.attempts, self.waits, self.lines, self.time = 0, [], [], 1000.0
        monkeypatch.setattr("tenacity.time.monotonic", lambda: self.time)
        monkeypatch.setattr(module, "time", self)

    def attempt(self):
        self.attempts += 1
        self.time += self.each_takes
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


def down(text="It is down", **facts):
    return UnavailableError(text, **facts)


def test_success_at_once(monkeypatch):
    works = Clockwork(monkeypatch, "result")
    assert works.run() == "result"
    assert (works.attempts, works.waits, works.lines) == (1, [], [])


def test_success_after_a_while(monkeypatch):
    works = Clockwork(monkeypatch, down("First"), down("Second."), "result")
    assert works.run() == "result"
    assert works.attempts == MAX_ATTEMPTS == 3
    assert [line.partition(" Retrying in ")[0] for line in works.lines] == [
        "Attempt 1 of 3 failed: First.",
        "Attempt 2 of 3 failed: Second.",
    ]
    assert [line.rpartition(" in ")[2] for line in works.lines] == [f"{wait:.1f} s." for wait in works.waits]


def test_three_attempts_and_no_more(monkeypatch):
    works = Clockwork(monkeypatch, *[down(status=503)] * 9)
    with pytest.raises(UnavailableError) as caught:
        works.run()
    assert works.attempts == 3
    assert str(caught.value) == "It is down. Gave up after 3 attempts."
    assert caught.value.status == 503
    assert caught.value.retry_after is None
    assert len(works.lines) == 2


def test_as_many_attempts_as_are_allowed(monkeypatch):
    works = Clockwork(monkeypatch, *[down()] * 9)
    with pytest.raises(UnavailableError, match=r"after 1 attempt\."):
        works.run(max_attempts=1)
    assert (works.attempts, works.waits) == (1, [])


@pytest.mark.parametrize(
    "kind", [RejectedError, SettingsError, ResponseError, SealError, ValueError, KeyboardInterrupt]
)
def test_no_other_error_is_retried(monkeypatch, kind):
    error = kind("as it is")
    works = Clockwork(monkeypatch, "never")
    works.attempt = lambda: (_ for _ in ()).throw(error)
    with pytest.raises(kind) as caught:
        works.run()
    assert caught.value is error
    assert works.lines == []


def test_a_rejection_ends_the_attempts(monkeypatch):
    works = Clockwork(monkeypatch, down(), RejectedError("no"), "never")
    with pytest.raises(RejectedError):
        works.run()
    assert works.attempts == 2


def test_full_jitter(monkeypatch):
    first, second = [], []
    for _ in range(200):
        works = Clockwork(monkeypatch, down(), down(), "result")
        works.run()
        first.append(works.waits[0])
        second.append(works.waits[1])
    assert all(0 <= wait <= 1 for wait in first)
    assert all(0 <= wait <= 2 for wait in second)
    # Full jitter: from zero up to the whole wait.
    assert min(first) < 0.2
    assert max(first) > 0.8
    assert min(second) < 0.4
    assert max(second) > 1.6


@pytest.mark.parametrize("seconds", [0.0, 1.0, 7.5, 40.0])
def test_retry_after_is_obeyed(monkeypatch, seconds):
    works = Clockwork(monkeypatch, down(retry_after=seconds), "result")
    assert works.run() == "result"
    [wait] = works.waits
    # A little later, so that not all clients come back in the same instant.
    assert seconds <= wait <= seconds + 1


@pytest.mark.parametrize("seconds", [60.0, 61.0, 3600.0, 1e12])
def test_a_longer_wait_ends_the_attempts_at_once(monkeypatch, seconds):
    works = Clockwork(monkeypatch, down(retry_after=seconds), "never")
    with pytest.raises(
        UnavailableError, match=rf"after 1 attempt; the service asked to wait {seconds:.0f} s\."
    ) as caught:
        works.run()
    assert (works.attempts, works.waits, works.lines) == (1, [], [])
    assert caught.value.retry_after == seconds


def test_the_last_attempt_starts_within_the_total(monkeypatch):
    works = Clockwork(monkeypatch, *[down()] * 9, each_takes=31)
    with pytest.raises(UnavailableError, match="after 2 attempts"):
        works.run(max_attempts=9)
    slow = Clockwork(monkeypatch, *[down()] * 9, each_takes=MAX_SECONDS + 1)
    with pytest.raises(UnavailableError, match=r"after 1 attempt\."):
        slow.run()
    assert slow.attempts == 1


def test_requested_waits_count_for_the_total(monkeypatch):
    works = Clockwork(monkeypatch, *[down(retry_after=25.0)] * 9)
    with pytest.raises(UnavailableError, match=r"after 3 attempts; the service asked to wait 25 s\."):
        works.run(max_attempts=9)
    assert sum(works.waits) < MAX_SECONDS


def test_the_error_has_no_context(monkeypatch):
    works = Clockwork(monkeypatch, *[down()] * 3)
    with pytest.raises(UnavailableError) as caught:
        works.run()
    # tenacity may keep the error of the last attempt as the cause; it must be one of this package.
    for inner in (caught.value.__cause__, caught.value.__context__):
        assert inner is None or isinstance(inner, UnavailableError)
