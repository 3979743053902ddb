"""Trying again, politely: by ``tenacity``, and only what may succeed later. Loaded when a task runs."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, NoReturn, TypeVar

import tenacity

from airflow_provider_loanauth.defaults import MAX_ATTEMPTS
from airflow_provider_loanauth.exceptions import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds within which the last attempt must begin.
MAX_SECONDS = 60.0
_FIRST_WAIT = 1.0

R = TypeVar("R")


def retrying(
    attempt: Callable[[], R],
    *,
    warn: Callable[..., None],
    max_attempts: int = MAX_ATTEMPTS,
    sleep: Callable[[float], None] = time.sleep,
) -> R:
    """
    Try again while the service is unavailable: at most 3 attempts, the last one begun within 60 s.

    The wait is exponential with full jitter, and never shorter than the ``Retry-After`` of the service; one that does
    not fit ends the attempts at once. Anything but :class:`UnavailableError` ends them too.

    :param attempt: one attempt
    :param warn: writes one log line for each retry: attempt, cause, wait
    :param max_attempts: how many attempts at the most
    :param sleep: what waits, given seconds
    :raises UnavailableError: the last attempt's, naming the attempts and any wait that the service asked for
    """
    jitter = tenacity.wait_random_exponential(multiplier=_FIRST_WAIT, max=MAX_SECONDS)

    def wait(state: tenacity.RetryCallState) -> float:
        asked = _failure(state).retry_after
        if asked is None:
            return jitter(state)
        # A little later than asked, so that not everybody who was sent away comes back in the same instant.
        return asked + random.uniform(0, _FIRST_WAIT)  # noqa: S311 - nothing to guess

    def say(state: tenacity.RetryCallState) -> None:
        warn(
            "Attempt %d of %d: %s Trying again in %.1f s.",
            state.attempt_number,
            max_attempts,
            _sentence(str(_failure(state))),
            state.upcoming_sleep,
        )

    def give_up(state: tenacity.RetryCallState) -> NoReturn:
        failure = _failure(state)
        made = f"{state.attempt_number} attempt{'s' if state.attempt_number > 1 else ''}"
        asked = "" if failure.retry_after is None else f", and asks to wait {failure.retry_after:.0f} s"
        raise UnavailableError(
            f"{_sentence(str(failure))} It was still so after {made}{asked}.",
            status=failure.status,
            retry_after=failure.retry_after,
        )

    retryer = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(UnavailableError),
        stop=tenacity.stop_any(tenacity.stop_after_attempt(max_attempts), tenacity.stop_before_delay(MAX_SECONDS)),
        wait=wait,
        sleep=sleep,
        before_sleep=say,
        retry_error_callback=give_up,
    )
    return retryer(attempt)


def _failure(state: tenacity.RetryCallState) -> UnavailableError:
    error = state.outcome.exception() if state.outcome else None
    if not isinstance(error, UnavailableError):
        raise TypeError(f"only UnavailableError is retried, not {type(error).__name__}")
    return error


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
