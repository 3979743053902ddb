"""``LoanAuth`` for ``requests``: threads, tenants, and what only requests does, against the sandbox."""

import copy
import pickle

import pytest
import requests
from requests.adapters import HTTPAdapter

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError
from tests.support.masking import redact
from tests.support.pricing_fixtures import in_threads, loan


@pytest.fixture(params=["loanauth_jwt", "loanauth_ppe"])
def auth(request, pulled):
    return LoanAuth(pulled(request.param))


@pytest.mark.parametrize(("conn_id", "header"), [("loanauth_jwt", "authorization"), ("loanauth_ppe", "secret")])
def test_a_credential_that_it_requested_is_masked(conn_id, header, world, pricing):
    """No task opened it, so nothing else has masked it."""
    requests.get(pricing.url, auth=LoanAuth.from_connection(conn_id), timeout=60)
    (credential,) = pricing.credentials
    value = credential[header].removeprefix("Bearer ")
    assert redact(f"before {value} after") == "before *** after"


def test_of_two_origins_at_the_same_time_only_one_gets_it(world, pricing, elsewhere, pulled):
    token = pulled()
    for number in range(1, 21):
        auth, servers = LoanAuth(token), (pricing, elsewhere)
        results = in_threads(2, lambda index: requests.get(servers[index].url, auth=auth, timeout=60))  # noqa: B023 - runs at once
        assert sum(isinstance(result, LoanAuthError) for result in results) == 1
        assert len(pricing.seen) + len(elsewhere.seen) == number


def test_one_tenants_credential_is_never_used_for_another(world, pricing, define):
    """The connection id now belongs to another company, which must not get what was cached for the first one."""
    requests.get(pricing.url, auth=LoanAuth.from_connection("loanauth_jwt"), timeout=60)
    define("loanauth_jwt", world.sandbox.connections(1)["AIRFLOW_CONN_LOANAUTH_JWT"])
    requests.get(pricing.url, auth=LoanAuth.from_connection("loanauth_jwt"), timeout=60)
    first, second = [one["authorization"] for one in pricing.credentials]
    assert first != second
    assert {*world.sandbox.counters().by_user} == {"lender/pat", "broker/pat"}
    # The same settings under another connection id are another connection.
    define("loanauth_other", world.sandbox.connections(1)["AIRFLOW_CONN_LOANAUTH_JWT"])
    requests.get(pricing.url, auth=LoanAuth.from_connection("loanauth_other"), timeout=60)
    assert world.logins == 3


def test_a_refresh_after_a_change_of_tenant_is_for_the_new_tenant(world, define, pricing):
    auth = LoanAuth.from_connection("loanauth_ppe")
    requests.get(pricing.url, auth=auth, timeout=60)
    define("loanauth_ppe", world.sandbox.connections(1)["AIRFLOW_CONN_LOANAUTH_PPE"])
    pricing.respond = lambda request: (200 if request.headers["companyid"].startswith("broker") else 401, {}, b"")
    assert requests.get(pricing.url, auth=auth, timeout=60).status_code == 200
    assert [one["companyid"].split("-")[0] for one in pricing.credentials] == ["lender", "lender", "broker"]
    assert pricing.credentials[1]["secret"] != pricing.credentials[2]["secret"]


def test_a_redirect_back_to_the_origin_does_not_carry_it_again(world, pricing, elsewhere, auth):
    """A 401 to a request without the credential is no reason to refresh."""
    pricing.respond = lambda request: (302, {"Location": elsewhere.url}, b"") if request.path == "/" else (401, {}, b"")
    elsewhere.respond = lambda request: (302, {"Location": f"{pricing.url}/back"}, b"")
    assert requests.get(pricing.url, auth=auth, timeout=60).status_code == 401
    assert [bool(one) for one in pricing.credentials] == [True, False]
    assert elsewhere.credentials == [{}]
    assert world.logins == 0


def test_a_long_401_is_not_read(world, pricing, auth):
    pricing.respond = lambda request: (401 if len(pricing.seen) == 1 else 200, {}, b"x" * 10_000_000)
    with requests.get(pricing.url, auth=auth, timeout=60, stream=True) as response:
        assert (response.status_code, [one.raw.closed for one in response.history]) == (200, [True])
    assert len({request.port for request in pricing.seen}) == 2


def test_the_401_of_an_adapter_that_does_not_name_itself_is_returned(world, pricing, auth, monkeypatch):
    pricing.respond = lambda _: (401, {}, b"")
    send = HTTPAdapter.send

    def send_without_name(*arguments, **options):
        response = send(*arguments, **options)
        del response.connection
        return response

    monkeypatch.setattr(HTTPAdapter, "send", send_without_name)
    assert requests.get(pricing.url, auth=auth, timeout=60).status_code == 401
    assert world.logins == 0


def test_the_retried_request_has_the_settings_cookies_and_hooks_of_the_first(world, pricing, auth, sent):
    pricing.respond = lambda request: (401 if len(pricing.seen) == 1 else 200, {"Set-Cookie": "node=7"}, b"")
    seen = []
    with requests.Session() as session:
        session.hooks["response"].append(lambda response, **_: seen.append(response.status_code))
        session.get(pricing.url, auth=auth, timeout=(3, 4), verify=False, stream=True).close()
        assert session.cookies["node"] == "7"
    first, second = [one for one in sent if one["timeout"] == (3, 4)]
    assert first == second
    assert seen == [200]


def test_the_connection_of_a_401_is_closed_if_the_refresh_fails(world, pulled, pricing, monkeypatch):
    closed, close = [], requests.Response.close

    def close_and_record(response):
        closed.append(response.status_code)
        close(response)

    monkeypatch.setattr(requests.Response, "close", close_and_record)
    pricing.respond = lambda _: (401, {}, b"made-up")
    auth = LoanAuth(pulled())
    world.sandbox.set_fault("status", where="token", status=400, shape="oauth")
    with pytest.raises(RejectedError):
        requests.get(pricing.url, auth=auth, timeout=60, stream=True)
    assert 401 in closed


def test_a_response_can_be_pickled_and_copied(world, pulled):
    response = requests.post(world.url, json=loan(), auth=LoanAuth(pulled()), timeout=60)
    restored = pickle.loads(pickle.dumps(response))
    assert restored.json() == copy.deepcopy(response).json() == response.json()
    with requests.Session() as session:
        assert session.send(restored.request, timeout=60).status_code == 200


def test_a_copy_of_a_request_follows_no_redirect(world, pulled, pricing, elsewhere):
    """requests would copy the header of an API secret to the request to the other host."""
    response = requests.get(pricing.url, auth=LoanAuth(pulled("loanauth_ppe")), timeout=60)
    pricing.respond = lambda request: (302, {"Location": elsewhere.url}, b"")
    with requests.Session() as session, pytest.raises(LoanAuthError, match="follows no redirect"):
        session.send(pickle.loads(pickle.dumps(response.request)), timeout=60, allow_redirects=True)
    assert elsewhere.seen == []
