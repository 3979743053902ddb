"""The retry policy, for ``tenacity``: only an :class:`UnavailableError` is retried."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import tenacity

from airflow_provider_loanauth.exceptions import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds within which the last attempt must start.
MAX_SECONDS = 60.0
_FIRST_WAIT = 1.0

R = TypeVar("R")


def call_with_retries(
    attempt: Callable[[], R],
    *,
    max_attempts: int,
    log_retry: Callable[..., None],
    check: Callable[[], None] = lambda: None,
    sleep: Callable[[float], None] = time.sleep,
) -> R:
    """
    Call a function, and call it again while the service is unavailable. The last attempt starts within 60 seconds.

    The wait before a retry is exponential with full jitter, and never shorter than the ``Retry-After`` of the service.
    If the wait would end after the 60 seconds, there is no further attempt. Any error other than
    :class:`UnavailableError` is raised at once.

    :param attempt: function that sends one request
    :param max_attempts: maximum number of attempts
    :param log_retry: logging method, called with a message and its arguments before each retry
    :param check: function that is called before each attempt. If it raises an error, no request is sent
    :param sleep: function that waits for a number of seconds
    :return: the result of the first successful attempt
    :raises UnavailableError: every attempt failed; the error is that of the last attempt. If a request was sent, its
        message also states the number of attempts and the ``Retry-After``
    """
    sent = 0
    jitter = tenacity.wait_random_exponential(multiplier=_FIRST_WAIT)

    def checked_attempt() -> R:
        nonlocal sent
        check()
        sent += 1
        return attempt()

    def wait(state: tenacity.RetryCallState) -> float:
        retry_after = _failure(state).retry_after
        if retry_after is None:
            return jitter(state)
        # Wait a little longer than requested, so that not all clients retry at the same moment.
        return retry_after + random.uniform(0, _FIRST_WAIT)  # noqa: S311 - not for cryptography

    def log(state: tenacity.RetryCallState) -> None:
        log_retry(
            "Attempt %d of %d failed: %s Retrying in %.1f s.",
            state.attempt_number,
            max_attempts,
            _as_sentence(str(_failure(state))),
            state.upcoming_sleep,
        )

    def give_up(state: tenacity.RetryCallState) -> NoReturn:
        failure = _failure(state)
        message = _as_sentence(str(failure))
        if sent:
            requested = (
                "" if failure.retry_after is None else f"; the service asked to wait {failure.retry_after:.0f} s"
            )
            message += f" Gave up after {sent} attempt{'s' if sent > 1 else ''}{requested}."
        raise UnavailableError(
            message,
            status=failure.status,
            retry_after=failure.retry_after,
        )

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(UnavailableError),
        stop=tenacity.stop_any(tenacity.stop_after_attempt(max_attempts), tenacity.stop_before_delay(MAX_SECONDS)),
        wait=wait,
        sleep=sleep,
        before_sleep=log,
        retry_error_callback=give_up,
    )
    return retrying(checked_attempt)


def _failure(state: tenacity.RetryCallState) -> UnavailableError:
    # Only this error is retried, so an attempt that is followed by another one, or is the last one, has raised it.
    outcome: Any = state.outcome
    failure: UnavailableError = outcome.exception()
    return failure


def _as_sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
