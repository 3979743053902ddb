"""A forked child waits for no lock of its parent, and blocking work of a coroutine has a thread of its own."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from airflow_provider_loanauth import _compat
from airflow_provider_loanauth._compat import ForkSafeLock, run_in_thread
from tests.support.programs import run_python

IN_CHILD = """
import os, signal, sys, threading, time
from airflow_provider_loanauth import _compat
{setup}
locks = list(_compat._LOCKS)
held, end = threading.Event(), threading.Event()

def hold():
    for lock in locks:
        lock.current.acquire()
    held.set()
    end.wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if not child:
    try:
        {use}
        print("done", flush=True)
    finally:
        os._exit(0)
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    if os.waitpid(child, os.WNOHANG)[0]:
        break
    time.sleep(0.01)
else:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print("the child hangs", flush=True)
os._exit(0)
"""

CLIENT = """
import json
from airflow_provider_loanauth.exceptions import UnavailableError
from airflow_provider_loanauth.service.client import Client
from airflow_provider_loanauth.service import transport
os.environ["AIRFLOW_CONN_MADE_UP"] = json.dumps({"conn_type": "loanauth", "host": "http://127.0.0.1:9", "login": "pat",
    "password": "made-up-password", "extra": {"origin": "https://made-up.example", "client_id": "made-up",
    "client_secret": "made-up-secret"}})
client = Client("made_up", max_attempts=1)
settings = client.settings()
def authenticate():
    try:
        client.authenticate(settings)
    except UnavailableError:
        return
    raise AssertionError("port 9 is open")
authenticate()
"""
PROVIDER = """
import datetime
from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.credentials import AccessToken
issued_at = datetime.datetime.now(datetime.timezone.utc)
sealed = AccessToken.seal("made-up-token", method="jwt", conn_id="made_up", issued_at=issued_at, expires_at=None)
auth = LoanAuth(sealed)
import requests
request = requests.Request("GET", "https://made-up.example/").prepare()
"""


def test_a_child_waits_for_no_lock_of_its_parent():
    """It masks a secret, authenticates, opens a credential and adds it to a request."""
    setup = f"from airflow_provider_loanauth.redaction import mask\n{CLIENT}{PROVIDER}"
    use = "mask(['made-up-secret']), authenticate(), auth(request)"
    done = run_python("-W", "ignore", "-c", IN_CHILD.format(setup=setup, use=use), check=False)
    assert done.stdout.splitlines()[-1:] == ["done"], done.stdout + done.stderr


def test_a_process_that_forks_in_a_with_statement_releases_the_lock_it_acquired():
    lock = ForkSafeLock()
    with lock.current:
        before = lock.current
        _compat._after_fork()
        assert lock.current is not before
    # Both can be acquired again, also by another thread.
    assert before.acquire(blocking=False)
    assert lock.current.acquire(blocking=False)


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
