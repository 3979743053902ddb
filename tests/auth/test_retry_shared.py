"""Requests that get a 401 in many processes, each of which has only the first credential and the register."""

from __future__ import annotations

import asyncio

import httpx
import pytest
import requests

from airflow_provider_loanauth.auth import LoanAuth, refresh, shared
from airflow_provider_loanauth.auth import httpx as loanauth_httpx
from airflow_provider_loanauth.auth import register as register_module
from airflow_provider_loanauth.auth.active import REFRESH_COOLDOWN
from airflow_provider_loanauth.exceptions import UnavailableError
from airflow_provider_loanauth.service.memory import PROCESS_FAILURES
from tests.support.clock import replace_waits
from tests.support.simulation import TASK


def with_requests(url, credential):
    return requests.post(url, json={}, auth=LoanAuth(credential), timeout=60).status_code


def with_httpx(url, credential):
    with httpx.Client(auth=loanauth_httpx.LoanAuth(credential)) as client:
        return client.post(url, json={}).status_code


def with_async_httpx(url, credential):
    async def price():
        async with httpx.AsyncClient(auth=loanauth_httpx.LoanAuth(credential)) as client:
            return (await client.post(url, json={})).status_code

    # If it does not end, the test fails.
    return asyncio.run(asyncio.wait_for(price(), 60))


@pytest.fixture(params=[with_requests, with_httpx, with_async_httpx])
def in_new_process(request, world, pricing, pulled, monkeypatch, conn_id):
    """Return a function that sends one request as a new process does that has only the first credential."""
    values = {}
    monkeypatch.setattr(register_module, "read_xcom", lambda key, _: values.get(key))
    monkeypatch.setattr(register_module, "write_xcom", lambda key, value, _: values.update({key: value}))
    monkeypatch.setattr(shared, "MIN_CLAIM_DELAY", 0.0)
    monkeypatch.setattr(shared, "CLAIM_DELAY_FACTOR", 0.0)
    first = pulled(conn_id)
    first.task = TASK

    def price():
        refresh._PROCESS_CACHE.clear()
        PROCESS_FAILURES.clear()
        return request.param(pricing.url, first)

    return price


def credential_of(request):
    return request.headers.get("authorization") or request.headers.get("secret")


@pytest.mark.parametrize("conn_id", ["loanauth_jwt", "loanauth_ppe"])
def test_the_refreshed_credential_may_be_rejected_as_well(world, pricing, in_new_process):
    """Such as after each session was ended at the service, or if nobody knows when the credential expires."""
    ended = set()

    def respond(request):
        # The first request of all has the first credential.
        ended.add(credential_of(pricing.seen[0]))
        return (401 if credential_of(request) in ended else 200), {}, b"{}"

    pricing.respond = respond
    for number in range(3):
        assert [in_new_process() for _ in range(3)] == [200] * 3
        assert world.logins == number + 1
        ended.add(credential_of(pricing.seen[-1]))
        world.pass_time(REFRESH_COOLDOWN + 1)


@pytest.mark.parametrize("conn_id", ["loanauth_jwt"])
def test_rejected_requests_of_many_processes_cost_one_refresh(world, pricing, in_new_process):
    """The 401 is about the requests."""
    pricing.respond = lambda _: (401, {}, b"")
    assert [in_new_process() for _ in range(5)] == [401] * 5
    assert world.logins == 1


@pytest.mark.parametrize("conn_id", ["loanauth_jwt"])
def test_a_rejected_credential_is_not_sent_again_while_the_service_is_unavailable(
    world, pricing, in_new_process, monkeypatch
):
    """It has not expired, but the response was 401."""
    replace_waits(monkeypatch, lambda _: None)
    world.sandbox.set_fault("status", status=503, where="token")
    pricing.respond = lambda _: (401, {}, b"{}")
    with pytest.raises(UnavailableError):
        in_new_process()
    assert len(pricing.seen) == 1
