"""Sharing a login fails no task that would have succeeded on its own, but for refusals. In virtual time."""

from random import Random

import pytest

from airflow_provider_loanauth.exceptions import LoanAuthError
from tests.support.simulation import LIFETIME, MIN_TTL, Process, Simulation

pytestmark = [pytest.mark.once, pytest.mark.slow, pytest.mark.usefixtures("no_log_lines")]
ENOUGH = 10**7


def batch(number, seconds):
    return [Process(start=seconds * one / number) for one in range(number)]


def run(processes, outcomes, **options):
    return Simulation(processes, outcomes=outcomes, max_steps=ENOUGH, **options).run()


def failed(simulation, of=lambda process: True):
    return sum(isinstance(one, LoanAuthError) for p in simulation.processes if of(p) for one in p.results)


def until(seconds, outcome):
    return lambda _, now: outcome if now < seconds else "ok"


@pytest.mark.parametrize("seconds", [10, 30, 120, 600])
@pytest.mark.parametrize("outcome", ["401", "forbidden"])
def test_a_fault_harms_for_at_most_six_times_its_own_length(outcome, seconds):
    """And a minute. A task each 30 seconds."""
    number = (7 * seconds + 600) // 30
    simulation = run(batch(number, 30 * number), until(seconds, outcome))
    assert failed(simulation) > 0
    assert failed(simulation, lambda process: process.start > 60 + 6 * seconds) == 0


@pytest.mark.parametrize(("outcome", "most"), [("401", 8), ("rejected", 1)])
def test_how_often_values_that_are_wrong_for_good_are_sent(outcome, most):
    """In a day, with a task each five minutes, and in the first ten minutes, with a task each 10 seconds."""
    simulation = run(batch(280, 84_000) + batch(60, 600), [outcome])
    assert 1 <= simulation.posts <= most
    assert failed(simulation) == 340


@pytest.mark.parametrize("outcome", ["unavailable", "forbidden"])
def test_one_host_of_two_cannot_log_in(outcome):
    """A refused connection, or a login page of a gateway. Two tasks at a time need a new login."""
    processes = [Process(start=one // 2 * 40.0, host=f"host {one % 2}", needs="new") for one in range(200)]
    simulation = run(processes, lambda host, _: outcome if host == "host 1" else "ok")
    assert failed(simulation, lambda process: process.host == "host 0") == 0
    assert simulation.posts > 100


@pytest.mark.parametrize("outcome", ["forbidden", "unavailable"])
@pytest.mark.parametrize("seconds", [1, 200])
def test_good_and_bad_pods(outcome, seconds):
    """In a burst, or one after another. The first one is bad."""
    order = Random(seconds)
    processes = [Process(start=order.uniform(0.1, seconds), host=f"pod {one}") for one in range(39)]
    processes += [Process(host="pod 99")]
    simulation = run(processes, lambda host, _: outcome if int(host[4:]) % 2 else "ok")
    assert simulation.service.errors
    assert failed(simulation, lambda process: int(process.host[4:]) % 2 == 0) == 0


@pytest.mark.parametrize("takes", [0.05, 30.0])
def test_an_outage_holds_nobody_for_much_longer_than_it_would_alone(takes):
    """300 pods start within a minute; each sends what it would send alone, at most."""
    simulation = run(batch(300, 60), ["unavailable"], login_seconds=[takes])
    assert simulation.posts <= 900
    assert failed(simulation) == 300
    # Alone, three attempts take up to 7 seconds more than their requests.
    assert max(process.waited for process in simulation.processes) < 3 * takes + 7 + 35


@pytest.mark.parametrize(
    ("outcome", "kills", "takes", "longest"),
    [("ok", 1, 0.3, 20), ("ok", 2, 2.0, 40), ("rejected", 1, 2.0, 40), ("rejected", 2, 0.3, 45)],
)
def test_processes_that_are_killed_during_their_request(outcome, kills, takes, longest):
    """The password is sent once more for each of them."""
    simulation = Simulation(batch(60 + kills, 3), outcomes=[outcome], login_seconds=[takes], max_steps=ENOUGH)
    simulation.service.kills = kills
    simulation.run()
    assert failed(simulation) == (60 if outcome == "rejected" else 0)
    assert max(process.waited for process in simulation.alive) < longest
    assert simulation.posts == 1 + kills


@pytest.mark.parametrize("slow", [None, {("host 7", "write", "claim"): 1.5}])
def test_a_slow_write_of_a_claim_sends_no_rejected_password_twice(slow):
    """Of the requests for Variables, 15 % take a second more; or one write does."""
    for seed in range(6):
        source = Random(seed)
        stalls = [not slow and source.random() < 0.15 for _ in range(2000)]
        # Before each effect, and after it.
        delays = [delay for stall in stalls for delay in (0.01 + stall * source.uniform(0.5, 1.5), 0.01)]
        processes = [Process(start=source.uniform(0, 1)) for _ in range(20)]
        simulation = run(processes, ["rejected"], login_seconds=[2.0], delays=delays, seed=seed, slow=slow)
        # A process that is slower after its claim than before it may log in beside another one.
        assert simulation.posts <= 2, seed


@pytest.mark.parametrize("number", [100, 1000])
def test_an_expiry_without_a_herd(number):
    """Processes that send requests all the time: each asks for a new token once, at a moment of its own."""
    processes = batch(number, 0)
    simulation = Simulation(processes, max_steps=ENOUGH)

    def work(process):
        has = simulation.active(200.0)
        for _ in range(100):
            simulation.time.sleep(2)
            if not has.is_fresh(MIN_TTL):
                has = simulation.log_in(process, "valid", has)
        process.results.append(has)

    simulation.run(work=work)
    assert simulation.posts == 1
    assert {*simulation.values} == {"made-up-token-1"}
    assert sum(process.requests for process in processes) < 1.3 * number + 20
    assert simulation.time.now < LIFETIME


@pytest.mark.parametrize(
    ("number", "options", "most"),
    [
        *((number, {"delays": [call / 2]}, 1) for number in (20, 300) for call in (0.02, 0.3, 1.0)),
        *((20, {"delays": [call, 0.0]}, 1) for call in (3.1, 5.0)),
        *((60, {"down": [(begin, begin + 0.2)]}, 1) for begin in (0.5, 1.0, 2.0, 3.0)),
        *((300, {"stall": (0.9, 0.9 + seconds)}, 3) for seconds in (1, 3, 8)),
        (60, {"login_seconds": [8.0]}, 2),
        (60, {"login_seconds": [20.0]}, 5),
    ],
)
def test_how_often_many_processes_send_a_wrong_password(number, options, most):
    """Whether the calls of the store are slow, it fails or stalls for all, or the service is slow."""
    for seed in range(2):
        order = Random(seed)
        processes = [Process(start=order.uniform(0, 2)) for _ in range(number)]
        simulation = run(processes, ["rejected"], seed=seed, **({"login_seconds": [1.0]} | options))
        assert 1 <= simulation.posts <= most
        assert failed(simulation) == number
