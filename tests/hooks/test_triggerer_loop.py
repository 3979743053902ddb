"""What blocks is an error on the event loop of a triggerer, which belongs to the triggers of all DAGs."""

from __future__ import annotations

import asyncio
import importlib
from functools import partial

import pytest

from airflow_provider_loanauth import _compat
from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from tests.auth.conftest import CLASSES

HOOK = LoanAuthHook("loanauth_jwt")
ASYNC_CLIENT = r"use the client of get_async_conn\(\), or an AsyncClient of httpx or httpx2"


def post(library, url, token):
    importlib.import_module(library).post(url, auth=CLASSES[library](token), verify=False)


#: What blocks, and what the error says to use.
BLOCKS = {
    "authenticate": (lambda *_: HOOK.authenticate(), r"`await asyncio.to_thread\(hook.authenticate\)`"),
    "get_credential": (lambda *_: HOOK.get_credential(), r"`await hook.aget_credential\(\)`"),
    "get_plaintext": (lambda *_: HOOK.get_plaintext(), r"`await asyncio.to_thread\(hook.get_plaintext\)`"),
    "get_conn": (lambda *_: HOOK.get_conn(), r"`await asyncio.to_thread\(hook.get_async_conn, "),
    "get_async_conn": (lambda *_: HOOK.get_async_conn(), r"`await asyncio.to_thread\(hook.get_async_conn, "),
    "test_connection": (lambda *_: HOOK.test_connection(), r"`await asyncio.to_thread\(hook.test_connection\)`"),
    **{library: (partial(post, library), ASYNC_CLIENT) for library in CLASSES},
}


async def call(way, *arguments):
    return BLOCKS[way][0](*arguments)


@pytest.fixture
def in_triggerer(monkeypatch):
    """Run a coroutine as the triggerer of this Airflow does."""
    triggerer = importlib.import_module("airflow.jobs.triggerer_job_runner")
    if not hasattr(triggerer, "TriggerCommsDecoder"):  # 2.11

        def run(coroutine):
            runner, results = triggerer.TriggerRunner(), []

            async def arun():
                results.extend(await asyncio.gather(coroutine, return_exceptions=True))

            runner.arun = arun
            runner.start()
            runner.join(60)
            if isinstance(results[0], Exception):
                raise results[0]

        return run

    def run(coroutine):
        # Whoever asks the supervisor fails.
        channel = object.__new__(triggerer.TriggerCommsDecoder)
        monkeypatch.setattr("airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS", channel, raising=False)
        return asyncio.run(coroutine)

    return run


@pytest.mark.parametrize("way", BLOCKS)
def test_on_the_loop_of_a_triggerer_it_is_an_error_before_anything_is_read(way, world, pricing, pulled, in_triggerer):
    token = pulled()
    with pytest.raises(LoanAuthError, match=BLOCKS[way][1]) as raised:
        in_triggerer(call(way, pricing.url, token))
    name = "A request with this client" if way in CLASSES else f"{way}()"
    assert str(raised.value).startswith(f"{name} would block the event loop of the triggerer")
    assert (world.logins, pricing.credentials) == (0, [])


def test_in_a_thread_of_a_triggerer_it_works(world, pulled, pricing, in_triggerer, monkeypatch):
    """Also on a loop of one's own in the thread: it holds no other trigger up."""
    monkeypatch.setattr("airflow.__version__", "3.3.2")
    monkeypatch.setattr("airflow_provider_loanauth._compat.variables.get_supervisor_channel", lambda: None)
    monkeypatch.setattr("airflow_provider_loanauth.redaction.mask_secret", lambda _: None)
    token = pulled()
    in_triggerer(asyncio.to_thread(asyncio.run, call("requests", pricing.url, token)))
    assert len(pricing.credentials) == 1


@pytest.mark.parametrize("version", ["3.0.6", "3.1.8"])
def test_on_3_0_and_3_1_a_trigger_cannot_use_credentials(version, world, monkeypatch):
    """A call to the supervisor in any thread but that of the loop ends the triggerer."""
    monkeypatch.setattr("airflow.__version__", version)
    monkeypatch.setattr(_compat, "_channel", type("TriggerCommsDecoder", (), {}))
    with pytest.raises(LoanAuthError, match="a trigger cannot use credentials"):
        asyncio.run(HOOK.aget_credential())
    assert world.logins == 0
