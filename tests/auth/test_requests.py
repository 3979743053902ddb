"""What ``LoanAuth`` is made of, and how a credential is used and renewed, over real sockets against the sandbox."""

from __future__ import annotations

import base64
import copy
import pickle
import time
from datetime import timedelta

import pendulum
import pytest
import requests

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.auth.refresh import _PROCESS_CACHE
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, SettingsError, UnavailableError
from airflow_provider_loanauth.hooks import loanauth as hook_module
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from tests.support.leaks import leaks, told
from tests.support.masking import redact
from tests.support.pricing_fixtures import in_threads, loan


def price(world, auth, number=1, **kwargs):
    return requests.post(world.url, json=loan(number), auth=auth, timeout=60, **kwargs)


@pytest.fixture
def quick(monkeypatch):
    """One attempt while the service is unavailable: what is tested is not how the hook retries."""
    monkeypatch.setattr(hook_module, "LoanAuthHook", lambda *args: LoanAuthHook(*args, max_attempts=1))


# --- use ---


@pytest.mark.parametrize("conn_id", ["loanauth_jwt", "loanauth_los", "loanauth_ppe"])
def test_a_pulled_credential_prices(world, pulled, conn_id):
    answer = price(world, LoanAuth(pulled(conn_id)))
    assert answer.status_code == 200
    assert answer.json()["loan_id"] == "L-1"
    assert world.logins == 0


@pytest.mark.parametrize("conn_id", ["loanauth_jwt", "loanauth_los", "loanauth_ppe"])
def test_a_connection_id_prices_with_one_login(world, conn_id):
    auth = LoanAuth(conn_id)
    assert [price(world, auth, number).status_code for number in range(3)] == [200] * 3
    assert world.logins == 1


def test_a_method_overrides_the_connections(world):
    assert price(world, LoanAuth.from_connection("loanauth_jwt", "jwt")).status_code == 200
    with pytest.raises(SettingsError, match="LOS client ID"):
        price(world, LoanAuth.from_connection("loanauth_jwt", "los"))


def test_a_token_is_a_bearer_token(pricing, pulled):
    token = pulled()
    requests.get(pricing.url, auth=LoanAuth(token), timeout=60)
    assert pricing.credentials == [{"authorization": f"Bearer {token.value}"}]


def test_a_secret_goes_with_the_company_id(world, pricing, pulled):
    secret = pulled("loanauth_ppe")
    requests.get(pricing.url, auth=LoanAuth(secret), timeout=60)
    company = world.sandbox.state.accounts[0].company_id
    assert pricing.credentials == [{"secret": secret.value, "companyid": company}]


@pytest.mark.parametrize("whose", ["the hook's session", "the user's"])
@pytest.mark.parametrize("conn_id", ["loanauth_jwt", "loanauth_ppe"])
def test_what_urllib3_tells_of_unreadable_headers_is_masked(conn_id, whose, pulled, loopback, logs):
    """Calls to pricing belong to the user, so nothing is kept out of their logs but by Airflow's masker."""
    credential = pulled(conn_id)
    with requests.Session() if whose == "the user's" else LoanAuthHook(conn_id).get_conn(credential) as session:
        session.auth = session.auth or LoanAuth(credential)
        value = credential.value
        forms = [value, base64.b64encode(value.encode()).decode()]
        loopback.answers = [
            b"HTTP/1.1 200 Echo\r\nContent-Length: 0\r\nConnection: close\r\nno colon here\r\nX-Echo: %s\r\n\r\n"
            % " ".join(forms).encode()
        ]
        assert session.get(loopback.url, timeout=30).status_code == 200
    assert leaks(logs.text, [value])
    assert leaks(redact(logs.text), [value]) == []


def test_the_names_of_its_headers_can_be_set(pricing, pulled):
    secret = pulled("loanauth_ppe")
    auth = LoanAuth(secret, secret_header="X-Made-Up", company_header="X-Company")
    requests.get(pricing.url, auth=auth, timeout=60)
    assert pricing.credentials == [{}]
    assert pricing.seen[0].headers["x-made-up"] == secret.value
    assert "x-company" in pricing.seen[0].headers


def test_a_secret_without_a_company_id_is_named(world, define, pulled):
    secret = pulled("loanauth_ppe")
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_PPE"]
    del connection["extra"]["company_id"]
    define("loanauth_ppe", connection)
    with pytest.raises(SettingsError, match=r"Company ID is missing.*loanauth_ppe"):
        price(world, LoanAuth(secret))
    assert world.prices.refused == world.prices.succeeded == 0


def test_a_good_token_needs_no_connection(world, pulled, monkeypatch):
    token = pulled()
    monkeypatch.delenv("AIRFLOW_CONN_LOANAUTH_JWT")
    assert price(world, LoanAuth(token)).status_code == 200


def test_a_header_of_the_session_does_not_replace_the_credential(world, pulled):
    with requests.Session() as session:
        session.headers["Authorization"] = "Basic bWFkZTp1cA=="
        session.auth = LoanAuth(pulled())
        assert session.post(world.url, json=loan(), timeout=60).status_code == 200


# --- renewal in time ---


def test_it_is_renewed_before_it_runs_out(world, pulled):
    world.sandbox.set_settings(token_lifetime=3600)
    auth = LoanAuth(pulled())
    assert price(world, auth).status_code == 200
    world.pass_time(3600 - 90)
    assert price(world, auth).status_code == 200
    assert world.logins == 0
    world.pass_time(35)
    assert price(world, auth).status_code == 200
    assert world.logins == 1
    assert world.prices.refused == 0


def test_the_window_is_a_tenth_of_a_short_lifetime(world):
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
    assert world.prices.refused == 0


def test_the_window_can_be_set(world):
    auth = LoanAuth.from_connection("loanauth_jwt", min_ttl=10)
    price(world, auth)
    world.pass_time(3600 - 30)
    price(world, auth)
    assert world.logins == 1
    world.pass_time(22)
    price(world, auth)
    assert world.logins == 2


def test_an_expired_one_is_renewed_before_it_is_sent(world, pulled):
    token = pulled()
    world.pass_time(4000)
    assert price(world, LoanAuth(token)).status_code == 200
    assert world.logins == 1
    assert world.prices.refused == 0


def test_many_objects_of_one_expired_credential_renew_once(world, pulled):
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
    # 400 seconds, each token used for ninety of its hundred.
    assert world.logins == 5
    assert world.prices.refused == 0


@pytest.mark.parametrize("step", [-86_400, -3600, 3600, 86_400])
def test_a_step_of_the_wall_clock_changes_nothing(world, pulled, monkeypatch, step):
    auth = LoanAuth(pulled())
    renewing = LoanAuth.from_connection("loanauth_los")
    assert price(world, auth).status_code == price(world, renewing).status_code == 200
    really, now = time.time, pendulum.now
    monkeypatch.setattr(time, "time", lambda: really() + step)
    monkeypatch.setattr(pendulum, "now", lambda *args: now(*args).add(seconds=step))
    # The service has the right time.
    world.sandbox.state.clock = lambda: really() + world.passed
    assert price(world, auth).status_code == price(world, renewing).status_code == 200
    assert world.logins == 1
    # And it runs out when it runs out.
    world.passed = 3590.0
    world.sandbox.state.clock = lambda: really() + world.passed
    assert price(world, auth).status_code == price(world, renewing).status_code == 200
    assert world.logins == 3
    assert world.prices.refused == 0


def test_a_renewal_by_a_wrong_wall_clock_lasts_as_long_as_the_service_says(world, pulled, monkeypatch):
    """This machine is a day ahead: the pulled token seems to have ended, the renewed one must not."""
    token = pulled()
    really, now = time.time, pendulum.now
    world.sandbox.state.clock = really
    monkeypatch.setattr(time, "time", lambda: really() + 86_400)
    monkeypatch.setattr(pendulum, "now", lambda *args: now(*args).add(days=1))
    auth = LoanAuth(token)
    for number in range(3):
        assert price(world, auth, number).status_code == 200
    assert world.logins == 1


def test_a_credential_that_ended_before_it_was_issued_is_good_until_refused(world, pulled):
    """The clock of the service is behind: only it can say when the token ends."""
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


def test_without_an_end_it_is_renewed_when_refused(world):
    world.sandbox.set_fault("no-exp", where="token")
    world.sandbox.add_fault("no-expires-in", where="token")
    auth = LoanAuth.from_connection("loanauth_jwt")
    price(world, auth)
    world.pass_time(86_400)
    assert price(world, auth).status_code == 200
    assert world.logins == 2


def test_a_secret_is_renewed_when_refused(world, pulled):
    auth = LoanAuth(pulled("loanauth_ppe"))
    assert price(world, auth).status_code == 200
    world.pass_time(90_000)
    assert price(world, auth).status_code == 200
    assert world.logins == 1
    assert world.prices.refused == 1


# --- renewal after a 401 ---


@pytest.mark.parametrize("conn_id", ["loanauth_jwt", "loanauth_los", "loanauth_ppe"])
def test_a_revoked_credential_is_renewed_once(world, pulled, conn_id):
    auth = LoanAuth(pulled(conn_id))
    price(world, auth)
    world.sandbox.revoke()
    answers = [price(world, auth, number) for number in range(3)]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert [len(answer.history) for answer in answers] == [1, 0, 0]
    assert answers[0].history[0].status_code == 401
    assert world.logins == 1


def test_it_may_be_revoked_again_and_again(world, pulled):
    auth = LoanAuth(pulled())
    for number in range(1, 4):
        price(world, auth)
        world.sandbox.revoke()
        assert price(world, auth).status_code == 200
        assert world.logins == number


def test_refused_loans_cost_one_renewal(world, pulled):
    """A service that refuses every credential: a login a loan would lock the user."""
    world.sandbox.set_fault("status", where="price", status=401)
    auth = LoanAuth(pulled())
    assert {price(world, auth, number).status_code for number in range(20)} == {401}
    assert world.logins == 1


def test_refused_loans_cost_one_renewal_with_an_object_each(world, pulled):
    world.sandbox.set_fault("status", where="price", status=401)
    token = pulled()
    assert {price(world, LoanAuth(token), number).status_code for number in range(20)} == {401}
    assert world.logins == 1


def test_a_thousand_refused_loans_in_threads_cost_one_renewal(world, pulled):
    world.sandbox.set_fault("status", where="price", status=401)
    auth = LoanAuth(pulled())

    def batch(index):
        with requests.Session() as session:
            session.auth = auth
            return {session.post(world.url, json=loan(number), timeout=60).status_code for number in range(63)}

    assert in_threads(16, batch) == [{401}] * 16
    assert world.logins == 1


def test_loans_that_are_refused_among_others_cost_one_renewal(world, pricing, pulled):
    """A service that says 401 of a loan, not of the credential, which it accepts for the next loan."""
    pricing.answer = lambda request: (401 if "odd" in request.path else 200, {}, b"")
    auth = LoanAuth(pulled())
    for number in range(20):
        path = "odd" if number % 2 else "even"
        assert requests.get(f"{pricing.url}/{path}", auth=auth, timeout=60).status_code in (200, 401)
    assert world.logins == 1
    # It is not given up for ever.
    world.pass_time(61)
    requests.get(f"{pricing.url}/odd", auth=auth, timeout=60)
    assert world.logins == 2


@pytest.mark.parametrize("status", [403, 404, 429, 500, 503])
def test_nothing_but_a_success_says_that_a_credential_is_good(world, pricing, pulled, status):
    """Answers of a gateway between refusals do not start another renewal for each."""
    answers = [401, status] * 10
    pricing.answer = lambda request: (answers[(len(pricing.seen) - 1) % len(answers)], {}, b"")
    auth = LoanAuth(pulled())
    for _ in range(10):
        requests.get(pricing.url, auth=auth, timeout=60)
    assert world.logins == 1


def test_a_refused_renewal_is_not_repeated(world, pulled, define):
    token = pulled()
    world.pass_time(4000)
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    define("loanauth_jwt", connection | {"password": "made-up-wrong-password"})
    auth = LoanAuth(token)
    for attempt in range(3):
        # Also by another object, as each task of a batch makes one.
        with pytest.raises(RejectedError, match="loanauth_jwt"):
            price(world, auth if attempt < 2 else LoanAuth(token))
    results = in_threads(16, lambda index: price(world, LoanAuth(token) if index % 2 else auth))
    assert {type(result) for result in results} == {RejectedError}
    assert len({id(result) for result in results}) == 16
    assert world.refused_logins == world.asked - world.sandbox.counters().authentications.succeeded - 1 == 1


def test_until_the_connection_is_corrected(world, pulled, define):
    token = pulled()
    world.pass_time(4000)
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    define("loanauth_jwt", connection | {"password": "made-up-wrong-password"})
    auth = LoanAuth(token)
    with pytest.raises(RejectedError):
        price(world, auth)
    define("loanauth_jwt", connection)
    assert price(world, auth).status_code == 200


def test_an_unavailable_service_is_told_to_each_thread_and_asked_again_later(world, pulled, quick):
    token = pulled()
    world.pass_time(4000)
    world.sandbox.set_fault("status", where="token", status=503)
    auth = LoanAuth(token)
    results = in_threads(8, lambda index: price(world, auth))
    assert {type(result) for result in results} == {UnavailableError}
    world.sandbox.clear_faults()
    assert price(world, auth).status_code == 200


def test_32_threads_over_an_expired_credential_renew_once(world, pulled):
    token = pulled()
    world.pass_time(4000)
    auth = LoanAuth(token)
    # Half of them share an object, half have their own.
    results = in_threads(32, lambda index: price(world, auth if index % 2 else LoanAuth(token), index).status_code)
    assert results == [200] * 32
    assert world.logins == 1


def test_32_threads_over_a_revoked_credential_renew_once(world, pulled):
    auth = LoanAuth(pulled())
    price(world, auth)
    world.sandbox.revoke()
    assert in_threads(32, lambda index: price(world, auth, index).status_code) == [200] * 32
    assert world.logins == 1


def test_32_threads_over_a_connection_log_in_once(world):
    auth = LoanAuth.from_connection("loanauth_jwt")
    assert in_threads(32, lambda index: price(world, auth, index).status_code) == [200] * 32
    assert world.logins == 1


# --- tenants ---


def test_a_rotated_password_is_picked_up_by_the_next_renewal(world, define):
    auth = LoanAuth.from_connection("loanauth_jwt")
    price(world, auth)
    (lender, *others) = world.sandbox.state.accounts
    rotated = copy.deepcopy(lender)
    object.__setattr__(rotated.users[0], "password", "made-up-rotated-password")
    world.sandbox.set_accounts([rotated, *others])
    define("loanauth_jwt", world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])
    world.pass_time(4000)
    assert price(world, auth).status_code == 200
    assert (world.logins, world.refused_logins) == (2, 0)


def test_one_tenants_credential_is_never_used_for_another(world, pricing, define):
    """The connection id now means another company: nothing that was cached for the first one is found."""
    requests.get(pricing.url, auth=LoanAuth.from_connection("loanauth_jwt"), timeout=60)
    define("loanauth_jwt", world.sandbox.connections(1)["AIRFLOW_CONN_LOANAUTH_JWT"])
    requests.get(pricing.url, auth=LoanAuth.from_connection("loanauth_jwt"), timeout=60)
    first, second = [one["authorization"] for one in pricing.credentials]
    assert first != second
    assert {name: tally.succeeded for name, tally in world.sandbox.counters().by_user.items()} == {
        "lender/pat": 1,
        "broker/pat": 1,
    }
    # The same settings under another name are another connection too.
    define("loanauth_other", world.sandbox.connections(1)["AIRFLOW_CONN_LOANAUTH_JWT"])
    requests.get(pricing.url, auth=LoanAuth.from_connection("loanauth_other"), timeout=60)
    assert world.logins == 3


def test_a_renewal_after_a_change_of_tenant_is_the_new_tenants(world, define, pricing):
    auth = LoanAuth.from_connection("loanauth_ppe")
    requests.get(pricing.url, auth=auth, timeout=60)
    define("loanauth_ppe", world.sandbox.connections(1)["AIRFLOW_CONN_LOANAUTH_PPE"])
    pricing.answer = lambda request: (200 if request.headers["companyid"].startswith("broker") else 401, {}, b"")
    assert requests.get(pricing.url, auth=auth, timeout=60).status_code == 200
    assert [one["companyid"].split("-")[0] for one in pricing.credentials] == ["lender", "lender", "broker"]
    assert pricing.credentials[1]["secret"] != pricing.credentials[2]["secret"]


# --- what it is given ---


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (None, "NoneType"),
        ("", "str"),
        (b"made-up-octets-of-a-token", "bytes"),
        ({"sealed": "made-up-sealed-value"}, "dict"),
        (["made-up-list-of-one"], "list"),
        (42, "int"),
    ],
)
def test_what_is_no_credential_is_told_by_its_type(given, named):
    with pytest.raises(LoanAuthError, match=f"given {named} instead of a credential") as caught:
        LoanAuth(given)
    assert "made-up" not in told(caught.value)


PLAIN = [
    "eyJhbGciOiJub25lIn0.bWFkZS11cA.c2ln",
    base64.b64encode(b"made-up-api-secret-of-48-octets-for-the-tests-42").decode(),
    base64.b64encode(b"a-made-up-secret+").decode() + "+=",
    "0123456789abcdef" * 4,
    "0123456789abcdef" * 2,
    "made-up " * 4,
    "made-up" * 60,
]


@pytest.mark.parametrize("plain", PLAIN)
def test_a_plain_token_or_secret_is_not_taken_for_a_connection_id(plain, logs):
    with pytest.raises(LoanAuthError, match="not a connection id") as caught:
        LoanAuth(plain)
    assert plain not in told(caught.value) + logs.text


@pytest.mark.parametrize(
    "conn_id", ["loanauth_jwt", "team-a.loan_pricing:prod", "tenant/pricing", "a" * 30, "x_" * 100]
)
def test_a_connection_id_is(conn_id):
    LoanAuth(conn_id)


def test_a_connection_that_is_not_there_is_named_when_it_is_used(world):
    auth = LoanAuth.from_connection("loanauth_missing")
    with pytest.raises(LoanAuthError, match="loanauth_missing"):
        price(world, auth)


# --- copies, pickles, secrets ---


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda auth: pickle.loads(pickle.dumps(auth))])
@pytest.mark.parametrize("conn_id", ["loanauth_jwt", "loanauth_ppe"])
def test_a_copy_works_as_the_original(world, pricing, pulled, copied, conn_id):
    auth = LoanAuth(pulled(conn_id), secret_header="X-Made-Up")
    requests.get(pricing.url, auth=auth, timeout=60)
    # The copy is bound to nothing yet.
    with pricing.__class__() as another:
        requests.get(another.url, auth=copied(auth), timeout=60)
        expected = "x-made-up" if conn_id == "loanauth_ppe" else "authorization"
        assert expected in another.seen[0].headers


def test_a_pickle_holds_the_credential_sealed(world, pulled):
    token = pulled()
    auth = LoanAuth(token)
    price(world, auth)
    assert token.value.encode() not in pickle.dumps(auth)


def test_an_answer_can_be_pickled_and_copied(world, pulled):
    answer = price(world, LoanAuth(pulled()))
    assert pickle.loads(pickle.dumps(answer)).json() == copy.deepcopy(answer).json() == answer.json()


def test_secrets_are_in_no_log_no_repr_and_no_traceback(world, pulled, logs, define):
    token, secret = pulled(), pulled("loanauth_ppe")
    issued = [token.value, secret.value]
    auths = [LoanAuth(token), LoanAuth(secret)]
    shown = []
    for auth in auths:
        price(world, auth)
        world.sandbox.revoke()
        price(world, auth)
        grant = auth._provider.get_cached()
        issued.append(grant.value)
        shown += [
            repr(auth),
            str(auth),
            repr(vars(auth)),
            repr(grant),
            repr(auth._auth._placement),
            repr(vars(auth._provider)),
        ]
    world.pass_time(4000)
    world.sandbox.set_fault("status", where="any", status=401)
    _PROCESS_CACHE.forget()
    for auth in auths:
        with pytest.raises(LoanAuthError) as caught:
            price(world, LoanAuth(auth._made_of[0]))
        shown.append(told(caught.value))
    company = world.sandbox.state.accounts[0]
    secrets = [*issued, company.users[0].password, company.client_secret, company.api_key]
    assert len(set(secrets)) == 7
    assert shown
    assert logs.text
    assert not leaks("\n".join([*shown, logs.text]), secrets)


def test_types_of_credentials_are_those_of_the_methods(pulled):
    assert isinstance(pulled(), AccessToken)
    assert isinstance(pulled("loanauth_ppe"), ApiSecret)


@pytest.mark.parametrize("min_ttl", [-1, float("nan"), "60", None, True])
def test_a_window_that_is_none(world, pulled, min_ttl):
    with pytest.raises(LoanAuthError, match="min_ttl is not a number of seconds, 0 or more"):
        LoanAuth(pulled(), min_ttl=min_ttl)
