"""
Interleavings of processes that share one refresh, with and without faults.

Hypothesis chooses when each process starts, how long each of its steps takes, and which faults there are. Set
``LOANAUTH_INTERLEAVINGS`` to try more than the default number for each test; ``pytest -s`` shows how many differed.
"""

from __future__ import annotations

import logging
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_loanauth.auth.active import ActiveCredential
from airflow_provider_loanauth.auth.register import CLAIM_KEY, REFRESHED_KEY, Register
from airflow_provider_loanauth.auth.shared import CLAIM_MARGIN, MAX_WAIT, MIN_CLAIM_DELAY
from airflow_provider_loanauth.exceptions import RejectedError
from tests.support.simulation import EPOCH, ERRORS, TASK, VALID, Process, Simulation, settings_of

EXAMPLES = int(os.environ.get("LOANAUTH_INTERLEAVINGS", "100"))
TIMEOUT = settings_of().timeout

#: Without a timing fault, a process needs less than this for a read and a write together. A process that has read that
#: there is no claim has then written its own before the delay of any other one is over.
IN_TIME = MIN_CLAIM_DELAY / 2


class Orders(set):
    """Different orders of steps. Hypothesis shows the arguments of an example that fails."""

    def __repr__(self):
        return f"<{len(self)} orders>"


@pytest.fixture(scope="module", autouse=True)
def tried():
    """Count the different orders of steps."""
    orders = Orders()
    yield orders
    print(f"\n{len(orders)} different interleavings")  # noqa: T201


@pytest.fixture(autouse=True)
def _no_log_lines():
    """Thousands of log lines take longer than the processes."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def seconds(smallest, greatest):
    return st.integers(round(smallest * 1000), round(greatest * 1000)).map(lambda number: number / 1000)


def in_time(number=40):
    """Seconds before and after the effect of a read or a write: four of them are less than ``2 * IN_TIME``."""
    return st.lists(seconds(0, IN_TIME / 2 - 0.01), min_size=1, max_size=number)


STALE = st.sampled_from(["expired", "valid", "rejected"])
START = seconds(0, 4)
SKEW = seconds(-30, 30)
ANY_DELAYS = st.lists(st.one_of(seconds(0, 0.3), seconds(0, 20)), min_size=1, max_size=40)


def processes(**changes):
    usual = {"start": START, "skew": SKEW, "stale": STALE}
    return st.lists(st.builds(Process, **(usual | changes)), min_size=2, max_size=6)


def check(simulation, tried):
    """Check what holds for any faults: each process that was not killed has a valid credential, or the right error."""
    tried.add(hash(tuple(simulation.time.trace)))
    service = simulation.service
    for process in simulation.alive:
        assert len(process.results) == simulation.rounds
        for number, (result, ended_at) in enumerate(zip(process.results, process.ended_at, strict=True)):
            if isinstance(result, ActiveCredential):
                if result.value == "made-up-token-0":
                    assert (process.stale, number) == ("valid", 0)
                    assert ended_at < process.start + VALID + 1e-6
                else:
                    assert ended_at < service.issued[result.value]
            else:
                assert type(result) in service.errors
                assert "made-up-secret" not in str(result)


def of_type(simulation, expected, number):
    """Return whether all results of a round have a type, except for those who go on with a credential still valid."""
    return all(
        isinstance(process.results[number], expected) or (process.stale, number) == ("valid", 0)
        for process in simulation.processes
    )


@settings(max_examples=EXAMPLES)
@given(
    st.builds(
        Simulation,
        processes(),
        rounds=st.integers(1, 2),
        delays=in_time(),
        login_seconds=st.lists(seconds(0, 25), min_size=1, max_size=3),
        conflicts=st.booleans(),
        seed=st.integers(0, 99),
    )
)
def test_one_login_for_each_expiry(tried, simulation):
    check(simulation.run(), tried)
    assert simulation.service.requests == simulation.rounds
    assert simulation.service.max_running == 1
    assert of_type(simulation, ActiveCredential, -1)


@settings(max_examples=EXAMPLES)
@given(
    st.builds(
        Simulation,
        processes(),
        rounds=st.just(2),
        outcomes=st.sampled_from([("rejected",), ("ok", "rejected")]),
        delays=in_time(),
        login_seconds=st.lists(seconds(0, 25), min_size=1, max_size=3),
        conflicts=st.booleans(),
        seed=st.integers(0, 99),
    ),
)
def test_one_rejected_login(tried, simulation):
    check(simulation.run(), tried)
    issued = len(simulation.service.issued) - 1
    assert simulation.service.requests == issued + 1
    assert of_type(simulation, ActiveCredential if issued else RejectedError, 0)
    assert of_type(simulation, RejectedError, 1)


@settings(max_examples=EXAMPLES)
@given(
    st.builds(
        Simulation,
        processes(skew=st.just(0.0)),
        outcomes=st.sampled_from(
            [
                ("response",),
                ("unavailable",),
                ("overloaded",),
                ("unavailable", "ok"),
                ("overloaded", "overloaded", "ok"),
            ]
        ),
        delays=in_time(),
        login_seconds=st.lists(seconds(0, 20), min_size=1, max_size=3),
        conflicts=st.booleans(),
        seed=st.integers(0, 99),
    )
)
def test_one_authentication_that_fails_or_is_retried(tried, simulation):
    check(simulation.run(), tried)
    assert simulation.service.authentications == 1
    assert simulation.service.max_running == 1


@settings(max_examples=EXAMPLES)
@given(
    st.builds(
        Simulation,
        processes(dies_at=st.none() | st.integers(0, 30)),
        delays=in_time(),
        login_seconds=st.just([0.5]),
        conflicts=st.booleans(),
        seed=st.integers(0, 99),
    )
)
def test_another_process_takes_over_from_one_that_died(tried, simulation):
    check(simulation.run(), tried)
    died = len(simulation.processes) - len(simulation.alive)
    assert simulation.service.requests <= 1 + died
    for process in simulation.alive:
        # One process after another may die with a claim.
        assert process.ended_at[0] - process.start < (died + 1) * (TIMEOUT + CLAIM_MARGIN + 15)


def foreign(key, **changes):
    """Return a function that returns what a process with other settings writes."""

    def change(values):
        written = []
        store = type("Store", (), {"write": lambda _, __, value: written.append(value), "read": None})()
        register = Register(TASK, settings_of(**changes), issued_at=EPOCH, store=store, now=lambda: EPOCH)
        register._write(key, {"claim": "made-up", "seconds": 100, "attempt": 1})
        return written[0]

    return change


def damaged(values):
    return {**(values[-1] or {}), "sealed": "made-up damage"}


TAMPERING = st.one_of(
    st.just(lambda values: None),
    st.just(damaged),
    st.just(foreign(CLAIM_KEY)),
    st.just(foreign(CLAIM_KEY, username="another")),
    st.integers(0, 9).map(lambda number: lambda values: values[number % len(values)]),
)


@settings(max_examples=2 * EXAMPLES)
@given(
    st.builds(
        Simulation,
        processes(dies_at=st.none() | st.integers(0, 40)),
        rounds=st.integers(1, 2),
        delays=ANY_DELAYS,
        outcomes=st.lists(st.sampled_from(["ok", *ERRORS]), max_size=5).map(lambda listed: [*listed, "ok"]),
        login_seconds=st.lists(seconds(0, 60), min_size=1, max_size=3),
        conflicts=st.booleans(),
        writes=st.dictionaries(st.integers(0, 20), st.sampled_from(["lost", "conflict", "error"]), max_size=5),
        tampering=st.lists(
            st.tuples(seconds(0, 60), st.sampled_from([CLAIM_KEY, REFRESHED_KEY]), TAMPERING), max_size=4
        ),
        seed=st.integers(0, 99),
    )
)
def test_any_faults(tried, simulation):
    check(simulation.run(), tried)
    for process in simulation.alive:
        # Longer than the time for one more reading, claim and authentication.
        assert process.ended_at[0] - process.start < MAX_WAIT + 1000
