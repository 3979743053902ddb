"""Exceptions that leave the package contain no secret: in texts, in frames, and in what is logged of them."""

import contextlib
import traceback
from dataclasses import dataclass

import pytest

from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.redaction import clear_locals, exception_chain, sanitize_exceptions
from tests.support.leaks import leaks

SECRET = "CANARY-made-up-secret"


def fail_with(error):
    secret = SECRET
    try:
        int(secret)
    except ValueError as inner:
        raise error from inner


@sanitize_exceptions
def fail(error, *_):
    secret = SECRET
    fail_with(error)
    return secret


def call(error):
    local = "of the caller"
    return fail(error, SECRET), local


def frames_from(error, function):
    """Return the frames of a function, and of those that it calls."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    names = [frame.f_code.co_name for frame in frames]
    return frames[names.index(function) :]


@pytest.mark.parametrize("kind", [LoanAuthError, KeyError, KeyboardInterrupt])
def test_no_exception_contains_a_secret(kind):
    with pytest.raises(kind) as caught:
        call(kind("made up"))
    caller, *below = frames_from(caught.value, "call")
    assert caller.f_locals["local"] == "of the caller"
    assert leaks(str([frame.f_locals for frame in below]), [SECRET]) == []
    # The traceback of an expected error ends here.
    names = ["sanitized"] if kind is LoanAuthError else ["sanitized", "fail", "fail_with"]
    assert [frame.f_code.co_name for frame in below] == names
    assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize("ending", [contextlib.nullcontext, clear_locals])
def test_an_exception_that_the_caller_handles_stays(ending):
    def outer():
        local = "of the caller"
        raise ValueError(local)

    def handle():
        try:
            outer()
        except ValueError:
            with ending():
                call(LoanAuthError("made up"))

    with pytest.raises(LoanAuthError) as caught:
        handle()
    handled = caught.value.__context__
    assert type(handled) is ValueError
    assert frames_from(handled, "outer")[0].f_locals == {"local": "of the caller"}
    # Python prints it, as for any other exception.
    assert "During handling of the above exception" in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("name", "value_of"),
    [
        # urllib3 and requests pass the cause as an argument or as an attribute. An exception group has a list of them.
        ("args", lambda inner: (inner,)),
        ("args", lambda inner: ("made up", [inner])),
        ("reason", lambda inner: inner),
        # ``raise … from None`` hides it from Python's traceback, and not from an error tracker.
        ("__context__", lambda inner: inner),
    ],
)
def test_the_frames_of_an_inner_exception_are_cleared_too(name, value_of):
    with pytest.raises(KeyError) as caught:
        fail_with(KeyError("made up"))
    inner = caught.value
    error = OSError("made up")
    error.__suppress_context__ = True
    setattr(error, name, value_of(inner))
    with pytest.raises(OSError, match="made up"), clear_locals():
        raise error
    assert frames_from(inner, "fail_with")[0].f_locals == {}


@dataclass
class EqualError(Exception):
    """All of them are equal."""


def test_exceptions_that_are_equal_are_not_one():
    error = EqualError()
    error.__cause__ = EqualError()
    assert [id(one) for one in exception_chain(error)] == [id(error), id(error.__cause__)]


def test_a_generator_of_the_caller_goes_on():
    """Clearing a frame must not close a generator that waits for its next value (Python up to 3.12 closes it)."""

    @sanitize_exceptions
    def step():
        raise KeyError("made up")

    def flow():
        yield "before"
        with contextlib.suppress(KeyError):
            step()
        yield "after"

    assert list(flow()) == ["before", "after"]


def test_the_rest_of_the_traceback_is_logged_at_debug(logs):
    with pytest.raises(LoanAuthError):
        call(LoanAuthError("made up"))
    (record,) = logs.at("debug")
    assert record.startswith("fail raised an exception.")
    assert "raise error from inner" in record
    assert "ValueError:" in record
    assert leaks(record, [SECRET]) == []


def test_the_exception_that_the_caller_handles_is_raised_again():
    @sanitize_exceptions
    def raise_again(error):
        raise error

    def handle():
        try:
            int("x")
        except ValueError as error:
            raise_again(error)

    with pytest.raises(ValueError, match="invalid literal") as caught:
        handle()
    assert caught.value.__context__ is None
