"""Real DAGs against the sandbox, run as ``airflow dags test`` runs them, with marked secrets everywhere.

``airflow dags test`` masks nothing, so a value that is not found in the database, logs and output was never written.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from types import SimpleNamespace

import pytest

from loanauth_sandbox.server import running_sandbox
from tests.support.airflow_scratch import conn_variable
from tests.support.backends import StatsD
from tests.support.dag_runs import run
from tests.support.leaks import leaks
from tests.support.secret_accounts import COMPANY, SECRETS, secret_connections, with_wrong_password, without
from tests.support.waiting import MODES

pytestmark = pytest.mark.processes


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
    """All DAGs of the file, run one after another in one process; the counters of the sandbox, and the metrics."""
    home = tmp_path_factory.mktemp("dags")
    shutil.copy(metadata_template, home)
    with contextlib.closing(StatsD()) as statsd, running_sandbox(accounts=[COMPANY]) as sandbox:
        # Of all metrics of Airflow, the socket might lose some.
        metrics = statsd.environment(metrics_allow_list="loanauth")
        [outcome] = run(home, ("sealed", "sealed_dags.py", environment(sandbox)), environment=metrics)
        return SimpleNamespace(outcome=outcome, counters=sandbox.counters(), metrics=statsd.counts)


def test_taskflow_argument_mapped_tasks_nested_and_pulled(ran):
    states = ran.outcome.states("sealed_journey")
    assert set(states.values()) == {"success"}
    assert {"price_mapped[0]", "price_mapped[1]", "price_mapped[2]"} <= set(states)
    journey = {name: value for name, value in ran.outcome.proofs.items() if not name.startswith("secret")}
    kinds = {name.rpartition("-")[0] for name in journey}
    assert kinds == {"argument", "mapped-1", "mapped-2", "mapped-3", "nested-0", "nested-1", "nested-2", "pulled"}
    values = {value for name, value in journey.items() if not name.startswith("argument")}
    # One token, in whichever way the task got it. "argument" also has the token of the LOS run.
    assert len(values) == 1
    assert values < set(journey.values())


def test_all_loans_were_priced_with_one_login_for_each_connection(ran):
    # 1 argument, 3 mapped, 1 with a secret, 1 of the LOS run. The DAG that forgets takes over two of the logins.
    assert (ran.counters.prices.succeeded, ran.counters.prices.rejected) == (6, 0)
    assert ran.counters.authentications.succeeded == 3


def test_each_method_works_and_its_credential_is_sealed_in_xcom(ran):
    for dag_id, method in (("sealed_journey", "jwt"), ("sealed_los", "los"), ("sealed_ppe", "ppe")):
        assert set(ran.outcome.states(dag_id).values()) == {"success"}
        [stored] = ran.outcome.xcom(dag_id, "authenticate")
        assert f"marked_{method}" in stored
        assert "gAAAA" in stored


def test_a_rejected_password_is_sent_once(ran):
    """With ``retries=5``, by the operator, by a task that calls the hook, and by sensors."""
    states = ran.outcome.states("rejected")
    assert set(states) == {"operator", "hook", "settings", *MODES}
    assert {(state, ran.outcome.tries("rejected", name)) for name, state in states.items()} == {("failed", 1)}
    # One for the first task. The task "settings" sends nothing, because Origin is missing.
    assert ran.counters.by_user["marked/pat"].rejected == 1
    # Airflow decides which of them runs first.
    result = rb"Username or Password is wrong, .* said so to rejected\.\w+ on \S+ at \S+\. .* not sent again before "
    assert re.search(result, ran.outcome.printed)
    assert b"RejectedError" in ran.outcome.printed
    assert b"Username or Password is wrong" in ran.outcome.printed


def test_forgetting_in_a_mapped_task_group_deletes_credentials_and_shared_logins(ran):
    assert set(ran.outcome.states("forget").values()) == {"success"}
    # Airflow 3.0 cannot delete the values of a mapped task, so an empty value replaces them.
    assert not any("sealed" in value for value in ran.outcome.xcom("forget", "lender.authenticate"))
    keys = [key for (key,) in ran.outcome.query("select key from variable where key like '%.login'")]
    assert {tuple(key.split(".")[1:3]) for key in keys} == {("los", "marked_los"), ("jwt", "marked_rejected")}


def test_the_metrics_of_tasks_arrive(ran):
    """In a process of their own, in which Airflow reads its configuration."""
    assert (ran.metrics["logins"], ran.metrics["rejected"]) == (3, 1), ran.metrics


def test_no_secret_is_anywhere(ran):
    hidden = {*SECRETS.values(), *ran.outcome.proofs.values()}
    assert len(hidden) > len(SECRETS)
    for name, octets in ran.outcome.octets.items():
        assert not hidden & {*leaks(octets, hidden)}, name
    # Control: the search finds what is stored.
    assert leaks((ran.outcome.out / "airflow.db").read_bytes(), ["marked_ppe"]) == ["marked_ppe"]
    # The records of every part at DEBUG were searched.
    for part in (
        b'"POST /sandbox/price HTTP/1.1" 200',
        b"sealed: use LoanAuth or .value",
        b"Authenticated 'pat@canary.example' with Authen JWT",
    ):
        assert part in ran.outcome.printed
