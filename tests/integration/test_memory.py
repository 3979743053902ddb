"""All that authenticates tells of its rejection, and obeys that of another process: each way, against the sandbox."""

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
from tests.support.processes import start_new_process

CONN_ID = "loanauth_jwt"


def hook():
    return LoanAuthHook(CONN_ID)


#: Every way to authenticate. Each takes the address of the pricing service.
WAYS = {
    "get_credential": lambda url: hook().get_credential(),
    "aget_credential": lambda url: asyncio.run(hook().aget_credential()),
    "authenticate": lambda url: hook().authenticate(),
    "authen_jwt": lambda url: hook().authen_jwt(),
    "get_plaintext": lambda url: hook().get_plaintext(),
    "operator": lambda url: LoanAuthOperator(task_id="a", loanauth_conn_id=CONN_ID).execute({}),
    "LoanAuth": lambda url: requests.get(url, auth=LoanAuth.from_connection(CONN_ID), timeout=60),
    "LoanAuth for httpx": lambda url: httpx.get(url, auth=HttpxLoanAuth.from_connection(CONN_ID)),
    "get_conn": lambda url: hook().get_conn().get(url),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_tells_of_its_rejection_and_obeys_that_of_another(way, world, variables):
    world.sandbox.set_fault("status", where="token", status=401)
    for first, second in ((WAYS[way], WAYS["get_credential"]), (WAYS["get_credential"], WAYS[way])):
        variables.clear()
        start_new_process()
        with pytest.raises(RejectedError):
            first(world.url)
        # First it knows of the rejection from a Variable, then from the memory of the process.
        for forget in (start_new_process, variables.clear):
            forget()
            with pytest.raises(RejectedError, match="Nothing was sent, because the service has rejected the same"):
                second(world.url)
    assert world.credential_requests == 2


def test_the_test_button_always_sends_and_its_success_ends_what_is_remembered(world):
    """After the user was unlocked, a process that runs for long, such as a notebook, goes on."""
    world.sandbox.set_fault("status", where="token", status=401)
    with pytest.raises(RejectedError):
        hook().get_credential()
    for _ in range(2):
        worked, message = hook().test_connection()
        assert (worked, "Nothing was sent" in message) == (False, False)
    world.sandbox.clear_faults()
    with pytest.raises(RejectedError, match="Nothing was sent"):
        hook().get_credential()
    assert hook().test_connection()[0] is True
    assert hook().get_credential()
