"""Blocking work beside an event loop. Knows nothing of ours."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")


async def off_the_loop(work: Callable[[], R]) -> R:
    """
    Run blocking work in a thread of its own: not in the default pool, where what hangs would starve others.

    There it may also mask secrets, which Airflow does not allow on an event loop, or not on every version.

    :param work: what to run
    :return: what it returns; raises what it raises
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[R] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(result: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = context.run(work)
        except BaseException as caught:  # noqa: BLE001 - handed to the coroutine that waits
            error = caught
        # A closed loop: nobody waits any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=run, name="loanauth", daemon=True).start()
    return await done
