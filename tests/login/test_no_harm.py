"""Sharing a login fails no task that would have succeeded on its own.

The exceptions are a password that the service has rejected, and the pause after an unclear response or when the service
asked to wait. In virtual time; ``outcomes`` are those of a host at a time. Which failure holds for whom is in
test_rules.py.
"""

from random import Random

import pytest

from airflow_provider_loanauth.exceptions import LoanAuthError
from tests.support.simulation import LIFETIME, MIN_TTL, OLD, Process, Simulation

ENOUGH = 10**7


def batch(number, seconds, **options):
    """Return processes that start within some seconds; an option may be a function of their number."""
    return [
        Process(start=seconds * one / number, **{name: v(one) if callable(v) else v for name, v in options.items()})
        for one in range(number)
    ]


def run(processes, outcomes, **options):
    return Simulation(processes, outcomes=outcomes, max_steps=ENOUGH, **options).run()


def failed(simulation, of=lambda process: True):
    """Return how many of these processes got an error."""
    return sum(isinstance(one, LoanAuthError) for p in simulation.processes if of(p) for one in p.results)


def posts(simulation):
    return simulation.service.posts[OLD]


def on(host, outcome):
    """Return the outcomes of a service that one host cannot reach."""
    return lambda of, _: outcome if of == host else "ok"


def until(seconds, outcome):
    """Return the outcomes of a service that fails for some seconds."""
    return lambda _, now: outcome if now < seconds else "ok"


@pytest.mark.parametrize("outcome", ["unavailable", "forbidden", "settings"])
def test_one_host_of_two_cannot_reach_the_service(outcome):
    """A refused connection, a login page, a certificate. Two tasks at a time need a new login, and try once."""
    tasks = [(one // 2 * 40.0, f"host {one % 2}") for one in range(2400)]
    processes = [Process(start=start, host=host, needs="new", max_attempts=1) for start, host in tasks]
    simulation = run(processes, on("host 1", outcome))
    assert failed(simulation, lambda process: process.host == "host 0") == 0
    assert failed(simulation) > 0
    assert posts(simulation) > 1200


@pytest.mark.parametrize("outcome", ["unavailable", "forbidden", "overloaded"])
@pytest.mark.parametrize("skew", [-3600, 3600])
def test_one_host_has_a_wrong_clock_during_a_short_outage(skew, outcome):
    wrong = [Process(start=one / 4, host="wrong", skew=skew) for one in range(20)]
    simulation = run([*wrong, *batch(140, 3600, host="right")], until(5, outcome))
    assert failed(simulation, lambda process: process.host == "right" and process.start > 5) == 0
    assert simulation.service.errors


@pytest.mark.parametrize("takes", [0.05, 30.0])
def test_an_outage_costs_few_requests(takes):
    simulation = run(batch(300, 60, host=lambda one: f"pod {one}"), ["unavailable"], login_seconds=[takes])
    assert posts(simulation) <= 60
    assert failed(simulation) == 300
    # A claim is that of one request, and some others come between the attempts that count.
    assert max(process.waited for process in simulation.processes) < 6 * (takes + 3)


@pytest.mark.parametrize("outcome", ["forbidden", "unavailable"])
@pytest.mark.parametrize(("seconds", "cohorts", "most"), [(1, 30, 60), (200, 1, 0)])
def test_good_and_bad_pods(outcome, seconds, cohorts, most):
    """In a burst, or one after another. The first one is bad."""
    good = bad = 0
    for seed in range(cohorts):
        order = Random(seed)
        processes = [Process(start=order.uniform(0.1, seconds), host=f"pod {one}") for one in range(39)]
        processes += [Process(host="pod 99")]
        simulation = run(processes, lambda host, _: outcome if int(host[4:]) % 2 else "ok", seed=seed)
        good += failed(simulation, lambda process: int(process.host[4:]) % 2 == 0)
        bad += failed(simulation)
    assert good <= most
    assert bad > 0


@pytest.mark.parametrize("number", [10, 1000])
def test_an_expiry_without_a_herd(number):
    """Processes that send requests all the time: each asks for a new token once, at a moment of its own."""
    processes = batch(number, 0)
    simulation = Simulation(processes, max_steps=ENOUGH)

    def work(process):
        has = simulation.active(200.0)
        for _ in range(200):
            simulation.time.sleep(1)
            if not has.is_fresh(MIN_TTL):
                has = simulation.log_in(process, "valid", has)
        process.results.append(has)

    simulation.run(work=work)
    assert posts(simulation) == 1
    assert {*simulation.values} == {"made-up-token-1"}
    assert sum(process.requests for process in processes) < 1.3 * number + 20
    assert simulation.time.now < LIFETIME
