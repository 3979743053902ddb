"""When a credential is refreshed, by whom and how often, with a clock that the tests move."""

import json
import threading
from datetime import timedelta

import pytest
import requests

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.exceptions import RejectedError, SettingsError, UnavailableError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.login import credential
from airflow_provider_loanauth.login.credential import GRACE_PERIOD, MIN_401_AGE, ActiveCredential
from airflow_provider_loanauth.service.client import Client
from tests.support.backends import LOGIN, OPENED, total
from tests.support.pricing_fixtures import in_threads, loan
from tests.support.processes import fork, start_new_process, status_of
from tests.support.secret_accounts import secret_connections
from tests.support.wire_requests import connection_of

#: Seconds that a token of the sandbox is valid.
LIFETIME = 3600


def active(clock, age=0.0, **changes):
    issued_at = clock.now() - timedelta(seconds=age)
    usual = {"value": "made-up", "conn_id": "c", "method": "jwt", "issued_at": issued_at, "lifetime": 100.0}
    return ActiveCredential(**(usual | changes))


@pytest.mark.parametrize(
    ("lifetime", "left", "min_ttl", "fresh"),
    [
        (3600, 61, 60, True),
        (3600, 60, 60, False),
        (5, 0.6, 60, True),
        (5, 0.5, 60, False),
        (3600, 1, 0, True),
        (3600, 0, 0, False),
        (3600, 360, 1e9, False),
        (3600, 361, 1e9, True),
    ],
)
def test_fresh_until_the_refresh_window(clock, monkeypatch, lifetime, left, min_ttl, fresh):
    for factor in (1, 2):
        start_new_process()
        monkeypatch.setattr(credential, "_spread", lambda _, factor=factor: factor)
        assert active(clock, lifetime - factor * left, lifetime=lifetime).is_fresh(min_ttl) is fresh


def test_a_credential_is_valid_until_its_last_moment(clock):
    assert [active(clock, 100 - left).is_valid() for left in (0.5, 0, -0.5)] == [True, False, False]


def test_an_adjusted_wall_clock_changes_nothing(clock, monkeypatch):
    credential = active(clock)
    monkeypatch.setattr(clock, "time", lambda: 0.0)
    assert credential.seconds_left == 100
    clock.pass_time(101)
    assert not credential.is_valid()


def test_only_a_401_is_a_reason_to_log_in(clock):
    for status in (200, 302, 400, 403, 503):
        assert not active(clock).should_refresh_on(status)
    # What has replaced a rejected one is kept for a while.
    for passed in (MIN_401_AGE - 1, MIN_401_AGE):
        assert active(clock).should_refresh_on(401)
        assert active(clock, passed, after_401=True).should_refresh_on(401) == (passed == MIN_401_AGE)


@pytest.mark.parametrize(("version", "at_once"), [("2.11.2", 8), ("3.0.6", 1), ("3.1.8", 1), ("3.3.2", 8)])
def test_connections_are_read_one_at_a_time_where_the_channel_has_no_lock(version, at_once, monkeypatch):
    """On Airflow 3.0 and 3.1, two threads that read a Connection at the same time get each other's."""
    monkeypatch.setattr("airflow.__version__", version)
    running, counts, barrier = [], [], threading.Barrier(at_once, timeout=60)

    def get_connection(conn_id):
        running.append(conn_id)
        barrier.wait()
        counts.append(len(running))
        barrier.wait()
        running.remove(conn_id)
        return connection_of("jwt")

    in_threads(8, lambda index: Client(str(index), get_connection=get_connection).settings())
    assert counts == [at_once] * 8


def price(world, auth):
    return requests.post(world.url, json=loan(), auth=auth, timeout=60).status_code


def test_other_threads_use_a_valid_credential_while_one_refreshes_it(world, pulled, pricing):
    """Whether they share a LoanAuth or not. A login takes longer than the start of all threads."""
    token = pulled()
    shared = LoanAuth(token)
    requests.get(pricing.url, auth=shared, timeout=60)
    world.pass_time(LIFETIME - 30)
    world.sandbox.set_fault("latency", where="token", seconds=1.0)

    def use(number):
        return requests.get(pricing.url, auth=shared if number % 2 else LoanAuth(token), timeout=60)

    in_threads(8, use)
    sent = [one["authorization"] for one in pricing.credentials]
    assert sent.count(f"Bearer {token.value}") == len(sent) - 1 == 8
    assert world.logins == 1


@pytest.mark.parametrize("failure", [UnavailableError, SettingsError])
def test_a_valid_credential_is_used_while_it_cannot_be_refreshed(world, pulled, define, failure):
    """The service or a secrets backend is down."""
    auth = LoanAuth(pulled())
    before = world.credential_requests
    if failure is UnavailableError:
        world.sandbox.set_fault("status", where="token", status=503)
    else:
        define("loanauth_jwt", {"conn_type": "loanauth"})
    # One request, until the grace period is over; and none with an expired credential.
    for passed in (LIFETIME - 30, 0, GRACE_PERIOD - 2):
        world.pass_time(passed)
        assert price(world, auth) == 200
    assert world.credential_requests - before == (failure is UnavailableError)
    world.pass_time(60)
    with pytest.raises(failure):
        price(world, auth)


def test_after_a_401_an_earlier_token_of_this_process_is_not_tried(world, pricing):
    """A task prices with its own token, and then with one that another process has requested since."""
    requests.get(pricing.url, auth=LoanAuth.from_connection("loanauth_jwt"), timeout=60)
    world.pass_time(1)
    of_another = AccessToken.seal("made-up", method="jwt", conn_id="loanauth_jwt", issued_at=world.clock.now())
    pricing.respond = lambda request: (200 if len(pricing.seen) == 3 else 401, {}, b"")
    assert requests.get(pricing.url, auth=LoanAuth(of_another), timeout=60).status_code == 200
    first, second, third = [one["authorization"] for one in pricing.credentials]
    assert second == "Bearer made-up"
    assert first != third != second


def test_processes_share_a_login_of_a_service_that_returns_the_same_token(clock, pricing, define, variables):
    """With the seconds that are left. A refresh gives no other token, but says that this one may be used."""
    define("made_up", secret_connections(pricing.url)["jwt"])
    ends_at = clock.time() + 100

    def respond(request):
        body = {"access_token": "made-up-token", "expires_in": round(ends_at - clock.time())}
        return 200, {}, json.dumps(body).encode()

    pricing.respond = respond
    token = LoanAuthHook("made_up").get_credential()
    clock.pass_time(91)
    for _ in range(10):
        start_new_process()
        requests.get(pricing.url, auth=LoanAuth(token), timeout=60)
    assert [one.path for one in pricing.seen].count("/oauth/token") == 2


@pytest.mark.no_cover
@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_keeps_the_credential_and_the_failure_of_its_parent(world):
    """Otherwise each process of a pool would send a rejected password again, which gets the account locked."""

    def price_with_the_credential():
        assert price(world, LoanAuth.from_connection("loanauth_jwt")) == 200

    def repeat_the_rejection():
        with pytest.raises(RejectedError, match=r"responded with 400 .*not sent again before"):
            price(world, LoanAuth.from_connection("loanauth_jwt"))

    price_with_the_credential()
    assert status_of(fork(price_with_the_credential)) == 0
    assert world.logins == 1
    world.sandbox.set_fault("status", where="token", status=400, shape="oauth")
    world.pass_time(LIFETIME + 1)
    with pytest.raises(RejectedError):
        price(world, LoanAuth.from_connection("loanauth_jwt"))
    world.sandbox.clear_faults()
    assert status_of(fork(repeat_the_rejection)) == 0
    assert world.logins == 1


@pytest.fixture
def counted(pulled, statsd):
    found = pulled()
    statsd.datagrams.clear()
    return found


def test_a_fresh_credential_is_only_opened_and_once_by_all_threads(counted, world, statsd):
    auth = LoanAuth(counted)
    assert in_threads(8, lambda _: price(world, auth)) == [200] * 8
    assert statsd.counts == OPENED
    [expiry] = statsd.metrics
    assert LIFETIME - 60 < expiry.value <= LIFETIME


def test_an_expired_credential_is_refreshed_once_and_other_processes_take_it_over(counted, variables, world, statsd):
    world.pass_time(LIFETIME + 1)
    auth = LoanAuth(counted)
    assert [price(world, auth) for _ in range(5)] == [200] * 5
    assert statsd.counts == total(OPENED, LOGIN, {"refreshes": 1})
    start_new_process()
    statsd.datagrams.clear()
    assert price(world, LoanAuth(counted)) == 200
    assert statsd.counts == total(OPENED, {"shared_refreshes": 1, "seconds_to_expiry": 1})
    assert all(metric.tags == {"method": "jwt", "conn_id": "loanauth_jwt"} for metric in statsd.metrics)
    opened, taken = (metric.value for metric in statsd.metrics if metric.name == "seconds_to_expiry")
    assert (opened, LIFETIME - 60 < taken <= LIFETIME) == (0, True)


def test_a_rejection_that_fails_no_task_is_not_counted_again(counted, variables, world, define, statsd):
    """Their token is still valid. ``hooks/test_shared_login.py`` has those that fail."""
    world.pass_time(LIFETIME - 30)
    define("loanauth_jwt", world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"] | {"password": "made-up-wrong"})
    for rejected in ({"rejected": 1}, {}, {}):
        start_new_process()
        statsd.datagrams.clear()
        assert price(world, LoanAuth(counted)) == 200
        assert statsd.counts == total(OPENED, rejected)
    assert world.rejected_logins == 1
