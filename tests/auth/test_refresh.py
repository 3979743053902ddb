"""When a credential is renewed, who does it and how often: no HTTP, no Airflow, a clock that is moved by hand."""

from __future__ import annotations

import multiprocessing
import threading
import time
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth.auth import refresh as grants
from airflow_provider_loanauth.auth import refresh as renewal
from airflow_provider_loanauth.auth.refresh import ActiveCredential, CredentialCache, CredentialProvider
from airflow_provider_loanauth.exceptions import (
    LoanAuthError,
    RejectedError,
    ResponseError,
    SealError,
    SettingsError,
    UnavailableError,
)
from airflow_provider_loanauth.models import TokenResponse
from airflow_provider_loanauth.service.client import AuthenticationResult
from tests.support.pricing_fixtures import in_threads

NOW = datetime(2026, 11, 21, tzinfo=timezone.utc)


class Settings:
    conn_id, method, company_id = "made-up", "jwt", None

    def __init__(self, tenant="one"):
        self.tenant = tenant

    def digest(self):
        return self.tenant.encode()


class Source:
    """Counts; fails when told."""

    def __init__(self, lifetime=100.0, tenant="one"):
        self.lifetime, self.tenant, self.failure = lifetime, tenant, None
        self.issued = self.read = self.at_once = self.most_at_once = 0
        self.gate = threading.Event()
        self.gate.set()

    def settings(self):
        self.read += 1
        return Settings(self.tenant)

    def issue(self, settings):
        self.issued += 1
        number = self.issued
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        self.gate.wait(60)
        self.at_once -= 1
        if self.failure:
            raise self.failure
        response = TokenResponse(access_token=f"made-up-{self.tenant}-{number}")
        return AuthenticationResult(response=response, requested_at=NOW, lifetime=self.lifetime)


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(monotonic=lambda: now.seconds, time=lambda: 1e9, seconds=1000.0)
    for module in (grants, renewal):
        monkeypatch.setattr(module, "time", now)
    renewal._PROCESS_CACHE.forget()
    yield now
    renewal._PROCESS_CACHE.forget()


@pytest.fixture
def source(clock):
    return Source()


@pytest.fixture
def renewals(clock):
    return CredentialCache()


def grant(**changes):
    usual = {"value": "made-up", "conn_id": "c", "method": "jwt", "company_id": None}
    return ActiveCredential(**(usual | {"lifetime": 100.0, "ends": 1100.0, "renewed": False} | changes))


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
def test_the_window(clock, lifetime, left, min_ttl, fresh):
    assert grant(lifetime=lifetime, ends=clock.seconds + left).is_fresh(min_ttl) is fresh


def test_without_an_end_it_is_always_fresh(clock):
    assert grant(lifetime=None, ends=None).is_fresh(1e9)


def test_the_lifetime_counts_from_before_the_request(clock, renewals):
    source = Source(lifetime=100)
    really = source.issue

    def slow(settings):
        clock.seconds += 30
        return really(settings)

    source.issue = slow
    assert renewals.renewed(source, None, 60).ends == 1100


def test_the_first_is_fetched_and_then_shared(renewals, source):
    first = renewals.renewed(source, None, 60)
    assert renewals.renewed(source, None, 60) is first
    assert renewals.renewed(Source(), grant(), 60) is first
    assert source.issued == 1


def test_a_stale_one_is_replaced_once(renewals, source):
    first = renewals.renewed(source, None, 60)
    second = renewals.renewed(source, first, 60)
    assert second is not first
    # Who comes late with the old one gets what is there.
    assert renewals.renewed(source, first, 60) is second
    assert source.issued == 2


def test_an_old_one_is_replaced(clock, renewals, source):
    first = renewals.renewed(source, None, 60)
    clock.seconds += 89
    assert renewals.renewed(source, None, 60) is first
    clock.seconds += 2
    assert renewals.renewed(source, None, 60) is not first


def test_threads_make_one_renewal(renewals, source):
    stale = renewals.renewed(source, None, 60)
    source.gate.clear()
    timer = threading.Timer(0.2, source.gate.set)
    timer.start()
    results = in_threads(32, lambda _: renewals.renewed(source, stale, 60))
    timer.join()
    assert len(set(map(id, results))) == 1
    assert (source.issued, source.most_at_once) == (2, 1)


def test_tenants_do_not_wait_for_each_other_and_share_nothing(renewals, clock):
    slow, quick = Source(tenant="slow"), Source(tenant="quick")
    slow.gate.clear()
    thread = threading.Thread(target=renewals.renewed, args=(slow, None, 60))
    thread.start()
    assert renewals.renewed(quick, None, 60).value == "made-up-quick-1"
    slow.gate.set()
    thread.join(5)
    assert renewals.renewed(slow, None, 60).value == "made-up-slow-1"


def test_changed_settings_find_nothing_old(renewals, source):
    renewals.renewed(source, None, 60)
    source.tenant = "another"
    assert renewals.renewed(source, None, 60).value == "made-up-another-2"
    source.tenant = "one"
    assert renewals.renewed(source, None, 60).value == "made-up-one-1"


def test_a_refusal_is_not_repeated(renewals, source):
    source.failure = RejectedError("made-up refusal", status=400, conn_id="made-up", method="jwt")
    caught = []
    for _ in range(3):
        with pytest.raises(RejectedError, match="made-up refusal") as raised:
            renewals.renewed(source, None, 60)
        caught.append(raised.value)
    assert source.issued == 1
    assert caught[1] is not caught[2]
    assert vars(caught[2]) == vars(caught[0])


def test_until_the_settings_change(renewals, source):
    source.failure = RejectedError("made-up refusal")
    with pytest.raises(RejectedError):
        renewals.renewed(source, None, 60)
    source.tenant, source.failure = "corrected", None
    renewals.renewed(source, None, 60)


def open_when_all_wait(source, number):
    """Open the gate when so many have read their settings, and had time to get in line."""
    deadline = time.monotonic() + 60
    while source.read < number and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    source.gate.set()


@pytest.mark.parametrize(
    "failure", [UnavailableError("x", retry_after=3.0), ResponseError("x"), SettingsError("x"), SealError("x")]
)
def test_another_failure_is_shared_with_who_waited_and_tried_again_by_who_comes_later(renewals, source, failure):
    source.failure = failure
    source.gate.clear()
    opening = threading.Thread(target=open_when_all_wait, args=(source, 8))
    opening.start()
    results = in_threads(8, lambda _: renewals.renewed(source, None, 60))
    opening.join()
    assert {type(result) for result in results} == {type(failure)}
    assert {str(result) for result in results} == {"x"}
    assert source.issued == 1
    with pytest.raises(type(failure)):
        renewals.renewed(source, None, 60)
    assert source.issued == 2
    source.failure = None
    assert renewals.renewed(source, None, 60).value == "made-up-one-3"


def test_what_is_kept_of_a_failure_has_no_traceback(renewals, source):
    source.failure = RejectedError("made-up refusal")
    with pytest.raises(RejectedError):
        renewals.renewed(source, None, 60)
    (line,) = renewals._lines.values()
    assert line.failure.__traceback__ is None


def test_an_interruption_is_nobodys_failure(renewals, source):
    source.failure = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        renewals.renewed(source, None, 60)
    source.failure = None
    renewals.renewed(source, None, 60)
    assert source.issued == 2


def test_the_connection_is_read_for_each_renewal_and_not_for_each_use(clock, source):
    keyring = CredentialProvider(source, None, 60)
    grants = {id(keyring.current()) for _ in range(5)}
    assert (len(grants), source.read) == (1, 1)
    clock.seconds += 95
    keyring.current()
    assert (source.issued, source.read) == (2, 2)


def test_connections_are_read_one_at_a_time(clock):
    inside, most = [], []

    class Careful(Source):
        def settings(self):
            inside.append(1)
            most.append(len(inside))
            threading.Event().wait(0.005)
            inside.pop()
            return super().settings()

    in_threads(8, lambda index: CredentialProvider(Careful(tenant=str(index)), None, 60).current())
    assert max(most) == 1


def test_what_is_at_hand_needs_no_waiting(clock, source):
    keyring = CredentialProvider(source, None, 60)
    assert keyring.get_cached() is None
    current = keyring.current()
    assert keyring.get_cached() is current
    clock.seconds += 95
    assert keyring.get_cached() is None


def test_a_credential_that_cannot_be_opened_is_an_error_each_time(clock, source):
    class Damaged:
        conn_id, method, expires_at = "made-up", "jwt", None

        @property
        def value(self):
            raise SealError("made-up damage")

    keyring = CredentialProvider(source, Damaged(), 60)
    for _ in range(2):
        with pytest.raises(SealError):
            keyring.current()
    assert source.issued == 0


# --- the service is down while the credential is still good ---


def test_what_is_still_good_goes_on_while_the_service_is_down(clock, source):
    keyring = CredentialProvider(source, None, 60)
    first = keyring.current()
    source.failure = UnavailableError("made-up")
    clock.seconds += 91  # 9 of 100 seconds are left
    assert [keyring.current() for _ in range(3)] == [first] * 3
    assert source.issued == 2
    # Not before a pause is the service asked again; what has ended is used by nobody.
    clock.seconds += grants.GRACE_PERIOD - 2
    assert keyring.get_cached() is first
    clock.seconds += 1
    assert keyring.get_cached() is None
    with pytest.raises(UnavailableError):
        keyring.current()
    assert source.issued == 3
    source.failure = None
    assert keyring.current().value == "made-up-one-4"


def test_after_the_pause_the_service_is_asked_again(clock):
    source = Source(lifetime=1000)
    keyring = CredentialProvider(source, None, 60)
    first = keyring.current()
    source.failure = UnavailableError("made-up")
    clock.seconds += 950
    assert keyring.current() is first
    clock.seconds += grants.GRACE_PERIOD
    assert keyring.current() is first
    assert source.issued == 3
    clock.seconds += grants.GRACE_PERIOD
    source.failure = None
    assert keyring.current() is not first


@pytest.mark.parametrize("failure", [RejectedError("made-up"), SettingsError("made-up"), ResponseError("made-up")])
def test_any_other_failure_is_told_at_once(clock, source, failure):
    keyring = CredentialProvider(source, None, 60)
    keyring.current()
    source.failure = failure
    clock.seconds += 91
    with pytest.raises(type(failure)):
        keyring.current()


def test_a_refused_one_is_not_used_again_while_the_service_is_down(clock, source):
    keyring = CredentialProvider(source, None, 60)
    first = keyring.current()
    source.failure = UnavailableError("made-up")
    with pytest.raises(UnavailableError):
        keyring.refresh(first)


# --- a 401 as a reason to renew ---


def test_reasons(clock):
    pulled, renewed = grant(), grant(renewed=True)
    assert pulled.should_refresh_on_401()
    assert not renewed.should_refresh_on_401()
    for status in (199, 300, 302, 400, 401, 403, 404, 429, 500, 503):
        renewed.answered(status)
        assert not renewed.should_refresh_on_401()
    renewed.answered(204)
    assert renewed.should_refresh_on_401()


def test_one_that_was_never_accepted_is_no_reason_for_a_minute_only(clock):
    """Else a process would keep what the service refuses, of a credential without a known end, for ever."""
    renewed = grant(renewed=True, lifetime=None, ends=None)
    renewed.record_retry_response(401)
    clock.seconds += grants.REFRESH_COOLDOWN - 1
    assert not renewed.should_refresh_on_401()
    clock.seconds += 1
    assert renewed.should_refresh_on_401()


def test_a_renewal_that_changed_nothing_is_a_reason_not_to(clock):
    renewed = grant(renewed=True)
    renewed.answered(200)
    renewed.record_retry_response(401)
    assert not renewed.should_refresh_on_401()
    clock.seconds += grants.REFRESH_COOLDOWN - 1
    renewed.answered(200)
    assert not renewed.should_refresh_on_401()
    clock.seconds += 1
    assert renewed.should_refresh_on_401()


def test_one_that_helped_is_none(clock):
    renewed = grant(renewed=True)
    renewed.record_retry_response(200)
    assert renewed.should_refresh_on_401()


# --- processes, representations ---


def _renew_in_child(keyring, results):
    try:
        results.put(keyring.current().value)
    except LoanAuthError as error:
        results.put(repr(error))


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_has_its_own(clock, source):
    """A lock that another thread held at the fork would hold for ever in the child."""
    keyring = CredentialProvider(source, None, 60)
    keyring.current()
    (line,) = renewal._PROCESS_CACHE._lines.values()
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    with line.lock:
        clock.seconds += 95
        child = context.Process(target=_renew_in_child, args=(keyring, results))
        child.start()
        child.join(120)
    alive = child.is_alive()
    child.kill()
    assert not alive
    assert results.get() == "made-up-one-2"


def test_threads_open_the_credential_once(source):
    """Opening has Airflow mask it, and an API secret also needs its Connection: a question to the supervisor each."""
    opened = []

    class Credential:
        method, conn_id, issued_at, expires_at = "ppe", "made-up", NOW, None

        @property
        def value(self):
            opened.append(threading.get_ident())
            time.sleep(0.02)
            return "made-up-secret"

    keyring = CredentialProvider(source, Credential(), 60)
    grants_of_all = in_threads(8, lambda _: keyring.current())
    assert len(opened) == 1
    assert {id(one) for one in grants_of_all} == {id(grants_of_all[0])}
    assert grants_of_all[0].value == "made-up-secret"


def test_a_forked_process_does_not_repeat_a_refusal(source):
    """Otherwise each process of a pool would send the password again, and lock the account."""
    source.failure = RejectedError("made-up refusal")
    with pytest.raises(RejectedError):
        CredentialProvider(source, None, 60).current()
    renewal._PROCESS_CACHE.forked()
    source.failure = None
    with pytest.raises(RejectedError):
        CredentialProvider(source, None, 60).current()


def test_values_are_in_no_representation():
    assert "made-up-token" not in repr(grant(value="made-up-token"))
