"""Processes that are forked from one that prices: no loan gets the price of another one, and the parent prices on."""

import asyncio
import json
import os
import ssl
import threading
from importlib import import_module
from types import SimpleNamespace

import pytest
import requests

from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from scripts.programs import Programs
from tests.auth.conftest import ASYNC_LIBRARIES, CLASSES
from tests.support.pricing_fixtures import loan
from tests.support.processes import fork, status_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
    # A child would wait for ever for a lock of coverage that another thread of its parent held.
    pytest.mark.no_cover,
]


@pytest.fixture(scope="module")
def sandbox_program(tmp_path_factory):
    """A sandbox in a program of its own: a child that is forked during a TLS handshake of a thread may hang."""
    directory = tmp_path_factory.mktemp("sandbox")
    file = directory / "ready.json"
    with Programs(directory) as programs:
        command = ["loanauth_sandbox", "--ready-file", str(file), "--tls"]
        programs.start("sandbox", *command, environment=dict(os.environ))
        programs.wait("the start of a sandbox", file.exists, seconds=60)
        yield json.loads(file.read_text())


@pytest.fixture
def route(sandbox_program, define):
    """The sandbox, and a function that returns how many connections have been opened."""
    counters = f"{sandbox_program['control_url']}/counters"
    define("loanauth_jwt", sandbox_program["connections"]["AIRFLOW_CONN_LOANAUTH_JWT"])
    return SimpleNamespace(
        url=sandbox_program["pricing_url"],
        ca=sandbox_program["ca_path"],
        token=LoanAuthHook("loanauth_jwt").get_credential(),
        opened=lambda: requests.get(counters, timeout=60).json()["connections_accepted"],
    )


def of_hook(route):
    return LoanAuthHook("loanauth_jwt").get_conn(route.token)


def of_user(route, library, kind="Client"):
    auth = CLASSES[library](route.token)
    if library == "requests":
        session = requests.Session()
        session.auth, session.verify = auth, route.ca
        return session
    module, tls = import_module(library), ssl.create_default_context(cafile=route.ca)
    # By default, a connection is closed after five seconds without a request.
    options = {"limits": module.Limits(keepalive_expiry=60), "timeout": 60}
    return getattr(module, kind)(auth=auth, verify=tls, **options)


def price(client, route, number):
    response = client.post(route.url, json=loan(number))
    assert (response.status_code, response.json()["loan_id"]) == (200, f"L-{number}")


REFUSES = "This process was forked from one that has used this session, client or LoanAuth"


@pytest.mark.parametrize("library", ["get_conn", *CLASSES])
def test_each_process_may_use_what_was_not_used_and_only_its_own_process_what_was(library, route):
    def in_child():
        for _ in range(2):
            with pytest.raises(LoanAuthError, match=REFUSES):
                price(client, route, 2)
        if library != "get_conn":
            # Another LoanAuth does not make the connections of the session usable.
            client.auth = CLASSES[library](route.token)
            with pytest.raises(LoanAuthError, match=REFUSES):
                price(client, route, 3)

    with of_hook(route) if library == "get_conn" else of_user(route, library) as client:
        assert [status_of(fork(lambda number=number: price(client, route, number))) for number in (5, 6)] == [0, 0]
        price(client, route, 1)
        before = route.opened()
        assert status_of(fork(in_child)) == 0
        price(client, route, 4)
        assert route.opened() == before


def test_a_connection_of_a_request_without_the_credential_stays_with_its_process_too(route):
    def post():
        assert session.post(route.url, json=loan(), auth=lambda request: request).status_code == 401

    def in_child():
        with pytest.raises(LoanAuthError, match=REFUSES):
            post()

    with of_hook(route) as session:
        post()
        assert status_of(fork(in_child)) == 0
        post()


def test_children_of_a_process_whose_threads_price_do_not_wait_for_them(route):
    ended, numbers = threading.Event(), iter(range(1, 1_000_000))
    # Each has its connection before anything is forked.
    connected = threading.Barrier(5, timeout=60)

    def batch():
        # pytest makes an exception in a thread an error.
        price(session, route, next(numbers))
        connected.wait()
        while not ended.is_set():
            price(session, route, next(numbers))

    def in_child():
        with pytest.raises(LoanAuthError, match=REFUSES):
            price(session, route, -1)
        with of_hook(route) as own:
            price(own, route, -2)

    with of_hook(route) as session:
        price(session, route, 0)
        threads = [threading.Thread(target=batch) for _ in range(4)]
        for thread in threads:
            thread.start()
        connected.wait()
        statuses = [status_of(child) for child in [fork(in_child) for _ in range(8)]]
        ended.set()
        for thread in threads:
            thread.join(60)
        price(session, route, 0)
    assert statuses == [0] * 8


@pytest.mark.parametrize("library", ASYNC_LIBRARIES)
@pytest.mark.parametrize("maker", ["get_async_conn", "a user"])
def test_an_asynchronous_client_is_for_the_process_that_uses_it(maker, library, route):
    async def price(number):
        response = await client.post(route.url, json=loan(number))
        assert (response.status_code, response.json()["loan_id"]) == (200, f"L-{number}")

    def price_in_child():
        with pytest.raises(LoanAuthError, match=REFUSES):
            asyncio.run(price(3))

    async def main():
        await price(2)
        assert status_of(fork(price_in_child)) == 0
        await price(4)
        await client.aclose()

    if maker == "a user":
        client = of_user(route, library, "AsyncClient")
    else:
        client = LoanAuthHook("loanauth_jwt").get_async_conn(route.token, library=library)
    # No process has used it yet.
    assert status_of(fork(lambda: asyncio.run(price(1)))) == 0
    asyncio.run(main())
