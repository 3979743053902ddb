"""``aget_credential`` of the hook, which does not block the event loop."""

from __future__ import annotations

import asyncio

import pytest

from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.exceptions import SettingsError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from tests.support.pricing_fixtures import ticks_during


@pytest.mark.parametrize(("conn_id", "kind"), [("loanauth_jwt", AccessToken), ("loanauth_ppe", ApiSecret)])
def test_it_returns_a_credential(world, conn_id, kind):
    credential = asyncio.run(LoanAuthHook(conn_id).aget_credential())
    assert isinstance(credential, kind)
    assert credential.conn_id == conn_id
    assert world.logins == 1


@pytest.mark.parametrize("of_hook", [None, "los"])
def test_the_method_is_that_of_the_call_or_the_hook(world, of_hook):
    hook = LoanAuthHook("loanauth_jwt", of_hook)
    with pytest.raises(SettingsError, match="LOS client ID"):
        asyncio.run(hook.aget_credential(None if of_hook else "los"))


def test_the_loop_runs_during_a_login(world):
    world.sandbox.set_fault("latency", where="token", seconds=0.5)
    # About 50 times where the loop is free, once or twice where it is blocked.
    assert asyncio.run(ticks_during(LoanAuthHook("loanauth_jwt").aget_credential())) >= 10
