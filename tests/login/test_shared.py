"""One login for several processes: who logs in, who waits, and what happens if something fails. In virtual time."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_provider_loanauth.connection.settings import PricingHeaders
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, ResponseError, UnavailableError
from airflow_provider_loanauth.login.lease import LEASE_SECONDS, MAX_WAIT, MIN_DELAY
from airflow_provider_loanauth.login.refusal import CLEARED_SECONDS, DAY
from tests.support.simulation import FIRST, LIFETIME, MIN_TTL, OLD, Process, Simulation, StoreError

TOKEN, TOKEN_2 = "made-up-token-1", "made-up-token-2"


def waits(simulation):
    return [process.waited for process in simulation.alive]


def failures(simulation):
    return [value for value in simulation.values if isinstance(value, type)]


def run(*processes, **options):
    simulation = Simulation([*processes], **options).run()
    return simulation.values, simulation.posts


@pytest.mark.parametrize("needs", ["first", "expired", "rejected"])
def test_processes_at_the_same_moment_make_one_login(needs, logs):
    simulation = Simulation([Process(needs=needs) for _ in range(6)]).run()
    assert (simulation.posts, simulation.values) == (1, [TOKEN] * 6)
    assert max(waits(simulation)) < 3
    assert len([line for line in logs.at("info") if "Took over the access token that host " in line]) == 5
    assert re.search(r"Waiting for the login of host [0-9]+, for (29|30) seconds at most", logs.text)
    assert "made-up-token" not in logs.text


@pytest.mark.parametrize(("needs", "after_401"), [("rejected", True), ("expired", False)])
def test_who_comes_later_reads_one_variable_and_gets_what_was_requested(needs, after_401):
    """A login alone takes half a second longer, with 20 ms for each request to the API server."""
    settings = replace(OLD, pricing=PricingHeaders("X-Secret", "X-Company", "made-up-company"))
    processes = [Process(settings=settings, needs=needs), Process(settings=settings, start=100)]
    simulation = Simulation(processes, login_seconds=[0.0]).run()
    assert processes[1].requests == 1
    assert waits(simulation)[0] < 0.55
    issued, taken = (process.results[0] for process in simulation.processes)
    for name in ("value", "conn_id", "method", "pricing", "issued_at", "expires_at", "lifetime", "after_401"):
        assert getattr(taken, name) == getattr(issued, name), name
    assert issued.expires_at == issued.issued_at + timedelta(seconds=LIFETIME)
    assert (issued.pricing, issued.after_401) == (settings.pricing, after_401)


def test_a_401_is_cured_also_if_the_clock_of_another_host_is_ahead():
    """That host has replaced a rejected credential; later, the service rejects the new one."""
    processes = [Process(needs="rejected", skew=3600.0, host="a"), Process(start=300, host="b")]
    simulation = Simulation(processes[:1]).run()

    def work(process):
        simulation.time.sleep(process.start - simulation.time.now)
        process.results.append(simulation.log_in(process).should_refresh_on(401))

    simulation.run(processes[1:], work)
    assert (processes[1].results, simulation.posts) == ([True], 1)


@pytest.mark.parametrize(
    ("needs", "age", "logins"),
    [
        # An authenticating task takes over what has half of its life left, and a refresh what is fresh.
        ("first", 0.49 * LIFETIME, 1),
        ("first", 0.51 * LIFETIME, 2),
        ("expired", LIFETIME - 2 * MIN_TTL - 5, 1),
        ("expired", LIFETIME - MIN_TTL + 5, 2),
    ],
)
def test_what_is_taken_over(needs, age, logins):
    assert run(Process(), Process(start=age, needs=needs))[1] == logins


def test_only_one_process_waits_while_the_old_credential_is_valid():
    processes = [Process(needs="valid", start=index) for index in (0, 0.5, 2, 3)] + [Process(needs="expired", start=2)]
    simulation = Simulation(processes, login_seconds=[5]).run()
    assert simulation.values == [TOKEN, FIRST, FIRST, FIRST, TOKEN]
    assert simulation.posts == 1
    assert max(waits(simulation)[1:4]) < 0.1
    assert waits(simulation)[4] > 3


@pytest.mark.parametrize(("outcome", "error", "holds"), [("rejected", RejectedError, DAY), ("401", ResponseError, 300)])
def test_a_process_does_not_repeat_what_was_refused(outcome, error, holds):
    """For a while; then it tries again. Of another refusal, the first pause is waited for."""
    earlier = [Process()] * (outcome == "401")
    outcomes = [outcome] * (1 + len(earlier)) + ["ok"]
    processes = [*earlier, Process(start=100, host="a")]
    simulation = Simulation(processes, outcomes=outcomes, pauses=[holds - 9, 11]).run()
    first, second, third = processes[-1].results
    assert (type(first), type(second), third.value) == (error, error, TOKEN)
    assert simulation.posts == len(outcomes)
    assert first.retry_after == holds
    assert 8 < second.retry_after < 10
    for one in (first, second):
        assert (one.status, one.conn_id, one.method, one.code) == (first.status, "made-up", "jwt", first.code)
        assert "The same values are not sent again before 2026-11-2" in str(one)
    # The cause comes first.
    assert re.match(r"made-up re[a-z]+\. The service said so to a at 2026-11-21T00:0\S+\. The same", str(second))


def test_a_task_waits_for_the_rest_of_a_short_pause():
    simulation = Simulation([Process(), Process(start=50)], outcomes=["401", "ok"]).run()
    assert 9 < waits(simulation)[1] < 14


@pytest.mark.parametrize("outcome", ["forbidden", "busy", "closed", "settings"])
def test_everything_else_is_not_remembered(outcome):
    """Neither by others, nor by the process that met it."""
    processes = [Process(), Process(start=9)]
    simulation = Simulation(processes, outcomes=[outcome, outcome, "ok"], max_attempts=1, pauses=[5]).run()
    assert [isinstance(one, type) for one in simulation.values] == [True, True, False, False]
    assert simulation.posts == 3


def test_a_cleared_task_tries_a_rejected_login_again_and_others_obey_what_it_meets():
    starts = [(0, False), (10, True), (20, True), (30, False), (CLEARED_SECONDS + 20, True)]
    processes = [Process(start=start, cleared=cleared) for start, cleared in starts]
    Simulation(processes, outcomes=["rejected"]).run()
    assert [" said so to " in str(process.results[0]) for process in processes] == [False, False, True, True, False]


@pytest.mark.parametrize("skew", [-3600, 3600])
def test_a_clear_is_good_for_one_request_of_its_try(skew):
    processes = [Process(), Process(start=10, needs="rejected", cleared=True, skew=skew)]
    simulation = Simulation(processes, outcomes=["rejected"], pauses=[CLEARED_SECONDS + 20] * 2).run()
    assert simulation.posts == 2
    assert {*simulation.values} == {RejectedError}


@pytest.mark.parametrize("outcome", ["busy", "rejected", "forbidden"])
def test_a_valid_credential_is_used_whatever_its_refresh_meets(outcome, logs):
    """The next authenticating task gets the error."""
    processes = [Process(needs="valid"), Process(needs="valid", start=20), Process(start=40, host="host 0")]
    simulation = Simulation(processes, outcomes=[outcome], max_attempts=1).run()
    assert simulation.values[:2] == [FIRST, FIRST]
    assert isinstance(processes[2].results[0], LoanAuthError)
    assert max(waits(simulation)[:2]) < 1
    assert "The access token cannot be refreshed, and is used until it expires: made-up " in "".join(logs.at("warning"))


@pytest.mark.parametrize("obeys", [False, True])
def test_a_token_that_got_a_401_is_not_handed_on(obeys):
    """Neither by a process whose login is rejected, nor by one that obeys the rejection of another process."""
    processes = [
        Process(),
        Process(start=50, needs="new" if obeys else "first"),
        Process(start=100),
        Process(start=200),
    ]
    simulation = Simulation(processes, outcomes=["ok", "rejected"])

    def work(process):
        needs, has = process.needs, None
        if process.start == 100:
            needs, has = "rejected", simulation.active(LIFETIME - 100, value=TOKEN)
        try:
            process.results.append(simulation.log_in(process, needs, has))
        except RejectedError as error:
            process.results.append(error)

    values = simulation.run(work=work).values
    assert values == [TOKEN, RejectedError if obeys else TOKEN, RejectedError, RejectedError]
    assert simulation.posts == 2


def test_a_token_that_got_a_401_is_not_handed_to_another_thread():
    simulation = Simulation([Process()], outcomes=["ok", "rejected"])

    def work(process):
        credential = simulation.log_in(process)
        simulation.time.sleep(1000)
        for needs, has in (("rejected", credential), ("expired", simulation.active(-10))):
            with pytest.raises(RejectedError):
                simulation.log_in(process, needs, has)

    assert simulation.run(work=work).posts == 2


@pytest.mark.parametrize("outcome", ["401", "rejected"])
def test_a_slow_refusal_does_not_replace_the_success_of_another_one(outcome):
    """Its request was sent before the other one's, and took 15 s."""
    processes = [Process(), Process(start=8), Process(start=16), Process(start=17, needs="new")]
    simulation = Simulation(processes, outcomes=[outcome, "ok"], login_seconds=[15.0, 0.3, 0.3]).run()
    assert isinstance(processes[0].results[0], LoanAuthError)
    assert (len(failures(simulation)), simulation.posts) == (1, 3)
    assert max(process.waited for process in processes[2:]) < 1


@pytest.mark.parametrize(("skew", "longest"), [(30.0, 62), (-30.0, 62), (3600.0, 3)])
def test_the_first_pause_holds_nobody_longer_if_the_clock_of_who_was_refused_is_wrong(skew, longest):
    processes = [Process(skew=skew), *(Process(start=5 + number) for number in range(9))]
    simulation = Simulation(processes, outcomes=["401", "ok"]).run()
    assert failures(simulation) == [ResponseError]
    assert max(waits(simulation)) < longest


@pytest.mark.parametrize(
    ("outcomes", "errors", "posts"),
    [
        # The others wait for the end of the first pause, or the thread tries again.
        (["401", "ok"], [ResponseError], 2),
        (["unavailable", "ok"], [], 2),
        # No more than one would send.
        (["unavailable"], [UnavailableError] * 20, 3),
    ],
)
def test_one_failure_of_one_thread_of_twenty_fails_no_other_one(outcomes, errors, posts):
    process = Process()
    simulation = Simulation([process], outcomes=outcomes)
    simulation.run([process] * 20)
    assert (failures(simulation), simulation.posts) == (errors, posts)


@pytest.mark.parametrize("reuse", [True, False])
def test_without_reuse_only_a_new_login_will_do(reuse):
    needs = "first" if reuse else "new"
    values, _ = run(Process(), *(Process(start=100 + number / 9, needs=needs) for number in range(6)))
    assert values == [TOKEN, *[TOKEN if reuse else TOKEN_2] * 6]


def test_the_wait_before_an_attempt_doubles(logs):
    simulation = Simulation([Process()], outcomes=["unavailable"])
    simulation.random.uniform = lambda _, high: high
    simulation.run()
    assert re.findall(r"failed: made-up outage\. Retrying in (\S+) s\.", logs.text) == ["1.0", "2.0"]


def test_a_request_that_hangs_holds_another_process_for_a_short_time():
    simulation = Simulation([Process(), Process(start=1)], login_seconds=[2 * OLD.timeout, 0.3]).run()
    assert (simulation.values, simulation.posts) == ([TOKEN_2, TOKEN], 2)
    assert LEASE_SECONDS - 1 < waits(simulation)[1] < LEASE_SECONDS + 4
    assert run(Process(), Process(start=1), login_seconds=[LEASE_SECONDS - 1]) == ([TOKEN] * 2, 1)


@pytest.mark.parametrize("step", range(4, 13))
def test_an_interrupted_process_ends_its_claim(step):
    """A task may be stopped, or reach its time limit, at any moment between the claim and the end of the login."""
    simulation = Simulation([Process(interrupted_at=step), Process(start=1.5)], login_seconds=[1.0]).run()
    assert simulation.values[0] is KeyboardInterrupt
    assert simulation.values[1] in {TOKEN, TOKEN_2}
    assert waits(simulation)[1] < LEASE_SECONDS + 3


@pytest.mark.parametrize("step", range(4, 13))
def test_an_interrupted_process_does_not_end_the_claim_of_another_one(step):
    processes = [Process(interrupted_at=step), Process(start=0.01), Process(start=0.64)]
    simulation = Simulation(processes, login_seconds=[1.0]).run()
    assert simulation.posts == 1 + processes[0].unreported


@pytest.mark.parametrize("number", [1, 20])
def test_a_store_that_loses_writes_after_a_login_fails_nobody(number):
    """Nor does it hold anybody for long: a claim that never stands is one of others."""
    processes = [Process(), *(Process(start=100 + one / 10, needs="new") for one in range(number))]
    simulation = Simulation(processes, writes=dict.fromkeys(range(4, 10**5), "lost")).run()
    assert {str(value)[:13] for value in simulation.values} == {"made-up-token"}
    assert max(waits(simulation)) < MAX_WAIT + 12


def test_a_process_that_goes_on_obeys_no_refusal_that_somebody_has_ended():
    """With ``forget``, or by deleting the Variable; or another process has logged in meanwhile."""
    simulation = Simulation([Process()], outcomes=["rejected", "ok"])

    def work(process):
        with pytest.raises(RejectedError):
            simulation.log_in(process)
        for texts in simulation.store.texts.values():
            texts.append(None)
        process.results.append(simulation.log_in(process))

    assert simulation.run(work=work).values == [TOKEN]


def test_a_login_does_not_wait_for_its_own_claim():
    """The first request took longer than a lease, and failed."""
    simulation = Simulation([Process()], outcomes=["unavailable", "ok"], login_seconds=[20.0, 0.3]).run()
    assert (simulation.values, simulation.posts) == ([TOKEN], 2)
    assert waits(simulation)[0] < 20.3 + 1 + 2 * MIN_DELAY + 0.5


def test_processes_that_wait_read_rarely():
    processes = [Process()] + [Process(start=0.6) for _ in range(9)]
    Simulation(processes, login_seconds=[MAX_WAIT - 1]).run()
    assert max(process.requests for process in processes[1:]) < 40


def test_without_a_fernet_key_each_process_logs_in_alone(fernet, logs):
    fernet("")
    values, posts = run(Process(), Process())
    assert ({*values}, posts) == ({TOKEN, TOKEN_2}, 2)
    assert "(Airflow has no Fernet key): each process logs in on its own." in logs.text


@pytest.mark.parametrize("number", range(5))
def test_a_write_that_fails_is_no_error_of_the_login(number, logs):
    """The fourth one is the result."""
    simulation = Simulation([Process()], writes={number: "error"}, outcomes=["unavailable", "ok"]).run()
    assert simulation.values == [TOKEN]
    assert simulation.posts == 2
    text = "The result of this login could not be shared (StoreError), so other tasks log in too."
    assert (text in logs.text) == (number == 3)
    assert "made-up-secret" not in logs.text


@pytest.mark.parametrize(
    ("faults", "logins"),
    [
        ({"writes": dict.fromkeys(range(99), "lost")}, 2),
        ({"writes": dict.fromkeys(range(99), "error")}, 2),
        # The second one has read the refusal before.
        ({"down": [(15, 1000)]}, 1),
    ],
)
def test_a_process_that_cannot_share_any_more_sends_a_rejected_password_once(faults, logins):
    """Such as each minute, when it tries to share again."""
    processes = [Process(), Process(start=10)]
    simulation = Simulation(processes, outcomes=["rejected"], pauses=[40] * 8, **faults).run()
    assert simulation.values == [RejectedError] * 18
    assert simulation.posts == logins


def test_a_process_whose_claim_was_slow_waits_for_a_faster_one():
    processes, slow = [Process(), Process(start=0.1)], {("host 0", "write", "claim"): 1.5}
    assert run(*processes, outcomes=["rejected"], slow=slow, login_seconds=[2.0])[1] == 1


def test_a_service_that_issues_the_same_token_again_gets_one_login():
    """After a 401 that is about the request."""
    simulation = Simulation([Process(start=4 * number, needs="rejected") for number in range(10)], outcomes=["same"])
    assert (simulation.run().posts, simulation.values) == (1, [FIRST] * 10)
    # Not the one that got the 401: the request is sent again.
    assert len({process.results[0].issued_at for process in simulation.processes}) == 1
    assert max(waits(simulation)) < 3


def test_a_read_that_fails_after_a_refusal_deletes_no_credential():
    processes = [Process(), Process(start=10, needs="new"), Process(start=20)]
    simulation = Simulation(processes, outcomes=["ok", "401"])
    read = simulation.store.read

    def fail_once_sent(key):
        if simulation.time.current.unreported:
            raise StoreError
        return read(key)

    simulation.store.read = fail_once_sent
    assert simulation.run().values == [TOKEN, ResponseError, TOKEN]
    assert simulation.posts == 2


def test_a_process_that_cannot_claim_does_not_end_the_claim_of_another_one():
    simulation = Simulation([Process(), Process()], writes={1: "error"}).run()
    assert simulation.values == [TOKEN, TOKEN]
    [claims] = [texts for key, texts in simulation.store.texts.items() if key.endswith(".claim")]
    # None, and then the claim of the first one, and its end.
    assert len(claims) == 3


@pytest.mark.parametrize(("needs", "seconds", "longest"), [("first", 5.0, 36), ("valid", 5.0, 5), ("valid", 34.0, 34)])
def test_a_slow_store_holds_a_login_for_its_calls_and_a_valid_token_for_one(needs, seconds, longest):
    simulation = Simulation([Process(needs=needs)], delays=[seconds, 0.0]).run()
    assert failures(simulation) == []
    assert waits(simulation)[0] <= longest
