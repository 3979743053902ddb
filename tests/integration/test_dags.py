"""
Real DAGs against the sandbox, run as ``airflow dags test`` runs them, with marked secrets everywhere.

Afterwards the database, logs and printed output are searched for every secret and every token. ``airflow dags test``
masks nothing, so a value that is not found was never written.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from types import SimpleNamespace

import pytest

from loanauth_sandbox.server import running_sandbox
from tests.support.airflow_scratch import conn_variable
from tests.support.backends import NOT_DEPRECATED, StatsD
from tests.support.dag_runs import run
from tests.support.leaks import leaks
from tests.support.secret_accounts import COMPANY, SECRETS, secret_connections, with_wrong_password, without

pytestmark = pytest.mark.processes

#: Each has a sandbox, so that one takes over no login of the other.
STEPS = ("sealed", "shared")


def environment(sandbox):
    defined = secret_connections(sandbox.url)
    defined |= {"rejected": with_wrong_password(defined["jwt"]), "unset": without(defined["jwt"], "origin")}
    return {
        **dict(conn_variable(f"marked_{name}", connection) for name, connection in defined.items()),
        "PRICE_URL": f"{sandbox.url}/sandbox/price",
        "COMPANY_ID": COMPANY.company_id,
    }


@pytest.fixture(scope="module")
def ran(metadata_template, tmp_path_factory):
    """The DAGs of both files, run one after another in one process; and its metrics."""
    home = tmp_path_factory.mktemp("dags")
    shutil.copy(metadata_template, home)
    with contextlib.ExitStack() as stack:
        statsd = stack.enter_context(contextlib.closing(StatsD()))
        sandboxes = {name: stack.enter_context(running_sandbox(accounts=[COMPANY])) for name in STEPS}
        sandboxes["shared"].set_fault("short-lived-token", where="token", times=1, lifetime=1)
        steps = [(name, f"{name}_dags.py", environment(sandbox)) for name, sandbox in sandboxes.items()]
        # Of all metrics of Airflow, the socket might lose some.
        metrics = statsd.environment(metrics_allow_list="loanauth") | NOT_DEPRECATED
        outcomes = run(home, *steps, environment=metrics)
        results = {
            name: SimpleNamespace(outcome=outcome, counters=sandbox.counters(), requests=sandbox.requests())
            for (name, sandbox), outcome in zip(sandboxes.items(), outcomes, strict=True)
        }
        return SimpleNamespace(**results, metrics=statsd.counts)


@pytest.mark.smoke
def test_taskflow_argument_mapped_tasks_nested_and_pulled(ran):
    outcome = ran.sealed.outcome
    assert set(outcome.states("sealed_journey").values()) == {"success"}
    assert {"price_mapped[0]", "price_mapped[1]", "price_mapped[2]"} <= set(outcome.states("sealed_journey"))
    journey = {name: value for name, value in outcome.proofs.items() if not name.startswith("secret")}
    kinds = {name.rpartition("-")[0] for name in journey}
    assert kinds == {"argument", "mapped-L-1", "mapped-L-2", "mapped-L-3", "nested-0", "nested-1", "nested-2", "pulled"}
    values = {value for name, value in journey.items() if not name.startswith("argument")}
    # One token, in whichever way the task got it. "argument" also has the token of the LOS run.
    assert len(values) == 1
    assert values < set(journey.values())


@pytest.mark.smoke
def test_all_loans_were_priced_with_one_login_for_each_connection(ran):
    counters = ran.sealed.counters
    # 1 argument, 3 mapped, 1 with a secret, 1 of the LOS run.
    assert (counters.prices.succeeded, counters.prices.rejected) == (6, 0)
    assert counters.authentications.succeeded == 3


def test_each_method_works_and_its_credential_is_sealed_in_xcom(ran):
    for dag_id, method in (("sealed_journey", "jwt"), ("sealed_los", "los"), ("sealed_ppe", "ppe")):
        assert set(ran.sealed.outcome.states(dag_id).values()) == {"success"}
        [stored] = ran.sealed.outcome.xcom(dag_id, "authenticate")
        assert f"marked_{method}" in stored
        assert "gAAAA" in stored


def test_a_rejected_password_is_sent_once(ran):
    """With ``retries=5``, by the operator, by a task that calls the hook, and by sensors."""
    outcome = ran.sealed.outcome
    states = outcome.states("rejected")
    assert set(states) == {"operator", "hook", "settings", "poke", "reschedule", "deferrable"}
    assert {(state, outcome.tries("rejected", name)) for name, state in states.items()} == {("failed", 1)}
    # One for the first task. The task "settings" sends nothing, because Origin is missing.
    assert ran.sealed.counters.by_user["marked/pat"].rejected == 1
    # Airflow decides which of them runs first.
    result = rb", to rejected\.\w+ on \S+ at \S+\. The same values are not sent again before "
    assert re.search(result, outcome.printed)
    assert b"RejectedError" in outcome.printed
    assert b"Username or Password is wrong" in outcome.printed


def test_two_dags_share_one_login_and_one_refresh(ran):
    """Each task begins like a new process. They share it through Airflow Variables."""
    for dag_id in ("share", "another"):
        assert set(ran.shared.outcome.states(dag_id).values()) == {"success"}
    # The token of the first login lives for a second. All that come later take the second one over.
    assert b"Took over the access token that share.price on " in ran.shared.outcome.printed
    assert ran.shared.counters.prices.rejected == 0
    # The DAGs that forget it make 4 logins more.
    counts = ran.shared.counters.authentications
    assert (counts.succeeded, counts.rejected) == (6, 0)


def test_forgetting_deletes_credentials(ran):
    """Of a mapped task, of each index of a mapped task group, and in a teardown after another task has failed."""
    outcome = ran.shared.outcome
    for dag_id in ("forget_shared", "forget_in_group"):
        assert set(outcome.states(dag_id).values()) == {"success"}
    assert outcome.proofs == {"forgets_0": "marked_jwt", "forgets_1": "marked_ppe"}
    states = outcome.states("forget_after_failure")
    assert states == {"authenticate": "success", "fail": "failed", "clean_up": "success"}
    # Those of another address stay.
    before, after = (
        step.outcome.query("select key from variable where key like '%.login' order by key")
        for step in (ran.sealed, ran.shared)
    )
    assert before == after != []
    for dag_id, task_id in (
        ("forget_shared", "authenticate"),
        ("forget_in_group", "lender.authenticate"),
        ("forget_after_failure", "authenticate"),
    ):
        # Airflow 3.0 cannot delete the values of a mapped task, so an empty value replaces them.
        assert not any("sealed" in value for value in outcome.xcom(dag_id, task_id))


def test_the_metrics_of_tasks_arrive(ran):
    """In a process of their own, in which Airflow reads its configuration."""
    assert (ran.metrics["logins"], ran.metrics["rejected"]) == (9, 1), ran.metrics


@pytest.mark.smoke
def test_no_secret_is_anywhere(ran):
    hidden = {*SECRETS.values(), *ran.sealed.outcome.proofs.values()}
    assert len(hidden) > len(SECRETS)
    for step in (ran.sealed, ran.shared):
        for name, octets in step.outcome.octets.items():
            assert not hidden & {*leaks(octets, hidden)}, name
    # Control: the search finds what is stored.
    assert leaks((ran.sealed.outcome.out / "airflow.db").read_bytes(), ["marked_ppe"]) == ["marked_ppe"]
    # The records of every part at DEBUG were searched.
    for part in (
        b'"POST /sandbox/price HTTP/1.1" 200',
        b"sealed: use LoanAuth or .value",
        b"Authenticated 'pat@canary.example' with Authen JWT",
    ):
        assert part in ran.sealed.outcome.printed
