"""One login for several processes: who logs in, who waits, and what happens if something fails. In virtual time."""

import re
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_provider_loanauth.connection.settings import PricingHeaders
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, ResponseError, UnavailableError
from airflow_provider_loanauth.login import claims, shared
from airflow_provider_loanauth.login.claims import LEASE, MAX_TURN, MIN_CLAIM_DELAY, RENEWAL_INTERVAL
from airflow_provider_loanauth.login.rules import CLEARED_FINAL_SECONDS, DAY, MIN_PAUSE
from airflow_provider_loanauth.service.error_responses import MAX_RETRY_AFTER
from tests.support.simulation import FIRST, LIFETIME, MIN_TTL, OLD, VALID, Process, Simulation

TOKEN, TOKEN_2 = "made-up-token-1", "made-up-token-2"


def waits(simulation):
    """Return how long each process that was not killed has waited."""
    return [process.waited for process in simulation.alive]


def run(*processes, **options):
    """Let processes log in; return what each of them gets, and how often the credentials were sent."""
    simulation = Simulation([*processes], **options).run()
    return simulation.values, simulation.posts


# --- one login ---


@pytest.mark.parametrize("needs", ["first", "expired", "rejected"])
def test_processes_at_the_same_moment_make_one_login(needs, logs):
    simulation = Simulation([Process(needs=needs) for _ in range(6)]).run()
    assert (simulation.posts, simulation.values) == (1, [TOKEN] * 6)
    assert max(waits(simulation)) < 3
    assert len([line for line in logs.at("info") if "Took over the access token that host " in line]) == 5
    waiting = [line for line in logs.at("info") if "Waiting for" in line]
    assert waiting
    # Who waits has seen whom it waits for, also if both wrote a claim.
    assert all(re.search(r"Waiting for the login of host [0-9]+, until 00:00:2[5-8] UTC", line) for line in waiting)
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


@pytest.mark.parametrize("delay", [4.8, 30.0])
def test_slow_variables_hold_a_login_for_a_short_time(delay, logs):
    """Seconds that each request for a Variable takes. What is written late is still shared."""
    simulation = Simulation([Process()], delays=[delay, 0.0], login_seconds=[0.0]).run()
    assert waits(simulation)[0] <= 12.0
    assert (simulation.posts, simulation.values) == (1, [TOKEN])
    assert "Logins cannot be shared with other tasks (Variables are slow): each" in logs.text
    simulation.run([Process(start=simulation.time.now + 100)])
    assert simulation.posts == 2 - (delay < 10)


@pytest.mark.parametrize("delay", [4.8, 30.0])
def test_a_valid_credential_is_used_until_it_expires_if_variables_are_slow(delay, logs):
    def work(process):
        has = simulation.active(50.0)
        for start in (0, 15, 30, 45, 60):
            simulation.time.sleep(start - simulation.time.now)
            process.results.append(simulation.log_in(process, "valid", has).value)
            longest.append(simulation.time.now - start)

    longest = []
    simulation = Simulation([Process()], delays=[delay, 0.0])
    simulation.run(work=work)
    assert (simulation.processes[0].results, simulation.posts) == ([FIRST] * 4 + [TOKEN], 1)
    assert max(longest[:4]) <= 1.5
    assert longest[4] <= 12.0
    assert "Variables are slow, so the valid credential is used until it expires" in logs.text


def test_slow_variables_of_a_valid_credential_are_tried_again_when_it_expires():
    """Twenty processes keep a valid credential because of one slow read. The password is wrong."""

    def work(process):
        has = simulation.active(VALID)
        process.results.append(simulation.log_in(process, "valid", has).value)
        simulation.time.sleep(VALID - simulation.time.now)
        with suppress(RejectedError):
            simulation.log_in(process, "expired", has)

    slow = {(f"host {number}", "read", "login"): 1.5 for number in range(20)}
    simulation = Simulation([Process() for _ in range(20)], outcomes=["rejected"], slow=slow)
    simulation.run(work=work)
    assert [process.results[0] for process in simulation.processes] == [FIRST] * 20
    assert simulation.posts == 1


def with_slow_connection(simulation, seconds):
    """Let each reading of the Connection take so many seconds."""

    def client(process, really=simulation.client):
        made = really(process)
        made.settings = lambda: simulation.store.wait(seconds) or process.settings
        return made

    simulation.client = client
    return simulation


@pytest.mark.parametrize(
    ("delay", "connection", "longest"),
    [
        (0.14, 0.0, 3.0),
        (0.4, 0.0, 12.0),
        (0.02, 0.9, 3.0),
        (0.06, 0.7, 3.0),
        (0.02, 2.0, 3.0),
    ],
)
def test_valid_credentials_leave_no_claim_if_variables_are_slow(delay, connection, longest):
    """Seconds for each Variable and for the Connection; and how long a task without a credential waits at most."""
    valid = [Process(start=number / 5, needs="valid") for number in range(50)]
    simulation = Simulation([*valid, Process(start=5.0)], delays=[delay, 0.0])
    with_slow_connection(simulation, connection).run()
    assert max(waits(simulation)[:-1]) <= 1.5
    assert waits(simulation)[-1] <= longest


def test_a_credential_that_expires_while_the_connection_is_read_waits_for_it():
    def work(process):
        process.results.append(simulation.log_in(process, "valid", simulation.active(0.5)))

    simulation = with_slow_connection(Simulation([Process()]), 2.0)
    assert simulation.run(work=work).values == [TOKEN]


@pytest.mark.parametrize(("needs", "value", "longest"), [("valid", FIRST, 1.1), ("expired", TOKEN, 2.9)])
def test_a_connection_is_read_once_and_while_a_credential_is_valid_for_a_second_at_most(needs, value, longest, logs):
    simulation = with_slow_connection(Simulation([Process(needs=needs)]), 2.0).run()
    assert simulation.values == [value]
    assert waits(simulation)[0] < longest
    assert ("until it expires: The Connection was not read within 1 s." in logs.text) == (needs == "valid")


def test_a_login_is_shared_although_its_credential_cannot_be_masked():
    def fail(_):
        raise TimeoutError

    def work(process):
        # Only here, because the simulation replaces it too.
        with pytest.MonkeyPatch.context() as patch, suppress(TimeoutError):
            patch.setattr(shared, "mask", fail)
            simulation.log_in(process, "expired", simulation.active(-10.0))

    simulation = Simulation([Process()])
    simulation.run(work=work)
    simulation.run([Process(start=simulation.time.now + 10)])
    assert simulation.posts == 1


# --- which credential is taken over ---


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


def test_another_process_keeps_what_has_just_replaced_a_rejected_credential():
    """It got the same credential from XCom, and has not replaced it itself."""
    simulation = Simulation([Process(needs="rejected")]).run()
    others = [Process(start=simulation.time.now + later) for later in (1, 50, 65)]

    def work(process):
        has = simulation.active(LIFETIME - process.start, value=TOKEN)
        process.results.append(simulation.log_in(process, "rejected", has))

    simulation.run(others, work)
    assert [process.results[0].value for process in others] == [TOKEN, TOKEN, TOKEN_2]


def test_a_401_replaces_a_credential_that_the_process_has_opened_twice():
    simulation = Simulation([Process()])

    def work(process):
        simulation.log_in(process, "expired", simulation.active(-10))
        simulation.time.sleep(100)
        has = simulation.active(LIFETIME - 100, value=TOKEN)
        process.results.append(simulation.log_in(process, "rejected", has))

    assert simulation.run(work=work).values == [TOKEN_2]


# --- a login that failed ---


@pytest.mark.parametrize(
    ("outcome", "error", "holds"),
    [
        ("rejected", RejectedError, DAY),
        ("401", ResponseError, MIN_PAUSE),
        ("response", ResponseError, MIN_PAUSE),
        ("overloaded", UnavailableError, 50),
        ("closed", UnavailableError, MAX_RETRY_AFTER),
    ],
)
def test_a_failure_holds_for_a_while(outcome, error, holds):
    """A task that tries once fails in a pause; after it, the next one tries."""
    left = 9 if holds < 60 else 99
    processes = [Process(start=start, host="a") for start in (0, holds - left, holds + 2)]
    simulation = Simulation(processes, outcomes=[outcome, "ok"], max_attempts=1).run()
    first, second, third = (process.results[0] for process in processes)
    assert (type(first), third.value) == (error, TOKEN)
    assert isinstance(second, error if holds > 60 else UnavailableError)
    assert simulation.posts == 2
    assert (first.sent, second.sent) == (True, False)
    assert str(first).startswith("made-up ")
    assert not re.search("Nothing was sent|Gave up", str(first))
    for one in (first, second):
        assert (one.status, one.conn_id, one.method) == (first.status, "made-up", "jwt")
    assert second.code == first.code
    assert left - 1 < second.retry_after < left + 1
    message = str(second)
    # The cause comes first.
    assert message.startswith(str(first.args[0]).partition(".")[0])
    assert "This was the result of a at 2026-11-21T00:00:00+00:00. Nothing was sent, because" in message
    if not isinstance(first, UnavailableError):
        rest = r"the same values rest until 2026-11-2\dT00:00:\d+\+00:00\. Before that, correct the Connection, or"
        assert re.search(rest, message)
        forget = r"clear the authenticating task, run `\S+ -m \S+ forget made-up`, or delete the Variable '\S+\.login'"
        assert re.search(forget, message)
        assert first.retry_after == holds
        assert re.match(r"made-up [a-z ]+\. The same values rest until ", str(first))
        assert re.search(forget, str(first))


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_tasks_of_a_host_that_claim_at_once_send_as_many_requests_as_one(max_attempts):
    processes = [Process(host="a") for _ in range(5)]
    simulation = Simulation(processes, outcomes=["unavailable"], login_seconds=[5.0], max_attempts=max_attempts).run()
    assert (simulation.posts, simulation.values) == (max_attempts, [UnavailableError] * 5)
    assert {process.results[0].retry_after for process in simulation.processes} == {None}


def test_who_gave_up_after_requests_of_its_host_knows_the_end_of_the_pause():
    processes = [Process(start=number / 10, host="a") for number in range(4)]
    simulation = Simulation(processes, outcomes=["unavailable", "unavailable", "closed"], login_seconds=[1.0]).run()
    errors = [process.results[0] for process in simulation.processes]
    assert any("This task gave up after 3 failed requests of this host" in str(error) for error in errors)
    assert all(3500 < error.retry_after <= 3600 for error in errors)
    assert all("made-up" in str(error) and ".." not in str(error) for error in errors)


def test_the_success_of_another_host_is_shared_after_an_unclear_response():
    processes = [Process(host="a"), Process(host="b", start=5), Process(host="a", start=10)]
    assert run(*processes, outcomes=["forbidden", "ok"]) == ([ResponseError, TOKEN, TOKEN], 2)


def test_a_cleared_task_tries_a_rejected_login_again_and_others_obey_what_it_meets():
    starts = [(0, False), (10, True), (20, True), (30, False), (CLEARED_FINAL_SECONDS + 20, True)]
    processes = [Process(start=start, cleared=cleared) for start, cleared in starts]
    Simulation(processes, outcomes=["rejected"]).run()
    errors = [process.results[0] for process in processes]
    assert [error.sent for error in errors] == [True, True, False, False, True]
    clear = r"clear the authenticating task(?: after 2026-11-21T(00:\d\d)\S+)?, run"
    times = [re.search(clear, str(error))[1] for error in errors]
    assert times == [None, "00:05", "00:05", "00:05", "00:10"]


@pytest.mark.parametrize("skew", [-3600, 0, 3600])
def test_a_clear_is_good_for_one_request_of_its_try(skew):
    processes = [Process(), Process(start=10, needs="rejected", cleared=True, skew=skew)]
    simulation = Simulation(processes, outcomes=["rejected"])

    def work(process):
        for _ in range(3 if process.cleared else 1):
            simulation._work(process)
            simulation.time.sleep(CLEARED_FINAL_SECONDS + 20)

    simulation.run(work=work)
    assert simulation.posts == 2
    assert {*simulation.values} == {RejectedError}


@pytest.mark.parametrize("outcome", ["overloaded", "rejected", "response", "unavailable"])
def test_a_valid_credential_is_used_whatever_its_refresh_meets(outcome, logs):
    """The next authenticating task gets the error."""
    processes = [Process(needs="valid"), Process(needs="valid", start=20), Process(start=40, host="host 0")]
    simulation = Simulation(processes, outcomes=[outcome], max_attempts=1).run()
    assert simulation.values[:2] == [FIRST, FIRST]
    assert isinstance(processes[2].results[0], LoanAuthError)
    assert max(waits(simulation)[:2]) < 1
    assert "The access token cannot be refreshed, and is used until it expires: made-up " in logs.text


@pytest.mark.parametrize("obeys", [False, True])
def test_a_token_that_got_a_401_is_not_handed_on(obeys):
    """Neither by a process whose login is rejected, nor by one that obeys the rejection of another process."""
    simulation = Simulation([Process(start=at) for at in (0, 50, 100, 200)], outcomes=["ok", "rejected"])

    def work(process):
        try:
            if process.start == 50 and obeys:
                simulation.authenticate(process)
            elif process.start == 100:
                has = simulation.active(LIFETIME - 100, value=TOKEN)
                process.results.append(simulation.log_in(process, "rejected", has))
            else:
                process.results.append(simulation.log_in(process))
        except RejectedError as error:
            process.results.append(error)

    values = simulation.run(work=work).values
    assert values == [TOKEN, RejectedError if obeys else TOKEN, RejectedError, RejectedError]
    assert simulation.posts == 2


def test_a_process_that_obeys_a_rejection_reads_it_again_after_ten_seconds():
    simulation = Simulation([Process()], outcomes=["rejected"])

    def work(process):
        for start in (0, 5, 20):
            simulation.time.sleep(start - simulation.time.now)
            before = process.requests
            with suppress(RejectedError):
                simulation.log_in(process)
            reads.append(process.requests - before)

    reads = []
    simulation.run(work=work)
    assert reads[1:] == [0, 1]


def test_a_rejection_that_a_process_has_seen_does_not_end_a_later_success():
    """While it still knows the rejection, a cleared task logs in, which makes the old token of the process invalid."""
    processes = [Process(), Process(start=3000), Process(start=3500, cleared=True), Process(start=3520)]
    simulation = Simulation(processes, outcomes=["ok", "rejected", "ok"])

    def work(process):
        if process.start == 3000:
            with pytest.raises(RejectedError):
                simulation.authenticate(process)
            return
        has = simulation.log_in(process)
        if process.start == 0:
            simulation.time.sleep(3498 - simulation.time.now)
            assert simulation.log_in(process, "valid", has) is has
            simulation.time.sleep(4)
            has = simulation.log_in(process, "rejected", has)
        process.results.append(has)

    assert simulation.run(work=work).values == [TOKEN_2] * 3


def test_a_credential_beside_an_error_keeps_its_age():
    """Others may still use it, until it expires."""
    later = LIFETIME - 2 * MIN_TTL
    processes = [Process(), Process(start=later - 99)]
    processes += [Process(start=later + add, needs="expired") for add in (-9, 69)]
    values, _ = run(*processes, outcomes=["ok", "closed"], max_attempts=1)
    assert values == [TOKEN, UnavailableError, TOKEN, UnavailableError]


@pytest.mark.parametrize("earlier", [[], ["ok"]])
def test_mapped_calls_that_need_the_response_send_a_rejected_password_once(earlier):
    """Also if it was right before: the last credential says nothing about now."""
    simulation = Simulation([Process(start=9 + number / 50) for number in range(30)], outcomes=[*earlier, "rejected"])
    simulation.run([Process() for _ in earlier])

    def work(process):
        with pytest.raises(RejectedError):
            simulation.authenticate(process)

    simulation.run(work=work)
    assert simulation.posts == len(earlier) + 1


@pytest.mark.parametrize("reuse", [True, False])
def test_without_reuse_only_a_new_login_will_do(reuse):
    needs = "first" if reuse else "new"
    values, _ = run(Process(), *(Process(start=100 + number / 9, needs=needs) for number in range(6)))
    assert values == [TOKEN, *[TOKEN if reuse else TOKEN_2] * 6]


def test_a_request_that_began_before_a_task_is_no_attempt_of_it():
    processes = [Process(host="a"), Process(start=5, host="a")]
    values = run(*processes, outcomes=["unavailable", "ok"], login_seconds=[10], max_attempts=1)
    assert values == ([UnavailableError, TOKEN], 2)


def test_who_needs_a_response_does_not_wait_for_the_others_once_one_has_succeeded():
    simulation = Simulation([Process() for _ in range(30)], login_seconds=[1])
    simulation.run(work=simulation.authenticate)
    assert (simulation.posts, simulation.time.now < 9) == (30, True)


def test_the_wait_before_an_attempt_doubles(logs):
    simulation = Simulation([Process()], outcomes=["unavailable"])
    simulation.random.uniform = lambda _, high: high
    simulation.run()
    assert re.findall(r"failed: made-up outage\. Retrying in (\S+) s\.", logs.text) == ["1.0", "2.0"]


@pytest.mark.parametrize("extra", [0, 1])
def test_a_wait_is_as_long_as_the_service_asked_and_at_most_a_second_longer(extra, logs):
    """So that not all processes try at the same moment. The second one waits in the pause of the first one."""
    processes = [Process(host="a"), Process(start=2, host="a")]
    simulation = Simulation(processes, outcomes=["overloaded", "ok"])
    simulation.random.uniform = lambda *limits: limits[extra]
    simulation.run()
    assert f"Retrying in {50 + extra:.1f} s." in logs.text
    assert simulation.posts == 2
    assert 48 <= waits(simulation)[1] < 52
    # It looks now and then.
    assert processes[1].steps < 60


def test_who_waits_for_the_end_of_a_pause_looks_whether_another_host_has_logged_in():
    processes = [Process(host="a"), Process(start=2, host="a"), Process(start=9, host="b")]
    simulation = Simulation(processes, outcomes=["overloaded", "ok"]).run()
    assert (simulation.values, simulation.posts) == ([TOKEN] * 3, 2)
    assert 7 < waits(simulation)[1] < 20
    # Nobody holds the other host meanwhile.
    assert waits(simulation)[2] < 3


# --- claims ---


def test_a_request_that_hangs_holds_another_host_for_a_short_time():
    """Its process is alive, and renews its claim until the time of one turn is over."""
    simulation = Simulation([Process(), Process(start=1)], login_seconds=[2 * OLD.timeout, 0.3]).run()
    assert (simulation.values, simulation.posts) == ([TOKEN_2, TOKEN], 2)
    assert MAX_TURN - 1 < waits(simulation)[1] < MAX_TURN + 4
    assert run(Process(), Process(start=1), login_seconds=[MAX_TURN - 1]) == ([TOKEN] * 2, 1)


@pytest.mark.parametrize("step", range(4, 13))
def test_an_interrupted_process_ends_its_claim(step):
    """A task may be stopped, or reach its time limit, at any moment between the claim and the end of the login."""
    simulation = Simulation([Process(interrupted_at=step), Process(start=1.5)], login_seconds=[1.0]).run()
    assert simulation.values[0] is KeyboardInterrupt
    assert simulation.values[1] in {TOKEN, TOKEN_2}
    assert waits(simulation)[1] < 4


@pytest.mark.parametrize("slow", [("write", MIN_CLAIM_DELAY - 0.05), ("read", 5.0)])
def test_a_claim_that_is_written_late_counts_and_one_that_is_read_late_does_not(slow):
    """The first process waits until the second one has written its claim too; or has ended, which the other reads."""
    slow = {("host 1", slow[0], "claim"): slow[1]}
    assert run(Process(), Process(), slow=slow, login_seconds=[5]) == ([TOKEN] * 2, 1)


def test_a_claim_does_not_count_if_another_process_has_logged_in_meanwhile():
    """Also if there was a credential before. Nobody waits for the claim."""
    processes = [Process(), *(Process(start=start, needs="new") for start in (100, 100, 160))]
    simulation = Simulation(processes, slow={("host 1", "read", "claim"): 5.0}).run()
    assert simulation.values == [TOKEN, TOKEN_2, TOKEN_2, "made-up-token-3"]
    assert waits(simulation)[3] < 3


def test_a_claim_of_a_host_that_finds_the_service_unavailable_holds_no_other_host():
    """Its second request is under way when the other one starts."""
    simulation = Simulation(
        [Process(host="bad"), Process(start=18, host="good")],
        outcomes=lambda host, _: "unavailable" if host == "bad" else "ok",
    )
    simulation.service.seconds_of = lambda host: 14.0 if host == "bad" else 0.3
    simulation.run()
    assert waits(simulation)[1] < 8


def test_a_turn_ends_before_a_request_that_hangs():
    """Another task of the same host then sends its own."""
    processes = [Process(host="one"), Process(start=1, host="one")]
    simulation = Simulation(processes, login_seconds=[60.0]).run()
    assert simulation.posts == 2
    assert waits(simulation)[1] < MAX_TURN + 60 + 5


def test_a_claim_that_met_a_conflict_is_no_turn():
    assert run(Process(), Process(), writes={0: "conflict", 1: "conflict"}) == ([TOKEN] * 2, 1)


def test_a_claim_that_is_written_too_late_is_ended():
    """By then, the other process has logged in. Nobody waits for that claim at the next expiry."""
    slow = {("host 1", "write", "claim"): 5.0}
    simulation = Simulation([Process(), Process()], slow=slow, rounds=2).run()
    assert simulation.posts == 2
    assert max(process.ended_at[1] - LIFETIME - 200 for process in simulation.processes) < 5


@pytest.mark.parametrize(("can_start_threads", "longest"), [(True, 3), (False, LEASE + 3)])
def test_a_claim_whose_end_takes_too_long_is_ended_nevertheless(can_start_threads, longest):
    """Without a thread, with its lease."""
    simulation = Simulation([Process(needs="valid"), Process(start=1.0)])
    reads = []

    def read(key, really=simulation.store.read):
        reads.append(key)
        # The third one is the confirmation of its claim.
        if simulation.time.current.host == "host 0" and len(reads) == 3:
            simulation.time.sleep(2.0)
        return really(key)

    def start(function, *, name, really=simulation.time.start):
        if simulation.time.current.host == "host 0" and not can_start_threads:
            raise RuntimeError
        really(function, name=name)

    simulation.store.read, simulation.time.start = read, start
    assert simulation.run().values == [FIRST, TOKEN]
    assert waits(simulation)[1] < longest


def test_a_login_with_a_valid_credential_leaves_its_turn_if_its_claim_is_late():
    slow = {("host 0", "write", "claim"): MIN_CLAIM_DELAY + 0.1}
    assert run(Process(needs="valid"), slow=slow) == ([FIRST], 0)


@pytest.mark.parametrize(("may_leave_calls", "seconds"), [(True, 1), (False, 20)])
def test_the_end_of_a_turn_waits_for_a_slow_renewal(may_leave_calls, seconds, monkeypatch):
    """For a second, if this thread may call Airflow meanwhile."""
    monkeypatch.setattr(claims, "may_leave_calls", lambda: may_leave_calls)
    simulation = Simulation([Process()], login_seconds=[RENEWAL_INTERVAL + 0.1])

    def write(*arguments, really=simulation.store.write):
        if not simulation.time.thread.is_main:
            simulation.time.sleep(20)
        return really(*arguments)

    simulation.store.write = write
    assert simulation.run().values == [TOKEN]
    assert seconds < waits(simulation)[0] - RENEWAL_INTERVAL < seconds + 1


def test_the_turns_of_other_hosts_hold_a_login_for_the_time_of_one_turn_in_all(logs):
    """The error of each concerns that host alone. The turns are too short for a renewal."""
    processes = [Process(start=number / 10) for number in range(14)]
    simulation = Simulation(processes, outcomes=["settings"], login_seconds=[1.8]).run()
    assert max(waits(simulation)) < MAX_TURN + 1.8 + 3
    latest = [re.search("until 00:00:([0-9]+) UTC", line) for line in logs.at("info")]
    assert {int(one[1]) for one in latest if one} <= {*range(25, 29)}


def test_a_login_that_has_waited_for_others_enough_waits_for_no_request_that_hangs():
    processes = [Process(start=number / 10) for number in range(3)]
    simulation = Simulation(processes, outcomes=["response", "ok"], login_seconds=[7.0, 60.0, 0.3]).run()
    assert sorted(waits(simulation))[1] < MAX_TURN + 3


def test_a_store_that_loses_writes_after_a_login_fails_nobody(logs):
    processes = [Process(), *(Process(start=100 + number / 10, needs="new") for number in range(20))]
    simulation = Simulation(processes, writes=dict.fromkeys(range(4, 999), "lost")).run()
    assert {str(value)[:13] for value in simulation.values} == {"made-up-token"}
    assert max(waits(simulation)) < 10
    assert "(a Variable that was written cannot be read): each process logs in on its own" in logs.text


def test_processes_that_wait_read_rarely():
    processes = [Process()] + [Process(start=0.6) for _ in range(9)]
    Simulation(processes, login_seconds=[MAX_TURN - 1]).run()
    assert max(process.requests for process in processes[1:]) < 18


def test_a_process_that_can_start_no_thread_logs_in_alone(logs):
    def fail(*_, **__):
        raise RuntimeError

    simulation = Simulation([Process()])
    simulation.time.start = fail
    assert simulation.run().values == [TOKEN]
    assert "(no thread can be started): each process logs in on its own" in logs.text


# --- errors of the store ---


def test_after_variables_could_not_be_used_they_are_left_alone_for_a_minute():
    simulation = Simulation([Process()], down=[(0, 10)])

    def work(process):
        for start in (0, 30, 70):
            simulation.time.sleep(start - simulation.time.now)
            before = process.requests
            simulation.log_in(process)
            uses.append(process.requests > before)

    uses = []
    simulation.run(work=work)
    assert uses == [True, False, True]


def test_without_a_fernet_key_each_process_logs_in_alone(fernet, logs):
    fernet("")
    assert run(Process(), Process()) == ([TOKEN, TOKEN_2], 2)
    assert "(Airflow has no Fernet key): each process logs in on its own." in logs.text


@pytest.mark.parametrize("number", range(7))
def test_a_write_that_fails_is_no_error_of_the_login(number, logs):
    """The second and the third one are a renewal of the claim, and the result of the first request."""
    options = {"outcomes": ["unavailable", "ok"], "login_seconds": [RENEWAL_INTERVAL + 0.5]}
    simulation = Simulation([Process()], writes={number: "error"}, **options).run()
    assert simulation.values == [TOKEN]
    assert simulation.posts == 2
    text = "The result of this login could not be shared (StoreError), so other tasks log in too."
    assert (text in logs.text) == (number == 2)
    assert "made-up-secret" not in logs.text


@pytest.mark.parametrize(
    ("faults", "logins"),
    [
        ({"writes": dict.fromkeys(range(99), "lost")}, 2),
        ({"writes": dict.fromkeys(range(99), "error")}, 2),
        ({"down": [(15, 1000)]}, 1),
    ],
)
def test_a_process_that_cannot_share_any_more_sends_a_rejected_password_once(faults, logins):
    """Such as each minute, when it tries to share again."""
    simulation = Simulation([Process(), Process(start=10)], outcomes=["rejected"], **faults)

    def work(process):
        for _ in range(9):
            simulation._work(process)
            simulation.time.sleep(40)

    assert simulation.run(work=work).values == [RejectedError] * 18
    assert simulation.posts == logins


def test_a_rejection_is_written_although_variables_stall_at_that_moment():
    simulation = Simulation([Process(), Process(start=60)], outcomes=["rejected"], login_seconds=[2.0])
    slow = {("host 0", "read", "login"): 12.0}

    def send(settings, *, on_failure, really=simulation.service.authenticate):
        simulation.store._slow.update(slow)
        slow.clear()
        return really(settings, on_failure=on_failure)

    simulation.service.authenticate = send
    assert simulation.run().values == [RejectedError] * 2
    assert simulation.posts == 1


def test_a_process_that_cannot_claim_does_not_end_the_claim_of_another_one():
    processes, slow = [Process(), Process(), Process(start=7)], {("host 1", "write", "claim"): 5.0}
    assert run(*processes, writes={1: "error"}, slow=slow, login_seconds=[12])[1] == 2


def test_a_failure_does_not_replace_a_rejection_that_came_meanwhile():
    """The first request takes longer than its claim holds."""
    processes = [Process(), Process(start=5), Process(start=300)]
    simulation = Simulation(processes, outcomes=["unavailable", "rejected", "ok"], login_seconds=[100, 1]).run()
    assert (simulation.values, simulation.posts) == ([RejectedError] * 3, 2)


def test_a_process_that_cannot_claim_obeys_a_rejection_that_it_can_read():
    slow = {("host 1", "write", "claim"): 5.0}
    values, sent = run(Process(), Process(), writes={1: "error"}, slow=slow, outcomes=["rejected"])
    assert (values, sent) == ([RejectedError] * 2, 1)


def test_who_could_not_read_the_row_does_not_replace_its_credential():
    """A host that is refused reads the Variable once for longer than a login waits."""
    processes = [Process(host="a"), Process(start=600, host="b"), Process(start=655, host="c")]
    simulation = Simulation(
        processes, outcomes=lambda host, _: "401" if host == "b" else "ok", slow={("b", "read", "login"): 11.0}
    ).run()
    assert (simulation.values, simulation.posts) == ([TOKEN, ResponseError, TOKEN], 2)


def test_who_cannot_claim_shares_a_refusal_that_may_pass():
    processes = [Process(start=60.0 * number, host=f"host {number}") for number in range(60)]
    slow = {(process.host, "write", "claim"): 5.0 for process in processes}
    assert run(*processes, slow=slow, outcomes=["401"], max_steps=10**6)[1] <= 6


def test_after_a_conflict_the_result_of_the_other_process_stands(logs):
    simulation = Simulation([Process(), Process()], conflicts=True)
    simulation.run(work=simulation.authenticate)
    simulation.run([Process(start=10)])
    assert simulation.posts <= 2
    assert "could not be shared" not in logs.text
