"""What requests take from the environment of the machine is the same for everything that sends one."""

import asyncio
import re
import ssl
from pathlib import Path
from unittest import mock
from urllib.parse import quote

import pytest
from requests.adapters import HTTPAdapter

from airflow_provider_loanauth.check import check_connection
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.triggers.loanauth import why_unavailable
from tests.support.leaks import leaks
from tests.support.proxy import TunnelProxy

USER, PASSWORD = "CANARY pröxy", "CANARY-p@ss/wörd✓"
WRITTEN = f"{quote(USER)}:{quote(PASSWORD, safe='')}"
#: Answers: where a request goes, or a part of the message of an error.
DIRECTLY, THROUGH_PROXY, NOTHING = "sent to the service itself", "sent to the proxy", "nothing is sent"
WRONG_PROXY = "The proxy address in this machine's environment is invalid, or uses SOCKS"
NO_BUNDLE = "The CA bundle cannot be read"
NOT_TRUSTED = "self-signed certificate|unable to get local issuer certificate"


def log_in(url):
    LoanAuthHook().get_credential(reuse=False)


def probe(url):
    """As in a triggerer: it does not check certificates, and leaves it to a login to say what is wrong."""
    reason = why_unavailable(url, 20, None)
    assert reason is None, reason


def price(url, adapter=None):
    with LoanAuthHook().get_conn() as session:
        if adapter:  # of the user
            session.mount("https://", adapter)
        # The login of a credential would be a request too.
        session.auth = None
        session.get(url).raise_for_status()


def price_with_own_adapter(url):
    price(url, HTTPAdapter())


def price_concurrently(url):
    async def main():
        async with LoanAuthHook().get_async_conn() as client:
            (await client.get(url, auth=None)).raise_for_status()

    asyncio.run(main())


def check(url):
    report = check_connection("loanauth_default")
    assert leaks(str(report), [USER, PASSWORD, WRITTEN]) == []
    assert report.status == "usable", " ".join(str(report).split())


LOGINS = [log_in, price, price_concurrently, check]
SENDERS = [probe, *LOGINS]


@pytest.fixture(scope="module")
def proxies():
    with TunnelProxy() as proxy, TunnelProxy(f"{USER}:{PASSWORD}") as secured:
        yield {"proxy": proxy, "secured": secured}


@pytest.fixture
def expect(proxies, define, monkeypatch):
    """Check where the requests of each sender go in an environment, or why there are none: one text of some."""

    def check_senders(expected, environment, sandbox, verify, host="127.0.0.1", senders=SENDERS):
        url, port = sandbox.url.replace("127.0.0.1", host), sandbox.url.rpartition(":")[2]
        usual = sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
        define("loanauth_default", usual | {"host": url, "extra": usual["extra"] | {"verify": verify}})
        values = {name: proxy.address for name, proxy in proxies.items()}
        for name, value in environment.items():
            monkeypatch.setenv(name, value.format(**values, port=port, closed="127.0.0.1:1", ca=sandbox.ca_path))
        found = {send.__name__: answer(send, url, sandbox) for send in senders}
        assert {name: text for name, text in found.items() if not re.search(expected, text) or "a leak" in text} == {}

    def answer(send, url, sandbox):
        before = sandbox.counters().connections_accepted
        tunnels = [len(proxy.tunnels) for proxy in proxies.values()]
        try:
            send(url)
        except Exception as error:  # noqa: BLE001 - what it is depends on the sender
            return f"{'a leak' if leaks(str(error), [PASSWORD, 'CANARY-word']) else ''} {error}"
        if [len(proxy.tunnels) for proxy in proxies.values()] != tunnels:
            return THROUGH_PROXY
        return DIRECTLY if sandbox.counters().connections_accepted > before else NOTHING

    return check_senders


PROXY = {"HTTPS_PROXY": "http://{proxy}"}


@pytest.mark.parametrize(
    ("environment", "host", "expected"),
    [
        ({}, "127.0.0.1", DIRECTLY),
        (PROXY, "127.0.0.1", THROUGH_PROXY),
        ({"HTTPS_PROXY": "http://{closed}", "https_proxy": "http://{proxy}"}, "127.0.0.1", THROUGH_PROXY),
        ({"HTTPS_PROXY": "", "ALL_PROXY": "http://{proxy}"}, "127.0.0.1", THROUGH_PROXY),
        (PROXY | {"ALL_PROXY": "socks://127.0.0.1:7891/"}, "127.0.0.1", THROUGH_PROXY),
        ({"HTTP_PROXY": "http://{closed}"}, "127.0.0.1", DIRECTLY),
        ({"HTTPS_PROXY": "{proxy}"}, "127.0.0.1", THROUGH_PROXY),
        ({"HTTPS_PROXY": "HTTP://{proxy}/path?query"}, "127.0.0.1", THROUGH_PROXY),
        ({"HTTPS_PROXY": f"http://{WRITTEN}@{{secured}}"}, "127.0.0.1", THROUGH_PROXY),
        (PROXY | {"NO_PROXY": "127.0.0.0/8"}, "127.0.0.1", DIRECTLY),
        (PROXY | {"NO_PROXY": "10.0.0.0/8, 127.0.0.1, fe80::/10"}, "127.0.0.1", DIRECTLY),
        (PROXY | {"NO_PROXY": "127.0.0.1:{port}"}, "127.0.0.1", THROUGH_PROXY),
        (PROXY | {"NO_PROXY": "127.0.0.1", "no_proxy": "lender.example"}, "127.0.0.1", THROUGH_PROXY),
        (PROXY | {"NO_PROXY": "LOCALHOST"}, "localhost", DIRECTLY),
        (PROXY | {"NO_PROXY": "127.0.0.1"}, "localhost", THROUGH_PROXY),
    ],
    ids=str,
)
def test_a_proxy(environment, host, expected, expect, tls_sandbox):
    expect(expected, environment, tls_sandbox, tls_sandbox.ca_path, host)


@pytest.mark.parametrize(
    "value",
    [
        "http://127.0.0.1:99999",
        "ftp://{proxy}",
        "http://user:4711/CANARY-word@{proxy}",
        "http://user:CANARY-word#@{proxy}",
        # No SOCKS library is installed.
        "socks://user:CANARY-word@{proxy}",
    ],
)
def test_what_is_no_address_of_a_proxy(value, expect, tls_sandbox):
    expect(WRONG_PROXY, {"ALL_PROXY": value}, tls_sandbox, tls_sandbox.ca_path, senders=LOGINS)
    expect(NOTHING, {}, tls_sandbox, tls_sandbox.ca_path, senders=[probe])


@pytest.mark.parametrize(("environment", "expected"), [(PROXY, THROUGH_PROXY), (PROXY | {"NO_PROXY": "*"}, DIRECTLY)])
def test_an_adapter_of_the_user_uses_the_same_proxy_and_bundle(environment, expected, expect, tls_sandbox):
    environment = environment | {"REQUESTS_CA_BUNDLE": "{ca}"}
    expect(expected, environment, tls_sandbox, True, senders=[price_with_own_adapter])


def test_plain_http_uses_no_proxy(expect, sandbox):
    """It is for loopback addresses only, and a proxy would receive the credential unencrypted."""
    environment = {"HTTP_PROXY": "http://{closed}", "ALL_PROXY": "http://{closed}", "HTTPS_PROXY": "http://{closed}"}
    expect(DIRECTLY, environment, sandbox, True)


@pytest.mark.parametrize(
    ("environment", "verify", "expected"),
    [
        ({"REQUESTS_CA_BUNDLE": "{ca}"}, True, DIRECTLY),
        ({"REQUESTS_CA_BUNDLE": "{ca}", "CURL_CA_BUNDLE": "missing.pem", "SSL_CERT_FILE": "missing"}, True, DIRECTLY),
        ({"REQUESTS_CA_BUNDLE": "", "CURL_CA_BUNDLE": "{ca}"}, True, DIRECTLY),
        ({"REQUESTS_CA_BUNDLE": "missing.pem"}, True, NO_BUNDLE),
        ({"REQUESTS_CA_BUNDLE": __file__}, True, NO_BUNDLE),
        # A folder without the hashes that OpenSSL looks for.
        ({"REQUESTS_CA_BUNDLE": str(Path(__file__).parent)}, True, NOT_TRUSTED),
        # The variables of OpenSSL are not read.
        ({"SSL_CERT_FILE": "{ca}"}, True, NOT_TRUSTED),
        # What the Connection says has precedence.
        ({"REQUESTS_CA_BUNDLE": "missing.pem"}, None, DIRECTLY),
        ({"REQUESTS_CA_BUNDLE": "missing.pem"}, False, DIRECTLY),
        ({"REQUESTS_CA_BUNDLE": "{ca}"}, "missing.pem", NO_BUNDLE),
        # A proxy that the CA bundle does not concern.
        (PROXY | {"REQUESTS_CA_BUNDLE": "{ca}"}, True, THROUGH_PROXY),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_a_ca_bundle(environment, verify, expected, expect, tls_sandbox):
    expect(expected, environment, tls_sandbox, tls_sandbox.ca_path if verify is None else verify, senders=LOGINS)


def test_a_process_reads_a_ca_bundle_once(expect, tls_sandbox):
    """That of the public authorities takes longer than a login."""
    really = ssl.SSLContext.load_verify_locations
    with mock.patch.object(ssl.SSLContext, "load_verify_locations", autospec=True, side_effect=really) as read:
        for _ in range(3):
            expect(DIRECTLY, {}, tls_sandbox, tls_sandbox.ca_path)
    assert read.call_count <= 1
