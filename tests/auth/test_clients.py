"""``hook.get_conn()`` and ``hook.get_async_conn()``: the clients for pricing requests, against the sandbox."""

from __future__ import annotations

import asyncio
import pickle
import sys
import threading
from contextlib import AsyncExitStack
from importlib import import_module

import httpx
import pytest
import requests

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.auth.base import MAX_CONNECTIONS
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from tests.auth.conftest import ASYNC_LIBRARIES
from tests.support.leaks import leaks, locals_of, messages
from tests.support.pricing_fixtures import in_threads, loan, ticks_during

each_client = pytest.mark.parametrize("name", ["get_conn", *(f"get_async_conn {name}" for name in ASYNC_LIBRARIES)])
each_library = pytest.mark.parametrize("library", ASYNC_LIBRARIES)


def make(name, *arguments, conn_id="loanauth_jwt", **options):
    method, _, library = name.partition(" ")
    return getattr(LoanAuthHook(conn_id), method)(*arguments, **options, **({"library": library} if library else {}))


def run(client, work):
    async def main():
        async with client:
            return await work(client)

    return asyncio.run(main())


def price(client, url):
    if isinstance(client, requests.Session):
        with client:
            return client.post(url, json=loan()).status_code
    return run(client, lambda client: client.post(url, json=loan())).status_code


@pytest.mark.parametrize("auth_of", ["get_conn", "LoanAuth"])
def test_a_pulled_credential_is_refreshed_with_its_own_method(world, pulled, define, auth_of):
    """One Connection may serve several methods."""
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    los = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_LOS"]
    define("loanauth_both", connection | {"extra": los["extra"] | connection["extra"]})
    token = LoanAuthHook("loanauth_both", method="los").get_credential()
    world.pass_time(4000)
    auth = LoanAuth(token) if auth_of == "LoanAuth" else make("get_conn", token, conn_id="loanauth_both").auth
    assert requests.post(world.url, json=loan(), auth=auth, timeout=60).status_code == 200
    assert world.sandbox.counters().by_method["los"].succeeded == 2


@each_client
def test_a_credential_of_another_connection_is_a_value_error(world, pulled, name):
    token = pulled()
    method = name.partition(" ")[0]
    message = (
        f"^{method} was given a credential of connection 'loanauth_jwt', but the hook has connection 'loanauth_los'"
    )
    with pytest.raises(ValueError, match=f"{message}.*another loan.*shift.*one mapped task group") as caught:
        make(name, token, conn_id="loanauth_los")
    # The id of a Connection that is not found may be a token.
    with pytest.raises(LoanAuthError, match="did not find a connection"):
        make(name, token, conn_id=token.value)
    assert not leaks(messages(caught.value) + locals_of(caught.value), [token.value])
    assert world.logins == 0


@each_client
def test_the_connection_is_checked_at_once(world, define, name):
    define("loanauth_jwt", {"conn_type": "loanauth", "host": world.sandbox.url})
    with pytest.raises(SettingsError, match="Username"):
        make(name)


@each_client
def test_min_ttl(world, pulled, name):
    for seconds, logins in ((0, 0), (300, 1)):
        client = make(name, pulled(), min_ttl=seconds)
        world.pass_time(3500)
        assert price(client, world.url) == 200
        assert world.logins == logins


def test_the_timeout_is_that_of_the_connection(world, define, pricing, sent):
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    define("loanauth_jwt", connection | {"extra": connection["extra"] | {"timeout": "7"}})
    with LoanAuthHook("loanauth_jwt").get_conn() as session:
        session.get(pricing.url)
        session.get(pricing.url, timeout=3)
        session.request("GET", pricing.url, None, None, None, None, None, None, 4)
        session.send(session.prepare_request(requests.Request("GET", pricing.url)))
        pricing.respond = lambda request: (302, {"Location": "/there"}, b"") if request.path == "/" else (200, {}, b"")
        session.get(pricing.url)
    assert [call["timeout"] for call in sent[-6:]] == [7, 3, 4, 7, 7, 7]
    assert LoanAuthHook("loanauth_jwt").get_async_conn().timeout == httpx.Timeout(7)


def test_an_adapter_of_the_user_gets_the_tls_settings_and_the_proxy(world, define):
    calls = []

    class Adapter(requests.adapters.HTTPAdapter):
        __hash__ = None  # as that of a dataclass

        def send(self, request, **kwargs):
            calls.append((kwargs["verify"], {**kwargs["proxies"]}))
            return requests.Response()

    url, own = "https://pricing.example", {"https": "http://own.example:3128"}
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"] | {"host": "https://auth.example"}
    options = {"verify": __file__, "proxy": "http://proxy.example:3128"}
    define("loanauth_jwt", connection | {"extra": connection["extra"] | options})
    with LoanAuthHook("loanauth_jwt").get_conn() as session:
        session.mount(url, Adapter())
        session.auth = None
        session.get(url)
        session.send(session.prepare_request(requests.Request("GET", url)))
        session.get(url, verify=False, proxies=own)
        session.get(url, proxies={"https": ""})
    of_connection = (__file__, {"all": options["proxy"]})
    assert calls == [of_connection, of_connection, (False, own), (__file__, {"https": ""})]


@pytest.fixture
def session(world):
    """The session of a hook, without a credential."""
    with LoanAuthHook("loanauth_jwt").get_conn() as session:
        yield session


def test_threads_share_a_session(world, session):
    together = threading.Barrier(32)

    def batch(index):
        statuses = set()
        for number in range(3):
            statuses.add(session.post(world.url, json=loan(number)).status_code)
            # All connections are idle at the same time, and all are kept alive.
            together.wait(120)
        return statuses

    assert in_threads(32, batch) == [{200}] * 32
    counters = world.sandbox.counters()
    # At most one connection per thread, and one for the login.
    assert counters.connections_accepted <= 33
    assert counters.authentications.succeeded == 1


@each_client
def test_it_cannot_be_pickled(world, name):
    with pytest.raises(TypeError, match=rf"of {name.partition(' ')[0]}\(\) cannot be pickled or copied"):
        pickle.dumps(make(name))


def test_a_netrc_entry_does_not_replace_the_credential_on_a_redirect(session, pricing, tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login made-up password made-up-netrc-password\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    pricing.respond = lambda request: (302, {"Location": "/there"}, b"") if request.path == "/" else (200, {}, b"")
    session.get(pricing.url)
    first, second = pricing.credentials
    assert first == second
    assert first["authorization"].startswith("Bearer ")


@each_library
def test_concurrent_requests_share_a_client_its_connections_and_one_refresh_which_does_not_block_the_loop(
    world, pulled, library
):
    client = LoanAuthHook("loanauth_jwt").get_async_conn(pulled(), library=library)
    assert type(client).__mro__[2].__module__ == library
    before = world.sandbox.counters().connections_accepted
    world.pass_time(4000)
    world.sandbox.set_fault("latency", where="token", seconds=0.5)

    async def twice(client):
        for least_ticks in (10, 0):
            calls = asyncio.gather(*(client.post(world.url, json=loan(index)) for index in range(50)))
            # About 50 where the loop is free, once or twice where it is blocked.
            assert await ticks_during(calls) >= least_ticks
            assert {response.status_code for response in calls.result()} == {200}

    run(client, twice)
    assert (world.logins, world.prices.succeeded, world.prices.rejected) == (1, 100, 0)
    # At most one connection per request, and one for the login.
    assert world.sandbox.counters().connections_accepted - before <= 51


@each_library
def test_responses_that_are_not_read_do_not_hold_other_requests(world, pulled, library):
    async def many(client):
        async with AsyncExitStack() as stack:
            for index in range(MAX_CONNECTIONS):
                await stack.enter_async_context(client.stream("POST", world.url, json=loan(index)))
            response = await asyncio.wait_for(client.post(world.url, json=loan(0)), 60)
            assert response.status_code == 200

    run(LoanAuthHook("loanauth_jwt").get_async_conn(pulled(), library=library), many)


def test_the_library_is_the_one_that_the_caller_names(world, monkeypatch):
    """What is installed decides nothing, because the classes of responses and errors differ."""
    hook = LoanAuthHook("loanauth_jwt")
    assert isinstance(hook.get_async_conn(), httpx.AsyncClient)
    with pytest.raises(ValueError, match='library must be "httpx" or "httpx2"'):
        hook.get_async_conn(library="requests")
    monkeypatch.setitem(sys.modules, "httpx2", None)
    monkeypatch.delitem(sys.modules, "airflow_provider_loanauth.auth.httpx2", raising=False)
    with pytest.raises(
        ImportError, match=r"httpx2 is not installed: run pip install 'airflow-provider-loanauth\[httpx2"
    ):
        hook.get_async_conn(library="httpx2")


@each_library
def test_a_redirect_to_another_origin_is_an_error_with_every_transport(world, library):
    """Nothing is sent there, although this transport ignores the extension ``trace``."""
    module, seen = import_module(library), []
    client = LoanAuthHook("loanauth_ppe").get_async_conn(library=library)

    def redirect(request):
        seen.append((request.url.host, "secret" in request.headers))
        return module.Response(302, headers={"Location": "https://elsewhere.example"})

    client._transport = module.MockTransport(redirect)

    async def follow(client):
        with pytest.raises(LoanAuthError, match="A redirect leads to a different host or port"):
            await client.get("https://pricing.example", follow_redirects=True)
        # A request with another auth has no credential.
        await client.get("https://elsewhere.example", auth=("made-up", "made-up"))

    run(client, follow)
    assert seen == [("pricing.example", True), ("elsewhere.example", False)]
