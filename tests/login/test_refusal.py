"""What the service has refused: for how long, and for whom."""

from dataclasses import replace

import pytest

from airflow_provider_loanauth.exceptions import RejectedError, ResponseError
from airflow_provider_loanauth.login.refusal import DAY, MIN_PAUSE, Refusal
from tests.support.simulation import OLD, settings_of

ERRORS = {
    "rejected": RejectedError("made-up rejection.", code="invalid_grant"),
    "refused": ResponseError("made-up refusal.", is_about_values=True),
}


def refusal_of(name, earlier=None):
    return Refusal.of(ERRORS[name], earlier, by="made-up", is_cleared=False)


def after(clock, *names, gap):
    """Return the last of some refusals that follow one another, each so many seconds after the end of a pause."""
    refusal = None
    for name in names:
        if refusal is not None:
            clock.pass_time(refusal.until + gap - clock.time())
        refusal = refusal_of(name, refusal)
    return refusal


@pytest.mark.parametrize(
    ("names", "gap", "seconds"),
    [
        (["refused"], 1, MIN_PAUSE),
        (["rejected"], 1, DAY),
        (["refused"] * 2, 1, 300.0),
        (["refused"] * 5, 1, 37_500.0),
        (["refused"] * 6, 1, DAY),
        (["refused"] * 600, 1, DAY),
        # Only a success ends the row.
        (["refused"] * 3, 7 * DAY, 1500.0),
        (["rejected", "refused"], 1, 300.0),
        (["refused", "rejected"], 1, DAY),
        # One that was under way when the pause began does not make it longer.
        (["refused"] * 6, -1, MIN_PAUSE),
    ],
)
def test_each_pause_in_a_row_is_longer(names, gap, seconds, clock):
    assert after(clock, *names, gap=gap).seconds == seconds


@pytest.mark.parametrize(
    ("name", "ahead", "holds"), [("refused", 59, True), ("refused", 61, False), ("rejected", 7200, True)]
)
def test_a_host_whose_clock_is_wrong_stops_nobody_for_more_than_twice_the_pause(name, ahead, holds, clock):
    refusal = refusal_of(name)
    assert replace(refusal, at=refusal.at + ahead).holds() == holds
    assert replace(refusal, at=refusal.at - ahead).holds() == holds


def test_the_error_of_who_obeys_says_what_the_service_said_to_whom_and_what_to_do(clock):
    error = ResponseError("The service responded with 401 (Made up. Such as this). Check the Connection.")
    by = f"{'a_long_name_of_a_dag' * 2}.a_name_of_a_task[12] on worker-7.lender"
    refusal = Refusal.of(error, None, by=by, is_cleared=False)
    message = str(refusal.error(settings_of(conn_id="pricing_of_a_tenant")))
    assert message.startswith("The service responded with 401 (Made up. Such as this). Check the Connection. The")
    for part in ("a_long_name_of_a_dag", "T01:46:40", "T01:47:40", "forget pricing_of_a_"):
        assert part in message


def test_a_refusal_of_which_another_build_has_stored_less():
    refusal = Refusal.from_row({"kind": "ResponseError", "at": 5})
    assert (refusal.until, refusal.count, refusal.is_cleared) == (65.0, 1, False)
    message = "The service refused the login. The service said so to another task at 1970-01-01T00:00:05"
    assert str(refusal.error(OLD)).startswith(message)


def test_an_error_that_this_release_does_not_know_is_one_of_an_unusable_response(clock):
    assert type(replace(refusal_of("refused"), kind="LaterError").error(OLD)) is ResponseError
