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
    check: Callable[[], None],
    sleep: Callable[[float], None],
) -> R:
    """Call a function again while it, or the check before it, which sends nothing, raises an ``UnavailableError``."""
    started, sent = time.monotonic(), 0
    for number in count(1):
        try:
            check()
            sent += 1
            return attempt()
        except UnavailableError as error:
            failure, message = error, f"{str(error).removesuffix('.')}."
        # Exponential with full jitter: up to 1 s, 2 s, 4 s …
        wait = random.uniform(0, 2.0 ** (number - 1))  # noqa: S311 - not for cryptography
        if failure.retry_after is not None:
            # A little longer than requested, so that not all clients retry at the same moment.
            wait = failure.retry_after + random.uniform(0, 1)  # noqa: S311
        if number == max_attempts or time.monotonic() - started + wait >= MAX_SECONDS:
            break
        log_retry("Attempt %d of %d failed: %s Retrying in %.1f s.", number, max_attempts, message, wait)
        sleep(wait)
    # A sensor has one attempt per poke, and does not give up.
    if sent and max_attempts > 1:
        message += f" Gave up after {sent} attempt{'s' if sent > 1 else ''}."
    if sent and failure.retry_after is not None:
        message += f" The service asked to wait {failure.retry_after:.0f} s."
    failure.args = (message,)
    raise failure
