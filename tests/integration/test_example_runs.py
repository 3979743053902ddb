"""Runs of the example DAGs that the demo does not run: their output, and the counters of the sandbox."""

from __future__ import annotations

import re
import shutil
from types import SimpleNamespace

import pytest

from loanauth_sandbox.server import running_sandbox
from tests.integration.test_dags import run
from tests.support.airflow_scratch import conn_variable
from tests.support.paths import EXAMPLE_DAGS, ROOT
from tests.support.secret_accounts import COMPANY, SECRETS, with_wrong_password
from tests.support.secret_search import found_in

pytestmark = pytest.mark.xdist_group("dags")


def with_named_dag(home, name):
    """Copy an example so that its DAG is a variable of the module; the example itself only registers it."""
    text = (EXAMPLE_DAGS / f"{name}.py").read_text()
    assert text.endswith(f"\n\n\n{name}()\n")
    path = home / f"{name}.py"
    path.write_text(text.removesuffix(f"{name}()\n") + f"made = {name}()\n")
    return path


@pytest.fixture(scope="module")
def batches(metadata_template, tmp_path_factory):
    """The two examples that price a thousand loans, run one after the other in one process."""
    home = tmp_path_factory.mktemp("batches")
    shutil.copy(metadata_template, home)
    with running_sandbox() as sandbox:
        env = dict([conn_variable("loanauth_jwt", sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])])
        env |= {
            "AIRFLOW_VAR_LOAN_PRICING_URL": f"{sandbox.url}/sandbox/price",
            # At DEBUG the output of a thousand loans would be very long.
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
        }
        names = ("nightly_batch", "price_async")
        nightly, asynchronous = run(home, *((name, with_named_dag(home, name), env) for name in names))
        yield SimpleNamespace(nightly=nightly, asynchronous=asynchronous, counters=sandbox.counters())


def test_check_connection_authenticates_once_and_returns_nothing(metadata_template, tmp_path):
    shutil.copy(metadata_template, tmp_path)
    with running_sandbox() as sandbox:
        env = dict([conn_variable("loanauth_default", sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])])
        [outcome] = run(tmp_path, ("checked", with_named_dag(tmp_path, "check_connection"), env))
        counters = sandbox.counters()
    assert outcome.states("check_connection") == {"check": "success"}
    assert (counters.authentications.succeeded, counters.prices.succeeded) == (1, 0)
    assert outcome.xcom("check_connection", "check") == []
    for line in ("✓ Settings", "✓ Fernet key", "✓ Response", "✓ Login"):
        assert line.encode() in outcome.printed
    assert b"with Authen JWT" in outcome.printed
    assert b"Usable." in outcome.printed


def test_check_connection_fails_if_the_connection_cannot_be_used(metadata_template, tmp_path):
    shutil.copy(metadata_template, tmp_path)
    with running_sandbox(accounts=[COMPANY]) as sandbox:
        connection = with_wrong_password(sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])
        env = dict([conn_variable("loanauth_default", connection)])
        [outcome] = run(tmp_path, ("checked", with_named_dag(tmp_path, "check_connection"), env))
        assert sandbox.counters().token == 1
    assert outcome.states("check_connection") == {"check": "failed"}
    assert "✗ Login".encode() in outcome.printed
    for octets in outcome.octets.values():
        assert found_in(octets, SECRETS) == []


def test_check_sharing_counts_the_tokens_after_the_first_one_has_expired(metadata_template, tmp_path):
    """In one process. Sharing between processes is proved where an executor starts them."""
    shutil.copy(metadata_template, tmp_path)
    with running_sandbox() as sandbox:
        sandbox.set_fault("short-lived-token", where="token", times=1, lifetime=1)
        env = dict([conn_variable("loanauth_default", sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])])
        [outcome] = run(tmp_path, ("checked", with_named_dag(tmp_path, "check_sharing"), env))
        counters = sandbox.counters()
    assert set(outcome.states("check_sharing").values()) == {"success"}
    (line,) = re.findall(
        r"^```text\n(.*tasks used.*)\n```$", (ROOT / "docs" / "deploying.md").read_text(), re.MULTILINE
    )
    assert line.encode() in outcome.printed
    assert (counters.authentications.succeeded, counters.prices.succeeded) == (2, 0)


def test_the_nightly_batch_prices_a_thousand_loans_and_forgets_its_credential(batches):
    states = batches.nightly.states("nightly_batch")
    assert set(states.values()) == {"success"}, states
    assert len([name for name in states if name.startswith("price[")]) == 20
    assert b"1000 loans priced" in batches.nightly.printed
    assert batches.nightly.xcom("nightly_batch", "authenticate") == []
    assert len(batches.nightly.xcom("nightly_batch", "price")) == 20
    # Each batch is one XCom value, not one value for each loan.
    for outcome, dag_id, expected in ((batches.nightly, "nightly_batch", 20), (batches.asynchronous, "price_async", 1)):
        [(stored,)] = outcome.query("select count(*) from xcom where dag_id = ? and task_id = 'price'", dag_id)
        assert stored == expected


def test_the_asynchronous_task_prices_a_thousand_loans(batches):
    assert set(batches.asynchronous.states("price_async").values()) == {"success"}
    assert b"1000 loans priced, from" in batches.asynchronous.printed


def test_each_example_logs_in_once(batches):
    assert batches.counters.authentications.succeeded == 2
    assert (batches.counters.prices.succeeded, batches.counters.prices.rejected) == (2000, 0)
