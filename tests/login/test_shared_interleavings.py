"""Interleavings of processes that share one login: Hypothesis chooses starts, delays and faults."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_loanauth.exceptions import RejectedError, UnavailableError
from airflow_provider_loanauth.login.credential import ActiveCredential
from airflow_provider_loanauth.login.lease import LEASE_SECONDS, MAX_WAIT, MIN_DELAY
from tests.support.leaks import leaks
from tests.support.simulation import ERRORS, FIRST, LIFETIME, NEW, OLD, VALID, Process, Simulation

pytestmark = [pytest.mark.once, pytest.mark.slow, pytest.mark.usefixtures("no_log_lines")]

SECRETS = ["made-up-password", "made-up-new-password", "made-up-client-secret", "made-up-token-", "made-up-secret"]
#: Seconds in which a process waits for one that has died, or for one login with all its attempts.
DEAD, LONGEST = LEASE_SECONDS + 5, 60 + 3 * MAX_WAIT
EXPIRIES = st.sampled_from([[], [LIFETIME + 200]])


def seconds(smallest, greatest):
    return st.integers(round(smallest * 1000), round(greatest * 1000)).map(lambda number: number / 1000)


def processes(**changes):
    """From two to six processes, which have one value of the Connection, or the old and the new one."""
    usual = {
        "start": seconds(0, 4),
        "skew": seconds(-30, 30),
        "needs": st.sampled_from(["first", "expired", "valid", "rejected"]),
        "settings": st.sampled_from([OLD, NEW]),
    }
    return st.lists(st.builds(Process, **(usual | changes)), min_size=2, max_size=6)


def simulations(by, **changes):
    """Simulations without a timing fault: a read of the claim and a write take less than the delay of a claim."""
    usual = {
        "delays": st.lists(seconds(0, MIN_DELAY / 4 - 0.01), min_size=1, max_size=40),
        "login_seconds": st.lists(seconds(0, LEASE_SECONDS - 1), min_size=1, max_size=3),
        "seed": st.integers(0, 99),
    }
    return st.builds(Simulation, by, **(usual | changes))


def check(simulation, *, errors=(), clocks=0.0):
    """Check that no row has a secret; and that each process has a valid credential, by such a clock, or an error."""
    assert leaks("".join(text or "" for texts in simulation.store.texts.values() for text in texts), SECRETS) == []
    for process in simulation.alive:
        assert len(process.results) == len(simulation.rounds)
        for result, ended_at in zip(process.results, process.ended_at, strict=True):
            if not isinstance(result, ActiveCredential):
                assert type(result) in simulation.service.errors.union(errors)
                assert "made-up-secret" not in str(result)
            elif result.value == FIRST:
                assert process.needs == "valid"
                assert ended_at < process.start + VALID
            else:
                assert ended_at < simulation.service.issued[result.value] + clocks


def values(simulation):
    return {process.settings for process in simulation.processes}


@given(simulations(processes(), pauses=EXPIRIES))
def test_one_login_of_each_value_for_each_expiry(simulation):
    check(simulation.run())
    assert simulation.service.posts == dict.fromkeys(values(simulation), len(simulation.rounds))
    assert simulation.service.errors == set()


@given(
    simulations(
        processes(), pauses=st.just([LIFETIME + 200]), outcomes=st.just({OLD: ["rejected"], NEW: ["ok", "rejected"]})
    )
)
def test_one_post_of_each_rejected_password(simulation):
    check(simulation.run())
    assert simulation.service.rejections == dict.fromkeys(values(simulation), 1)
    for process in simulation.processes:
        if process.settings is OLD and process.needs != "valid":
            assert isinstance(process.results[0], RejectedError)
        assert isinstance(process.results[1], RejectedError)


def no_network(host, _):
    return "unavailable" if host == "host 0" else "ok"


STEPS = st.none() | st.integers(1, 30)


@given(
    st.sampled_from([0.0, -3600.0, 3600.0]).flatmap(
        lambda wrong: simulations(
            processes(skew=st.sampled_from([0.0, wrong]), dies_at=STEPS, interrupted_at=STEPS),
            outcomes=st.sampled_from([["ok"], ["rejected"], no_network]),
            max_attempts=st.just(1),
        )
    )
)
def test_one_more_post_for_each_that_was_killed_while_it_logged_in(simulation):
    """With a clock that is wrong by an hour, there may be two logins. A host without a network fails no other one."""
    check(simulation.run(), errors=[KeyboardInterrupt], clocks=3600.0)
    for value in values(simulation):
        lost = sum(process.unreported > 0 for process in simulation.processes if process.settings is value)
        assert simulation.service.rejections[value] <= 1 + lost
        others = (simulation.service.outcomes is no_network) + any(process.skew for process in simulation.processes)
        assert simulation.service.posts[value] <= 1 + lost + others
    for process in simulation.alive:
        # For one login, and for one process after another that dies with a claim.
        assert process.waited < LONGEST + DEAD * sum(one.dies_at is not None for one in simulation.processes)
    assert UnavailableError not in [type(result) for process in simulation.processes[1:] for result in process.results]


TAMPERING = st.one_of(
    # `test_variables.py` has more values that do not open.
    st.sampled_from([lambda texts: "made-up", lambda texts: None]),
    # An earlier value of the same key.
    st.integers(0, 9).map(lambda number: lambda texts: texts[number % len(texts)]),
)


@given(
    simulations(
        processes(dies_at=st.none() | st.integers(0, 40), cleared=st.booleans()),
        pauses=EXPIRIES,
        delays=st.lists(st.one_of(seconds(0, 0.3), seconds(0, 20)), min_size=1, max_size=40),
        outcomes=st.lists(st.sampled_from(["ok", *ERRORS]), max_size=5).map(lambda listed: [*listed, "ok"]),
        login_seconds=st.lists(seconds(0, 60), min_size=1, max_size=3),
        writes=st.dictionaries(st.integers(0, 20), st.sampled_from(["lost", "error"]), max_size=5),
        tampering=st.lists(st.tuples(seconds(0, 60), st.sampled_from(["login", "claim"]), TAMPERING), max_size=4),
    )
)
def test_any_faults(simulation):
    check(simulation.run(), clocks=60.0)
    for process in simulation.alive:
        # Each of some twenty requests to the store takes up to 40 s, and a claim waits for four times as long.
        assert process.waited < LONGEST + 2000
