"""Runs of the example DAGs: their output, and the counters of the sandbox."""

from __future__ import annotations

import contextlib
import json
import re
import runpy
import shutil
import time
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import ANY

import pytest
import requests

from loanauth_sandbox.server import running_sandbox
from tests.support.code_blocks import BLOCKS, PAGES, airflow_names
from tests.support.dag_runs import run
from tests.support.paths import DAG_FILES, EXAMPLE_DAGS
from tests.support.secret_accounts import COMPANY, USER, with_wrong_password

#: Each example, the DAG of the README, and one with Airflow's HTTP operator, also mapped: what it prints, how often it
#: logs in, and how many loans it prices.
EXAMPLES = {
    "reprice_pipeline_jwt": ("40 loans priced", 1, 40),
    "price_applications_los": ("40 loans priced", 1, 40),
    "refresh_quotes_ppe": ("40 loans priced", 1, 40),
    "price_when_open": ("40 loans priced", 1, 40),
    "nightly_batch": ("199 loans priced", 1, 199),
    "price_async": ("200 loans priced, from", 1, 200),
    "login_schedules_pricing": ("Authenticated 'pat@lender.example' with Authen JWT", 1, 2),
    "check_connection": ("Usable.", 0, 0),
    "check_sharing": ("8 tasks used 1 token(s) after the first one had expired", 2, 0),
    "readme": ("Authenticated 'pat@lender.example' with Authen JWT; the access token expires at ", 1, 2),
    "http_dags": ("with PPE API secret", 1, 3),
}
#: Those of price_companies, each with its own password.
COMPANIES = [
    replace(COMPANY, label=x, client_id=x, users=(replace(USER, username=x, password=f"made-up-password-{x}"),))
    for x in "abc"
]
#: The DAGs of a file whose DAG has another name.
DAG_IDS = {
    "login_schedules_pricing": ["login_schedules_pricing", "price_after_login"],
    "readme": ["price_two_loans"],
    "http_dags": ["http"],
}


def with_named_dag(home, name, port):
    """Write an example so that its DAGs are variables of the module; the example itself only registers them."""
    if name == "readme":
        (text,) = (block.text for block in BLOCKS if (block.page, block.language) == ("README.md", "python"))
        text = airflow_names(text).replace(":8500/", f":{port}/")
    elif name == "rejected":
        text = (EXAMPLE_DAGS / "check_connection.py").read_text().replace('"login": Param(False', '"login": Param(True')
    else:
        folder = DAG_FILES if name == "http_dags" else EXAMPLE_DAGS
        text = (folder / f"{name}.py").read_text()
    # Intervals of half a minute and more, and many tasks, are too long for a test.
    text = re.sub(r"poke_interval=\d+,", "poke_interval=0.3,", text)
    text = text.replace("LOANS = 1000\n", "LOANS = 200\n")
    # On 3.0, `DAG.test` fails a task that has an asset, because no scheduler has activated the asset; and a sensor that
    # was rescheduled, because it gets the time of its start as text.
    text = text.replace(", outlets=[LOGIN]", "").replace('mode="reschedule", ', "")
    path = home / f"{name}.py"
    path.write_text(re.sub(r"^(\w+)\(\)$", r"made_\1 = \1()", text, flags=re.MULTILINE))
    return path


#: Of the sandboxes.
OPTIONS = {
    # A token that expires ten minutes ago, by the clock of Airflow, is valid for its lifetime.
    "check_sharing": {"clock": lambda: time.time() - 600},
    "price_companies": {"accounts": COMPANIES},
}
FAULTS = {
    "check_sharing": {"kind": "short-lived-token", "where": "token", "times": 1, "lifetime": 3},
    "price_when_open": {"kind": "status", "status": 503, "times": 3},
}
#: The Connection with a wrong password: of a check, and of one of three companies.
WRONG = {"rejected": "LOANAUTH_JWT", "price_companies": "LOANAUTH_COMPANY_A"}


def environment(name, sandbox):
    connections = sandbox.connections()
    for number, company in enumerate(OPTIONS.get(name, {}).get("accounts", [])):
        connection = sandbox.connections(number)["AIRFLOW_CONN_LOANAUTH_JWT"]
        connections[f"AIRFLOW_CONN_LOANAUTH_COMPANY_{company.label.upper()}"] = connection
    if name in WRONG:
        variable = f"AIRFLOW_CONN_{WRONG[name]}"
        connections[variable] = with_wrong_password(connections[variable])
    connections["AIRFLOW_CONN_PRICING"] = {"conn_type": "http", "host": sandbox.url}
    connections["AIRFLOW_CONN_LOANAUTH_DEFAULT"] = connections["AIRFLOW_CONN_LOANAUTH_JWT"]
    return {variable: json.dumps(connection) for variable, connection in connections.items()} | {
        "AIRFLOW_VAR_LOAN_PRICING_URL": f"{sandbox.url}/sandbox/price",
        # At DEBUG the output of so many loans would be very long.
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
    }


@pytest.fixture(scope="module")
def ran(metadata_template, tmp_path_factory):
    """Each example, run once, one after the other in one process: the outcome, and the counters of its own sandbox."""
    home = tmp_path_factory.mktemp("examples")
    shutil.copy(metadata_template, home)
    shutil.copytree(EXAMPLE_DAGS / "data", home / "dags" / "data")
    with contextlib.ExitStack() as stack:
        sandboxes, steps = {}, []
        for name in [*EXAMPLES, *WRONG]:
            sandbox = sandboxes[name] = stack.enter_context(running_sandbox(**OPTIONS.get(name, {})))
            if name in FAULTS:
                sandbox.set_fault(**FAULTS[name])
            file = with_named_dag(home, name, sandbox.port)
            steps.append((name, file, environment(name, sandbox)))
        outcomes = run(home, *steps)
        return {
            name: SimpleNamespace(outcome=outcome, counters=sandbox.counters())
            for (name, sandbox), outcome in zip(sandboxes.items(), outcomes, strict=True)
        }


def test_each_example_is_in_the_table():
    assert {file.stem for file in EXAMPLE_DAGS.glob("*.py")} <= {*EXAMPLES, *WRONG}


@pytest.mark.processes
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_succeeds_with_so_many_logins(name, ran):
    outcome, counters = ran[name].outcome, ran[name].counters
    printed, logins, prices = EXAMPLES[name]
    for dag_id in DAG_IDS.get(name, [name]):
        assert set(outcome.states(dag_id).values()) == {"success"}
    assert printed.encode() in outcome.printed
    assert (counters.authentications.succeeded, counters.authentications.rejected) == (logins, 0)
    assert (counters.prices.succeeded, counters.prices.rejected) == (prices, name == "nightly_batch")


@pytest.mark.processes
def test_check_connection_fails_if_the_connection_cannot_be_used(ran):
    assert ran["rejected"].counters.token == 1
    assert ran["rejected"].outcome.states("check_connection") == {"check": "failed"}
    assert "✗ Login".encode() in ran["rejected"].outcome.printed


@pytest.mark.processes
def test_the_loans_of_the_other_companies_are_priced_if_the_password_of_one_is_wrong(ran):
    one = ran["price_companies"]
    states = one.outcome.states("price_companies")
    assert (states.pop("company.authenticate[0]"), states.pop("company.price[0]")) == ("failed", "upstream_failed")
    assert set(states.values()) == {"success"}
    assert one.counters.by_user["a/pat"].rejected == 1
    assert (one.counters.prices.succeeded, one.counters.prices.rejected) == (5, 0)


def test_check_sharing_prints_what_the_docs_show():
    assert EXAMPLES["check_sharing"][0] in PAGES["docs/operating.md"].splitlines()


@pytest.mark.processes
def test_a_batch_is_one_value_with_its_bad_loan_and_the_nightly_one_forgets_its_credential(ran):
    nightly = ran["nightly_batch"].outcome
    assert nightly.xcom("nightly_batch", "authenticate") == []
    assert len(ran["price_async"].outcome.xcom("price_async", "price")) == 1
    batches = [json.loads(batch) for batch in nightly.xcom("nightly_batch", "price")]
    assert sorted(len(batch["rates"]) for batch in batches) == [49] + [50] * 3
    [(loan, reason)] = [pair for batch in batches for pair in batch["rejected"].items()]
    assert (loan, "fico must be a number from 300 to 850" in reason) == ("NB-0123", True)
    assert b"NB-0123 was not priced: 400 " in nightly.printed


@pytest.mark.parametrize("status", [401, 503])
def test_what_is_the_fault_of_no_loan_fails_the_batch(status, world, pulled, monkeypatch):
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    monkeypatch.setenv("AIRFLOW_CONN_LOANAUTH_JWT", json.dumps(connection))
    monkeypatch.setenv("AIRFLOW_VAR_LOAN_PRICING_URL", world.url)
    price = runpy.run_path(str(EXAMPLE_DAGS / "nightly_batch.py"))["nightly_batch"]().get_task("price").python_callable
    token = pulled("loanauth_jwt")
    assert price(token, [1, 123]) == {"rates": {"NB-0001": ANY}, "rejected": {"NB-0123": ANY}}
    world.sandbox.set_fault("status", where="price", status=status)
    with pytest.raises(requests.HTTPError):
        price(token, [1])


@pytest.mark.processes
def test_the_dag_of_the_readme_prints_what_the_readme_shows(ran):
    # The first block is of `make demo`.
    _, shown = (block.text for block in BLOCKS if (block.page, block.language) == ("README.md", "text"))
    login, *priced = shown.splitlines()
    assert login.startswith(EXAMPLES["readme"][0])
    assert len(priced) == 2
    assert [line for line in priced if line.encode() not in ran["readme"].outcome.printed] == []
