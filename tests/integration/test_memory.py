"""
All that authenticates shares its rejections, in a process and between processes: each way, against the sandbox.

``login/`` has threads, other settings, and what is remembered for how long.
"""

from __future__ import annotations

import asyncio

import httpx
import pytest
import requests

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.auth.httpx import LoanAuth as HttpxLoanAuth
from airflow_provider_loanauth.exceptions import RejectedError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from tests.support.pricing_fixtures import loan
from tests.support.processes import start_new_process

CONN_ID = "loanauth_jwt"


def hook():
    return LoanAuthHook(CONN_ID)


def price_with_get_conn(world):
    with hook().get_conn() as session:
        return session.post(world.url, json=loan())


def price_with_httpx(world):
    with httpx.Client(auth=HttpxLoanAuth.from_connection(CONN_ID), verify=False) as client:
        return client.post(world.url, json=loan())


#: Every way to authenticate.
WAYS = {
    "get_credential": lambda world: hook().get_credential(),
    "aget_credential": lambda world: asyncio.run(hook().aget_credential()),
    "authenticate": lambda world: hook().authenticate(),
    "authen_jwt": lambda world: hook().authen_jwt(),
    "get_plaintext": lambda world: hook().get_plaintext(),
    "operator": lambda world: LoanAuthOperator(task_id="a", loanauth_conn_id=CONN_ID).execute({}),
    "LoanAuth": lambda world: requests.post(world.url, json=loan(), auth=LoanAuth.from_connection(CONN_ID), timeout=60),
    "LoanAuth for httpx": price_with_httpx,
    "get_conn": price_with_get_conn,
}


@pytest.fixture
def rejecting(world):
    """Let the service reject each login."""
    world.sandbox.set_fault("status", where="token", status=401)


@pytest.mark.usefixtures("rejecting")
@pytest.mark.parametrize("known_from", ["this process", "a Variable"])
@pytest.mark.parametrize("way", WAYS)
def test_each_way_tells_of_its_rejection_and_obeys_that_of_another(way, known_from, world, variables):
    forget = variables.clear if known_from == "this process" else start_new_process
    for first, second in ((WAYS[way], WAYS["get_credential"]), (WAYS["get_credential"], WAYS[way])):
        start_new_process()
        variables.clear()
        with pytest.raises(RejectedError):
            first(world)
        forget()
        with pytest.raises(RejectedError, match="Nothing was sent, because the service has rejected the same values"):
            second(world)
    assert world.credential_requests == 2


@pytest.mark.usefixtures("rejecting")
def test_the_test_button_always_sends_and_its_success_ends_what_is_remembered(world):
    """After the user was unlocked, a process that runs for long, such as a notebook, goes on."""
    with pytest.raises(RejectedError):
        hook().get_credential()
    for _ in range(2):
        worked, message = hook().test_connection()
        assert worked is False
        assert "Nothing was sent" not in message
    assert world.credential_requests == 3
    world.sandbox.clear_faults()
    with pytest.raises(RejectedError, match="Nothing was sent"):
        hook().get_credential()
    assert hook().test_connection()[0] is True
    assert hook().get_credential()
