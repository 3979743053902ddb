"""The examples that no demo runs, really run: what they print, and what the sandbox saw."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest

from loanauth_sandbox.server import running_sandbox
from tests.integration.test_dags import run
from tests.support.airflow_scratch import conn_variable
from tests.support.paths import EXAMPLE_DAGS

pytestmark = pytest.mark.xdist_group("dags")


def named(home, name):
    """Return a copy of an example whose DAG has a name in its module; the example only registers it."""
    text = (EXAMPLE_DAGS / f"{name}.py").read_text()
    assert text.endswith(f"\n\n\n{name}()\n")
    path = home / f"{name}.py"
    path.write_text(text.removesuffix(f"{name}()\n") + f"made = {name}()\n")
    return path


@pytest.fixture(scope="module")
def batches(metadata_template, tmp_path_factory):
    """The two that price a thousand loans, one after the other, in one process."""
    home = tmp_path_factory.mktemp("batches")
    shutil.copy(metadata_template, home)
    with running_sandbox() as sandbox:
        env = dict([conn_variable("loanauth_jwt", sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])])
        env |= {
            "AIRFLOW_VAR_LOAN_PRICING_URL": f"{sandbox.url}/sandbox/price",
            # A pool of the example is not in a new database; what it limits is no part of this.
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
        }
        nightly, at_once = run(home, *((name, named(home, name), env) for name in ("nightly_batch", "price_async")))
        yield SimpleNamespace(nightly=nightly, at_once=at_once, counters=sandbox.counters())


def test_a_connection_is_checked_by_a_dag(metadata_template, tmp_path):
    shutil.copy(metadata_template, tmp_path)
    with running_sandbox() as sandbox:
        env = dict([conn_variable("loanauth_default", sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])])
        [outcome] = run(tmp_path, ("checked", named(tmp_path, "check_connection"), env))
        counters = sandbox.counters()
    assert outcome.states("check_connection") == {"check": "success"}
    assert (counters.authentications.succeeded, counters.prices.succeeded) == (1, 0)
    assert outcome.xcom("check_connection", "check") == []
    assert b"by Authen JWT" in outcome.printed


def test_the_nightly_batch_prices_a_thousand_loans_and_forgets_its_credential(batches):
    states = batches.nightly.states("nightly_batch")
    assert set(states.values()) == {"success"}, states
    assert len([name for name in states if name.startswith("price[")]) == 20
    assert b"1000 loans priced" in batches.nightly.printed
    assert batches.nightly.xcom("nightly_batch", "authenticate") == []
    assert len(batches.nightly.xcom("nightly_batch", "price")) == 20
    # A batch is one XCom, not one for each of its loans.
    for outcome, dag_id, expected in ((batches.nightly, "nightly_batch", 20), (batches.at_once, "price_async", 1)):
        [(stored,)] = outcome.query("select count(*) from xcom where dag_id = ? and task_id = 'price'", dag_id)
        assert stored == expected


def test_the_asynchronous_task_prices_a_thousand_loans(batches):
    assert set(batches.at_once.states("price_async").values()) == {"success"}
    assert b"1000 loans priced, from" in batches.at_once.printed


def test_each_logs_in_once(batches):
    assert batches.counters.authentications.succeeded == 2
    assert (batches.counters.prices.succeeded, batches.counters.prices.refused) == (2000, 0)
