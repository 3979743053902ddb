"""``hook.get_async_conn()``: the client for concurrent pricing requests, against the sandbox. What its ``LoanAuth``
promises is in test_loanauth.py and test_httpx.py.
"""

from __future__ import annotations

import asyncio
import traceback
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from airflow_provider_loanauth.auth.base import MAX_CONNECTIONS
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from tests.support.pricing_fixtures import loan, ticks_during


def run(client, work):
    """Run a coroutine with a client, which ends after it."""

    async def main():
        async with client:
            return await work(client)

    return asyncio.run(main())


def price(client, url, number=1):
    """Price so many loans at the same time."""
    return run(client, lambda client: asyncio.gather(*(client.post(url, json=loan(index)) for index in range(number))))


@pytest.mark.parametrize("conn_id", ["loanauth_jwt", "loanauth_los", "loanauth_ppe"])
def test_it_prices_with_one_login_and_keeps_its_connections(world, conn_id):
    async def twice(client):
        for _ in range(2):
            responses = await asyncio.gather(*(client.post(world.url, json=loan(index)) for index in range(50)))
            assert {response.status_code for response in responses} == {200}

    run(LoanAuthHook(conn_id).get_async_conn(), twice)
    counters = world.sandbox.counters()
    assert (counters.authentications.succeeded, counters.prices.succeeded) == (1, 100)
    # At most one connection per request, and one for the login.
    assert counters.connections_accepted <= 51


def test_many_requests_at_an_expiry_make_one_refresh_and_do_not_block_the_loop(world, pulled):
    client = LoanAuthHook("loanauth_jwt").get_async_conn(pulled())
    world.pass_time(4000)
    world.sandbox.set_fault("latency", where="token", seconds=0.5)

    async def many(client):
        ticks = await ticks_during(asyncio.gather(*(client.post(world.url, json=loan(index)) for index in range(50))))
        # About 50 where the loop is free, once or twice where it is blocked.
        assert ticks >= 10

    run(client, many)
    assert (world.logins, world.prices.succeeded, world.prices.rejected) == (1, 50, 0)


@pytest.mark.parametrize(("min_ttl", "logins"), [(10, 0), (300, 1)])
def test_min_ttl(world, pulled, min_ttl, logins):
    client = LoanAuthHook("loanauth_jwt").get_async_conn(pulled(), min_ttl=min_ttl)
    world.pass_time(3500)
    assert price(client, world.url)[0].status_code == 200
    assert world.logins == logins


def test_the_timeout_is_that_of_the_connection(world, define):
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    define("loanauth_jwt", connection | {"extra": connection["extra"] | {"timeout": "7"}})
    assert LoanAuthHook("loanauth_jwt").get_async_conn().timeout == httpx.Timeout(7)


def test_responses_that_are_not_read_do_not_hold_other_requests(world, pulled):
    async def many(client):
        async with AsyncExitStack() as stack:
            for index in range(MAX_CONNECTIONS):
                await stack.enter_async_context(client.stream("POST", world.url, json=loan(index)))
            response = await asyncio.wait_for(client.post(world.url, json=loan(0)), 60)
            assert response.status_code == 200

    run(LoanAuthHook("loanauth_jwt").get_async_conn(pulled()), many)


def test_plain_http_uses_no_proxy_of_the_environment(pricing, elsewhere, pulled, monkeypatch):
    """It is for loopback addresses only, and httpx reads a range of addresses in NO_PROXY as one address."""
    monkeypatch.setenv("HTTP_PROXY", elsewhere.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert price(LoanAuthHook("loanauth_jwt").get_async_conn(pulled()), pricing.url)[0].status_code == 200
    assert elsewhere.seen == []


@pytest.mark.parametrize(
    "url", ["http://user:made-up-canary/rest@proxy.example:1", "socks9://made-up-canary@proxy.example"]
)
def test_a_wrong_proxy_of_the_environment_is_an_error_without_its_url(world, pulled, monkeypatch, url):
    token = pulled()
    monkeypatch.setenv("HTTPS_PROXY", url)
    with pytest.raises(SettingsError, match="The proxy address in this machine's environment is invalid") as caught:
        LoanAuthHook("loanauth_jwt").get_async_conn(token)
    assert caught.value.conn_id == "loanauth_jwt"
    assert "canary" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("conn_id", ["loanauth_jwt", "loanauth_ppe"])
@pytest.mark.parametrize("transport", ["built-in", "another"])
def test_a_redirect_to_another_origin_is_an_error_with_every_transport(pricing, elsewhere, pulled, conn_id, transport):
    """Nothing is sent there. A transport of another library ignores the extension ``trace``."""
    client, seen = LoanAuthHook(conn_id).get_async_conn(pulled(conn_id)), []
    pricing.respond = lambda request: (302, {"Location": "/there" if request.path == "/" else elsewhere.url}, b"")
    if transport == "another":

        async def send(request):
            seen.append(request.url.host)
            async with httpx.AsyncHTTPTransport(verify=False) as real:
                request.extensions.pop("trace", None)
                response = await real.handle_async_request(request)
                return httpx.Response(response.status_code, headers=response.headers, content=await response.aread())

        client._transport = httpx.MockTransport(send)

    async def follow(client):
        with pytest.raises(LoanAuthError, match="A redirect leads to a different host or port"):
            await client.get(pricing.url, follow_redirects=True)
        # A request with another auth has no credential.
        assert (await client.get(elsewhere.url, auth=("made-up", "made-up"))).status_code == 200

    run(client, follow)
    # Within the origin, it carries the credential.
    first, second = pricing.credentials
    assert first == second != {}
    assert [request.path for request in elsewhere.seen] == ["/"]
    assert len(seen) == (3 if transport == "another" else 0)


def test_the_ca_bundle_is_that_of_the_logins(world, define, tls_sandbox, monkeypatch, tmp_path):
    url = f"{tls_sandbox.url}/sandbox/price"

    def client(**extra):
        define("loanauth_jwt", usual | {"extra": usual["extra"] | extra})
        return LoanAuthHook("loanauth_jwt").get_async_conn(token)

    usual = tls_sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    define("loanauth_jwt", usual)
    token = LoanAuthHook("loanauth_jwt").get_credential()
    assert price(client(), url)[0].status_code == 200
    # A variable that no login uses.
    monkeypatch.setenv("SSL_CERT_FILE", tls_sandbox.ca_path)
    with pytest.raises(httpx.ConnectError):
        price(client(verify=True), url)
    for variable in ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, tls_sandbox.ca_path)
            assert price(client(verify=True), url)[0].status_code == 200
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "missing.pem"))
    assert price(client(verify=False), url)[0].status_code == 200
    (tmp_path / "no-bundle.pem").write_text("made up")
    for unreadable in (True, str(tmp_path / "missing.pem"), str(tmp_path / "no-bundle.pem")):
        with pytest.raises(
            SettingsError, match=r"The CA bundle cannot be read: check the path in Verify TLS"
        ) as caught:
            client(verify=unreadable)
        assert caught.value.conn_id == "loanauth_jwt"
    # The hash of the subject, as OpenSSL names the files of a folder, is not needed for an error.
    assert isinstance(client(verify=str(Path(tls_sandbox.ca_path).parent)), httpx.AsyncClient)
