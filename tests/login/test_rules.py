"""What holds after failures, for whom and for how long."""

import json
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth.exceptions import RejectedError, ResponseError, SettingsError, UnavailableError
from airflow_provider_loanauth.login.rules import DAY, Row, error_in_pause

ERRORS = {
    "rejected": RejectedError("made-up rejection.", code="invalid_grant"),
    "refused": ResponseError("made-up refusal.", is_about_values=True),
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
        row = row.after(ERRORS[name], id_=str(number), host=host, by="made-up", now=now, is_cleared=False)
    return row


def held_until(row, host, now):
    """Return until when a host sends nothing; None if it may send."""
    failure = row.blocking_failure(host, now, is_cleared=False)
    return failure and failure.until


def in_turn(name, hosts, *, start=0.0, gap=1.0):
    return [(name, host, start + gap * number) for number, host in enumerate(hosts)]


def at_the_end_of_each_pause(name, number, *, longest):
    """Return so many failures of one host, each at the end of the pause of the one before."""
    moments = [0.0]
    for index in range(number - 1):
        moments.append(moments[-1] + min(longest, 30 * 4**index))
    return [(name, "a", moment) for moment in moments]


@pytest.mark.parametrize(
    ("failures", "host", "seconds"),
    [
        # The class decides for how long, and for whom.
        ([("rejected", "a", 0)], "b", DAY),
        ([("refused", "a", 0)], "b", 30),
        ([("unclear", "a", 0)], "a", 30),
        ([("unclear", "a", 0)], "b", None),
        ([("asked to wait", "a", 0)], "a", 50),
        ([("asked to wait", "a", 0)], "b", None),
        ([("unavailable", "a", 0)], "a", None),
        ([("here only", "a", 0)], "a", None),
        # Each pause in a row is four times as long, up to a day or an hour.
        (at_the_end_of_each_pause("refused", 2, longest=DAY), "b", 30 + 120),
        (at_the_end_of_each_pause("refused", 6, longest=DAY), "b", 10230 + 30720),
        (at_the_end_of_each_pause("refused", 8, longest=DAY), "b", 40950 + 2 * DAY),
        (at_the_end_of_each_pause("unclear", 9, longest=3600), "a", 2550 + 5 * 3600),
        # What was under way when a pause began makes the next one no longer.
        (in_turn("refused", "abcabc"), "a", 5 + 30),
        (in_turn("unclear", "aaaa"), "a", 3 + 30),
        # What five hosts in a row have met holds for all.
        (in_turn("unclear", "abcd"), "e", None),
        (in_turn("unclear", "abcd"), "d", 3 + 30),
        (in_turn("unclear", "abcd"), "a", 30),
        (in_turn("unclear", "abcda"), "e", None),
        (in_turn("unclear", "abcde"), "f", 4 + 30),
        ([("asked to wait", host, 0) for host in "abcde"], "f", 50),
        # Another class ends the count of one, and not its pause.
        ([*in_turn("unclear", "abcd"), ("unavailable", "x", 5), *in_turn("unclear", "e", start=6)], "f", None),
        ([("unclear", "a", 0), ("unavailable", "a", 1)], "a", 30),
        ([("rejected", "a", 0), ("unclear", "b", 1)], "c", DAY),
        # The one that holds for longest.
        ([("unclear", "a", 0), ("rejected", "a", 1)], "a", 1 + DAY),
        # Six hours after a pause, a refusal begins anew; ten minutes after one, a wait.
        (in_turn("unclear", "aa", gap=21_629), "a", 21_629 + 120),
        (in_turn("unclear", "aa", gap=21_631), "a", 21_631 + 30),
        (in_turn("refused", "aa", gap=21_629), "b", 21_629 + 120),
        (in_turn("refused", "aa", gap=21_631), "b", 21_631 + 30),
        (in_turn("unclear", "abcde", gap=25_000), "f", None),
        (in_turn("asked to wait", "abcde", gap=651), "f", None),
        # What a host without a network meets does not end the count of refused values.
        ([("refused", "a", 0), ("unavailable", "b", 31), ("refused", "a", 32)], "c", 32 + 120),
        ([("refused", "a", 0), ("unclear", "b", 31), ("refused", "a", 32)], "c", 32 + 120),
        # However often it is met.
        (at_the_end_of_each_pause("unclear", 600, longest=3600), "a", 2550 + 596 * 3600),
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
    [
        ("unclear", 59, True),
        ("unclear", 61, False),
        ("refused", 61, False),
        ("asked to wait", 61, False),
        ("rejected", 3600, True),
        ("rejected", 10 * 365 * DAY, False),
    ],
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
        ("rejected", 300, False),
        ("rejected", -300, False),
        ("refused", 9, True),
        ("refused", 11, False),
    ],
)
def test_what_holds_for_a_cleared_task(name, earlier_clear, holds):
    at, is_cleared = (0, False) if earlier_clear is None else (-earlier_clear, True)
    row = Row().after(ERRORS[name], id_="1", host="a", by="made-up", now=at, is_cleared=is_cleared)
    assert (row.blocking_failure("a", 0, is_cleared=True) is not None) == holds


@pytest.mark.parametrize("key", [None, "made-up-key"])
def test_only_shared_logins_obey_an_earlier_clear(key):
    row = Row().after(ERRORS["rejected"], id_="1", host="a", by="made-up", now=0, is_cleared=True)
    settings = SimpleNamespace(conn_id="made-up", method="jwt")
    error = error_in_pause(row.failures["final"], key, settings, 1, is_temporary=False)
    assert ("clear the authenticating task after 1970-01-01T00:05:00" in str(error)) == (key is not None)


def test_whose_attempts_count():
    """Those of the same host, and none after a failure of another class."""
    row = row_after([("unavailable", host, 0) for host in HOSTS])
    assert row.attempts(HOSTS[0]) == {"0"}
    assert row.attempts("another") == set()
    assert len(row.attempts()) == len(HOSTS)
    assert row.after(ERRORS["unclear"], id_="x", host="a", by="", now=1, is_cleared=False).attempts() == set()


def test_an_outage_is_over_a_minute_after_its_last_request():
    row = row_after([("unavailable", host, number) for number, host in enumerate(HOSTS)])
    assert row.unavailable_for(68) == {*HOSTS}
    assert row.unavailable_for(69) == set()
    assert row_after([("unclear", "a", 0)]).unavailable_for(0) == set()


def test_a_row_is_stored_whole():
    row = replace(row_after([("rejected", "a", 0), ("unclear", "b", 1)]), id="made-up", credential={"value": "x"})
    assert Row.parse(json.loads(json.dumps(asdict(row)))) == row


def test_a_class_that_this_release_does_not_know_counts_as_none():
    stored = asdict(row_after([("rejected", "a", 0)]))
    stored["failures"] = {"of another release": stored["failures"]["final"]}
    assert Row.parse(stored) == Row(id=stored["id"])


def test_an_error_that_this_release_does_not_know_is_one_of_an_unusable_response():
    failure = row_after([("unclear", "a", 0)]).failures["host"]
    assert replace(failure, error=failure.error | {"type": "LaterError"}).kind is ResponseError
