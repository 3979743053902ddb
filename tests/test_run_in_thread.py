"""``run_in_thread`` of ``_compat``: blocking work of a coroutine in a thread of its own."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from airflow_provider_loanauth._compat import run_in_thread


def test_the_thread_is_not_one_of_the_loops_pool_and_has_the_context_of_the_coroutine():
    variable = contextvars.ContextVar("made_up")

    async def main():
        variable.set("here")
        assert await run_in_thread(variable.get) == "here"
        thread = await run_in_thread(threading.current_thread)
        assert (thread.name, thread.daemon) == ("loanauth", True)
        assert asyncio.get_running_loop()._default_executor is None
        with pytest.raises(KeyError, match="made-up"):
            await run_in_thread(lambda: {}["made-up"])

    asyncio.run(main())


def test_a_result_is_dropped_if_the_waiter_was_cancelled():
    """Also after the loop is closed; pytest makes an exception of the thread an error."""
    release = threading.Event()

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(run_in_thread(lambda: release.wait(60)), 0.05)
        # Another one ends while the loop is open.
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(run_in_thread(lambda: threading.Event().wait(0.1)), 0.05)
        await asyncio.sleep(0.1)

    asyncio.run(main())
    release.set()
    for thread in threading.enumerate():
        if thread.name == "loanauth":
            thread.join(60)
