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
    """An adapter of the user's gets the same proxy, but not its user and password."""
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


SENDERS = [log_in, probe, probe_in_triggerer, price, price_with_own_adapter, price_concurrently, check]


@pytest.fixture(scope="module")
def proxies():
    """Addresses for the table: a proxy, one that requires user and password, and one where nothing listens."""
    with TunnelProxy() as proxy, TunnelProxy(f"{USER}:{PASSWORD}") as secured:
        yield {"proxy": proxy, "secured": secured}


@pytest.fixture
def answers(proxies, define, monkeypatch):
    """Return a function that says where the requests of each sender go in an environment, or why there are none."""

    def ask(environment, host, sandbox, senders, **extra):
        url, port = sandbox.url.replace("127.0.0.1", host), sandbox.url.rpartition(":")[2]
        usual = sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
        define("loanauth_default", usual | {"host": url, "extra": usual["extra"] | extra})
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
    """Assert that all answers are, or contain, one of the texts that are separated by ``|``."""
    same = {name for name, text in answers.items() if any(part in text for part in expected.split("|"))}
    assert {name: text for name, text in answers.items() if name not in same or "a leak" in text} == {}


PROXY = {"HTTPS_PROXY": "http://{proxy}"}


@pytest.mark.parametrize(
    ("environment", "host", "expected"),
    [
        ({}, "127.0.0.1", DIRECTLY),
        # Which variable names the proxy.
        (PROXY, "127.0.0.1", THROUGH_PROXY),
        (
            {"HTTPS_PROXY": "http://{closed}", "https_proxy": "http://{proxy}"},
            "127.0.0.1",
            THROUGH_PROXY,
        ),
        ({"ALL_PROXY": "http://{proxy}"}, "127.0.0.1", THROUGH_PROXY),
        ({"HTTPS_PROXY": "", "ALL_PROXY": "http://{proxy}"}, "127.0.0.1", THROUGH_PROXY),
        (PROXY | {"ALL_PROXY": "socks://127.0.0.1:7891/"}, "127.0.0.1", THROUGH_PROXY),
        ({"HTTP_PROXY": "http://{closed}"}, "127.0.0.1", DIRECTLY),
        (PROXY | {"REQUEST_METHOD": "GET"}, "127.0.0.1", THROUGH_PROXY),
        # How it may be written.
        ({"HTTPS_PROXY": "{proxy}"}, "127.0.0.1", THROUGH_PROXY),
        ({"HTTPS_PROXY": "HTTP://{proxy}/"}, "127.0.0.1", THROUGH_PROXY),
        ({"HTTPS_PROXY": "http://{proxy}/path?query"}, "127.0.0.1", THROUGH_PROXY),
        ({"HTTPS_PROXY": "http://user:CANARY-word@{proxy}"}, "127.0.0.1", THROUGH_PROXY),
        ({"HTTPS_PROXY": "http://user@{proxy}"}, "127.0.0.1", THROUGH_PROXY),
        # Which hosts need none.
        ({"NO_PROXY": "127.0.0.1,fe80::/10"}, "127.0.0.1", DIRECTLY),
        (PROXY | {"NO_PROXY": "*"}, "127.0.0.1", DIRECTLY),
        (PROXY | {"NO_PROXY": "127.0.0.0/8"}, "127.0.0.1", DIRECTLY),
        (PROXY | {"NO_PROXY": "10.0.0.0/8, 127.0.0.1"}, "127.0.0.1", DIRECTLY),
        (PROXY | {"NO_PROXY": "127.0.0.1:{port}"}, "127.0.0.1", THROUGH_PROXY),
        (PROXY | {"NO_PROXY": "localhost,[::1],::1,fe80::/10"}, "127.0.0.1", THROUGH_PROXY),
        (PROXY | {"NO_PROXY": "127.0.0.1", "no_proxy": "lender.example"}, "127.0.0.1", THROUGH_PROXY),
        (PROXY | {"NO_PROXY": "LOCALHOST"}, "localhost", DIRECTLY),
        (PROXY | {"NO_PROXY": "localhost:{port}"}, "localhost", DIRECTLY),
        (PROXY | {"NO_PROXY": "localhost:1"}, "localhost", THROUGH_PROXY),
        (PROXY | {"NO_PROXY": "127.0.0.1"}, "localhost", THROUGH_PROXY),
        # What is no address of a proxy.
        ({"HTTPS_PROXY": "http://[::1"}, "127.0.0.1", WRONG_PROXY),
        ({"HTTPS_PROXY": "http://127.0.0.1:99999"}, "127.0.0.1", WRONG_PROXY),
        ({"HTTPS_PROXY": "::::"}, "127.0.0.1", WRONG_PROXY),
        ({"HTTPS_PROXY": "ftp://{proxy}"}, "127.0.0.1", WRONG_PROXY),
        ({"HTTPS_PROXY": "http://user:4711/CANARY-word@{proxy}"}, "127.0.0.1", WRONG_PROXY),
        ({"HTTPS_PROXY": "http://user:CANARY-word#@{proxy}"}, "127.0.0.1", WRONG_PROXY),
        # No SOCKS library is installed.
        ({"ALL_PROXY": "socks://user:CANARY-word@{proxy}"}, "127.0.0.1", WRONG_PROXY),
        ({"HTTPS_PROXY": "socks5h://user:CANARY-word@{proxy}"}, "127.0.0.1", WRONG_PROXY),
        ({"HTTPS_PROXY": "SOCKS5://{proxy}"}, "127.0.0.1", WRONG_PROXY),
    ],
    ids=str,
)
def test_a_proxy(environment, host, expected, answers, tls_sandbox):
    found = answers(environment, host, tls_sandbox, SENDERS, verify=tls_sandbox.ca_path)
    if expected == WRONG_PROXY:
        assert found.pop("probe_in_triggerer") == "nothing is sent"
        # Without a SOCKS library, its error is that of requests.
        del found["price_with_own_adapter"]
    assert_all(expected, found)


def test_user_and_password_of_a_proxy(answers, proxies, tls_sandbox):
    """In UTF-8, and as the user alone."""
    senders = [send for send in SENDERS if send is not price_with_own_adapter]
    environment = {"HTTPS_PROXY": f"http://{WRITTEN}@{{secured}}"}
    found = answers(environment, "127.0.0.1", tls_sandbox, senders, verify=tls_sandbox.ca_path)
    assert_all(THROUGH_PROXY, found)


def test_plain_http_uses_no_proxy(answers, sandbox):
    """It is for loopback addresses only, and a proxy would receive the credential unencrypted."""
    environment = {"HTTP_PROXY": "http://{closed}", "ALL_PROXY": "http://{closed}", "HTTPS_PROXY": "http://{closed}"}
    assert_all(DIRECTLY, answers(environment, "127.0.0.1", sandbox, SENDERS))


@pytest.mark.parametrize(
    ("environment", "verify", "expected"),
    [
        ({}, True, NOT_TRUSTED),
        ({"REQUESTS_CA_BUNDLE": "{ca}"}, True, DIRECTLY),
        ({"CURL_CA_BUNDLE": "{ca}"}, True, DIRECTLY),
        ({"REQUESTS_CA_BUNDLE": "{ca}", "CURL_CA_BUNDLE": "missing.pem"}, True, DIRECTLY),
        ({"REQUESTS_CA_BUNDLE": "", "CURL_CA_BUNDLE": "{ca}"}, True, DIRECTLY),
        ({"REQUESTS_CA_BUNDLE": "missing.pem"}, True, NO_BUNDLE),
        ({"REQUESTS_CA_BUNDLE": __file__}, True, NO_BUNDLE),
        # A folder without the hashes that OpenSSL looks for.
        ({"REQUESTS_CA_BUNDLE": str(Path(__file__).parent)}, True, NOT_TRUSTED),
        # These are not read.
        ({"SSL_CERT_FILE": "{ca}"}, True, NOT_TRUSTED),
        ({"SSL_CERT_DIR": str(Path(os.devnull).parent)}, True, NOT_TRUSTED),
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
    verify = tls_sandbox.ca_path if verify is None else verify
    found = answers(environment, "127.0.0.1", tls_sandbox, SENDERS, verify=verify)
    del found["probe_in_triggerer"]
    if expected == NO_BUNDLE:
        # Its error is that of requests.
        del found["price_with_own_adapter"]
    assert_all(expected, found)


def test_a_process_reads_a_ca_bundle_once(answers, tls_sandbox, monkeypatch):
    """That of the public authorities takes longer than a login."""
    read, really = [], ssl.SSLContext.load_verify_locations

    def load(self, *arguments, **options):
        read.append(options)
        really(self, *arguments, **options)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", load)
    senders = [send for send in SENDERS if send is not price_with_own_adapter] * 2
    for _ in range(2):
        found = answers({}, "127.0.0.1", tls_sandbox, senders, verify=tls_sandbox.ca_path)
        assert_all(DIRECTLY, found)
    assert len(read) <= 1
