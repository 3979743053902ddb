"""What holds after failures, for whom and for how long: ``Row.after``, ``Row.holding`` and ``Row.attempts``."""

import pytest

from airflow_provider_loanauth.exceptions import RejectedError, ResponseError, SettingsError, UnavailableError
from airflow_provider_loanauth.login.rules import DAY, Row, shortened

ERRORS = {
    "rejected": RejectedError("made-up rejection."),
    "unclear": ResponseError("made-up page."),
    "asked to wait": UnavailableError("made-up outage.", retry_after=50.0),
    "unavailable": UnavailableError("made-up outage."),
    "here only": SettingsError("made-up certificate."),
}
HOSTS = [f"host {number}" for number in range(9)]


def row_after(failures):
    """Return the row after failures, each a class, a host and a time in seconds."""
    row = Row()
    for number, (name, host, now) in enumerate(failures):
        row = row.after(ERRORS[name], number=str(number), host=host, by="made-up", now=now, is_cleared=False)
    return row


def held_until(row, host, now):
    """Return until when a host sends nothing; None if it may send."""
    failure = row.holding(host, now, is_cleared=False)
    return failure and failure.until


def unclear(hosts, *, start=0.0, gap=1.0):
    return [("unclear", host, start + gap * number) for number, host in enumerate(hosts)]


@pytest.mark.parametrize(
    ("failures", "host", "seconds"),
    [
        # The class decides for how long, and for whom.
        ([("rejected", "a", 0)], "b", DAY),
        ([("unclear", "a", 0)], "a", 30),
        ([("unclear", "a", 0)], "b", None),
        ([("asked to wait", "a", 0)], "a", 50),
        ([("asked to wait", "a", 0)], "b", None),
        ([("unavailable", "a", 0)], "a", None),
        ([("here only", "a", 0)], "a", None),
        # The pause doubles, up to ten minutes, and is an hour after ten in a row.
        (unclear("aa"), "a", 1 + 60),
        (unclear("aaaa"), "a", 3 + 240),
        (unclear("aaaaaa"), "a", 5 + 600),
        (unclear("a" * 9), "a", 8 + 600),
        (unclear("a" * 10), "a", 9 + 3600),
        # What five hosts in a row have met holds for all; the first failure of each says nothing new.
        (unclear("abcd"), "e", None),
        (unclear("abcd"), "d", 3 + 30),
        (unclear("abcda"), "e", None),
        (unclear("abcde"), "f", 4 + 30),
        ([("asked to wait", host, 0) for host in "abcde"], "f", 50),
        # Another class ends the count of one, and not its pause.
        ([*unclear("abcd"), ("unavailable", "x", 5), *unclear("e", start=6)], "f", None),
        ([("unclear", "a", 0), ("unavailable", "a", 1)], "a", 30),
        ([("rejected", "a", 0), ("unclear", "b", 1)], "c", DAY),
        # The one that holds for longest.
        ([("unclear", "a", 0), ("rejected", "a", 1)], "a", 1 + DAY),
        # Ten minutes after a pause, a class begins anew.
        ([("unclear", "a", 0), ("unclear", "a", 629)], "a", 629 + 60),
        ([("unclear", "a", 0), ("unclear", "a", 631)], "a", 631 + 30),
        (unclear("abcde", gap=1000), "f", None),
    ],
)
def test_how_long_a_failure_holds_for_a_host(failures, host, seconds):
    row = row_after(failures)
    last = max(now for *_, now in failures)
    assert held_until(row, host, last) == seconds
    if seconds is not None:
        assert held_until(row, host, seconds - 0.1) == seconds
        assert held_until(row, host, seconds) is None


@pytest.mark.parametrize(
    ("name", "ahead", "holds"),
    [("unclear", 59, True), ("unclear", 61, False), ("asked to wait", 61, False), ("rejected", 3600, True)],
)
def test_a_failure_of_a_host_whose_clock_is_ahead(name, ahead, holds):
    assert (held_until(row_after([(name, "a", ahead)]), "a", 0) is not None) == holds


@pytest.mark.parametrize(
    ("name", "earlier_clear", "holds"),
    [
        ("rejected", None, False),
        ("unclear", None, False),
        ("asked to wait", None, True),
        # One of all tasks that were cleared tries for the others, whatever the clocks say.
        ("rejected", 299, True),
        ("rejected", -299, True),
        ("rejected", 301, False),
        ("rejected", -301, False),
    ],
)
def test_what_holds_for_a_cleared_task(name, earlier_clear, holds):
    at, is_cleared = (0, False) if earlier_clear is None else (-earlier_clear, True)
    row = Row().after(ERRORS[name], number="1", host="a", by="made-up", now=at, is_cleared=is_cleared)
    assert (row.holding("a", 0, is_cleared=True) is not None) == holds


def test_whose_attempts_count():
    """Those on the same host; those of all, after five hosts in a row; none after a failure of another class."""
    four = [("unavailable", host, 0) for host in HOSTS[:4]]
    assert row_after(four).attempts(HOSTS[0]) == {"0"}
    assert row_after(four).attempts(HOSTS[8]) == set()
    assert row_after([*four, ("unavailable", HOSTS[4], 0)]).attempts(HOSTS[8]) == {"0", "1", "2", "3", "4"}
    assert row_after(four).attempts(None) == {"0", "1", "2", "3"}
    assert row_after(four).failures["unavailable"].until == 0
    assert row_after([*four, ("unclear", HOSTS[0], 1)]).attempts(HOSTS[0]) == set()


@pytest.mark.parametrize(("text", "short"), [("made", "made"), ("made-up", "mad…"), ("ma de", "ma…")])
def test_a_long_message_is_cut(text, short):
    assert shortened(text, 4) == short
