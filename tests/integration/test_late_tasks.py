"""Real DAGs whose token expires before the tasks start, is used on the next day, or expires while a task runs."""

from __future__ import annotations

import copy
import shutil
from types import SimpleNamespace

import pytest

from loanauth_sandbox.server import running_sandbox
from tests.support.airflow_scratch import conn_variable
from tests.support.dag_runs import run
from tests.support.leaks import leaks

pytestmark = pytest.mark.xdist_group("dags")


def step(sandbox, home, *names, **env):
    """Run steps in a separate process; return the result of the last one, and the counters of the sandbox."""
    sandbox.state.counters.__init__()
    for conn in ("JWT", "PPE"):
        env |= dict([conn_variable(f"late_{conn}", sandbox.connections()[f"AIRFLOW_CONN_LOANAUTH_{conn}"])])
    env |= {"PRICE_URL": f"{sandbox.url}/sandbox/price"}
    outcomes = run(home, *((name, "late_dags.py", env | {"LATE_STEP": name}) for name in names))
    return SimpleNamespace(outcome=outcomes[-1], counters=sandbox.counters())


@pytest.fixture(scope="module")
def steps(metadata_template, tmp_path_factory):
    home = tmp_path_factory.mktemp("late")
    shutil.copy(metadata_template, home)
    with running_sandbox() as sandbox:
        sandbox.set_fault("short-lived-token", where="token", times=1, lifetime=1)
        late = step(sandbox, home, "late")
        [(yesterday,)] = late.outcome.query("select run_id from dag_run where dag_id = 'late'")
        # The password is changed overnight.
        (lender, *others) = sandbox.state.accounts
        rotated = copy.deepcopy(lender)
        object.__setattr__(rotated.users[0], "password", "made-up-rotated-password")
        sandbox.set_accounts([rotated, *others])
        next_day = step(sandbox, home, "next_day", YESTERDAY=yesterday)
        sandbox.set_fault("short-lived-token", where="token", times=1, lifetime=1)
        last = step(sandbox, home, "outlive", "forget")
    return SimpleNamespace(late=late, next_day=next_day, last=last)


def succeeded(result, dag_id):
    states = result.outcome.states(dag_id)
    assert set(states.values()) == {"success"}, states
    return states


def test_tasks_that_start_late_succeed_with_one_refresh(steps):
    assert set(succeeded(steps.late, "late")) == {
        "authenticate",
        "wait",
        "price[0]",
        "price[1]",
        "price[2]",
        "price_in_a_loop",
    }
    counters = steps.late.counters
    # One login of the operator, and one for all late tasks of the process.
    assert counters.authentications.succeeded == 2
    assert (counters.prices.succeeded, counters.prices.rejected) == (25, 0)


def test_tasks_of_the_next_day_succeed_with_one_refresh_and_the_rotated_password(steps):
    succeeded(steps.next_day, "next_day")
    counters = steps.next_day.counters
    assert (counters.authentications.succeeded, counters.authentications.rejected) == (1, 0)
    assert (counters.prices.succeeded, counters.prices.rejected) == (6, 0)


def test_a_task_that_outlives_its_token_succeeds_with_one_refresh(steps):
    succeeded(steps.last, "outlive")
    counters = steps.last.counters
    # One login of the operator and one refresh, which the DAGs below take over; and one for the API secret.
    assert counters.authentications.succeeded == 2 + 1
    assert counters.prices.succeeded == 3 + 3
    # The token is valid for one second only, so it may expire on the way.
    assert counters.prices.rejected <= 1


def test_the_credential_is_gone_after_the_clean_up(steps):
    succeeded(steps.last, "forget")
    outcome = steps.last.outcome
    assert outcome.xcom("forget", "authenticate") == []
    assert len(outcome.xcom("forget", "price")) == 1


def test_the_credential_is_gone_also_if_an_earlier_task_failed(steps):
    states = steps.last.outcome.states("forget_after_failure")
    assert states == {"authenticate": "success", "fail": "failed", "clean_up": "success"}
    assert steps.last.outcome.xcom("forget_after_failure", "authenticate") == []


def test_also_where_a_mapped_task_returned_one_for_each_tenant(steps):
    succeeded(steps.last, "forget_tenants")
    outcome = steps.last.outcome
    assert not any(b"could not be deleted" in octets for octets in outcome.octets.values())
    # Airflow 3.0 cannot delete the values of a mapped task, so an empty value replaces them.
    left = outcome.xcom("forget_tenants", "authenticate")
    assert [value for value in left if "sealed" in str(value)] == []


def test_the_changed_password_is_written_nowhere(steps):
    for result in vars(steps).values():
        for octets in result.outcome.octets.values():
            assert not leaks(octets.decode("utf-8", "replace"), ["made-up-rotated-password"])
