"""A forked child waits for no lock of its parent, and blocking work of a coroutine has a thread of its own."""

import asyncio
import contextlib
import contextvars
import threading

import pytest
import requests

from airflow_provider_loanauth import _compat
from airflow_provider_loanauth._compat import run_in_thread
from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.redaction import mask
from tests.support.processes import fork, status_of


@pytest.mark.no_cover
@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_waits_for_no_lock_of_its_parent(world, pulled, pricing):
    """It masks a secret, logs in, opens a credential and adds it to a request."""
    hook, auth = LoanAuthHook("loanauth_los"), LoanAuth(pulled())
    mask(["made-up-secret"])
    held, end = threading.Event(), threading.Event()
    locks = [*_compat._LOCKS]

    def hold():
        with contextlib.ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock.current)
            held.set()
            end.wait(60)

    def use():
        mask(["made-up-secret", "another-made-up-secret"])
        hook.get_credential()
        requests.get(pricing.url, auth=auth, timeout=60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    status = status_of(fork(use))
    end.set()
    thread.join(60)
    assert status == 0
    assert len(locks) > 1
    assert world.logins == 1
    assert pricing.credentials != [{}]


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
