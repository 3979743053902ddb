"""
``LoanAuth`` for ``requests``: its constructors, and how it uses and refreshes a credential, against the sandbox.

Redirects and retried requests are in test_requests_retry.py.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import pickle
import time
from datetime import timedelta

import httpx
import pendulum
import pytest
import requests

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, SettingsError, UnavailableError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.redaction import SecretStr
from airflow_provider_loanauth.service.client import Client
from airflow_provider_loanauth.service.logins import LOGINS
from tests.support.leaks import leaks, locals_of, messages
from tests.support.masking import redact
from tests.support.pricing_fixtures import in_threads, loan


def price(world, auth, number=1, **kwargs):
    return requests.post(world.url, json=loan(number), auth=auth, timeout=60, **kwargs)


# --- use ---


@pytest.mark.parametrize("conn_id", ["loanauth_jwt", "loanauth_los", "loanauth_ppe"])
def test_a_pulled_credential_prices(world, pulled, conn_id):
    response = price(world, LoanAuth(pulled(conn_id)))
    assert response.status_code == 200
    assert response.json()["loan_id"] == "L-1"
    assert world.logins == 0


@pytest.mark.parametrize("conn_id", ["loanauth_jwt", "loanauth_los", "loanauth_ppe"])
def test_a_connection_prices_with_one_login(world, conn_id):
    auth = LoanAuth.from_connection(conn_id)
    assert [price(world, auth, number).status_code for number in range(3)] == [200] * 3
    assert world.logins == 1


def test_the_method_overrides_that_of_the_connection(world):
    assert price(world, LoanAuth.from_connection("loanauth_jwt", "jwt")).status_code == 200
    with pytest.raises(SettingsError, match="LOS client ID"):
        price(world, LoanAuth.from_connection("loanauth_jwt", "los"))


def test_an_access_token_is_sent_as_a_bearer_token(pricing, pulled):
    token = pulled()
    requests.get(pricing.url, auth=LoanAuth(token), timeout=60)
    assert pricing.credentials == [{"authorization": f"Bearer {token.value}"}]


def test_an_api_secret_is_sent_with_the_company_id(world, pricing, pulled):
    secret = pulled("loanauth_ppe")
    requests.get(pricing.url, auth=LoanAuth(secret), timeout=60)
    company = world.sandbox.state.accounts[0].company_id
    assert pricing.credentials == [{"secret": secret.value, "companyid": company}]


@pytest.mark.parametrize("session_of", ["hook", "user"])
@pytest.mark.parametrize("conn_id", ["loanauth_jwt", "loanauth_ppe"])
def test_what_urllib3_logs_about_malformed_headers_is_masked(conn_id, session_of, pulled, loopback, logs):
    """Pricing requests are the user's own, so that only Airflow's masker protects their logs."""
    credential = pulled(conn_id)
    with requests.Session() if session_of == "user" else LoanAuthHook(conn_id).get_conn(credential) as session:
        session.auth = session.auth or LoanAuth(credential)
        value = credential.value
        loopback.responses = [
            b"HTTP/1.1 200 Echo\r\nContent-Length: 0\r\nConnection: close\r\nno colon here\r\nX-Echo: %s\r\n\r\n"
            % value.encode()
        ]
        assert session.get(loopback.url, timeout=30).status_code == 200
    assert leaks(logs.text, [value])
    assert leaks(redact(logs.text), [value]) == []


@pytest.mark.parametrize(("conn_id", "header"), [("loanauth_jwt", "authorization"), ("loanauth_ppe", "secret")])
def test_a_credential_that_it_requested_is_masked(conn_id, header, world, pricing):
    """No task opened it, so nothing else has masked it."""
    requests.get(pricing.url, auth=LoanAuth.from_connection(conn_id), timeout=60)
    (credential,) = pricing.credentials
    value = credential[header].removeprefix("Bearer ")
    assert redact(f"before {value} after") == "before *** after"


def test_the_header_names_can_be_set(pricing, pulled):
    secret = pulled("loanauth_ppe")
    auth = LoanAuth(secret, secret_header="X-Made-Up", company_header="X-Company")
    requests.get(pricing.url, auth=auth, timeout=60)
    assert pricing.credentials == [{}]
    assert pricing.seen[0].headers["x-made-up"] == secret.value
    assert "x-company" in pricing.seen[0].headers


def test_an_api_secret_without_a_company_id_is_an_error(world, define, pulled):
    secret = pulled("loanauth_ppe")
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_PPE"]
    del connection["extra"]["company_id"]
    define("loanauth_ppe", connection)
    with pytest.raises(SettingsError, match=r"Company ID is missing.*loanauth_ppe"):
        price(world, LoanAuth(secret))
    assert world.prices.rejected == world.prices.succeeded == 0


def test_a_fresh_token_needs_no_connection(world, pulled, monkeypatch):
    token = pulled()
    monkeypatch.delenv("AIRFLOW_CONN_LOANAUTH_JWT")
    assert price(world, LoanAuth(token)).status_code == 200


def test_a_header_of_the_session_does_not_replace_the_credential(world, pulled):
    with requests.Session() as session:
        session.headers["Authorization"] = "Basic bWFkZTp1cA=="
        session.auth = LoanAuth(pulled())
        assert session.post(world.url, json=loan(), timeout=60).status_code == 200


# --- refresh before expiry ---


def test_it_is_refreshed_before_it_expires(world, pulled):
    world.sandbox.set_settings(token_lifetime=3600)
    auth = LoanAuth(pulled())
    assert price(world, auth).status_code == 200
    world.pass_time(3600 - 90)
    assert price(world, auth).status_code == 200
    assert world.logins == 0
    world.pass_time(35)
    assert price(world, auth).status_code == 200
    assert world.logins == 1
    assert world.prices.rejected == 0


def test_the_refresh_window_is_at_most_a_tenth_of_the_lifetime(world):
    world.sandbox.set_settings(token_lifetime=300)
    auth = LoanAuth.from_connection("loanauth_jwt")
    for _ in range(10):
        assert price(world, auth).status_code == 200
    world.pass_time(250)
    price(world, auth)
    assert world.logins == 1
    world.pass_time(25)
    price(world, auth)
    assert world.logins == 2
    assert world.prices.rejected == 0


def test_the_refresh_window_can_be_set(world):
    auth = LoanAuth.from_connection("loanauth_jwt", min_ttl=10)
    price(world, auth)
    world.pass_time(3600 - 30)
    price(world, auth)
    assert world.logins == 1
    world.pass_time(22)
    price(world, auth)
    assert world.logins == 2


def test_an_expired_credential_is_refreshed_before_it_is_sent(world, pulled):
    token = pulled()
    world.pass_time(4000)
    assert price(world, LoanAuth(token)).status_code == 200
    assert world.logins == 1
    assert world.prices.rejected == 0


def test_many_objects_with_one_expired_credential_refresh_once(world, pulled):
    token = pulled()
    world.pass_time(4000)
    for number in range(5):
        assert price(world, LoanAuth(token), number).status_code == 200
    assert world.logins == 1


def test_each_lifetime_costs_one_login(world):
    world.sandbox.set_settings(token_lifetime=100)
    auth = LoanAuth.from_connection("loanauth_jwt")
    for _ in range(40):
        assert price(world, auth).status_code == 200
        world.pass_time(10)
    # 400 seconds; each token is used for 90 of its 100 seconds.
    assert world.logins == 5
    assert world.prices.rejected == 0


@pytest.mark.parametrize("step", [-86_400, -3600, 3600, 86_400])
def test_an_adjusted_wall_clock_changes_nothing(world, pulled, monkeypatch, step):
    auth = LoanAuth(pulled())
    logged_in_here = LoanAuth.from_connection("loanauth_los")
    assert price(world, auth).status_code == price(world, logged_in_here).status_code == 200
    really, now = time.time, pendulum.now
    monkeypatch.setattr(time, "time", lambda: really() + step)
    monkeypatch.setattr(pendulum, "now", lambda *args: now(*args).add(seconds=step))
    # The clock of the service is right.
    world.sandbox.state.clock = lambda: really() + world.clock.passed
    assert price(world, auth).status_code == price(world, logged_in_here).status_code == 200
    assert world.logins == 1
    # It still expires at the right moment.
    world.clock.passed = 3590.0
    world.sandbox.state.clock = lambda: really() + world.clock.passed
    assert price(world, auth).status_code == price(world, logged_in_here).status_code == 200
    assert world.logins == 3
    assert world.prices.rejected == 0


def test_a_refresh_with_a_wrong_wall_clock_lasts_as_long_as_the_service_says(world, pulled, monkeypatch):
    """This clock is a day ahead: the pulled token looks expired, the refreshed one must not."""
    token = pulled()
    really, now = time.time, pendulum.now
    world.sandbox.state.clock = really
    monkeypatch.setattr(time, "time", lambda: really() + 86_400)
    monkeypatch.setattr(pendulum, "now", lambda *args: now(*args).add(days=1))
    auth = LoanAuth(token)
    for number in range(3):
        assert price(world, auth, number).status_code == 200
    assert world.logins == 1


def test_a_credential_that_expired_before_it_was_issued_is_used_until_rejected(world, pulled):
    """The clock of the service is slow: only its 401 shows when the token has expired."""
    token = pulled()
    skewed = AccessToken.seal(
        token.value,
        method="jwt",
        conn_id="loanauth_jwt",
        issued_at=token.issued_at,
        expires_at=token.issued_at - timedelta(hours=1),
    )
    auth = LoanAuth(skewed)
    assert price(world, auth).status_code == 200
    assert world.logins == 0
    world.sandbox.revoke()
    assert price(world, auth).status_code == 200
    assert world.logins == 1


def test_without_a_known_expiry_it_is_refreshed_when_rejected(world):
    world.sandbox.set_fault("no-exp", where="token")
    world.sandbox.add_fault("no-expires-in", where="token")
    auth = LoanAuth.from_connection("loanauth_jwt")
    price(world, auth)
    world.pass_time(86_400)
    assert price(world, auth).status_code == 200
    assert world.logins == 2


def test_an_api_secret_is_refreshed_when_rejected(world, pulled):
    auth = LoanAuth(pulled("loanauth_ppe"))
    assert price(world, auth).status_code == 200
    world.pass_time(90_000)
    assert price(world, auth).status_code == 200
    assert world.logins == 1
    assert world.prices.rejected == 1


# --- refresh after a 401 ---


@pytest.mark.parametrize("conn_id", ["loanauth_jwt", "loanauth_los", "loanauth_ppe"])
def test_a_revoked_credential_is_refreshed_once(world, pulled, conn_id):
    auth = LoanAuth(pulled(conn_id))
    price(world, auth)
    world.sandbox.revoke()
    responses = [price(world, auth, number) for number in range(3)]
    assert [response.status_code for response in responses] == [200] * 3
    assert [len(response.history) for response in responses] == [1, 0, 0]
    assert responses[0].history[0].status_code == 401
    assert world.logins == 1


def test_each_revocation_costs_one_login(world, pulled):
    auth = LoanAuth(pulled())
    for number in range(1, 4):
        price(world, auth)
        world.sandbox.revoke()
        assert price(world, auth).status_code == 200
        assert world.logins == number
        world.pass_time(10 * 2 ** (number - 1))


def test_a_broken_service_costs_few_logins(world, pulled):
    """One of two machines of the service rejects every credential: the time between two refreshes grows."""
    auth = LoanAuth(pulled())
    for number in range(80):
        world.sandbox.set_fault("status", where="price", status=401, times=1)
        price(world, auth, number)
        world.pass_time(1)
    assert world.logins == 4  # after 0, 10, 30 and 70 seconds


def test_rejected_requests_cost_one_refresh(world, pulled):
    """The service rejects every credential: one login per request would get the user locked."""
    world.sandbox.set_fault("status", where="price", status=401)
    auth = LoanAuth(pulled())
    assert {price(world, auth, number).status_code for number in range(20)} == {401}
    assert world.logins == 1


def test_rejected_requests_cost_one_refresh_with_an_object_each(world, pulled):
    world.sandbox.set_fault("status", where="price", status=401)
    token = pulled()
    assert {price(world, LoanAuth(token), number).status_code for number in range(20)} == {401}
    assert world.logins == 1


def test_a_thousand_rejected_requests_in_threads_cost_one_refresh(world, pulled):
    world.sandbox.set_fault("status", where="price", status=401)
    auth = LoanAuth(pulled())

    def batch(index):
        with requests.Session() as session:
            session.auth = auth
            return {session.post(world.url, json=loan(number), timeout=60).status_code for number in range(63)}

    assert in_threads(16, batch) == [{401}] * 16
    assert world.logins == 1


def test_requests_that_are_rejected_among_others_cost_one_refresh(world, pricing, pulled):
    """The 401 is about the loan: the service accepts the credential for the next one."""
    pricing.respond = lambda request: (401 if "odd" in request.path else 200, {}, b"")
    auth = LoanAuth(pulled())
    for number in range(20):
        path = "odd" if number % 2 else "even"
        assert requests.get(f"{pricing.url}/{path}", auth=auth, timeout=60).status_code in (200, 401)
    assert world.logins == 1
    # After the cooldown a 401 is a reason to refresh again.
    world.pass_time(61)
    requests.get(f"{pricing.url}/odd", auth=auth, timeout=60)
    assert world.logins == 2


@pytest.mark.parametrize("status", [403, 404, 429, 500, 503])
def test_only_a_success_shows_that_a_credential_is_accepted(world, pricing, pulled, status):
    """Responses of a gateway between the 401s do not cause a refresh each."""
    statuses = [401, status] * 10
    pricing.respond = lambda request: (statuses[(len(pricing.seen) - 1) % len(statuses)], {}, b"")
    auth = LoanAuth(pulled())
    for _ in range(10):
        requests.get(pricing.url, auth=auth, timeout=60)
    assert world.logins == 1


def test_a_rejected_refresh_is_not_repeated(world, pulled, define):
    token = pulled()
    world.pass_time(4000)
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    define("loanauth_jwt", connection | {"password": "made-up-wrong-password"})
    auth = LoanAuth(token)
    for attempt in range(3):
        # With another object too, because each task of a batch makes its own.
        with pytest.raises(RejectedError, match="loanauth_jwt"):
            price(world, auth if attempt < 2 else LoanAuth(token))
    results = in_threads(16, lambda index: price(world, LoanAuth(token) if index % 2 else auth))
    assert {type(result) for result in results} == {RejectedError}
    assert len({id(result) for result in results}) == 16
    # The other request was that of the pulled token, which does not count as a login.
    assert world.rejected_logins == world.credential_requests - world.logins - 1 == 1


def test_a_rejected_refresh_is_repeated_after_the_connection_is_corrected(world, pulled, define):
    token = pulled()
    world.pass_time(4000)
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    define("loanauth_jwt", connection | {"password": "made-up-wrong-password"})
    auth = LoanAuth(token)
    with pytest.raises(RejectedError):
        price(world, auth)
    define("loanauth_jwt", connection)
    assert price(world, auth).status_code == 200


def test_each_thread_gets_the_error_and_a_later_request_tries_again(world, pulled, single_attempt):
    token = pulled()
    world.pass_time(4000)
    world.sandbox.set_fault("status", where="token", status=503)
    auth = LoanAuth(token)
    results = in_threads(8, lambda index: price(world, auth))
    assert {type(result) for result in results} == {UnavailableError}
    world.sandbox.clear_faults()
    assert price(world, auth).status_code == 200


def test_32_threads_with_an_expired_credential_refresh_once(world, pulled):
    token = pulled()
    world.pass_time(4000)
    auth = LoanAuth(token)
    # Half of them share an object, half have their own.
    results = in_threads(32, lambda index: price(world, auth if index % 2 else LoanAuth(token), index).status_code)
    assert results == [200] * 32
    assert world.logins == 1


def test_32_threads_with_a_revoked_credential_refresh_once(world, pulled):
    auth = LoanAuth(pulled())
    price(world, auth)
    world.sandbox.revoke()
    assert in_threads(32, lambda index: price(world, auth, index).status_code) == [200] * 32
    assert world.logins == 1


def test_32_threads_with_a_connection_log_in_once(world):
    auth = LoanAuth.from_connection("loanauth_jwt")
    assert in_threads(32, lambda index: price(world, auth, index).status_code) == [200] * 32
    assert world.logins == 1


# --- tenants ---


def test_the_next_refresh_uses_a_rotated_password(world, define):
    auth = LoanAuth.from_connection("loanauth_jwt")
    price(world, auth)
    (lender, *others) = world.sandbox.state.accounts
    rotated = copy.deepcopy(lender)
    object.__setattr__(rotated.users[0], "password", "made-up-rotated-password")
    world.sandbox.set_accounts([rotated, *others])
    define("loanauth_jwt", world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])
    world.pass_time(4000)
    assert price(world, auth).status_code == 200
    assert (world.logins, world.rejected_logins) == (2, 0)


def test_one_tenants_credential_is_never_used_for_another(world, pricing, define):
    """The connection id now belongs to another company, which must not get what was cached for the first one."""
    requests.get(pricing.url, auth=LoanAuth.from_connection("loanauth_jwt"), timeout=60)
    define("loanauth_jwt", world.sandbox.connections(1)["AIRFLOW_CONN_LOANAUTH_JWT"])
    requests.get(pricing.url, auth=LoanAuth.from_connection("loanauth_jwt"), timeout=60)
    first, second = [one["authorization"] for one in pricing.credentials]
    assert first != second
    assert {name: count.succeeded for name, count in world.sandbox.counters().by_user.items()} == {
        "lender/pat": 1,
        "broker/pat": 1,
    }
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


# --- constructors ---


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (None, "NoneType"),
        (b"made-up-octets-of-a-token", "bytes"),
        ({"sealed": "made-up-sealed-value"}, "dict"),
        (42, "int"),
    ],
)
def test_a_wrong_credential_is_a_type_error_that_names_its_type(given, name):
    message = f"given {name} instead of a credential: did the authenticating task run"
    with pytest.raises(TypeError, match=message) as caught:
        LoanAuth(given)
    assert "made-up" not in messages(caught.value) + locals_of(caught.value)


PLAINTEXT = [
    "",
    "loanauth_jwt",
    "eyJhbGciOiJub25lIn0.bWFkZS11cA.c2ln",
    base64.b64encode(b"made-up-api-secret-of-48-octets-for-the-tests-42").decode(),
    base64.b64encode(b"a-made-up-secret+").decode() + "+=",
    "0123456789abcdef" * 4,
    "0123456789abcdef" * 2,
    "made-up " * 4,
    "made-up" * 60,
]


@pytest.mark.parametrize("text", [*PLAINTEXT, SecretStr(PLAINTEXT[2])])
def test_a_str_is_a_type_error_and_is_never_looked_up_or_repeated(text, logs, monkeypatch):
    """A plaintext token that is taken for a connection id would be in the logs of Airflow and of a secrets backend."""
    monkeypatch.setattr("airflow_provider_loanauth.service.client.read_connection", _unexpected)
    with pytest.raises(TypeError, match=r"a str instead of a credential.*LoanAuth\.from_connection\(") as caught:
        LoanAuth(text)
    shown = messages(caught.value) + locals_of(caught.value) + logs.text
    # Every text contains the empty one.
    assert not text or text not in shown


def _unexpected(*_):
    raise AssertionError("no Connection may be read")


@pytest.mark.parametrize(
    "conn_id", ["loanauth_jwt", "team-a.loan_pricing:prod", "tenant/pricing", "a" * 30, "x_" * 100]
)
def test_from_connection_takes_any_connection_id(conn_id, monkeypatch):
    """Nothing is read before the first request: a DAG file may make the object."""
    monkeypatch.setattr("airflow_provider_loanauth.service.client.read_connection", _unexpected)
    assert isinstance(LoanAuth.from_connection(conn_id), LoanAuth)


def test_from_connection_without_an_id_is_the_default_connection(world):
    with pytest.raises(LoanAuthError, match="loanauth_default"):
        price(world, LoanAuth.from_connection())


@pytest.mark.parametrize(
    ("given", "name"), [(None, "NoneType"), (b"made-up-octets", "bytes"), (["made-up"], "list"), (42, "int")]
)
def test_a_wrong_connection_id_is_a_type_error_that_names_its_type(given, name):
    with pytest.raises(TypeError, match=f"from_connection was given {name} instead of a connection id") as caught:
        LoanAuth.from_connection(given)
    assert "made-up" not in messages(caught.value) + locals_of(caught.value)


def test_a_credential_is_not_a_connection_id(pulled):
    token = pulled()
    with pytest.raises(TypeError, match="from_connection was given AccessToken") as caught:
        LoanAuth.from_connection(token)
    assert not leaks(messages(caught.value) + locals_of(caught.value), [token.value])


def test_an_empty_connection_id_is_a_value_error():
    with pytest.raises(ValueError, match="from_connection was given an empty connection id"):
        LoanAuth.from_connection("")


def test_an_unknown_method_is_an_error_of_the_first_request(world):
    auth = LoanAuth.from_connection("loanauth_jwt", "made-up-method")
    with pytest.raises(SettingsError, match="must be one of jwt, los, ppe"):
        price(world, auth)


def test_a_credential_has_its_own_method(pulled):
    """A method beside a credential would be ignored, so there is no such parameter."""
    with pytest.raises(TypeError, match="method"):
        LoanAuth(pulled(), method="los")


def test_a_missing_connection_is_named_at_the_first_request(world):
    auth = LoanAuth.from_connection("loanauth_missing")
    with pytest.raises(LoanAuthError, match=r"connection id 'loan… \(16 characters\)'"):
        price(world, auth)


@pytest.mark.parametrize(
    ("min_ttl", "error"),
    [(-1, ValueError), (float("nan"), ValueError), ("60", TypeError), (None, TypeError), (True, TypeError)],
)
def test_a_wrong_min_ttl(pulled, min_ttl, error):
    message = "min_ttl must be a number of seconds, 0 or greater"
    with pytest.raises(error, match=message):
        LoanAuth(pulled(), min_ttl=min_ttl)
    with pytest.raises(error, match=message):
        LoanAuth.from_connection("loanauth_jwt", min_ttl=min_ttl)


@pytest.mark.parametrize("min_ttl", [0, 0.5, float("inf")])
def test_a_min_ttl_of_zero_or_more(world, pulled, min_ttl):
    assert price(world, LoanAuth(pulled(), min_ttl)).status_code == 200


# --- the other library ---


def test_used_by_httpx_it_names_the_right_import(pricing, pulled):
    message = r"is for requests. For httpx, import LoanAuth from airflow_provider_loanauth\.auth\.httpx\."
    token = pulled()
    with httpx.Client(auth=LoanAuth(token), verify=False) as client, pytest.raises(TypeError, match=message) as caught:
        client.get(pricing.url)
    assert not leaks(messages(caught.value) + locals_of(caught.value), [token.value])

    async def call():
        async with httpx.AsyncClient(auth=LoanAuth(token), verify=False) as client:
            await client.get(pricing.url)

    with pytest.raises(TypeError, match=message):
        asyncio.run(call())
    assert pricing.seen == []


# --- copies, pickles, secrets ---


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda auth: pickle.loads(pickle.dumps(auth))])
@pytest.mark.parametrize("conn_id", ["loanauth_jwt", "loanauth_ppe"])
def test_a_copy_works_as_the_original(world, pricing, pulled, copied, conn_id):
    auth = LoanAuth(pulled(conn_id), secret_header="X-Made-Up")
    requests.get(pricing.url, auth=auth, timeout=60)
    # The copy is not bound to an origin yet.
    with pricing.__class__() as another:
        requests.get(another.url, auth=copied(auth), timeout=60)
        expected = "x-made-up" if conn_id == "loanauth_ppe" else "authorization"
        assert expected in another.seen[0].headers


def test_a_pickle_of_the_auth_of_a_client_uses_the_same_connection(world, pricing):
    auth = LoanAuth.from_client(Client("loanauth_ppe"))
    requests.get(pricing.url, auth=pickle.loads(pickle.dumps(auth)), timeout=60)
    assert "authorization" not in pricing.seen[0].headers
    with_method = pickle.loads(pickle.dumps(LoanAuth.from_client(Client("loanauth_jwt", "los"))))
    with pytest.raises(SettingsError, match="method los requires it"):
        requests.get(pricing.url, auth=with_method, timeout=60)


def test_in_a_pickle_the_credential_is_sealed(world, pulled):
    token = pulled()
    auth = LoanAuth(token)
    price(world, auth)
    assert token.value.encode() not in pickle.dumps(auth)


def test_a_response_can_be_pickled_and_copied(world, pulled):
    response = price(world, LoanAuth(pulled()))
    restored = pickle.loads(pickle.dumps(response))
    assert restored.json() == copy.deepcopy(response).json() == response.json()
    # What is left of the hook works, and does nothing.
    with requests.Session() as session:
        assert session.send(restored.request, timeout=60).status_code == 200


def test_no_log_repr_or_traceback_shows_a_secret(world, pulled, logs, define):
    token, secret = pulled(), pulled("loanauth_ppe")
    issued = [token.value, secret.value]
    auths = [LoanAuth(token), LoanAuth(secret)]
    shown = []
    for auth in auths:
        price(world, auth)
        world.sandbox.revoke()
        price(world, auth)
        active = auth._provider.get_cached()
        issued.append(active.value)
        shown += [
            repr(auth),
            str(auth),
            repr(vars(auth)),
            repr(active),
            repr(auth._guard),
            repr(vars(LOGINS)),
            repr(vars(LOGINS)),
            repr(vars(auth._provider)),
        ]
    world.pass_time(4000)
    world.sandbox.set_fault("status", where="any", status=401)
    LOGINS.__init__()
    for credential in (token, secret):
        with pytest.raises(LoanAuthError) as caught:
            price(world, LoanAuth(credential))
        shown += [messages(caught.value), locals_of(caught.value)]
    company = world.sandbox.state.accounts[0]
    secrets = [*issued, company.users[0].password, company.client_secret, company.api_key]
    assert len(set(secrets)) == 7
    assert shown
    assert logs.text
    assert not leaks("\n".join([*shown, logs.text]), secrets)


def test_the_method_decides_the_type_of_the_credential(pulled):
    assert isinstance(pulled(), AccessToken)
    assert isinstance(pulled("loanauth_ppe"), ApiSecret)
