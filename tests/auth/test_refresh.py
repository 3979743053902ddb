"""When a credential is refreshed, by whom and how often, with a clock that the tests move."""

import json
import threading
import time
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
from tests.support.pricing_fixtures import in_threads
from tests.support.processes import fork, start_new_process, status_of
from tests.support.secret_accounts import secret_connections
from tests.support.wire_requests import connection_of


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


def test_only_a_401_is_a_reason_to_log_in(clock):
    for status in (200, 302, 400, 403, 503):
        assert not active(clock).should_refresh_on(status)
    # What has replaced a rejected one is kept for a while.
    for passed in (MIN_401_AGE - 1, MIN_401_AGE):
        assert active(clock).should_refresh_on(401)
        assert active(clock, passed, after_401=True).should_refresh_on(401) == (passed == MIN_401_AGE)


# --- threads, processes, and a service that is unavailable while the credential is still valid ---


def token_of(request):
    return request.headers["authorization"].removeprefix("Bearer ")


class Service:
    """A service for logins and prices. A login waits for the gate, and gets the status; some tokens are rejected."""

    def __init__(self, pricing):
        self.pricing, self.status, self.rejected = pricing, 200, []
        self.gate = threading.Event()
        self.gate.set()
        pricing.respond = self.respond

    def respond(self, request):
        if request.path != "/oauth/token":
            return (401 if token_of(request) in self.rejected else 200), {}, b"{}"
        token = f"made-up-{self.logins}"
        self.gate.wait(20)
        body = {"error": "invalid_grant"} if self.status == 400 else {"access_token": token, "expires_in": 100}
        return self.status, {}, json.dumps(body).encode()

    @property
    def logins(self):
        return len([request for request in self.pricing.seen if request.path == "/oauth/token"])

    def price(self, auth):
        """Send a request, and return the token that it had."""
        return token_of(requests.get(self.pricing.url, auth=auth, timeout=60).request)

    def wait_for_login(self, number):
        deadline = time.monotonic() + 60
        while self.logins < number:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture
def service(clock, pricing, define):
    define("made_up", secret_connections(pricing.url)["jwt"])
    return Service(pricing)


@pytest.fixture
def auth(service):
    """What has the first credential."""
    made = LoanAuth.from_connection("made_up")
    assert service.price(made) == "made-up-1"
    return made


def test_other_threads_use_a_valid_credential_while_one_refreshes_it(clock, service):
    token = LoanAuthHook("made_up").get_credential()
    start_new_process()
    auth, with_its_own = LoanAuth(token), LoanAuth(token)
    clock.pass_time(95)
    service.gate.clear()
    refreshing = threading.Thread(target=service.price, args=(auth,))
    refreshing.start()
    service.wait_for_login(2)
    assert [service.price(auth), service.price(with_its_own)] == [token.value] * 2
    service.gate.set()
    refreshing.join(60)
    assert [service.price(auth), service.price(with_its_own)] == ["made-up-2", token.value]
    clock.pass_time(6)
    assert service.price(with_its_own) == "made-up-2"
    assert service.logins == 2


@pytest.mark.parametrize(("failure", "logins"), [(UnavailableError, 2), (SettingsError, 1)])
def test_a_valid_credential_is_used_while_it_cannot_be_refreshed(clock, service, auth, define, failure, logins):
    """The service or a secrets backend is down."""
    if failure is UnavailableError:
        service.status = 503
    else:
        define("made_up", {"conn_type": "loanauth"})
    # One request, until the grace period is over; and none with an expired credential.
    for passed in (91, 0, GRACE_PERIOD - 2):
        clock.pass_time(passed)
        assert (service.price(auth), service.logins) == ("made-up-1", logins)
    for passed, rejected in ((0, ["made-up-1"]), (2, [])):
        clock.pass_time(passed)
        service.rejected = rejected
        with pytest.raises(failure):
            service.price(auth)
    service.status = 200
    define("made_up", secret_connections(service.pricing.url)["jwt"])
    assert service.price(auth).startswith("made-up-")


@pytest.mark.parametrize(
    ("version", "at_once"), [("2.11.2", 8), ("3.0.6", 1), ("3.1.8", 1), ("3.2.2", 8), ("3.3.2", 8)]
)
def test_connections_are_read_one_at_a_time_where_the_channel_has_no_lock(version, at_once, monkeypatch):
    """On Airflow 3.0 and 3.1, two threads that read a Connection at the same time get each other's. Elsewhere, no lock
    is held, because a thread of a triggerer gets it only if the event loop does not wait for that lock.
    """
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


def test_after_a_401_an_earlier_token_of_this_process_is_not_tried(service, clock):
    """A task prices with its own token, and then with one that another process has requested since."""
    assert service.price(LoanAuth.from_connection("made_up")) == "made-up-1"
    clock.pass_time(1)
    of_another = AccessToken.seal("made-up-0", method="jwt", conn_id="made_up", issued_at=clock.now())
    service.rejected = ["made-up-0", "made-up-1"]
    assert service.price(LoanAuth(of_another)) == "made-up-2"
    priced = [token_of(request) for request in service.pricing.seen if request.path != "/oauth/token"]
    assert priced == ["made-up-1", "made-up-0", "made-up-2"]


def test_processes_share_a_login_of_a_service_that_returns_the_same_token(service, clock, variables):
    """With the seconds that are left. A refresh gives no other token, but says that this one may be used."""
    ends_at = clock.time() + 100

    def respond(request):
        body = {"access_token": "made-up-token", "expires_in": round(ends_at - clock.time())}
        return 200, {}, json.dumps(body).encode()

    service.pricing.respond = respond
    token = LoanAuthHook("made_up").get_credential()
    clock.pass_time(91)
    for _ in range(10):
        start_new_process()
        service.price(LoanAuth(token))
    assert service.logins == 2


@pytest.mark.no_cover
@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_keeps_the_credential_and_the_failure_of_its_parent(clock, service, auth):
    """Otherwise each process of a pool would send a rejected password again, which gets the account locked."""

    def get_the_credential():
        assert service.price(LoanAuth.from_connection("made_up")) == "made-up-1"

    def repeat_the_rejection():
        with pytest.raises(RejectedError, match=r"responded with 400 .*not sent again before"):
            service.price(LoanAuth.from_connection("made_up"))

    assert status_of(fork(get_the_credential)) == 0
    assert service.logins == 1
    service.status = 400
    clock.pass_time(101)
    with pytest.raises(RejectedError):
        service.price(auth)
    service.status = 200
    assert status_of(fork(repeat_the_rejection)) == 0
    assert service.logins == 2
