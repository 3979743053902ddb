"""
Real DAGs against the sandbox, run as ``airflow dags test`` runs them, with marked secrets everywhere.

``dags/sealed_dags.py`` keeps the credential sealed. Afterwards the database, logs and printed output are searched for
every secret and every token. ``airflow dags test`` masks nothing, so a value that is not found was never written.
"""

from __future__ import annotations

import json
import re
import shutil

import pytest

from loanauth_sandbox.faults import make_fault
from loanauth_sandbox.server import running_sandbox
from tests.support.airflow_scratch import conn_variable
from tests.support.dag_runs import run
from tests.support.leaks import forms, leaks
from tests.support.secret_accounts import COMPANY, SECRETS, secret_connections, with_wrong_password, without

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def produced(metadata_template, tmp_path_factory):
    """
    The sealed DAGs, then those with plaintext, in one process, with a sandbox and one that responds with a login page;
    and the counters and requests of the sandboxes.
    """
    home = tmp_path_factory.mktemp("dags")
    shutil.copy(metadata_template, home)
    with (
        running_sandbox(accounts=[COMPANY]) as working,
        running_sandbox(accounts=[COMPANY], faults=[make_fault("html-200")]) as broken,
    ):
        defined = secret_connections(working.url)
        defined |= {
            "rejected": with_wrong_password(defined["jwt"]),
            "unset": without(defined["jwt"], "origin"),
            "broken": secret_connections(broken.url)["jwt"],
        }
        env = dict(conn_variable(f"marked_{name}", connection) for name, connection in defined.items())
        env |= {"PRICE_URL": f"{working.url}/sandbox/price", "COMPANY_ID": COMPANY.company_id}
        [sealed, plaintext] = run(home, ("sealed", "sealed_dags.py", env), ("plaintext", "plaintext_dags.py", env))
        return sealed, plaintext, working.counters(), broken.counters(), working.requests()


@pytest.fixture(scope="module")
def sealed(produced):
    return produced[0]


@pytest.fixture(scope="module")
def plaintext(produced):
    return produced[1]


# --- successful runs


@pytest.mark.smoke
def test_taskflow_argument_mapped_tasks_nested_and_pulled(sealed):
    assert set(sealed.states("sealed_journey").values()) == {"success"}
    assert {"price_mapped[0]", "price_mapped[1]", "price_mapped[2]"} <= set(sealed.states("sealed_journey"))
    journey = {name: value for name, value in sealed.proofs.items() if not name.startswith("secret")}
    kinds = {name.rpartition("-")[0] for name in journey}
    assert kinds == {"argument", "mapped-L-1", "mapped-L-2", "mapped-L-3", "nested-0", "nested-1", "nested-2", "pulled"}
    values = {value for name, value in journey.items() if not name.startswith("argument")}
    # One token, in whichever way the task got it. "argument" also has the token of the LOS run.
    assert len(values) == 1
    assert values < set(journey.values())


@pytest.mark.smoke
def test_all_loans_were_priced_with_one_login_for_each_connection(produced):
    _, _, counters, _, requests = produced
    # 1 argument, 3 mapped, 1 with a secret, 1 of the LOS run.
    assert counters.prices.succeeded == 6
    assert counters.prices.rejected == 0
    logins = [entry for entry in requests if entry.endpoint in ("token", "secret") and entry.status == 200]
    # Three Connections with a shared login, and the task that returned the response itself.
    assert len(logins) == 4


def test_each_method_works_and_its_credential_is_sealed_in_xcom(sealed):
    for dag_id, method in (("sealed_journey", "jwt"), ("sealed_los", "los"), ("sealed_ppe", "ppe")):
        assert set(sealed.states(dag_id).values()) == {"success"}
        [stored] = sealed.xcom(dag_id, "authenticate")
        assert f"marked_{method}" in stored
        assert "gAAAA" in stored


# --- runs that must fail


def test_a_rejected_password_is_sent_once(sealed, produced):
    """With ``retries=5``, by the operator, by a task that calls the hook, and by sensors."""
    states = sealed.states("rejected")
    assert set(states) == {"operator", "hook", "settings", "poke", "reschedule", "deferrable"}
    assert {(state, sealed.tries("rejected", name)) for name, state in states.items()} == {("failed", 1)}
    # One for the first task. The task "settings" sends nothing, because Origin is missing.
    assert produced[2].by_user["marked/pat"].rejected == 1
    # Airflow decides which of them runs first.
    result = rb", to rejected\.\w+ on \S+ at \S+\. The same values are not sent again before "
    assert re.search(result, sealed.printed)
    assert b"RejectedError" in sealed.printed
    assert b"Username or Password is wrong" in sealed.printed


def test_a_task_is_retried_if_the_response_is_unusable(sealed, produced):
    """Control for the test above: ``retries`` apply here, so it was the rejection that stopped them there."""
    assert sealed.states("broken")["try_once"] == "failed"
    assert sealed.tries("broken", "try_once") == 3
    # Such a response is not remembered, so each try sends a login.
    assert produced[3].token == 3


def test_a_plaintext_response_is_not_stored(sealed):
    assert sealed.states("broken")["return_response"] == "failed"
    assert sealed.xcom("broken", "return_response") == []
    assert b"is not stored in XCom" in sealed.printed


# --- the search for secrets


@pytest.mark.smoke
def test_no_secret_is_anywhere(sealed):
    hidden = {*SECRETS.values(), *sealed.proofs.values()}
    assert len(hidden) > len(SECRETS)
    for name, octets in sealed.octets.items():
        assert not hidden & {*leaks(octets, hidden)}, name
    # The records of every part at DEBUG were searched.
    for part in (
        b'"POST /sandbox/price HTTP/1.1" 200',
        b"sealed: use LoanAuth or .value",
        b"Authenticated 'pat@canary.example' with Authen JWT",
    ):
        assert part in sealed.printed


def test_the_search_finds_a_plaintext_value(plaintext):
    """Control: without sealing, the same search finds the value in the database, and every form of it in octets."""
    assert set(plaintext.states("plaintext").values()) == {"success"}
    for name in ("token", "secret"):
        kind, _, value = plaintext.proofs[name].partition(" ")
        assert (kind, plaintext.xcom("plaintext", name)) == ("str", [json.dumps(value)])
        assert value in leaks(plaintext.octets[str(plaintext.out / "airflow.db")], [value])
        for form in forms(value):
            assert value in leaks(b"--" + form.encode() + b"--", [value])
