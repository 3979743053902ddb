"""How one process refreshes together with others: several objects and threads, and what it does without a register."""

from __future__ import annotations

import dataclasses
import threading
import time
from contextlib import nullcontext
from datetime import datetime, timedelta, timezone

import pytest

from airflow_provider_loanauth.auth import register as register_module
from airflow_provider_loanauth.auth import shared
from airflow_provider_loanauth.auth.active import GRACE_PERIOD
from airflow_provider_loanauth.auth.refresh import REGISTER_PAUSE, CredentialCache, CredentialProvider
from airflow_provider_loanauth.auth.register import Claim, Register
from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.exceptions import RejectedError, UnavailableError
from airflow_provider_loanauth.service.memory import PROCESS_FAILURES
from tests.auth.test_refresh import StubClient, clock, settings_of  # noqa: F401 - a fixture
from tests.support.pricing_fixtures import in_threads
from tests.support.simulation import TASK

#: What the clock of the tests shows.
START = datetime.fromtimestamp(1e9, tz=timezone.utc)
LIFETIME = 1000.0
#: The keys for a token of the connection ``made-up``.
KEYS = {"loanauth_claim.jwt.made-up", "loanauth_refreshed.jwt.made-up"}


class XCom:
    """The XCom values of the issuing task, in memory."""

    def __init__(self):
        self.values = {}
        self.reads = []
        self.failure = None

    def read(self, key, task):
        assert task == TASK
        self.reads.append(key)
        if self.failure:
            raise self.failure
        return self.values.get(key)

    def write(self, key, value, task):
        assert task == TASK
        if self.failure:
            raise self.failure
        self.values[key] = value


@pytest.fixture
def xcom(monkeypatch):
    values = XCom()
    monkeypatch.setattr(register_module, "read_xcom", values.read)
    monkeypatch.setattr(register_module, "write_xcom", values.write)
    monkeypatch.setattr(shared, "MIN_CLAIM_DELAY", 0.0)
    monkeypatch.setattr(shared, "CLAIM_DELAY_FACTOR", 0.0)
    return values


@pytest.fixture
def client(clock):  # noqa: F811 - the fixture
    return StubClient(lifetime=LIFETIME)


def issued(left, task=TASK):
    """Return the credential of the issuing task, which is valid for some more seconds."""
    expires_at = START + timedelta(seconds=left)
    return AccessToken.seal(
        "made-up-first",
        method="jwt",
        conn_id="made-up",
        issued_at=expires_at - timedelta(seconds=LIFETIME),
        expires_at=expires_at,
        task=task,
    )


def register_of(credential, settings=settings_of("one")):  # noqa: B008 - settings do not change
    """Return the register as another process has it."""
    return Register(TASK, settings, issued_at=credential.issued_at)


def test_nothing_is_read_while_the_credential_is_fresh(xcom, client):
    provider = CredentialProvider(client, issued(500), 60)
    assert [provider.get().value for _ in range(5)] == ["made-up-first"] * 5
    assert (xcom.reads, xcom.values, client.logins) == ([], {}, 0)


@pytest.mark.parametrize("task", [None, TASK])
def test_a_credential_without_an_issuing_task_is_refreshed_by_each_process(xcom, client, task):
    provider = CredentialProvider(client, issued(-1, task), 60)
    assert provider.get().value == "made-up-one-1"
    assert {*xcom.values} == (KEYS if task else set())
    assert bool(xcom.reads) is bool(task)


def test_a_new_process_takes_over_what_another_one_refreshed(xcom, client):
    credential = issued(-1)
    first = CredentialProvider(client, credential, 60).get()
    another = CredentialCache()
    taken = another.get_or_refresh(client, None, 60, issued=credential)
    assert taken is not first
    assert (taken.value, client.logins) == (first.value, 1)
    assert not taken.issued_here
    # From then on it is in the cache of that process.
    reads = len(xcom.reads)
    assert another.get_or_refresh(client, None, 60, issued=credential) is taken
    assert len(xcom.reads) == reads


def test_a_new_process_gets_the_rejection_of_another_one(xcom, client):
    credential = issued(-1)
    client.failure = RejectedError("made-up rejection")
    for _ in range(3):
        PROCESS_FAILURES.clear()
        with pytest.raises(RejectedError, match="made-up rejection"):
            CredentialCache().get_or_refresh(client, None, 60, issued=credential)
    assert client.logins == 1
    client.tenant, client.failure = "corrected", None
    assert CredentialCache().get_or_refresh(client, None, 60, issued=credential).value == "made-up-corrected-2"


def test_a_process_that_must_not_send_its_credentials_claims_nothing(xcom, client):
    """Otherwise the other processes would wait for it."""
    client.failure = RejectedError("made-up rejection")
    with pytest.raises(RejectedError):
        client.authenticate()
    with pytest.raises(RejectedError, match="Nothing was sent this time: this process"):
        CredentialProvider(client, issued(-1), 60).get()
    assert (xcom.values, client.logins) == ({}, 1)


def test_the_claim_is_written_again_before_a_retry(xcom, client):
    """Otherwise another process would authenticate while this one waits for the service."""
    credential, client.max_attempts = issued(-1), 2
    send, failures = client._send, iter([UnavailableError("made-up outage")])

    def fail_once(*args):
        for failure in failures:
            raise failure
        return send(*args)

    client._send = fail_once
    assert CredentialProvider(client, credential, 60).get().value == "made-up-one-1"
    assert register_of(credential).read_claim().attempt == 2


def test_dead_processes_of_two_connections_are_both_replaced(xcom, clock):  # noqa: F811 - the fixture
    """The age of a claim is measured by each process, for each connection of the issuing task."""
    clients = [TenantClient(lifetime=LIFETIME, tenant=tenant) for tenant in ("one", "two")]
    credential = issued(50)
    for client in clients:
        register_of(credential, client.settings()).write_claim(Claim(f"made-up-{client.tenant}", 0.1))
    providers = [CredentialProvider(client, credential, 60) for client in clients]
    for _ in range(3):
        values = [provider.get().value for provider in providers]
        # Claims have a clock of their own.
        time.sleep(0.06)
        clock.seconds += GRACE_PERIOD + 1
    assert values == ["made-up-one-1", "made-up-two-1"]


def test_many_objects_read_the_register_rarely_while_another_process_refreshes(xcom, client, clock):  # noqa: F811
    """A task may open one credential many times, such as for each batch."""
    credential = issued(50)
    register_of(credential).write_claim(Claim("made-up-claim", 1000.0))
    providers = [CredentialProvider(client, credential, 60) for _ in range(5)]

    def use():
        before = len(xcom.reads)
        for _ in range(3):
            assert {provider.get().value for provider in providers} == {"made-up-first"}
        return len(xcom.reads) - before

    assert use() == 2
    clock.seconds += GRACE_PERIOD - 1
    assert use() == 0
    clock.seconds += 2
    assert use() == 2
    assert client.logins == 0


def test_the_refreshed_credential_is_used_after_the_grace_period(xcom, client, clock):  # noqa: F811
    credential = issued(50)
    register, claim = register_of(credential), Claim("made-up-claim", 1000.0)
    register.write_claim(claim)
    provider = CredentialProvider(client, credential, 60)
    assert provider.get().value == "made-up-first"
    new = AccessToken.seal(
        "made-up-second", method="jwt", conn_id="made-up", issued_at=START, expires_at=START + timedelta(hours=1)
    )
    register.write_refreshed(claim, credential=new, error=None, seconds=0.0)
    clock.seconds += GRACE_PERIOD + 1
    assert provider.get().value == "made-up-second"
    assert client.logins == 0


def test_other_threads_continue_with_the_valid_credential_while_one_refreshes(xcom, client):
    provider = CredentialProvider(client, issued(50), 60)
    client.gate.clear()
    refreshing = threading.Thread(target=provider.get, daemon=True)
    refreshing.start()
    deadline = time.monotonic() + 60
    while client.running == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert client.running == 1
    results = in_threads(4, lambda _: provider.get().value)
    assert results == ["made-up-first"] * 4
    client.gate.set()
    refreshing.join(60)
    assert provider.get().value == "made-up-one-1"
    assert client.logins == 1


# --- the register cannot be used ---


def not_shared(logs):
    return [line for line in logs.at("warning") if "cannot be shared" in line]


@pytest.mark.parametrize("left", [-1, 50])
def test_without_a_register_each_process_refreshes_as_before(xcom, client, logs, left):
    xcom.failure = OSError("https://made-up-secret@api.example")
    assert CredentialProvider(client, issued(left), 60).get().value == "made-up-one-1"
    assert not_shared(logs) == [
        "The refresh cannot be shared with other tasks (OSError): each process authenticates on its own."
    ]
    assert "made-up-secret" not in logs.text


def test_a_register_that_failed_is_not_used_for_a_while(xcom, client, clock, logs):  # noqa: F811
    """Airflow's own retries take up to 90 seconds."""
    xcom.failure = OSError("made-up")
    cache, credential = CredentialCache(), issued(-1)

    def refresh():
        stale = cache.get_or_refresh(client, None, 60, issued=credential)
        cache.get_or_refresh(client, stale, 60, issued=credential, rejected=True)

    for _ in range(3):
        refresh()
    assert len(xcom.reads) == 1
    clock.seconds += REGISTER_PAUSE
    refresh()
    assert len(xcom.reads) == 2
    assert client.logins == 5
    assert len(not_shared(logs)) == 1
    # It is used again once it works.
    xcom.failure = None
    clock.seconds += REGISTER_PAUSE
    refresh()
    assert {*xcom.values} == KEYS


@pytest.mark.parametrize("failure", [None, RejectedError("made-up rejection")])
def test_two_credentials_of_one_task_are_refreshed_once_each(xcom, clock, failure):  # noqa: F811 - the fixture
    """A task may return a credential for each of its tenants. Otherwise each would erase what the other one shares."""
    clients = [TenantClient(lifetime=LIFETIME, tenant=tenant) for tenant in ("one", "two")]
    for client in clients:
        client.failure = failure
    for _ in range(5):
        PROCESS_FAILURES.clear()
        cache = CredentialCache()
        for client in clients:
            with nullcontext() if failure is None else pytest.raises(RejectedError):
                cache.get_or_refresh(client, None, 60, issued=issued(-1))
    assert [client.logins for client in clients] == [1, 1]
    assert {key.rpartition(".")[2] for key in xcom.values} == {"one", "two"}


class TenantClient(StubClient):
    """A client whose connection id is that of the tenant."""

    def settings(self, method=None):
        return dataclasses.replace(super().settings(method), conn_id=self.tenant)
