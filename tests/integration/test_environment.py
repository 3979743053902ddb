"""What requests take from the environment of the machine is the same for everything that sends one."""

import asyncio
import os
import ssl
from pathlib import Path
from urllib.parse import quote

import pytest
from requests.adapters import HTTPAdapter

from airflow_provider_loanauth.check import check_connection
from airflow_provider_loanauth.connection.lookup import get_from_task_or_database
from airflow_provider_loanauth.connection.settings import load
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.service import transport
from airflow_provider_loanauth.triggers.loanauth import why_unavailable
from tests.support.leaks import leaks
from tests.support.proxy import TunnelProxy

USER, PASSWORD = "CANARY pröxy", "CANARY-p@ss/wörd✓"
WRITTEN = f"{quote(USER)}:{quote(PASSWORD, safe='')}"
#: Answers: where a request goes, or a part of the message of an error.
DIRECTLY, THROUGH_PROXY = "sent to the service itself", "sent to the proxy"
WRONG_PROXY = "The proxy address in this machine's environment is invalid, or uses SOCKS"
NO_BUNDLE = "The CA bundle cannot be read"
NOT_TRUSTED = "self-signed certificate|unable to get local issuer certificate"


def log_in(url):
    LoanAuthHook().get_credential(reuse=False)


def probe(url):
    transport.probe(load(get_from_task_or_database("loanauth_default")), timeout=20)


def probe_in_triggerer(url):
    """It does not check certificates, and leaves it to a login to say what is wrong."""
    reason = why_unavailable(url, 20, None)
    assert reason is None, reason


def price(url, adapter=None):
    with LoanAuthHook().get_conn() as session:
        if adapter:
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


SENDERS = [log_in, probe, probe_in_triggerer, price, price_concurrently, check]


@pytest.fixture(scope="module")
def proxies():
    """Two proxies for the tables. The second one requires user and password."""
    with TunnelProxy() as proxy, TunnelProxy(f"{USER}:{PASSWORD}") as secured:
        yield {"proxy": proxy, "secured": secured}


@pytest.fixture
def answers(proxies, define, monkeypatch):
    """Return a function that says where the requests of each sender go in an environment, or why there are none."""

    def ask(environment, sandbox, verify, host="127.0.0.1", senders=SENDERS):
        url, port = sandbox.url.replace("127.0.0.1", host), sandbox.url.rpartition(":")[2]
        usual = sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
        define("loanauth_default", usual | {"host": url, "extra": usual["extra"] | {"verify": verify}})
        values = {name: proxy.address for name, proxy in proxies.items()}
        for name, value in environment.items():
            monkeypatch.setenv(name, value.format(**values, port=port, closed="127.0.0.1:1", ca=sandbox.ca_path))
        return {send.__name__: answer(send, url, sandbox) for send in senders}

    def answer(send, url, sandbox):
        before = sandbox.counters().connections_accepted
        tunnels = [len(proxy.tunnels) for proxy in proxies.values()]
        try:
            send(url)
        except Exception as error:  # noqa: BLE001 - what it is depends on the sender
            return f"{'a leak' if leaks(str(error), [PASSWORD, 'CANARY-word']) else ''} {error}"
        if [len(proxy.tunnels) for proxy in proxies.values()] != tunnels:
            return THROUGH_PROXY
        return DIRECTLY if sandbox.counters().connections_accepted > before else "nothing is sent"

    return ask


def assert_all(expected, answers):
    """Assert that each answer contains one of the texts that ``|`` separates."""
    same = {name for name, text in answers.items() if any(part in text for part in expected.split("|"))}
    assert {name: text for name, text in answers.items() if name not in same or "a leak" in text} == {}


PROXY = {"HTTPS_PROXY": "http://{proxy}"}


@pytest.mark.parametrize(
    ("environment", "host", "expected"),
    [
        ({}, "127.0.0.1", DIRECTLY),
        # Which variable names the proxy.
        (PROXY, "127.0.0.1", THROUGH_PROXY),
        ({"HTTPS_PROXY": "http://{closed}", "https_proxy": "http://{proxy}"}, "127.0.0.1", THROUGH_PROXY),
        ({"HTTPS_PROXY": "", "ALL_PROXY": "http://{proxy}"}, "127.0.0.1", THROUGH_PROXY),
        (PROXY | {"ALL_PROXY": "socks://127.0.0.1:7891/"}, "127.0.0.1", THROUGH_PROXY),
        ({"HTTP_PROXY": "http://{closed}"}, "127.0.0.1", DIRECTLY),
        # How it may be written.
        ({"HTTPS_PROXY": "{proxy}"}, "127.0.0.1", THROUGH_PROXY),
        ({"HTTPS_PROXY": "HTTP://{proxy}/path?query"}, "127.0.0.1", THROUGH_PROXY),
        ({"HTTPS_PROXY": "http://user:CANARY-word@{proxy}"}, "127.0.0.1", THROUGH_PROXY),
        # Which hosts need none.
        (PROXY | {"NO_PROXY": "*"}, "127.0.0.1", DIRECTLY),
        (PROXY | {"NO_PROXY": "127.0.0.0/8"}, "127.0.0.1", DIRECTLY),
        (PROXY | {"NO_PROXY": "10.0.0.0/8, 127.0.0.1, fe80::/10"}, "127.0.0.1", DIRECTLY),
        (PROXY | {"NO_PROXY": "127.0.0.1:{port}"}, "127.0.0.1", THROUGH_PROXY),
        (PROXY | {"NO_PROXY": "localhost,[::1],::1,fe80::/10"}, "127.0.0.1", THROUGH_PROXY),
        (PROXY | {"NO_PROXY": "127.0.0.1", "no_proxy": "lender.example"}, "127.0.0.1", THROUGH_PROXY),
        (PROXY | {"NO_PROXY": "LOCALHOST"}, "localhost", DIRECTLY),
        (PROXY | {"NO_PROXY": "127.0.0.1"}, "localhost", THROUGH_PROXY),
    ],
    ids=str,
)
def test_a_proxy(environment, host, expected, answers, tls_sandbox):
    assert_all(expected, answers(environment, tls_sandbox, tls_sandbox.ca_path, host))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTPS_PROXY", "http://[::1"),
        ("HTTPS_PROXY", "http://127.0.0.1:99999"),
        ("HTTPS_PROXY", "ftp://{proxy}"),
        ("HTTPS_PROXY", "http://user:4711/CANARY-word@{proxy}"),
        ("HTTPS_PROXY", "http://user:CANARY-word#@{proxy}"),
        # No SOCKS library is installed.
        ("HTTPS_PROXY", "SOCKS5://{proxy}"),
        ("ALL_PROXY", "socks://user:CANARY-word@{proxy}"),
    ],
)
def test_what_is_no_address_of_a_proxy(name, value, answers, tls_sandbox):
    found = answers({name: value}, tls_sandbox, tls_sandbox.ca_path)
    assert found.pop("probe_in_triggerer") == "nothing is sent"
    assert_all(WRONG_PROXY, found)


def test_user_and_password_of_a_proxy(answers, tls_sandbox):
    environment = {"HTTPS_PROXY": f"http://{WRITTEN}@{{secured}}"}
    assert_all(THROUGH_PROXY, answers(environment, tls_sandbox, tls_sandbox.ca_path))


@pytest.mark.parametrize(("environment", "expected"), [(PROXY, THROUGH_PROXY), (PROXY | {"NO_PROXY": "*"}, DIRECTLY)])
def test_an_adapter_of_the_user_uses_the_same_proxy_and_bundle(environment, expected, answers, tls_sandbox):
    environment = environment | {"REQUESTS_CA_BUNDLE": "{ca}"}
    assert_all(expected, answers(environment, tls_sandbox, True, senders=[price_with_own_adapter]))


def test_plain_http_uses_no_proxy(answers, sandbox):
    """It is for loopback addresses only, and a proxy would receive the credential unencrypted."""
    environment = {"HTTP_PROXY": "http://{closed}", "ALL_PROXY": "http://{closed}", "HTTPS_PROXY": "http://{closed}"}
    assert_all(DIRECTLY, answers(environment, sandbox, True))


@pytest.mark.parametrize(
    ("environment", "verify", "expected"),
    [
        ({}, True, NOT_TRUSTED),
        ({"REQUESTS_CA_BUNDLE": "{ca}"}, True, DIRECTLY),
        ({"REQUESTS_CA_BUNDLE": "{ca}", "CURL_CA_BUNDLE": "missing.pem"}, True, DIRECTLY),
        ({"REQUESTS_CA_BUNDLE": "", "CURL_CA_BUNDLE": "{ca}"}, True, DIRECTLY),
        ({"REQUESTS_CA_BUNDLE": "missing.pem"}, True, NO_BUNDLE),
        ({"REQUESTS_CA_BUNDLE": __file__}, True, NO_BUNDLE),
        # A folder without the hashes that OpenSSL looks for.
        ({"REQUESTS_CA_BUNDLE": str(Path(__file__).parent)}, True, NOT_TRUSTED),
        # The variables of OpenSSL are not read.
        ({"SSL_CERT_FILE": "{ca}", "SSL_CERT_DIR": str(Path(os.devnull).parent)}, True, NOT_TRUSTED),
        ({"SSL_CERT_FILE": "missing.pem", "SSL_CERT_DIR": "missing", "REQUESTS_CA_BUNDLE": "{ca}"}, True, DIRECTLY),
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
def test_a_ca_bundle(environment, verify, expected, answers, tls_sandbox):
    found = answers(environment, tls_sandbox, tls_sandbox.ca_path if verify is None else verify)
    del found["probe_in_triggerer"]
    assert_all(expected, found)


def test_a_process_reads_a_ca_bundle_once(answers, tls_sandbox, monkeypatch):
    """That of the public authorities takes longer than a login."""
    read, really = [], ssl.SSLContext.load_verify_locations

    def load(self, *arguments, **options):
        read.append(options)
        really(self, *arguments, **options)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", load)
    for _ in range(3):
        assert_all(DIRECTLY, answers({}, tls_sandbox, tls_sandbox.ca_path))
    assert len(read) <= 1
