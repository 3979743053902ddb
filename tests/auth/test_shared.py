"""One refresh for several processes: who logs in, who waits, and what happens if something fails. In virtual time."""

from __future__ import annotations

import math
import os
import random
from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth.auth import shared
from airflow_provider_loanauth.auth.active import GRACE_PERIOD, ActiveCredential
from airflow_provider_loanauth.auth.register import CLAIM_KEY, REFRESHED_KEY, Claim
from airflow_provider_loanauth.auth.shared import (
    CLAIM_MARGIN,
    MAX_WAIT,
    MAX_WRITES,
    MIN_CLAIM_DELAY,
    POLL_SECONDS,
    RegisterError,
    SharedRefresh,
)
from airflow_provider_loanauth.connection.methods import ApiKeyCredentials
from airflow_provider_loanauth.connection.proxy import Proxy
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.exceptions import RejectedError, ResponseError, SettingsError, UnavailableError
from airflow_provider_loanauth.redaction import SecretStr
from tests.support.simulation import (
    EPOCH,
    LIFETIME,
    MIN_TTL,
    VALID,
    DiedError,
    Process,
    Simulation,
    active_of,
    settings_of,
)

TIMEOUT = settings_of().timeout
DEAD = TIMEOUT + CLAIM_MARGIN


def values(simulation):
    """Return the result of each process: the value of its credential, or the type of its error."""
    return [getattr(result, "value", type(result)) for process in simulation.processes for result in process.results]


def waits(simulation):
    return [process.ended_at[0] - process.start for process in simulation.processes]


def token(number):
    return f"made-up-token-{number}"


# --- one login ---


@pytest.mark.parametrize("stale", ["expired", "rejected"])
def test_processes_at_the_same_moment_make_one_login(stale, logs):
    simulation = Simulation([Process(stale=stale) for _ in range(6)]).run()
    assert simulation.service.requests == 1
    assert values(simulation) == [token(1)] * 6
    lines = logs.at("info")
    refreshed = "Refreshed the access token for all tasks that got it from task 'authenticate'."
    assert len([line for line in lines if refreshed in line]) == 1
    assert len([line for line in lines if "Took over the access token that process " in line]) == 5
    assert "made-up-token" not in logs.text


def test_a_process_that_comes_later_takes_the_credential_over_at_once():
    simulation = Simulation([Process(), Process(start=100)], delays=[0.01]).run()
    assert values(simulation) == [token(1)] * 2
    assert waits(simulation)[1] < 0.1


def test_each_expiry_needs_one_login():
    """The claim of the first refresh is still there at the second one, and is no obstacle."""
    simulation = Simulation([Process(start=index / 10) for index in range(4)], rounds=3).run()
    assert simulation.service.requests == 3
    assert values(simulation) == [token(1), token(2), token(3)] * 4
    for process in simulation.processes:
        for number, ended_at in enumerate(process.ended_at):
            assert ended_at - process.start - number * (LIFETIME + 200) < 5


def test_a_rejected_credential_of_the_register_is_refreshed():
    """The credential that another process has refreshed may be rejected too, such as after a session was ended."""
    simulation = Simulation([Process()]).run()
    refreshed = simulation.processes[0].results[0]
    again = [Process(start=simulation.time.now + index) for index in range(3)]
    for process in again:
        process.stale_credential = refreshed
    results = refresh_again(simulation, again, rejected=True)
    assert results == [token(2)] * 3
    assert simulation.service.requests == 2


def refresh_again(simulation, processes, *, rejected=False):
    """Let new processes refresh that have a credential of an earlier one; return the values they get."""

    def work(process):
        stale = active_of(process.stale_credential.value, simulation.time.monotonic() + LIFETIME)
        process.results.append(simulation.refresh(process, stale, rejected=rejected))

    simulation.run(processes, work)
    return [process.results[0].value for process in processes]


def test_an_api_secret_is_taken_over_with_the_company_id_of_the_connection():
    """An API secret has no known expiry, so only a rejected one is refreshed."""
    ppe = ApiKeyCredentials(api_key=SecretStr("made-up-key"), user_id="made-up-user", in_headers=False)
    settings = settings_of(method="ppe", credentials=ppe, company_id="made-up-company")
    secret = ApiSecret.seal("made-up-secret", valid=None, method="ppe", conn_id="made-up", issued_at=EPOCH)
    simulation = Simulation([Process(settings=settings)])

    def work(process):
        simulation.register_of(settings).write_refreshed(Claim.new(0.0), credential=secret, error=None, seconds=0.0)
        rejected = active_of("made-up-rejected", None, credential_type=ApiSecret, method="ppe", lifetime=None)
        process.results.append(simulation.refresh(process, rejected, rejected=True))

    simulation.run(work=work)
    [result] = simulation.processes[0].results
    assert (result.value, result.company_id, result.credential_type) == ("made-up-secret", "made-up-company", ApiSecret)
    assert (result.deadline, result.issued_here) == (None, False)
    assert simulation.service.requests == 0


# 128 processes, as in a large batch. The latencies are those of one request to the API server: median and spread.
RUNS = int(os.environ.get("LOANAUTH_RUNS", "3"))


@pytest.mark.parametrize(
    ("median", "sigma"), [(0.03, 0.5), (0.15, 1.0), (4.0, 0.7)], ids=["fast", "loaded", "hardly responding"]
)
def test_a_large_batch(median, sigma, monkeypatch):
    monkeypatch.setattr(shared._log, "disabled", True)
    logins = []
    for seed in range(RUNS):
        source = random.Random(seed)
        delays = [source.lognormvariate(math.log(median / 2), sigma) for _ in range(4001)]
        simulation = Simulation([Process() for _ in range(128)], delays=delays, conflicts=True, seed=seed).run()
        assert {type(result) for process in simulation.processes for result in process.results} == {ActiveCredential}
        logins.append(simulation.service.requests)
    print(f"\n{RUNS} runs: {sum(logins) / RUNS:.3f} logins, at most {max(logins)}")  # noqa: T201
    assert max(logins) <= 2
    assert sum(logins) / RUNS < 1.1 or RUNS < 20


def test_processes_with_different_settings_do_not_hinder_each_other_for_long():
    """Some may still have read the Connection before it was changed. Neither sees the claim of the other."""
    before, after = settings_of(), settings_of(username="another")
    simulation = Simulation([Process(settings=before), Process(settings=after, start=MIN_CLAIM_DELAY / 2)]).run()
    assert simulation.service.requests == 2
    assert max(waits(simulation)) < 60


# --- an advisory refresh: the credential is still valid ---


def test_only_one_process_waits_for_an_advisory_refresh():
    processes = [Process(stale="valid", start=index) for index in (0, 0.5, 2, 3)]
    simulation = Simulation(processes, login_seconds=[5], delays=[0.01]).run()
    assert simulation.service.requests == 1
    assert values(simulation) == [token(1), token(0), token(0), token(0)]
    assert max(waits(simulation)[1:]) < 0.1


def test_an_advisory_refresh_reads_the_register_rarely():
    """The valid credential counts as fresh for a while, so that nothing is read before each request."""
    simulation = Simulation([Process(stale="valid"), Process(stale="valid", start=2)], login_seconds=[20]).run()
    stale = simulation.processes[1].results[0]
    assert stale.value == token(0)
    simulation.time.now = simulation.processes[1].ended_at[0]
    with simulation.patched():
        assert stale.is_fresh(MIN_TTL)
        simulation.time.now += GRACE_PERIOD - 0.1
        assert stale.is_fresh(MIN_TTL)
        simulation.time.now += 0.2
        assert not stale.is_fresh(MIN_TTL)


def test_a_process_with_an_expired_credential_waits_for_an_advisory_refresh():
    processes = [Process(stale="valid"), Process(start=2)]
    simulation = Simulation(processes, login_seconds=[5]).run()
    assert values(simulation) == [token(1)] * 2
    assert simulation.service.requests == 1
    assert waits(simulation)[1] > 3


def test_an_expired_credential_of_the_register_does_not_replace_a_valid_one():
    simulation = Simulation([Process()])
    old = AccessToken.seal(
        "made-up-old",
        method="jwt",
        conn_id="made-up",
        issued_at=EPOCH - timedelta(seconds=LIFETIME + 10),
        expires_at=EPOCH - timedelta(seconds=10),
    )

    def work(process):
        register = simulation.register_of(process.settings)
        register.write_refreshed(Claim.new(0.0), credential=old, error=None, seconds=0.0)
        register.write_claim(Claim.new(1000.0))
        valid = active_of(token(0), simulation.time.monotonic() + 50)
        process.results.append(simulation.refresh(process, valid, rejected=False))

    simulation.run(work=work)
    assert values(simulation) == [token(0)]
    assert simulation.time.now < 1


def test_a_valid_credential_is_used_while_the_service_is_unavailable():
    simulation = Simulation(
        [Process(stale="valid"), Process(stale="valid", start=20), Process(start=20)],
        outcomes=["overloaded"],
        login_seconds=[0.01],
        max_attempts=1,
    ).run()
    assert values(simulation) == [token(0), token(0), UnavailableError]
    assert simulation.service.requests == 1


@pytest.mark.parametrize("outcome", ["rejected", "response"])
def test_a_valid_credential_hides_no_other_error(outcome):
    simulation = Simulation([Process(stale="valid"), Process(stale="valid", start=5)], outcomes=[outcome]).run()
    assert {*values(simulation)} <= {RejectedError, ResponseError}
    assert simulation.service.requests == 1


# --- a refresh that failed ---


IN_SECONDS = "repeat it in {} s at the earliest."
NEVER = "do not repeat it until the Connection changes, or the authenticating task is cleared."


@pytest.mark.parametrize(
    ("outcome", "error", "status", "end"),
    [
        ("rejected", RejectedError, 400, NEVER),
        ("response", ResponseError, 200, IN_SECONDS.format(57)),
        ("overloaded", UnavailableError, 429, IN_SECONDS.format(67)),
    ],
)
def test_the_others_get_the_same_error(outcome, error, status, end):
    simulation = Simulation(
        [Process(), Process(start=4.5)], outcomes=[outcome], login_seconds=[0.3], delays=[0.01], max_attempts=1
    ).run()
    assert simulation.service.requests == 1
    first, second = (process.results[0] for process in simulation.processes)
    assert (type(first), type(second)) == (error, error)
    assert "Nothing was sent" not in str(first)
    assert str(second) == (
        f"{str(first).removesuffix('.')}. Nothing was sent this time: process 0 sent the request, and the tasks that "
        f"share this login {end} (connection id 'made-up', method 'jwt')"
    )
    assert second.status == status
    if error is UnavailableError:
        assert 66 < second.retry_after < 67


@pytest.mark.parametrize(("outcome", "seconds"), [("response", 60), ("unavailable", GRACE_PERIOD), ("overloaded", 70)])
def test_an_error_ends(outcome, seconds):
    processes = [Process(), Process(start=seconds), Process(start=seconds + 3)]
    simulation = Simulation(processes, outcomes=[outcome, "ok"], max_attempts=1).run()
    assert isinstance(processes[1].results[0], (ResponseError, UnavailableError))
    assert values(simulation)[2] == token(1)
    assert simulation.service.requests == 2


@pytest.mark.parametrize("skew", [-30, 0, 30])
@pytest.mark.parametrize("outcome", ["settings", "interrupted"])
def test_an_error_of_one_process_ends_its_claim(outcome, skew):
    """Such as an error about a certificate that only this host does not trust."""
    simulation = Simulation([Process(), Process(start=1, skew=skew)], outcomes=[outcome, "ok"]).run()
    assert values(simulation) == [{"settings": SettingsError, "interrupted": KeyboardInterrupt}[outcome], token(1)]
    assert simulation.service.requests == 2
    assert waits(simulation)[1] < 10


def test_a_refresh_that_fails_keeps_the_last_credential():
    """It may still be valid for those who do not have it yet."""
    first = Process()
    simulation = Simulation([first]).run()
    rejected = Process(start=simulation.time.now + 1)
    rejected.stale_credential = first.results[0]
    simulation.service.outcomes = ["interrupted"]

    def work(process):
        with pytest.raises(KeyboardInterrupt):
            simulation.refresh(process, first.results[0], rejected=True)

    simulation.run([rejected], work)
    simulation.service.outcomes = ["ok"]
    late = Process(start=simulation.time.now + 1)
    simulation.run([late])
    assert late.results[0].value == token(1)
    assert simulation.service.requests == 2


def test_earlier_errors_of_this_process_hold():
    """Nothing is claimed or sent if this process must not send its credentials yet."""
    simulation = Simulation([Process()])
    remembered = ResponseError("made-up, remembered")

    def check():
        raise remembered

    simulation.check = check
    simulation.run()
    assert simulation.processes[0].results == [remembered]
    assert simulation.service.requests == 0
    assert simulation.store.counts["write"] == 0


def test_a_valid_credential_is_used_while_this_process_must_not_send_a_request():
    """The register has a credential that is valid, but not fresh."""
    simulation = Simulation([Process()]).run()
    late = [Process(start=LIFETIME - MIN_TTL / 2)]

    def check():
        raise UnavailableError("made-up, remembered", retry_after=100.0)

    def work(process):
        stale = active_of(token(0), simulation.time.monotonic() - 10)
        process.results.append(simulation.refresh(process, stale, rejected=False))

    simulation.check = check
    simulation.run(late, work)
    assert late[0].results[0].value == token(1)
    assert simulation.service.requests == 1


def test_a_rejection_is_not_repeated_after_a_restart():
    """Each task has a process of its own, which remembers nothing of the others."""
    processes = [Process(start=start) for start in (0, 0, 1, 50, 5_000)]
    simulation = Simulation(processes, outcomes=["rejected"]).run()
    assert values(simulation) == [RejectedError] * 5
    assert simulation.service.requests == 1


# --- a claim ---


def test_each_attempt_extends_the_claim():
    """Otherwise others would send more requests to a service that is overloaded."""
    simulation = Simulation([Process(), Process(start=2)], outcomes=["overloaded", "overloaded", "ok"]).run()
    assert values(simulation) == [token(1)] * 2
    assert (simulation.service.requests, simulation.service.authentications) == (3, 1)
    assert simulation.time.now > 2 * DEAD


@pytest.mark.parametrize("skew", [-30, 0, 30])
@pytest.mark.parametrize(("dies_at", "logins"), [(8, 1), (13, 2)], ids=["before its login", "during its login"])
def test_another_process_takes_over_from_a_dead_one(dies_at, logins, skew):
    """The age of a claim counts from when another process first reads it, whatever the clocks say."""
    processes = [Process(dies_at=dies_at, skew=skew), Process(start=0.5, skew=-skew)]
    simulation = Simulation(processes, login_seconds=[5], delays=[0.01]).run()
    assert processes[0].results == []
    assert values(simulation) == [token(1)]
    assert simulation.service.requests == logins
    assert DEAD < processes[1].ended_at[0] - processes[1].start < DEAD + 5 + MIN_CLAIM_DELAY + 2


def test_a_process_that_does_not_wait_takes_over_from_a_dead_one():
    """While its credential is valid, it tries again after each grace period, and must not count from the start."""
    dead, alive = Process(stale="valid", dies_at=6), Process(stale="valid", start=1)
    simulation = Simulation([dead, alive], delays=[0.01])
    waited = []

    def work(process):
        credential = active_of(token(0), simulation.time.monotonic() + VALID)
        while credential.value == token(0):
            began = simulation.time.now
            credential = simulation.refresh(process, credential, rejected=False)
            waited.append(simulation.time.now - began)
            simulation.time.sleep(GRACE_PERIOD)

    def until_death(process):
        with suppress(DiedError):
            work(process)

    simulation.run(work=until_death)
    assert simulation.service.requests == 1
    assert max(waited) < 5
    assert DEAD < simulation.time.now < DEAD + 2 * GRACE_PERIOD + 5


def test_a_slow_login_within_the_timeout_is_not_taken_over():
    simulation = Simulation([Process(), Process(start=0.5)], login_seconds=[TIMEOUT]).run()
    assert simulation.service.requests == 1


def test_a_slow_attempt_after_another_one_is_not_taken_over():
    """The first attempt fails at once; the second one takes as long as the timeout allows."""
    processes = [Process(), Process(start=0.5)]
    simulation = Simulation(processes, outcomes=["overloaded", "ok"], login_seconds=[1, TIMEOUT]).run()
    assert values(simulation) == [token(1)] * 2
    assert simulation.service.requests == 2


def test_an_error_that_is_not_remembered_is_not_shared():
    settings = settings_of(proxy=Proxy(url="http://proxy.example:3128"))
    processes = [Process(settings=settings), Process(settings=settings, start=5)]
    simulation = Simulation(processes, outcomes=["settings", "ok"]).run()
    assert values(simulation) == [SettingsError, token(1)]


def test_a_late_claim_is_withdrawn():
    """A process that was stopped for a while may overwrite the claim of another one that has finished."""
    # The write of the second process takes effect after the first one has refreshed.
    slow = {("process 1", "write", CLAIM_KEY): 10.0}
    simulation = Simulation([Process(), Process()], delays=[0.01], slow=slow, rounds=2).run()
    assert values(simulation) == [token(1), token(2)] * 2
    assert simulation.service.requests == 2
    # Nobody waits for the withdrawn claim at the next expiry.
    for process in simulation.processes:
        assert process.ended_at[1] - LIFETIME - 200 < 10 + 10


@pytest.mark.parametrize("outcome", ["overloaded", "rejected", "interrupted"])
def test_a_late_failure_does_not_replace_the_credential_of_another_process(outcome):
    """A request may take up to twice the timeout, and then another process has taken over."""
    processes = [Process(), Process(start=0.5), Process(start=70)]
    simulation = Simulation(processes, outcomes=[outcome, "ok"], login_seconds=[2 * TIMEOUT, 0.3], max_attempts=1)
    simulation.run()
    assert isinstance(processes[0].results[0], BaseException)
    assert values(simulation)[1:] == [token(1)] * 2
    assert simulation.service.requests == 2
    assert waits(simulation)[2] < 1


def test_a_claim_that_is_written_late_counts():
    """The first process waits until the second one, which had read before, has written its claim too."""
    slow = {("process 1", "write", CLAIM_KEY): MIN_CLAIM_DELAY - 0.1}
    simulation = Simulation([Process(), Process()], slow=slow, login_seconds=[5]).run()
    assert values(simulation) == [token(1)] * 2
    assert simulation.service.requests == 1


@pytest.mark.parametrize("step", range(4, 10))
def test_an_interrupted_process_withdraws_its_claim(step):
    """A task may be stopped, or reach its time limit, at any moment between the claim and the login."""
    simulation = Simulation([Process(), Process(start=3)], delays=[0.01])
    sleep = simulation.time.sleep

    def interrupted(seconds):
        sleep(seconds)
        if (simulation.time.current.name, simulation.time.current.steps) == ("process 0", step):
            simulation.time.current.steps = 1000
            raise KeyboardInterrupt

    simulation.time.sleep = interrupted
    simulation.run()
    assert values(simulation) == [KeyboardInterrupt, token(1)]
    assert simulation.service.requests == 1
    # The other process does not wait for a result, and claims the refresh at once.
    assert waits(simulation)[1] < 2


def test_the_time_of_waiting_is_limited():
    """A register that forgets everything, so that no claim succeeds."""
    simulation = Simulation([Process()])
    simulation.store.read = lambda key: None
    errors = []

    def work(process):
        try:
            simulation.shared(process, None, rejected=False).refresh()
        except RegisterError as error:
            errors.append(str(error))

    simulation.run(work=work)
    assert errors == [f"other processes took longer than {MAX_WAIT:.0f} s"]
    assert MAX_WAIT < simulation.time.now < MAX_WAIT + 10
    assert simulation.service.requests == 0


def test_waiting_processes_read_rarely():
    simulation = Simulation([Process(), Process(start=0.5)], login_seconds=[20], delays=[0.0]).run()
    min_seconds, max_seconds = POLL_SECONDS
    assert 20 / max_seconds < simulation.store.counts["read"] / 2 < 22 / min_seconds + 3


# --- the register cannot be used ---


@pytest.mark.parametrize("number", range(2))
def test_each_write_may_fail(number, logs):
    simulation = Simulation([Process()], writes={number: "error"}).run()
    assert values(simulation) == [token(1)]
    assert simulation.service.requests == 1
    assert "made-up-secret" not in logs.text


def test_a_result_that_is_not_written_is_used_anyway(logs):
    simulation = Simulation([Process()], writes={1: "error"}).run()
    assert values(simulation) == [token(1)]
    assert logs.at("warning") == [
        "The refresh cannot be shared with other tasks (StoreError): each process authenticates on its own."
    ]
    assert logs.at("info") == []


def test_a_result_is_written_again_after_a_conflict(logs):
    conflicts = dict.fromkeys(range(1, MAX_WRITES), "conflict")
    simulation = Simulation([Process(), Process(start=10)], writes=conflicts).run()
    assert values(simulation) == [token(1)] * 2
    assert simulation.service.requests == 1
    assert logs.at("warning") == []


def test_conflicts_do_not_last(logs):
    conflicts = dict.fromkeys(range(1, MAX_WRITES + 1), "conflict")
    simulation = Simulation([Process()], writes=conflicts).run()
    assert values(simulation) == [token(1)]
    assert simulation.store.counts["write"] == 1 + MAX_WRITES
    assert simulation.store.values[REFRESHED_KEY] == [None]


class ApiError(Exception):
    """An error of Airflow's SDK, in the form that has a status."""

    def __init__(self, status):
        super().__init__("https://made-up-secret@api.example")
        self.error = SimpleNamespace(detail={"status_code": status, "message": "made-up-secret"})


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ApiError(403), "ApiError, status 403"),
        (ApiError(404), "ApiError, status 404"),
        (ApiError(500), "ApiError, status 500"),
        (TimeoutError("made-up-secret"), "TimeoutError"),
        (RuntimeError("made-up-secret"), "RuntimeError"),
    ],
)
def test_an_error_of_the_store_is_named_without_its_text(error, text):
    simulation = Simulation([Process()])
    caught = []

    def fail(key):
        raise error

    def work(process):
        with pytest.raises(RegisterError) as raised:
            simulation.shared(process, None, rejected=False).refresh()
        caught.append(raised.value)

    simulation.store.read = fail
    simulation.run(work=work)
    assert str(caught[0]) == text
    assert caught[0].__cause__ is None
    assert caught[0].__suppress_context__
    assert simulation.service.requests == 0


@pytest.mark.parametrize(
    ("status", "failures", "used"),
    [(500, 2, True), (503, 2, True), (500, 3, False), (404, 1, False), (403, 1, False)],
)
def test_a_register_that_fails_for_a_moment_is_used(status, failures, used):
    """Such as while Airflow's API server is restarted."""
    simulation = Simulation([Process(), Process(start=20)])
    read, errors = simulation.store.read, [ApiError(status)] * failures

    def fail_first(key):
        if errors:
            raise errors.pop()
        return read(key)

    simulation.store.read = fail_first
    simulation.run()
    assert errors == []
    assert simulation.service.requests == (1 if used else 2)


@pytest.mark.parametrize("number", [2, 3])
def test_a_process_does_not_wait_for_its_own_claim(number):
    """The register fails for a moment after the claim was written."""
    simulation = Simulation([Process()])
    read, reads = simulation.store.read, []

    def fail_once(key):
        reads.append(key)
        if len(reads) == number + 1:
            raise ApiError(503)
        return read(key)

    simulation.store.read = fail_once
    simulation.run()
    assert values(simulation) == [token(1)]
    assert simulation.service.requests == 1
    assert waits(simulation)[0] < 10


def test_a_valid_credential_is_used_while_the_register_fails():
    simulation = Simulation([Process(stale="valid")])

    def fail(key):
        raise ApiError(503)

    simulation.store.read = fail
    simulation.run()
    assert values(simulation) == [token(0)]
    assert simulation.service.requests == 0


@pytest.mark.parametrize("proxy", [None, Proxy(url="http://proxy.example:3128")])
def test_only_the_407_of_a_proxy_of_the_connection_is_shared(proxy):
    """The proxy of the environment may be that of one host, and each host may have a password of its own for it."""
    settings = settings_of(proxy=proxy)
    processes = [Process(settings=settings), Process(settings=settings, start=20)]
    simulation = Simulation(processes, outcomes=["proxy", "ok"]).run()
    assert type(processes[0].results[0]) is SettingsError
    if proxy is None:
        assert values(simulation)[1] == token(1)
    else:
        assert processes[1].results[0].status == 407
    assert simulation.service.requests == (2 if proxy is None else 1)


def test_without_a_fernet_key_nothing_is_shared(fernet):
    fernet("")
    simulation = Simulation([Process()])
    caught = []

    def work(process):
        with pytest.raises(RegisterError, match=r"^SealError$") as raised:
            simulation.shared(process, None, rejected=False).refresh()
        caught.append(raised)

    simulation.run(work=work)
    assert len(caught) == 1
    assert simulation.service.requests == 0


def test_defaults_are_the_clock_of_this_machine():
    """Each parameter for tests has a default."""
    simulation = Simulation([Process()])
    register = simulation.register_of(settings_of())
    shared = SharedRefresh(
        register,
        settings_of(),
        stale=None,
        rejected=False,
        min_ttl=MIN_TTL,
        authenticate=lambda sleep: pytest.fail("nothing is sent"),
        check=lambda: None,
        claims={},
    )
    simulation.store.read = lambda key: 1 / 0
    with pytest.raises(RegisterError, match="ZeroDivisionError"):
        shared.refresh()
