"""Real DAG runs in which each task begins like a new process: they share one login through Airflow Variables."""

from __future__ import annotations

import contextlib
import re
import shutil
from importlib.metadata import version
from types import SimpleNamespace

import pytest

from loanauth_sandbox.server import running_sandbox
from tests.support.airflow_scratch import conn_variable
from tests.support.dag_runs import run
from tests.support.leaks import leaks
from tests.support.secret_accounts import COMPANY, SECRETS, secret_connections, with_wrong_password

pytestmark = pytest.mark.processes

#: On 2.11 and 3.0, `dags test` does not know the retries of a task when it is cleared.
RETRIES = 0 if version("apache-airflow").startswith(("2.", "3.0.")) else 1
#: On 3.0 to 3.2, `dags test` passes no exception to callbacks. Tasks that an executor runs get it on each version.
HAS_EXCEPTION = not version("apache-airflow").startswith(("3.0.", "3.1.", "3.2."))
#: Steps that run one after another in one process. Each has a sandbox, so that no login of another step is taken over.
STEPS = ("share", "rejected", "cleared", "forget")


def environment(name, sandbox):
    connections = secret_connections(sandbox.url)
    used = with_wrong_password(connections["jwt"]) if name in ("rejected", "cleared") else connections["jwt"]
    return {
        **dict(conn_variable(f"marked_{method}", connection) for method, connection in connections.items()),
        **dict([conn_variable("marked_jwt", used)]),
        "SHARED_STEP": name,
        "RETRIES": str(RETRIES),
        "PRICE_URL": f"{sandbox.url}/sandbox/price",
    }


@pytest.fixture(scope="module")
def steps(metadata_template, tmp_path_factory):
    home = tmp_path_factory.mktemp("shared")
    shutil.copy(metadata_template, home)
    with contextlib.ExitStack() as stack:
        sandboxes = {name: stack.enter_context(running_sandbox(accounts=[COMPANY])) for name in STEPS}
        sandboxes["share"].set_fault("short-lived-token", where="token", times=1, lifetime=1)
        outcomes = run(home, *((name, "shared_dags.py", environment(name, sandboxes[name])) for name in STEPS))
        return {
            name: SimpleNamespace(outcome=outcome, counters=sandbox.counters())
            for (name, sandbox), outcome in zip(sandboxes.items(), outcomes, strict=True)
        }


def succeeded(step, *dag_ids):
    for dag_id in dag_ids:
        states = step.outcome.states(dag_id)
        assert set(states.values()) == {"success"}, states


def logins(step):
    counts = step.counters.authentications
    return counts.succeeded, counts.rejected


def variables(step):
    return step.outcome.query("select key, description from variable where key like 'loanauth.jwt.%' order by key")


def test_the_tasks_and_the_sensor_of_two_dags_share_one_login_and_one_refresh(steps):
    step = steps["share"]
    succeeded(step, "share", "another")
    # The token of the first login lives for a second. All that come later take the second one over.
    assert logins(step) == (2, 0)
    assert step.counters.prices.rejected == 0
    assert b"Took over the access token that share.price on " in step.outcome.printed


def test_a_wrong_password_is_sent_once_by_all_dags_until_the_variable_is_deleted(steps):
    step = steps["rejected"]
    assert step.outcome.states("rejected_two") == {
        **dict.fromkeys(("authenticate", "again"), "failed"),
        **dict.fromkeys(("obey", "delete_variable"), "success"),
    }
    assert logins(step) == (0, 2)
    message = step.outcome.proofs["message"]
    assert re.match(r"The service responded with 400 \(invalid_grant: .+\), to rejected_one.authenticate on ", message)
    assert len(message) <= 450


def test_each_rejected_task_tells_of_the_whole_cause(steps):
    """In ``rejected_two``, two tasks fail: one with the rejection of the other DAG, one with its own."""
    if not HAS_EXCEPTION:
        assert "told" not in steps["rejected"].outcome.proofs
        assert b"Nobody was notified: Airflow passes no exception" in steps["rejected"].outcome.printed
        return
    one, two, again = steps["rejected"].outcome.proofs["told"].splitlines()
    cause = r"task authenticate: The service responded with 400 \(invalid_grant: Bad credentials\)"
    until = "The same values are not sent again before "
    assert re.match(rf"DAG rejected_one, run \S+, {cause}\. Username or Password is wrong, .+ {until}", one)
    assert re.match(rf"DAG rejected_two, run \S+, {cause}, to rejected_one\.authenticate on .+ {until}", two)
    assert ", task again: The service responded with 400 (invalid_grant: Bad credentials)" in again


def test_a_task_that_a_person_has_cleared_tries_once_more_and_a_retry_does_not(steps):
    assert steps["cleared"].outcome.proofs["tries"] == ("sent sent " if RETRIES == 0 else "sent not sent not ")
    assert logins(steps["cleared"]) == (0, 2)


def test_the_variables_of_a_connection(steps):
    found = dict(variables(steps["share"]))
    assert {re.sub("[0-9a-f]{16}", "VALUES", key) for key in found} == {
        "loanauth.jwt.marked_jwt.VALUES.login",
        "loanauth.jwt.marked_jwt.VALUES.claim",
    }
    assert len(found) == 2
    assert all("Deleting it is safe" in description for description in found.values())


def test_forgetting_deletes_credentials_and_keeps_rejections(steps):
    """Of a mapped task, of each index of a mapped task group, and in a teardown after another task has failed."""
    succeeded(steps["forget"], "forget_shared", "forget_in_group")
    assert steps["forget"].outcome.proofs == {"forgets_0": "marked_jwt", "forgets_1": "marked_ppe"}
    states = steps["forget"].outcome.states("forget_after_failure")
    assert states == {"authenticate": "success", "fail": "failed", "clean_up": "success"}
    assert logins(steps["forget"]) == (5, 0)
    # What the service has rejected in the steps before is not sent again.
    names = ("share", "cleared", "forget")
    share, cleared, left = ({key for key, _ in variables(steps[name]) if key.endswith(".login")} for name in names)
    assert left == cleared - share
    for dag_id, task_id in (
        ("forget_shared", "authenticate"),
        ("forget_in_group", "lender.authenticate"),
        ("forget_after_failure", "authenticate"),
    ):
        # Airflow 3.0 cannot delete the values of a mapped task, so an empty value replaces them.
        assert not any("sealed" in value for value in steps["forget"].outcome.xcom(dag_id, task_id))


def test_no_secret_is_anywhere(steps):
    """The database, the logs and the printed output of all steps."""
    texts = steps["forget"].outcome.octets
    texts |= {name: step.outcome.octets["printed"] for name, step in steps.items()}
    texts |= {f"{name} database": (step.outcome.out / "airflow.db").read_bytes() for name, step in steps.items()}
    for name, octets in texts.items():
        assert leaks(octets, SECRETS.values()) == [], name
