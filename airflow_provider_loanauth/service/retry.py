"""How long between retries: only an :class:`UnavailableError` is retried."""

from __future__ import annotations

import random
import time
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_loanauth.exceptions import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds within which the last attempt must start.
MAX_SECONDS = 60.0

R = TypeVar("R")


def call_with_retries(
    attempt: Callable[[], R],
    *,
    max_attempts: int,
    log_retry: Callable[..., None],
    check: Callable[[], None] = lambda: None,
    sleep: Callable[[float], None] = time.sleep,
) -> R:
    """Call a function again while it, or the check before it, which sends nothing, raises an ``UnavailableError``."""
    started, sent = time.monotonic(), 0
    for number in count(1):
        try:
            check()
            sent += 1
            return attempt()
        except UnavailableError as error:
            failure = error
        # Exponential with full jitter: up to 1 s, 2 s, 4 s …
        wait = random.uniform(0, 2.0 ** (number - 1))  # noqa: S311 - not for cryptography
        if failure.retry_after is not None:
            # A little longer than requested, so that not all clients retry at the same moment.
            wait = failure.retry_after + random.uniform(0, 1)  # noqa: S311
        if number == max_attempts or time.monotonic() - started + wait >= MAX_SECONDS:
            break
        log_retry("Attempt %d of %d failed: %s Retrying in %.1f s.", number, max_attempts, _as_sentence(failure), wait)
        sleep(wait)
    message, retry_after = _as_sentence(failure), failure.retry_after
    # A sensor has one attempt per poke, and does not give up.
    if sent and max_attempts > 1:
        message += f" Gave up after {sent} attempt{'s' if sent > 1 else ''}."
    if sent and retry_after is not None:
        message += f" The service asked to wait {retry_after:.0f} s."
    raise UnavailableError(message, status=failure.status, retry_after=retry_after)


def _as_sentence(failure: UnavailableError) -> str:
    return f"{str(failure).removesuffix('.')}."
