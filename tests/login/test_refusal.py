"""What the service has refused: for how long, and for whom."""

import json
from dataclasses import replace

import pytest

from airflow_provider_loanauth.exceptions import RejectedError, ResponseError, SettingsError, UnavailableError
from airflow_provider_loanauth.login.refusal import CLEARED_SECONDS, DAY, MIN_PAUSE, Refusal, is_about_values
from airflow_provider_loanauth.login.variables import Row
from tests.support.simulation import OLD

ERRORS = {
    "rejected": RejectedError("made-up rejection.", code="invalid_grant"),
    "refused": ResponseError("made-up refusal.", is_about_values=True),
    "unclear": ResponseError("made-up page."),
    "asked to wait": UnavailableError("made-up outage.", retry_after=50.0),
    "unavailable": UnavailableError("made-up outage."),
    "here only": SettingsError("made-up certificate."),
}


def refusal_of(name, earlier=None, *, is_cleared=False):
    return Refusal.of(ERRORS[name], earlier, by="made-up", is_cleared=is_cleared)


def after(clock, *names, gap):
    """Return the last of some refusals that follow one another, each so many seconds after the end of a pause."""
    refusal = None
    for name in names:
        if refusal is not None:
            clock.pass_time(refusal.until + gap - clock.time())
        refusal = refusal_of(name, refusal)
    return refusal


@pytest.mark.parametrize(
    ("name", "seconds", "is_shared"),
    [
        ("rejected", DAY, True),
        ("refused", MIN_PAUSE, True),
        ("unclear", MIN_PAUSE, False),
        ("asked to wait", 50.0, False),
        ("unavailable", None, False),
        ("here only", None, False),
    ],
)
def test_how_long_a_refusal_holds(name, seconds, is_shared, clock):
    refusal = refusal_of(name)
    assert is_about_values(ERRORS[name]) == is_shared
    assert (refusal and refusal.seconds) == seconds
    if refusal is not None:
        clock.pass_time(seconds - 0.1)
        assert refusal.holds()
        clock.pass_time(0.2)
        assert not refusal.holds()


@pytest.mark.parametrize(
    ("number", "gap", "seconds"),
    [
        (2, 1, 120.0),
        (6, 1, 30_720.0),
        (8, 1, DAY),
        (600, 1, DAY),
        (2, 21_599, 120.0),
        (2, 21_601, MIN_PAUSE),
        # One that was under way when the pause began does not make it longer.
        (6, -1, MIN_PAUSE),
    ],
)
def test_each_pause_in_a_row_is_longer(number, gap, seconds, clock):
    assert after(clock, *["refused"] * number, gap=gap).seconds == seconds


@pytest.mark.parametrize(
    ("name", "ahead", "holds"), [("refused", 29, True), ("refused", 31, False), ("rejected", 7200, True)]
)
def test_a_host_whose_clock_is_wrong_stops_nobody_for_more_than_twice_the_pause(name, ahead, holds, clock):
    refusal = refusal_of(name)
    assert replace(refusal, at=refusal.at + ahead).holds() == holds
    assert replace(refusal, at=refusal.at - ahead).holds() == holds


@pytest.mark.parametrize(("earlier_clear", "age", "holds"), [(False, 0, False), (True, 299, True), (True, 301, False)])
def test_a_cleared_task_tries_unless_another_one_has_just_tried(earlier_clear, age, holds, clock):
    refusal = refusal_of("rejected", is_cleared=earlier_clear)
    clock.pass_time(age)
    assert refusal.holds(is_cleared=True) == holds
    assert (f"after {'2001-09-09T01:51:40'}" in str(refusal.error(OLD))) == earlier_clear
    assert CLEARED_SECONDS == 300


def test_a_row_is_stored_whole(clock):
    row = Row(by="made-up", refusal=refusal_of("refused"))
    assert Row.parse(json.loads(json.dumps(row.content)), OLD) == row


@pytest.mark.parametrize(
    "content", [{}, {"credential": {}, "by": ""}, {"credential": None, "by": "", "refusal": {"x": 1}}]
)
def test_a_row_of_another_shape_counts_as_none(content):
    assert Row.parse(content, OLD) == Row()


def test_an_error_that_this_release_does_not_know_is_one_of_an_unusable_response(clock):
    assert type(replace(refusal_of("unclear"), kind="LaterError").error(OLD)) is ResponseError
