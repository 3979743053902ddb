"""When the same credentials are not sent again, by a client of the same process; over a simulated HTTP connection."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import pytest
import requests

from airflow_provider_loanauth.exceptions import (
    LoanAuthError,
    RejectedError,
    ResponseError,
    SettingsError,
    UnavailableError,
)
from airflow_provider_loanauth.service.client import Client
from airflow_provider_loanauth.service.process_logins import LOGINS, MAX_RETRY_AFTER, RESPONSE_ERROR_SECONDS, Logins
from tests.support.clock import replace_waits
from tests.support.leaks import leaks
from tests.support.pricing_fixtures import in_threads
from tests.support.secret_accounts import SECRETS
from tests.support.wire_requests import connection_of, settings_of

ADDRESS = "https://auth.example/oauth/token"
GOOD = {"json": {"access_token": "made-up"}}
WRONG_PASSWORD = {"status_code": 400, "json": {"error": "invalid_grant", "error_description": "Bad credentials"}}
LOGIN_PAGE = {"text": "<html>made-up login page</html>"}
OVERLOADED = {"status_code": 503}


def wait_longer(seconds, status=503):
    return {"status_code": status, "headers": {"Retry-After": str(seconds)}}


class Service:
    """Responds to logins, one response after another; the last one stays."""

    def __init__(self, requests_mock):
        self._mock = requests_mock
        self.respond(GOOD)

    def respond(self, *responses):
        self._mock.post(ADDRESS, list(responses))
        self._before = self._mock.call_count

    @property
    def posts(self):
        return self._mock.call_count - self._before


@pytest.fixture
def service(requests_mock, memory_clock, monkeypatch):
    # The wait before a retry takes no time.
    replace_waits(monkeypatch, memory_clock.pass_time)
    return Service(requests_mock)


def client(method="jwt", *, max_attempts=1, conn_id="made-up", **extra):
    connection = connection_of(method, **extra)
    connection.conn_id = conn_id
    return Client(conn_id, max_attempts=max_attempts, get_connection=lambda _: connection)


def failure(kind=LoanAuthError, **arguments):
    with pytest.raises(kind) as caught:
        client(**arguments).authenticate()
    return caught.value


REJECTED = (
    "this process does not send these credentials again until the Connection changes. If the cause was corrected at "
    "the service, clear the task; in a process that continues, such as a notebook, call LoanAuthHook.test_connection()."
)
UNUSABLE = (
    "the same credentials are sent again in 20 s at the earliest, because this may have been counted as a failed login."
)
WAITING = "the service asked to wait, and 600 s of that time are left."


@pytest.mark.parametrize(
    ("response", "kind", "passed", "left", "reason"),
    [
        (WRONG_PASSWORD, RejectedError, 1e9, 0, REJECTED),
        ({"status_code": 403}, ResponseError, 40, 20, UNUSABLE),
        (LOGIN_PAGE, ResponseError, RESPONSE_ERROR_SECONDS - 20, 20, UNUSABLE),
        ({"status_code": 302, "headers": {"Location": "/login?error"}}, ResponseError, 40, 20, UNUSABLE),
        (wait_longer(3600), UnavailableError, 3000, 600, WAITING),
        (wait_longer(3600, 429), UnavailableError, 3000, 600, WAITING),
        (wait_longer(1_000_000), UnavailableError, MAX_RETRY_AFTER - 600, 600, WAITING),
    ],
)
def test_what_is_remembered(service, memory_clock, response, kind, passed, left, reason):
    service.respond(response)
    first = failure(kind)
    memory_clock.pass_time(passed)
    second = failure(kind, max_attempts=3)
    assert service.posts == 1
    assert (second.status, second.conn_id, second.method) == (first.status, "made-up", "jwt")
    beginning = first.args[0].partition(" The service asked")[0]
    where = " (connection id 'made-up', method 'jwt')"
    assert str(second) == f"{beginning} Nothing was sent this time: {reason}{where}"
    if kind is UnavailableError:
        assert 590 < second.retry_after <= 600
    if kind is not RejectedError:
        memory_clock.pass_time(left)
        service.respond(GOOD)
        assert client().authenticate()


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (OVERLOADED, UnavailableError),
        (wait_longer(0), UnavailableError),
        # An error in the settings of this machine.
        ({"exc": requests.exceptions.InvalidProxyURL}, SettingsError),
    ],
)
def test_what_is_not_remembered(service, memory_clock, monkeypatch, response, kind):
    # Both requests at the same moment.
    monkeypatch.setattr(memory_clock, "monotonic", lambda: 1000.0)
    service.respond(response)
    messages = {str(failure(kind)) for _ in range(2)}
    assert service.posts == 2
    assert len(messages) == 1
    assert "Nothing was sent" not in messages.pop()


def test_a_short_rest_is_waited_for(service, memory_clock):
    service.respond(wait_longer(90), OVERLOADED, GOOD)
    failure(UnavailableError)
    memory_clock.pass_time(70)
    before = memory_clock.passed
    # Requests are counted, and not attempts.
    assert "Gave up after 1 attempt." in str(failure(UnavailableError, max_attempts=2))
    assert 19 < memory_clock.passed - before < 22
    assert service.posts == 2


def test_other_settings_share_nothing(service):
    service.respond(WRONG_PASSWORD)
    others = ({"method": "los"}, {"conn_id": "another"}, {"client_secret": "made-up-new-secret"})
    for other in ({}, *others):
        failure(**other)
        failure(**other)
    assert service.posts == 4


def test_a_memory_of_its_own_sends_and_leaves_the_memory_of_the_process(service):
    service.respond(WRONG_PASSWORD)
    connection = connection_of("jwt")
    for _ in range(2):
        with pytest.raises(RejectedError):
            Client("made-up", get_connection=lambda _: connection, logins=Logins()).authenticate()
    failure()
    failure()
    assert service.posts == 3


def test_a_success_ends_what_is_remembered(service, memory_clock):
    service.respond(wait_longer(3600), GOOD, OVERLOADED)
    failure()
    memory_clock.pass_time(3600)
    assert client().authenticate()
    # Also if the clock is set back.
    memory_clock.pass_time(-3600)
    failure()
    failure()
    assert service.posts == 4


def test_threads_send_a_wrong_password_once(service):
    service.respond(WRONG_PASSWORD)
    errors = in_threads(10, lambda _: [failure(RejectedError) for _ in range(10)])
    assert service.posts == 1
    flat = [error for each in errors for error in each]
    assert len({id(error) for error in flat}) == 100
    assert len([error for error in flat if "Nothing was sent this time" in str(error)]) == 99


class Gate:
    """A service over a real connection that responds when all threads want to send a request."""

    def __init__(self, pricing, status=200):
        self.url, self.status, self.seen = pricing.url, status, pricing.seen
        self.started, self.expected = [], 0
        self.running = self.max_running = 0
        pricing.respond = self.respond

    def respond(self, _):
        self.running += 1
        self.max_running = max(self.running, self.max_running)
        deadline = time.monotonic() + 60
        while len(self.started) < self.expected and time.monotonic() < deadline:
            time.sleep(0.01)
        # Time for a thread to get from reading the Connection to waiting, and for a request that does not wait.
        time.sleep(0.3)
        self.running -= 1
        return self.status, {}, b'{"access_token": "made-up"}'

    def authenticate_in_threads(self, number):
        """Let some threads authenticate at the same time, and return their results."""
        self.started, self.expected = [], number

        def get_connection(_):
            self.started.append(1)
            return connection_of("jwt", self.url)

        return in_threads(
            number, lambda _: Client("made-up", max_attempts=1, get_connection=get_connection).authenticate()
        )


def test_threads_that_waited_for_an_unavailable_service_send_nothing(pricing):
    gate = Gate(pricing, status=503)
    results = gate.authenticate_in_threads(8)
    assert {type(result) for result in results} == {UnavailableError}
    assert len(gate.seen) == 1
    shared = (
        "Nothing was sent this time: another thread sent a request with the same credentials, and this is its error. "
    )
    assert len([result for result in results if f"{shared}(connection id 'made-up', method 'jwt')" in str(result)]) == 7
    # A later caller sends, and those who wait for it send nothing.
    failure(UnavailableError, url=gate.url)
    assert len(gate.seen) == 2
    assert {type(result) for result in gate.authenticate_in_threads(8)} == {UnavailableError}
    assert len(gate.seen) == 3


def test_threads_that_waited_for_a_success_authenticate_one_after_the_other(pricing):
    """If they sent their passwords at the same time, and it was just changed at the service, each would be rejected."""
    gate = Gate(pricing)
    results = gate.authenticate_in_threads(4)
    assert [result.response.access_token for result in results] == ["made-up"] * 4
    assert (len(gate.seen), gate.max_running) == (4, 1)


@pytest.mark.parametrize("other", [{"method": "los"}, {"conn_id": "another"}])
def test_other_settings_do_not_wait(pricing, other):
    both = threading.Barrier(2)

    def respond(_):
        both.wait(60)
        return 200, {}, b'{"access_token": "made-up"}'

    pricing.respond = respond
    results = in_threads(2, lambda index: client(url=pricing.url, **[{}, other][index]).authenticate())
    assert [result.response.access_token for result in results] == ["made-up"] * 2


def test_an_interruption_is_not_remembered_and_ends_the_turn(service, monkeypatch):
    service.respond({"exc": KeyboardInterrupt})
    with pytest.raises(KeyboardInterrupt):
        client().authenticate()
    service.respond(GOOD)
    [result] = in_threads(1, lambda _: client().authenticate())
    assert result.response.access_token == "made-up"


def test_a_remembered_error_keeps_no_frame_alive(service):
    class Local:
        """A local variable of a frame of the traceback."""

    service.respond(WRONG_PASSWORD)

    def use():
        local = Local()
        with pytest.raises(RejectedError):
            client().authenticate()
        return weakref.ref(local)

    reference = use()
    gc.collect()
    assert reference() is None


def test_no_secret_is_in_a_representation(service):
    service.respond(WRONG_PASSWORD)
    failure()
    settings = settings_of("jwt")
    with LOGINS.one_at_a_time(settings):
        shown = [repr(LOGINS), str(LOGINS), repr(vars(LOGINS))]
    assert leaks("\n".join(shown), SECRETS.values()) == []
    assert "made-up" not in repr(LOGINS)


def test_an_accepted_connection_is_not_kept_in_memory():
    """Airflow tests a Connection with another random id each time, in a process that runs for long."""
    memory, settings = Logins(), settings_of("jwt")
    memory.forget(settings)
    reference = weakref.ref(settings)
    del settings
    gc.collect()
    assert reference() is None
