"""Runs of the example DAGs: their output, and the counters of the sandbox."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from loanauth_sandbox.server import running_sandbox
from scripts.demo import METHODS
from tests.support.dag_runs import run
from tests.support.leaks import leaks
from tests.support.paths import EXAMPLE_DAGS, ROOT
from tests.support.secret_accounts import COMPANY, SECRETS, with_wrong_password

pytestmark = pytest.mark.xdist_group("dags")


#: The DAG of the demo for each method.
BY_METHOD = {method: next(EXAMPLE_DAGS.glob(f"*_{method}.py")).stem for method in METHODS}
#: The examples, the one for a check with a wrong password, and the DAG of the README.
STEPS = [
    *BY_METHOD.values(),
    "login_schedules_pricing",
    "nightly_batch",
    "price_async",
    "price_when_open",
    "check_sharing",
    "check_connection",
]
STEPS += ["rejected", "readme"]


def with_named_dag(home, name):
    """Copy an example so that its DAGs are variables of the module; the example itself only registers them."""
    # An interval of a minute is too long for a test.
    text = (EXAMPLE_DAGS / f"{name}.py").read_text().replace("poke_interval=60,", "poke_interval=0.3,")
    # On 3.0, `DAG.test` fails a task that has an asset, because no scheduler has activated the asset.
    text = text.replace(", outlets=[LOGIN]", "")
    path = home / f"{name}.py"
    path.write_text(re.sub(r"^(\w+)\(\)$", r"made_\1 = \1()", text, flags=re.MULTILINE))
    return path


def dag_of_the_readme(home, port):
    """Write the DAG of the README as a user does; only the port of the sandbox differs."""
    readme = (ROOT / "README.md").read_text()
    (text,) = re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    if not find_spec("airflow.sdk"):  # 2.11
        text = text.replace(
            "from airflow.sdk import dag, task",
            re.search(r"^On Airflow 2\.11 the second line is `(.+?)`", readme, re.MULTILINE)[1],
        )
    assert "127.0.0.1:8500/" in text
    path = home / "price_two_loans.py"
    path.write_text(
        text.replace(":8500/", f":{port}/").replace("\n\n\nprice_two_loans()", "\n\n\nmade = price_two_loans()")
    )
    return path


@pytest.fixture(scope="module")
def ran(metadata_template, tmp_path_factory):
    """Each example, run once, one after the other in one process: the outcome, and the counters of its own sandbox."""
    home = tmp_path_factory.mktemp("examples")
    shutil.copy(metadata_template, home)
    shutil.copytree(EXAMPLE_DAGS / "data", home / "dags" / "data")
    with contextlib.ExitStack() as stack:
        sandboxes, steps = {}, []
        for name in STEPS:
            options = {"accounts": [COMPANY]} if name == "rejected" else {}
            sandbox = sandboxes[name] = stack.enter_context(running_sandbox(**options))
            connections = sandbox.connections()
            if name == "check_sharing":
                sandbox.set_fault("short-lived-token", where="token", times=1, lifetime=1)
            elif name == "price_when_open":
                sandbox.set_fault("status", status=503, times=3)
            elif name == "rejected":
                connections["AIRFLOW_CONN_LOANAUTH_JWT"] = with_wrong_password(connections["AIRFLOW_CONN_LOANAUTH_JWT"])
            connections["AIRFLOW_CONN_LOANAUTH_DEFAULT"] = connections["AIRFLOW_CONN_LOANAUTH_JWT"]
            env = {variable: json.dumps(connection) for variable, connection in connections.items()} | {
                "AIRFLOW_VAR_LOAN_PRICING_URL": f"{sandbox.url}/sandbox/price",
                # At DEBUG the output of a thousand loans would be very long.
                "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
            }
            if name == "readme":
                file = dag_of_the_readme(home, sandbox.port)
            else:
                file = with_named_dag(home, "check_connection" if name == "rejected" else name)
            steps.append((name, file, env))
        outcomes = run(home, *steps)
        return {
            name: SimpleNamespace(outcome=outcome, counters=sandbox.counters())
            for (name, sandbox), outcome in zip(sandboxes.items(), outcomes, strict=True)
        }


def test_each_example_runs():
    assert {file.stem for file in EXAMPLE_DAGS.glob("*.py")} <= {*STEPS}


def test_a_dag_that_a_login_schedules_uses_that_login(ran):
    outcome, counters = ran["login_schedules_pricing"].outcome, ran["login_schedules_pricing"].counters
    for dag_id in ("login_schedules_pricing", "price_after_login"):
        assert set(outcome.states(dag_id).values()) == {"success"}
    assert (counters.authentications.succeeded, counters.prices.succeeded) == (1, 2)


def test_check_connection_authenticates_once_and_returns_nothing(ran):
    outcome, counters = ran["check_connection"].outcome, ran["check_connection"].counters
    assert outcome.states("check_connection") == {"check": "success"}
    assert (counters.authentications.succeeded, counters.prices.succeeded) == (1, 0)
    assert outcome.xcom("check_connection", "check") == []
    for line in ("✓ Settings", "✓ Fernet key", "✓ Response", "✓ Login"):
        assert line.encode() in outcome.printed
    assert b"with Authen JWT" in outcome.printed
    assert b"Usable." in outcome.printed


def test_check_connection_fails_if_the_connection_cannot_be_used(ran):
    outcome = ran["rejected"].outcome
    assert ran["rejected"].counters.token == 1
    assert outcome.states("check_connection") == {"check": "failed"}
    assert "✗ Login".encode() in outcome.printed
    for octets in outcome.octets.values():
        assert leaks(octets, SECRETS.values()) == []


def test_check_sharing_counts_the_tokens_after_the_first_one_has_expired(ran):
    """In one process. Sharing between processes is proved where an executor starts them."""
    outcome, counters = ran["check_sharing"].outcome, ran["check_sharing"].counters
    assert set(outcome.states("check_sharing").values()) == {"success"}
    (line,) = re.findall(
        r"^```text\n(.*tasks used.*)\n```$", (ROOT / "docs" / "deploying.md").read_text(), re.MULTILINE
    )
    assert line.encode() in outcome.printed
    assert (counters.authentications.succeeded, counters.prices.succeeded) == (2, 0)


def test_the_nightly_batch_prices_a_thousand_loans_and_forgets_its_credential(ran):
    outcome = ran["nightly_batch"].outcome
    states = outcome.states("nightly_batch")
    assert set(states.values()) == {"success"}, states
    assert len([name for name in states if name.startswith("price[")]) == 20
    assert b"1000 loans priced" in outcome.printed
    assert outcome.xcom("nightly_batch", "authenticate") == []
    # Each batch is one XCom value, not one value for each loan.
    assert len(outcome.xcom("nightly_batch", "price")) == 20


def test_the_asynchronous_task_prices_a_thousand_loans(ran):
    outcome = ran["price_async"].outcome
    assert set(outcome.states("price_async").values()) == {"success"}
    assert b"1000 loans priced, from" in outcome.printed
    assert len(outcome.xcom("price_async", "price")) == 1


@pytest.mark.parametrize("name", ["nightly_batch", "price_async"])
def test_a_batch_logs_in_once(name, ran):
    counters = ran[name].counters
    assert (counters.authentications.succeeded, counters.authentications.rejected) == (1, 0)
    assert (counters.prices.succeeded, counters.prices.rejected) == (1000, 0)


@pytest.mark.parametrize("method", METHODS)
def test_the_dag_of_a_method_prices_every_loan_with_one_login(method, ran):
    outcome, counters = ran[BY_METHOD[method]].outcome, ran[BY_METHOD[method]].counters
    assert set(outcome.states(BY_METHOD[method]).values()) == {"success"}
    assert (counters.by_method[method].succeeded, counters.authentications.rejected) == (1, 0)
    priced = {loan["loan_id"]: loan for batch in outcome.xcom(BY_METHOD[method], "price") for loan in json.loads(batch)}
    assert (len(priced), counters.prices.succeeded, counters.prices.rejected) == (40, 40, 0)
    assert all(2 < loan["rate"] < 12 for loan in priced.values())
    assert b"40 loans priced" in outcome.printed


def test_the_one_that_waits_logs_in_when_the_service_is_available(ran):
    outcome, counters = ran["price_when_open"].outcome, ran["price_when_open"].counters
    assert b"40 loans priced" in outcome.printed
    assert (counters.authentications.succeeded, counters.authentications.rejected) == (1, 0)
    # Unavailable for the first poke and two probes; then a probe succeeds, then the second poke.
    assert counters.token == 2
    assert counters.probe >= 3
    assert (counters.prices.succeeded, counters.prices.rejected) == (40, 0)


def test_the_dag_of_the_readme_prints_what_the_readme_shows(ran):
    (shown,) = re.findall(r"^```text\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    printed = ran["readme"].outcome.printed
    login, *priced = shown.splitlines()
    assert login.rpartition("expires at")[0].encode() in printed
    assert len(priced) == 2
    assert [line for line in priced if line.encode() not in printed] == []
    assert ran["readme"].counters.authentications.succeeded == 1
