"""``hook.get_conn()``: the session for pricing requests, against the sandbox."""

import inspect
import pickle
import threading

import pytest
import requests
import trustme

from airflow_provider_loanauth.auth.requests import LoanAuth
from airflow_provider_loanauth.exceptions import SettingsError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from tests.support.leaks import leaks, locals_of, messages
from tests.support.pricing_fixtures import in_threads, loan


def price(session, url, number=1, **kwargs):
    return session.post(url, json=loan(number), **kwargs)


@pytest.fixture
def session(world):
    """The session of a hook, without a credential."""
    with LoanAuthHook("loanauth_jwt").get_conn() as session:
        yield session


@pytest.mark.parametrize("conn_id", ["loanauth_jwt", "loanauth_los", "loanauth_ppe"])
def test_it_prices_with_one_connection_and_one_login(world, conn_id):
    with LoanAuthHook(conn_id).get_conn() as session:
        price(session, world.url)
        before = world.sandbox.counters().connections_accepted
        assert {price(session, world.url, number).status_code for number in range(20)} == {200}
    counters = world.sandbox.counters()
    assert counters.connections_accepted == before
    assert counters.authentications.succeeded == 1
    assert counters.prices.succeeded == 21


@pytest.mark.parametrize("auth_of", ["get_conn", "LoanAuth"])
def test_a_pulled_credential_is_refreshed_with_its_own_method(world, pulled, define, auth_of):
    """One Connection may serve several methods."""
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    los = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_LOS"]
    define("loanauth_both", connection | {"extra": los["extra"] | connection["extra"]})
    token = LoanAuthHook("loanauth_both", method="los").get_credential()
    world.pass_time(4000)
    with LoanAuthHook("loanauth_both").get_conn(token) as session:
        auth = session.auth if auth_of == "get_conn" else LoanAuth(token)
        assert price(session, world.url, auth=auth).status_code == 200
    assert world.sandbox.counters().by_method["los"].succeeded == 2


def test_a_session_cannot_be_pickled(session):
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        pickle.dumps(session)


@pytest.mark.parametrize("name", ["get_conn", "get_async_conn"])
def test_a_credential_of_another_connection_is_a_value_error(world, pulled, name):
    token = pulled()
    message = f"^{name} was given a credential of connection 'loanauth_jwt': use its hook"
    with pytest.raises(ValueError, match=message) as caught:
        getattr(LoanAuthHook("loanauth_los"), name)(token)
    assert not leaks(messages(caught.value) + locals_of(caught.value), [token.value])
    assert world.logins == 0


def test_threads_share_it(world, session):
    together = threading.Barrier(32)

    def batch(index):
        statuses = set()
        for number in range(3):
            statuses.add(price(session, world.url, number).status_code)
            # All connections are idle at the same time, and all are kept alive.
            together.wait(120)
        return statuses

    assert in_threads(32, batch) == [{200}] * 32
    counters = world.sandbox.counters()
    # At most one connection per thread, and one for the login.
    assert counters.connections_accepted <= 33
    assert counters.authentications.succeeded == 1


def test_the_connection_is_checked_at_once(world, define):
    define("loanauth_jwt", {"conn_type": "loanauth", "host": world.sandbox.url})
    with pytest.raises(SettingsError, match="Username"):
        LoanAuthHook("loanauth_jwt").get_conn()


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


def test_request_is_called_as_that_of_requests(session):
    assert inspect.signature(session.request) == inspect.signature(requests.Session().request)


def test_min_ttl(world, pulled):
    for seconds, logins in ((10, 0), (300, 1)):
        with LoanAuthHook("loanauth_jwt").get_conn(pulled(), min_ttl=seconds) as session:
            world.pass_time(3500)
            assert price(session, world.url).status_code == 200
            assert world.logins == logins


@pytest.mark.parametrize("of", ["the Connection", "the environment"])
def test_the_ca_bundle(world, define, tls_sandbox, monkeypatch, tmp_path, of):
    """That of the Connection overrides that of the environment."""
    connection, url = tls_sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"], f"{tls_sandbox.url}/sandbox/price"
    if of == "the Connection":
        trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
        for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
            monkeypatch.setenv(name, str(tmp_path / "other.pem"))
    else:
        connection["extra"]["verify"] = True
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", tls_sandbox.ca_path)
    define("loanauth_jwt", connection)
    with LoanAuthHook("loanauth_jwt").get_conn() as session:
        assert price(session, url).status_code == 200
        if of == "the Connection":
            prepared = session.prepare_request(requests.Request("POST", url, json=loan()))
            assert session.send(prepared).status_code == 200


def test_a_netrc_entry_does_not_replace_the_credential_on_a_redirect(session, pricing, tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login made-up password made-up-netrc-password\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    pricing.respond = lambda request: (302, {"Location": "/there"}, b"") if request.path == "/" else (200, {}, b"")
    session.get(pricing.url)
    first, second = pricing.credentials
    assert first == second
    assert first["authorization"].startswith("Bearer ")


@pytest.mark.parametrize("auth", [("made-up", "made-up-password"), lambda request: request], ids=["Basic", "none"])
def test_other_credentials_of_a_request_are_not_sent_to_another_origin(session, pricing, elsewhere, auth):
    pricing.respond = lambda request: (302, {"Location": elsewhere.url}, b"")
    assert session.get(pricing.url, auth=auth).url.startswith(elsewhere.url)
    assert pricing.credentials[0].get("authorization", "").startswith("Basic ") == isinstance(auth, tuple)
    assert elsewhere.credentials == [{}]
