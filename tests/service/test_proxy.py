"""The field Proxy over real sockets: login, pricing requests and probe use it, and nothing shows its password."""

import asyncio
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
import requests
import trustme

from airflow_provider_loanauth.exceptions import ResponseError, SettingsError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.redaction import exception_chain
from airflow_provider_loanauth.service import transport
from tests.support import masking
from tests.support.leaks import leaks, locals_of, messages
from tests.support.loopback import tls_context
from tests.support.pricing_fixtures import loan
from tests.support.proxy import TunnelProxy

USER, PASSWORD = "CANARY pröxy", "CANARY-p@ss/wörd✓"
CREDENTIALS = f"{USER}:{PASSWORD}"
WRITTEN = f"{quote(USER)}:{quote(PASSWORD, safe='')}"
SECRETS = (PASSWORD, CREDENTIALS)
WRONG = "CANARY-user:CANARY-wrong-proxy-password"


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def bundle(shared_tls_sandbox, authority, tmp_path_factory):
    path = tmp_path_factory.mktemp("ca") / "bundle.pem"
    path.write_bytes(Path(shared_tls_sandbox.ca_path).read_bytes() + authority.cert_pem.bytes())
    return str(path)


@pytest.fixture
def target(tls_sandbox):
    return tls_sandbox.url.removeprefix("https://")


@pytest.fixture(params=["http", "https"])
def proxy(request, authority):
    """A proxy that requires user and password, with an address that begins with http or https."""
    with TunnelProxy(CREDENTIALS, tls_context(authority) if request.param == "https" else None) as running:
        yield running


@pytest.fixture
def connection(tls_sandbox, define, bundle, monkeypatch):
    """Define the Connection with a proxy, which has precedence over all that the environment says."""
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")

    def define_connection(url):
        usual = tls_sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
        define("loanauth_default", usual | {"extra": usual["extra"] | {"proxy": url, "verify": bundle, "timeout": 20}})
        return f"{tls_sandbox.url}/sandbox/price"

    return define_connection


def test_a_login_and_a_probe_go_through_it(proxy, connection, tls_sandbox, target):
    connection(proxy.url(WRITTEN))
    LoanAuthHook().get_credential()
    for form in (PASSWORD, CREDENTIALS, WRITTEN, quote(PASSWORD, safe="")):
        assert leaks(str(masking.redact(f"made up: {form}")), SECRETS) == []
    # The tunnel is opened with the credentials of the proxy and nothing else.
    [head] = proxy.requests
    assert head.lower().count(b"authorization") == 1
    assert transport.probe(LoanAuthHook().read_settings(), timeout=20).status == 200
    assert proxy.tunnels == [target] * 2
    assert tls_sandbox.counters().connections_accepted == 2


def test_pricing_requests_go_through_it(proxy, connection, target, logs, pricing):
    url = connection(proxy.url(WRITTEN))
    with LoanAuthHook().get_conn() as session:
        # Plain http is for loopback addresses only, and a proxy would receive the credential unencrypted.
        assert session.get(pricing.url).status_code == 200
    with LoanAuthHook().get_conn() as session, TunnelProxy() as other, TunnelProxy("of:its-own") as third:
        assert session.post(url, json=loan()).status_code == 200
        # A parameter of a request has precedence. That proxy does not receive the credentials of the other one.
        session.post(url, json=loan(), proxies={"https": other.url()})
        session.post(url, json=loan(), proxies={"https": third.url("of:its-own")})
        assert other.tunnels == third.tunnels == [target]
        assert b"Proxy-Authorization" not in other.requests[0]
    # One tunnel for the login, and one for the loan.
    assert proxy.tunnels == [target] * 2
    assert leaks(logs.text, [*SECRETS, WRITTEN]) == []


def test_asynchronous_pricing_requests_go_through_it(proxy, connection, target, logs, pricing):
    url = connection(proxy.url(WRITTEN))
    token = LoanAuthHook().get_credential()
    client = LoanAuthHook().get_async_conn(token)
    assert price_async(url, client) == 200
    # Plain http is for loopback addresses only.
    assert price_async(pricing.url) == 200
    assert proxy.tunnels == [target] * 2
    assert leaks(f"{logs.text} {vars(client)}", [*SECRETS, WRITTEN, token.value]) == []


def failure_of(call, kind):
    """Return the error of a call, which shows no password: in no text, and in no frame."""
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    assert leaks(messages(caught.value) + locals_of(caught.value), [WRONG, *WRONG.split(":")]) == []
    return caught.value


def price(url, **options):
    with LoanAuthHook().get_conn() as session:
        # The login of a credential would fail first.
        session.auth = None
        session.get(url, **options)


def price_async(url, client=None):
    """With the credential of a client, or with none."""
    options = {"json": loan()} if client else {"auth": None}

    async def main():
        async with client or LoanAuthHook().get_async_conn() as used:
            return (await used.post(url, **options)).status_code

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("http://user:CANARY/x@127.0.0.1:1", "CANARY"),
        ("http://user:CANARY@127.0.0.1:99999/@127.0.0.1:1", "CANARY@127.0.0.1:99999/"),
        ("socks5://user:CANARY-word@127.0.0.1:1", "CANARY-word"),
        ("socks5://CANARY-word@127.0.0.1:1", "CANARY-word"),
        # What comes before this sign is taken for the port.
        ("socks5://user:CANARY-part#tail@127.0.0.1:1", "CANARY-part"),
    ],
)
def test_a_wrong_address_is_named_and_not_shown(url, secret, connection, tls_sandbox, monkeypatch):
    """Not even to a tool that follows what an exception suppresses."""
    connection("")
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("HTTPS_PROXY", url)
    for send in (price, price_async):
        error = failure_of(lambda send=send: send(tls_sandbox.url), SettingsError)
        assert "The proxy address in this machine's environment is invalid" in str(error)
        assert leaks(messages(error) + locals_of(error) + repr(exception_chain(error)), [secret]) == []
    if secret == "CANARY-word":
        # httpcore logs what it sends to a SOCKS proxy at DEBUG.
        assert masking.redact(f"auth={secret}") == "auth=***"


def test_a_wrong_address_as_a_parameter_of_a_request_is_not_shown(connection, tls_sandbox):
    connection("")
    url = "http://user:CANARY/x@127.0.0.1:1"
    error = failure_of(lambda: price(tls_sandbox.url, proxies={"https": url}), requests.exceptions.InvalidProxyURL)
    assert (str(error), error.request) == ("The address of the proxy is not valid.", None)
    assert leaks(repr(exception_chain(error)), ["CANARY"]) == []


@pytest.mark.parametrize("where", ["Connection", "environment"])
def test_a_wrong_password_is_not_shown_and_a_login_sends_it_once(
    where, proxy, connection, tls_sandbox, logs, monkeypatch
):
    """The proxy may lock the user."""
    connection(proxy.url(WRONG) if where == "Connection" else "")
    if where == "environment":
        monkeypatch.delenv("NO_PROXY")
        monkeypatch.setenv("HTTPS_PROXY", proxy.url(WRONG))
    failure_of(LoanAuthHook().get_credential, ResponseError)
    assert len(proxy.requests) == 1
    failure_of(lambda: price(tls_sandbox.url), requests.exceptions.ProxyError)
    failure_of(lambda: price_async(tls_sandbox.url), httpx.ProxyError)
    session = LoanAuthHook().get_conn()
    assert leaks("\n".join([repr(session), repr(vars(session)), logs.text]), [WRONG, *WRONG.split(":")]) == []
    assert tls_sandbox.counters().connections_accepted == 0
