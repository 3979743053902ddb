"""Runs of the example DAGs: their output, and the counters of the sandbox."""

from __future__ import annotations

import contextlib
import json
import re
import runpy
import shutil
import time
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace
from unittest.mock import ANY

import pytest
import requests

from loanauth_sandbox.server import running_sandbox
from scripts.demo import METHODS
from tests.support.code_blocks import BLOCKS, PAGES
from tests.support.dag_runs import run
from tests.support.leaks import leaks
from tests.support.paths import EXAMPLE_DAGS
from tests.support.secret_accounts import COMPANY, SECRETS, USER, with_wrong_password

#: Each example, and the DAG of the README: what it prints, how often it logs in, and how many loans it prices.
EXAMPLES = {
    "reprice_pipeline_jwt": ("40 loans priced", 1, 40),
    "price_applications_los": ("40 loans priced", 1, 40),
    "refresh_quotes_ppe": ("40 loans priced", 1, 40),
    "price_when_open": ("40 loans priced", 1, 40),
    "nightly_batch": ("999 loans priced", 1, 999),
    "price_companies": ("3 loans priced with loanauth_company_c", 3, 6),
    "price_async": ("1000 loans priced, from", 1, 1000),
    "login_schedules_pricing": ("Authenticated 'pat@lender.example' with Authen JWT", 1, 2),
    "check_connection": ("with Authen JWT", 1, 0),
    "check_sharing": ("8 tasks used 1 token(s) after the first one had expired", 2, 0),
    "readme": ("Authenticated 'pat@lender.example' with Authen JWT; the access token expires at ", 1, 2),
}
#: Those of price_companies, each with its own password.
COMPANIES = [
    replace(COMPANY, label=x, client_id=x, users=(replace(USER, username=x, password=f"made-up-password-{x}"),))
    for x in "abc"
]
#: The DAGs of a file whose DAG has another name.
DAG_IDS = {"login_schedules_pricing": ["login_schedules_pricing", "price_after_login"], "readme": ["price_two_loans"]}


def with_named_dag(home, name):
    """Copy an example so that its DAGs are variables of the module; the example itself only registers them."""
    # Intervals of half a minute and more are too long for a test.
    text = re.sub(r"poke_interval=\d+,", "poke_interval=0.3,", (EXAMPLE_DAGS / f"{name}.py").read_text())
    # On 3.0, `DAG.test` fails a task that has an asset, because no scheduler has activated the asset; and a sensor that
    # was rescheduled, because it gets the time of its start as text.
    text = text.replace(", outlets=[LOGIN]", "").replace('mode="reschedule", ', "")
    path = home / f"{name}.py"
    path.write_text(re.sub(r"^(\w+)\(\)$", r"made_\1 = \1()", text, flags=re.MULTILINE))
    return path


def dag_of_the_readme(home, port):
    """Write the DAG of the README as a user does; only the port of the sandbox differs."""
    (text,) = (block.text for block in BLOCKS if (block.page, block.language) == ("README.md", "python"))
    if not find_spec("airflow.sdk"):  # 2.11
        (line,) = re.findall(r"^On Airflow 2\.11 the second line is `(.+?)`", PAGES["README.md"], re.MULTILINE)
        text = text.replace("from airflow.sdk import dag, task", line)
    assert "127.0.0.1:8500/" in text
    path = home / "price_two_loans.py"
    path.write_text(text.replace(":8500/", f":{port}/").replace("\nprice_two_loans()", "\nmade = price_two_loans()"))
    return path


@pytest.fixture(scope="module")
def ran(metadata_template, tmp_path_factory):
    """Each example, run once, one after the other in one process: the outcome, and the counters of its own sandbox."""
    home = tmp_path_factory.mktemp("examples")
    shutil.copy(metadata_template, home)
    shutil.copytree(EXAMPLE_DAGS / "data", home / "dags" / "data")
    with contextlib.ExitStack() as stack:
        sandboxes, steps = {}, []
        # A check, and the loans of three companies, with a wrong password.
        for name in [*EXAMPLES, "rejected", "price_companies_rejected"]:
            options = {"accounts": [COMPANY]} if name == "rejected" else {}
            if name.startswith("price_companies"):
                options["accounts"] = COMPANIES
            if name == "check_sharing":
                # A token that expires ten minutes ago, by the clock of Airflow, is valid for its lifetime.
                options["clock"] = lambda: time.time() - 600
            sandbox = sandboxes[name] = stack.enter_context(running_sandbox(**options))
            connections = sandbox.connections()
            if name == "check_sharing":
                sandbox.set_fault("short-lived-token", where="token", times=1, lifetime=3)
            elif name == "price_when_open":
                sandbox.set_fault("status", status=503, times=3)
            elif name == "rejected":
                connections["AIRFLOW_CONN_LOANAUTH_JWT"] = with_wrong_password(connections["AIRFLOW_CONN_LOANAUTH_JWT"])
            connections["AIRFLOW_CONN_LOANAUTH_DEFAULT"] = connections["AIRFLOW_CONN_LOANAUTH_JWT"]
            for number, company in enumerate(options.get("accounts", [])):
                one = sandbox.connections(number)["AIRFLOW_CONN_LOANAUTH_JWT"]
                if name == "price_companies_rejected" and company.label == "a":
                    one = with_wrong_password(one)
                connections[f"AIRFLOW_CONN_LOANAUTH_COMPANY_{company.label.upper()}"] = one
            env = {variable: json.dumps(connection) for variable, connection in connections.items()} | {
                "AIRFLOW_VAR_LOAN_PRICING_URL": f"{sandbox.url}/sandbox/price",
                # At DEBUG the output of a thousand loans would be very long.
                "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
            }
            if name == "readme":
                file = dag_of_the_readme(home, sandbox.port)
            else:
                file = with_named_dag(home, {"rejected": "check_connection"}.get(name, name.removesuffix("_rejected")))
            steps.append((name, file, env))
        outcomes = run(home, *steps)
        return {
            name: SimpleNamespace(
                outcome=outcome, counters=sandbox.counters(), requests=sandbox.requests(), digest=sandbox.state.digest
            )
            for (name, sandbox), outcome in zip(sandboxes.items(), outcomes, strict=True)
        }


def test_each_example_is_in_the_table():
    assert {file.stem for file in EXAMPLE_DAGS.glob("*.py")} <= {*EXAMPLES}


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
@pytest.mark.parametrize("method", METHODS)
def test_the_dag_of_a_method_returns_the_rate_of_every_loan(method, ran):
    [name] = [name for name in EXAMPLES if name.endswith(f"_{method}")]
    assert ran[name].counters.by_method[method].succeeded == 1
    loans = [loan for batch in ran[name].outcome.xcom(name, "price") for loan in json.loads(batch)]
    assert len({loan["loan_id"] for loan in loans}) == 40
    assert all(2 < loan["rate"] < 12 for loan in loans)


@pytest.mark.processes
def test_check_connection_fails_if_the_connection_cannot_be_used_and_returns_nothing(ran):
    outcome = ran["check_connection"].outcome
    assert outcome.xcom("check_connection", "check") == []
    for line in ("✓ Settings", "✓ Fernet key", "✓ Response", "✓ Login", "Usable."):
        assert line.encode() in outcome.printed
    outcome = ran["rejected"].outcome
    assert ran["rejected"].counters.token == 1
    assert outcome.states("check_connection") == {"check": "failed"}
    assert "✗ Login".encode() in outcome.printed
    assert [octets for octets in outcome.octets.values() if leaks(octets, SECRETS.values())] == []


@pytest.mark.processes
def test_no_loan_is_priced_with_the_credential_of_another_company(ran):
    """The password of the first of three companies is wrong."""
    one = ran["price_companies_rejected"]
    assert one.outcome.states("price_companies") == {
        "company.authenticate[0]": "failed",
        "company.price[0]": "upstream_failed",
        **{f"company.{task}[{index}]": "success" for task in ("authenticate", "price") for index in (1, 2)},
    }
    logins = {one.digest(company.users[0].password): company.label for company in COMPANIES}
    tokens = {request.issued: logins.get(request.sent) for request in one.requests if request.issued}
    assert Counter(tokens[request.sent] for request in one.requests if request.endpoint == "price") == {"b": 2, "c": 3}


def test_check_sharing_prints_what_the_docs_show():
    """In one process. Sharing between processes is proved where an executor starts them."""
    assert EXAMPLES["check_sharing"][0] in PAGES["docs/operating.md"].splitlines()


@pytest.mark.processes
def test_a_batch_is_one_value_with_its_bad_loan_and_the_nightly_one_forgets_its_credential(ran):
    nightly = ran["nightly_batch"].outcome
    assert nightly.xcom("nightly_batch", "authenticate") == []
    assert len(ran["price_async"].outcome.xcom("price_async", "price")) == 1
    batches = [json.loads(batch) for batch in nightly.xcom("nightly_batch", "price")]
    assert sorted(len(batch["rates"]) for batch in batches) == [49] + [50] * 19
    [(loan, reason)] = [pair for batch in batches for pair in batch["rejected"].items()]
    assert loan == "NB-0123"
    assert reason.startswith("400 ")
    assert "fico must be a number from 300 to 850" in reason
    assert b"NB-0123 was not priced: 400 " in nightly.printed


@pytest.mark.parametrize("status", [401, 403, 404, 408, 429, 500, 503, None])
def test_what_is_the_fault_of_no_loan_fails_the_batch(status, world, pulled, monkeypatch):
    connection = world.sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    monkeypatch.setenv("AIRFLOW_CONN_LOANAUTH_JWT", json.dumps(connection))
    monkeypatch.setenv("AIRFLOW_VAR_LOAN_PRICING_URL", world.url)
    price = runpy.run_path(str(EXAMPLE_DAGS / "nightly_batch.py"))["nightly_batch"]().get_task("price").python_callable
    token = pulled("loanauth_jwt")
    assert price(token, [1, 123]) == {"rates": {"NB-0001": ANY}, "rejected": {"NB-0123": ANY}}
    if status:
        world.sandbox.set_fault("status", where="price", status=status)
    else:
        world.sandbox.set_fault("refuse")
    with pytest.raises(requests.HTTPError if status else requests.ConnectionError):
        price(token, [1])


@pytest.mark.processes
def test_the_dag_of_the_readme_prints_what_the_readme_shows(ran):
    # The first one is of `make demo`.
    _, shown = (block.text for block in BLOCKS if (block.page, block.language) == ("README.md", "text"))
    login, *priced = shown.splitlines()
    assert login.startswith(EXAMPLES["readme"][0])
    assert len(priced) == 2
    assert [line for line in priced if line.encode() not in ran["readme"].outcome.printed] == []
