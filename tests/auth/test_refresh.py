"""When a credential is refreshed, by whom and how often: no HTTP, and a clock that the tests move."""

from __future__ import annotations

import multiprocessing
import threading
import time
from datetime import datetime, timezone
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.credentials import ApiSecret
from airflow_provider_loanauth.exceptions import (
    LoanAuthError,
    RejectedError,
    ResponseError,
    SettingsError,
    UnavailableError,
)
from airflow_provider_loanauth.login import credential as refresh_policy
from airflow_provider_loanauth.login import memory
from airflow_provider_loanauth.login import shared as shared_login
from airflow_provider_loanauth.login.credential import (
    GRACE_PERIOD,
    LIVED_SECONDS,
    UNTESTED_SECONDS,
    ActiveCredential,
)
from airflow_provider_loanauth.login.shared import get_or_refresh
from airflow_provider_loanauth.models import TokenResponse
from airflow_provider_loanauth.service.client import AuthenticationResult, Client
from tests.support.pricing_fixtures import in_threads
from tests.support.simulation import OLD
from tests.support.wire_requests import connection_of

NOW = datetime(2026, 11, 21, tzinfo=timezone.utc)


class StubClient(Client):
    """A client that sends nothing. It counts what it would send, and raises ``failure`` if there is one."""

    def __init__(self, lifetime=100.0):
        super().__init__("made-up", max_attempts=1)
        self.lifetime, self.failure = lifetime, None
        self.sent = self.settings_reads = self.running = 0
        self.gate = threading.Event()
        self.gate.set()

    def settings(self, method=None):
        self.settings_reads += 1
        return OLD

    def _send(self, settings):
        self.sent += 1
        number, requested_at = self.sent, datetime.fromtimestamp(refresh_policy.time.time(), tz=timezone.utc)
        self.running += 1
        self.gate.wait(60)
        self.running -= 1
        if self.failure:
            raise self.failure
        response = TokenResponse(access_token=f"made-up-{number}")
        return AuthenticationResult(
            settings=settings, response=response, requested_at=requested_at, lifetime=self.lifetime
        )


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(monotonic=lambda: now.seconds, time=lambda: NOW.timestamp() + now.seconds, seconds=0.0)
    for module in (refresh_policy, memory, shared_login):
        monkeypatch.setattr(module, "time", now)
    return now


@pytest.fixture
def client(clock):
    return StubClient()


def active(age=0.0, **changes):
    issued_at = datetime.fromtimestamp(refresh_policy.time.time() - age, tz=timezone.utc)
    usual = {"value": "made-up", "conn_id": "c", "method": "jwt", "issued_at": issued_at, "lifetime": 100.0}
    return ActiveCredential(**(usual | changes))


@pytest.mark.parametrize(
    ("lifetime", "left", "min_ttl", "fresh"),
    [
        (3600, 61, 60, True),
        (3600, 60, 60, False),
        (300, 31, 60, True),
        (300, 30, 60, False),
        (5, 0.6, 60, True),
        (5, 0.5, 60, False),
        (3600, 1, 0, True),
        (3600, 0, 0, False),
        (3600, -1, 0, False),
        (3600, 360, 1e9, False),
        (3600, 361, 1e9, True),
    ],
)
def test_fresh_until_the_refresh_window(clock, monkeypatch, lifetime, left, min_ttl, fresh):
    for factor in (1, 2):
        monkeypatch.setattr(refresh_policy, "_spread", lambda *_, factor=factor: factor)
        assert active(lifetime - factor * left, lifetime=lifetime).is_fresh(min_ttl) is fresh


def test_processes_refresh_at_different_moments_and_each_at_one():
    factors = [refresh_policy._spread("made-up", process) for process in range(40)]
    assert 1 <= min(factors) < 1.2
    assert 1.8 < max(factors) <= 2
    assert factors == [refresh_policy._spread("made-up", process) for process in range(40)]


def test_a_stale_credential_is_replaced_once_for_all(client):
    first = get_or_refresh(client, None, 60)
    second = get_or_refresh(client, first, 60)
    assert second is not first
    for old in (None, first, active()):
        assert get_or_refresh(StubClient(), old, 60) is second
    assert client.sent == 2


@pytest.mark.parametrize("is_rejected", [False, True])
def test_a_rejected_credential_is_replaced_wherever_it_was_opened(client, is_rejected):
    first, logins = get_or_refresh(client, None, 60), 1 + is_rejected
    the_same = active(value=first.value)
    assert get_or_refresh(client, the_same, 60, is_rejected=is_rejected).value == f"made-up-{logins}"
    assert client.sent == logins
    # Any other one is replaced by the cached one.
    assert get_or_refresh(client, active(), 60, is_rejected=is_rejected).value == f"made-up-{logins}"
    assert client.sent == logins


def open_gate_when_all_wait(client, number):
    """Let the login end once so many threads have read their settings and had time to wait for the lock."""
    deadline = time.monotonic() + 60
    while client.settings_reads < number and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    # The clock of the test stands still.
    refresh_policy.time.seconds += 1
    client.gate.set()


def test_a_failure_is_shared_by_all_who_waited_and_nobody_else(client):
    client.failure = UnavailableError("x")
    client.gate.clear()
    opening = threading.Thread(target=open_gate_when_all_wait, args=(client, 8))
    opening.start()
    results = in_threads(8, lambda _: get_or_refresh(client, None, 60))
    opening.join()
    assert {(type(result), result.conn_id, result.method) for result in results} == {
        (UnavailableError, "made-up", "jwt")
    }
    assert (
        len(
            [
                result
                for result in results
                if "Nothing was sent, because this task waited for requests that failed (1)" in str(result)
            ]
        )
        == 7
    )
    assert client.sent == 1
    with pytest.raises(UnavailableError):
        get_or_refresh(client, None, 60)
    assert client.sent == 2


def test_a_usable_credential_needs_no_waiting(client):
    """Another part of the process, such as a hook, may authenticate with the same settings."""
    first = get_or_refresh(client, None, 60)
    client.gate.clear()
    hook = threading.Thread(target=client.authenticate, args=(client.settings(),))
    hook.start()
    while client.running == 0:
        time.sleep(0.01)
    assert get_or_refresh(client, None, 60) is first
    assert client.running == 1
    client.gate.set()
    hook.join(60)


def test_the_connection_is_read_for_each_refresh_and_not_for_each_use(clock, client):
    auth = LoanAuth._make("made-up", None, None, 60, client)
    assert auth._get_cached() is None
    first = auth._get()
    assert [auth._get() for _ in range(4)] == [first] * 4
    assert auth._get_cached() is first
    assert (client.sent, client.settings_reads) == (1, 1)
    clock.seconds += 95
    assert auth._get_cached() is None
    auth._get()
    assert (client.sent, client.settings_reads) == (2, 2)


def test_connections_are_read_one_at_a_time():
    """On Airflow 3.0 and 3.1 two threads that read a Connection at the same time get each other's."""
    running, counts = [], []

    def get_connection(conn_id):
        running.append(conn_id)
        counts.append(len(running))
        time.sleep(0.005)
        running.remove(conn_id)
        return connection_of("jwt")

    in_threads(8, lambda index: Client(str(index), get_connection=get_connection).settings())
    assert counts == [1] * 8


# --- the service is unavailable while the credential is still valid ---


@pytest.mark.parametrize("failure", [UnavailableError("made-up"), SettingsError("made-up")])
def test_a_valid_credential_is_used_while_it_cannot_be_refreshed(clock, failure):
    client = StubClient(lifetime=1000)
    auth = LoanAuth._make("made-up", None, None, 60, client)
    first = auth._get()
    client.failure = failure
    clock.seconds += 950
    assert [auth._get() for _ in range(3)] == [first] * 3
    assert client.sent == 2
    # No request before the grace period is over.
    clock.seconds += GRACE_PERIOD - 1
    assert auth._get_cached() is first
    clock.seconds += 1
    assert auth._get_cached() is None
    assert auth._get() is first
    assert client.sent == 3
    # An expired credential is not used.
    clock.seconds += 35
    assert auth._get() is first
    clock.seconds += 5
    assert auth._get_cached() is None
    with pytest.raises(type(failure)):
        auth._get()
    client.failure = None
    assert auth._get().value == "made-up-6"


def test_a_valid_credential_is_used_while_the_connection_cannot_be_read(clock, client, monkeypatch):
    """A secrets backend may be down."""
    auth = LoanAuth._make("made-up", None, None, 60, client)
    first = auth._get()
    monkeypatch.setattr(client, "settings", Mock(side_effect=LoanAuthError("made-up")))
    clock.seconds += 91
    assert auth._get() is first
    with pytest.raises(LoanAuthError):
        auth._get(first)
    clock.seconds += 9
    with pytest.raises(LoanAuthError):
        auth._get()


def test_a_credential_is_valid_until_its_last_moment(clock):
    assert [active(100 - left).is_valid() for left in (0.5, 0, -0.5)] == [True, False, False]


@pytest.mark.parametrize("failure", [RejectedError("made-up"), ResponseError("made-up")])
def test_a_credential_is_used_until_it_expires_whatever_the_service_responds(clock, client, failure):
    auth = LoanAuth._make("made-up", None, None, 60, client)
    first = auth._get()
    client.failure = failure
    clock.seconds += 91
    assert auth._get() is first
    clock.seconds += 10
    with pytest.raises(LoanAuthError):
        auth._get()
    assert client.sent == 2


# --- a 401 as a reason to refresh ---


def test_only_a_success_shows_that_a_new_credential_is_accepted(clock):
    pulled, issued = active(), active(issued_here=True)
    assert pulled.should_refresh_on(401)
    for status in (199, 300, 302, 400, 401, 403, 404, 429, 500, 503):
        assert not issued.should_refresh_on(status)
        assert not issued.should_refresh_on(401)
    assert not issued.should_refresh_on(204)
    assert issued.should_refresh_on(401)


def test_a_credential_that_was_never_accepted_is_refreshed_after_a_minute(clock):
    """Otherwise a process would keep a rejected credential without a known expiry for ever."""
    issued = active(issued_here=True, lifetime=None)
    clock.seconds += UNTESTED_SECONDS - 1
    assert not issued.should_refresh_on(401)
    clock.seconds += 1
    assert issued.should_refresh_on(401)


def test_a_credential_that_replaced_a_rejected_one_is_not_replaced_at_once(clock):
    replacement = active(min_401_age=10)
    replacement.should_refresh_on(200)
    clock.seconds += 9
    assert not replacement.should_refresh_on(401)
    clock.seconds += 1
    assert replacement.should_refresh_on(401)


@pytest.mark.parametrize(
    ("age", "before", "after"),
    [(0, 0, 10), (11, 10, 20), (161, 160, 300), (301, 300, 300), (LIVED_SECONDS - 1, 40, 80), (LIVED_SECONDS, 300, 10)],
)
def test_the_time_between_two_refreshes_after_a_401_grows(age, before, after):
    assert active(age, min_401_age=before).next_min_401_age() == after


# --- threads, processes ---


def test_other_threads_use_a_valid_credential_while_one_refreshes_it(clock, client):
    auth = LoanAuth._make("made-up", None, None, 60, client)
    first = auth._get()
    clock.seconds += 95
    client.gate.clear()
    refreshing = threading.Thread(target=auth._get)
    refreshing.start()
    while client.running == 0:
        time.sleep(0.01)
    assert auth._get_cached() is first
    clock.seconds += 10
    assert auth._get_cached() is None
    client.gate.set()
    refreshing.join(60)
    assert client.sent == 2


def test_threads_open_the_credential_once(client):
    """Opening it masks it, and an API secret also needs its Connection: each is a message to Airflow's supervisor."""
    opened = []

    class SlowSecret(ApiSecret):
        @property
        def value(self):
            opened.append(threading.get_ident())
            time.sleep(0.02)
            return "made-up-secret"

    credential = SlowSecret(method="ppe", conn_id="made-up", issued_at=NOW, sealed="made-up")
    auth = LoanAuth._make("made-up", None, credential, 60, client)
    results = in_threads(8, lambda _: auth._get())
    assert len(opened) == client.settings_reads == 1
    assert {id(result) for result in results} == {id(results[0])}
    assert results[0].value == "made-up-secret"


def in_forked_child(client):
    """Return what a child of this process gets."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()

    def get():
        try:
            results.put(LoanAuth._make("made-up", None, None, 60, client)._get().value)
        except LoanAuthError as error:
            results.put(repr(error))

    child = context.Process(target=get)
    child.start()
    child.join(120)
    child.kill()
    assert child.exitcode == 0
    return results.get()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_keeps_the_credential_and_the_failure_of_its_parent(client):
    """Otherwise each process of a pool would send a rejected password again, which gets the account locked."""
    rejected = get_or_refresh(client, None, 60)
    assert in_forked_child(client) == "made-up-1"
    client.failure = RejectedError("made-up")
    with pytest.raises(RejectedError):
        get_or_refresh(client, rejected, 60, is_rejected=True)
    client.failure = None
    memory.memory_of(OLD).credential = None
    result = in_forked_child(client)
    assert result.startswith("RejectedError(")
    assert "made-up" in result
    assert "Nothing was sent" in result
