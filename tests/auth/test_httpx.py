"""``LoanAuth`` for ``httpx`` and ``httpx2``: the event loop, and what only these two do, against the sandbox."""

from __future__ import annotations

import asyncio
import io
import threading

import pytest

from airflow_provider_loanauth.exceptions import LoanAuthError, UnavailableError
from airflow_provider_loanauth.system import system
from tests.auth.conftest import ASYNC_LIBRARIES, CLASSES, Caller
from tests.support.pricing_fixtures import loan

pytestmark = pytest.mark.once


@pytest.fixture(params=ASYNC_LIBRARIES)
def loan_auth(request):
    return CLASSES[request.param]


@pytest.fixture
def expired(world, pulled):
    token = pulled()
    world.pass_time(4000)
    return token


@pytest.fixture
def threads(monkeypatch):
    started = []
    really = threading.Thread.start

    def start(self):
        if self.name == "loanauth":
            started.append(self)
        really(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    return started


def run(auth, work):
    async def main():
        async with auth._library.AsyncClient(auth=auth, timeout=60, verify=False) as client:
            return await work(client)

    return asyncio.run(main())


async def price_all(client, world, number):
    calls = (client.post(world.url, json=loan(index)) for index in range(number))
    return await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.parametrize("status", [200, 401])
def test_many_requests_that_are_rejected_make_one_refresh_in_one_thread(world, pulled, threads, status, loan_auth):
    auth = loan_auth(pulled())
    Caller(loan_auth._library.__name__)(world.url, auth, json=loan())
    world.sandbox.revoke()
    if status == 401:
        world.sandbox.set_fault("status", where="price", status=401)
    responses = run(auth, lambda client: price_all(client, world, 50))
    assert {response.status_code for response in responses} == {status}
    assert (world.logins, len(threads)) == (1, 1)


def test_many_requests_during_an_outage_make_one_login_with_its_attempts(
    world, expired, threads, monkeypatch, loan_auth
):
    monkeypatch.setattr(system, "uniform", lambda low, high: low)
    before = world.credential_requests
    world.sandbox.set_fault("status", where="token", status=503)

    async def work(client):
        failures = await price_all(client, world, 50)
        assert {type(failure) for failure in failures} == {UnavailableError}
        assert len(set(map(id, failures))) == 50
        assert (world.credential_requests - before, len(threads)) == (3, 1)
        assert world.prices.succeeded == world.prices.rejected == 0
        # Then the next requests log in again.
        world.sandbox.clear_faults()
        assert {response.status_code for response in await price_all(client, world, 20)} == {200}

    run(loan_auth(expired), work)
    assert (world.logins, len(threads)) == (1, 2)


def test_the_others_use_a_valid_credential_while_one_refreshes_it(world, pricing, pulled, loan_auth):
    token = pulled()

    async def work(client):
        await client.get(pricing.url)
        world.pass_time(3560)
        world.sandbox.set_fault("latency", where="token", seconds=1.0)
        await asyncio.gather(*(client.get(pricing.url) for _ in range(20)))

    run(loan_auth(token), work)
    sent = [one["authorization"] for one in pricing.credentials]
    assert sent.count(f"Bearer {token.value}") == len(sent) - 1 == 20
    assert world.logins == 1


def test_a_cancelled_request_does_not_cancel_the_refresh_of_the_others(world, expired, threads, loan_auth):
    """Nor does it start a thread: a service that hangs would collect one for each request that gave up."""
    world.sandbox.set_fault("latency", where="token", seconds=0.5)

    async def work(client):
        calls = (asyncio.wait_for(client.post(world.url, json=loan(one)), 0.1 + one / 100) for one in range(20))
        impatient = asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(0.05)
        response = await client.post(world.url, json=loan())
        assert response.status_code == 200
        assert {type(failure) for failure in await impatient} == {asyncio.TimeoutError}

    run(loan_auth(expired), work)
    assert len(threads) == world.logins == 1


def test_a_loop_that_ends_first_leaves_nothing_behind(world, expired, logs, loan_auth):
    world.sandbox.set_fault("latency", where="token", seconds=0.2)
    auth = loan_auth(expired)
    with pytest.raises(asyncio.TimeoutError):
        run(auth, lambda client: asyncio.wait_for(client.post(world.url, json=loan()), 0.05))
    # Another loop can use the same object.
    assert run(auth, lambda client: client.post(world.url, json=loan())).status_code == 200
    assert world.logins <= 2
    assert not auth._refreshes
    assert "Exception in callback" not in logs.text


def test_the_trace_of_the_caller_works_and_a_request_that_is_sent_again_stays_as_it_is(pricing, pulled, loan_auth):
    events = []

    def note(event, info):
        if event == "http11.send_request_headers.started":
            events.append(info["request"].url.target)

    async def trace(event, info):
        note(event, info)

    auth = loan_auth(pulled())
    Caller(f"{loan_auth._library.__name__} async")(f"{pricing.url}/one", auth, extensions={"trace": trace})
    with loan_auth._library.Client(auth=auth, verify=False) as client:
        request = client.build_request("GET", f"{pricing.url}/two", extensions={"trace": note})
        client.send(request)
        extensions = request.extensions
        client.send(request)
    assert request.extensions == extensions
    assert events == [b"/one", b"/two", b"/two"]


def test_through_a_proxy_the_target_is_checked(pricing, elsewhere, pulled, loan_auth):
    options = {"auth": loan_auth(pulled()), "timeout": 60, "verify": False, "follow_redirects": True}
    with loan_auth._library.Client(proxy=elsewhere.url, **options) as client:
        assert client.get(f"{pricing.url}/there").status_code == 200
        elsewhere.respond = lambda request: (302, {"Location": f"http://localhost:{pricing.port}/there"}, b"")
        with pytest.raises(LoanAuthError, match="leads to a different host or port"):
            client.get(f"{pricing.url}/there")
    assert [request.path for request in elsewhere.seen] == [f"{pricing.url}/there"] * 2
    assert pricing.seen == []


def test_a_body_of_the_other_kind_is_the_error_of_httpx(world, pricing, pulled, loan_auth):
    """A file in an asynchronous client."""
    with pytest.raises(RuntimeError, match="with an AsyncClient"):
        run(loan_auth(pulled()), lambda client: client.post(pricing.url, content=io.BytesIO(b"made-up loans")))
