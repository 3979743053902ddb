"""
Real DAGs against the sandbox, run as ``airflow dags test`` runs them, with marked secrets everywhere.

``dags/sealed_dags.py`` keeps the credential sealed. Afterwards the database, logs and printed output are searched for
every secret and every token. ``airflow dags test`` masks nothing, so a value that is not found was never written.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from importlib.metadata import version

import pytest

from loanauth_sandbox.faults import make_fault
from loanauth_sandbox.server import running_sandbox
from tests.support.airflow_scratch import conn_variable
from tests.support.dag_runs import run
from tests.support.fernet_keys import OTHER_FERNET_KEY
from tests.support.leaks import forms, leaks
from tests.support.secret_accounts import COMPANY, SECRETS, secret_connections, with_wrong_password, without


@pytest.fixture(scope="module")
def world(metadata_template, tmp_path_factory):
    """A sandbox without faults, one that responds with a login page, a database, and Connections to both."""
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
        yield home, env, working, broken


@pytest.fixture(scope="module")
def produced(world):
    """The sealed DAGs, then those with plaintext, in one process; and the counters and requests of the sandboxes."""
    home, env, working, broken = world
    [sealed, plaintext] = run(home, ("sealed", "sealed_dags.py", env), ("plaintext", "plaintext_dags.py", env))
    return sealed, plaintext, working.counters(), broken.counters(), working.requests()


@pytest.fixture(scope="module")
def sealed(produced):
    return produced[0]


@pytest.fixture(scope="module")
def plaintext(produced):
    return produced[1]


@pytest.fixture(scope="module")
def pulled(world, produced):
    """Pull in a process that imports nothing of this package, and with a different key."""
    home, env, _, _ = world
    [(run_id,)] = produced[0].query("select run_id from dag_run where dag_id = 'sealed_journey'")
    env = env | {"PRODUCER_RUN": run_id}
    return run(
        home,
        ("pulled", "puller_dags.py", env),
        ("other-key", "puller_dags.py", env | {"AIRFLOW__CORE__FERNET_KEY": OTHER_FERNET_KEY}),
    )


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
    # Three Connections with a shared login, two runs in plaintext, and the task that returned the response itself.
    assert len(logins) == 6


def test_each_method_works_and_its_credential_is_sealed_in_xcom(sealed):
    for dag_id, method in (("sealed_journey", "jwt"), ("sealed_los", "los"), ("sealed_ppe", "ppe")):
        assert set(sealed.states(dag_id).values()) == {"success"}
        [stored] = sealed.xcom(dag_id, "authenticate")
        assert f"marked_{method}" in stored
        assert "gAAAA" in stored


def test_a_template_opens_the_credential(plaintext):
    assert set(plaintext.states("template").values()) == {"success"}
    digest = hashlib.sha256(plaintext.proofs["value"].encode()).hexdigest()
    assert plaintext.proofs["in_command"].strip() == digest
    assert plaintext.proofs["in_environment"].strip() == digest


def test_without_sealing_xcom_has_a_plain_string(plaintext):
    assert set(plaintext.states("plaintext").values()) == {"success"}
    for name in ("token", "secret"):
        kind, _, value = plaintext.proofs[name].partition(" ")
        assert kind == "str"
        [stored] = plaintext.xcom("plaintext", name)
        assert json.loads(stored) == value
    assert plaintext.proofs["token"].count(".") == 2


def test_a_dag_file_that_never_imports_the_package_pulls(pulled, sealed):
    assert pulled[0].states("puller") == {"pull": "success"}
    assert pulled[0].proofs["type"] == "AccessToken"
    assert pulled[0].proofs["value"] in sealed.proofs.values()


def test_no_configuration_of_allowed_classes_is_needed(sealed):
    """The DAGs ran with Airflow's default: only Airflow's own classes may be deserialized."""
    assert json.loads((sealed.out / "allowed.json").read_text()) == [r"airflow.*", ""]


def test_airflow_itself_prints_the_values_to_mask_at_debug(sealed):
    """The search leaves these lines out (``docs/security.md``). If Airflow no longer prints them, this test fails."""
    lines = [line for line in sealed.printed.split(b"\n") if b"MaskSecret(" in line]
    assert bool(leaks(b"\n".join(lines), SECRETS.values())) is not version("apache-airflow").startswith("2.")


# --- runs that must fail


def test_a_rejected_password_is_sent_once(sealed, produced):
    """With ``retries=5``, by the operator, by a task that calls the hook, and by sensors with ``soft_fail``."""
    states = sealed.states("rejected")
    assert set(states) == {"operator", "hook", "settings", "poke", "reschedule", "deferrable"}
    # A skip would hide the error.
    assert {(state, sealed.tries("rejected", name)) for name, state in states.items()} == {("failed", 1)}
    # One for the first task. The task "settings" sends nothing, because Origin is missing.
    assert produced[2].by_user["marked/pat"].rejected == 1
    # Airflow decides which of them runs first.
    assert re.search(rb"Nothing was sent this time, because rejected\.\w+ on ", sealed.printed)
    assert b"RejectedError" in sealed.printed
    assert b"Username or Password is wrong" in sealed.printed


def test_a_task_is_retried_if_the_response_is_unusable(sealed, produced):
    """Control for the test above: ``retries`` apply here, so it was the rejection that stopped them there."""
    assert sealed.states("broken")["operator"] == "failed"
    assert sealed.tries("broken", "operator") == 3
    # Nothing is sent for a minute after such a response.
    assert produced[3].token == 1
    assert b"and tasks that share the login wait for another" in sealed.printed


def test_a_plaintext_response_is_not_stored(sealed):
    assert sealed.states("broken")["return_response"] == "failed"
    assert sealed.xcom("broken", "return_response") == []
    assert b"is not stored in XCom" in sealed.printed


def test_the_message_about_a_different_key_has_a_remedy(pulled):
    assert pulled[1].states("puller")["pull"] == "failed"
    assert b"this process has a different Fernet key" in pulled[1].printed
    assert b"Set the same [core] fernet_key on every component" in pulled[1].printed


# --- the search for secrets


def found_in(outcome, sealed):
    """Return the files, and the output, that contain a secret, or a credential of the sealed DAGs."""
    hidden = {*SECRETS.values(), *sealed.proofs.values()}
    assert len(hidden) > len(SECRETS)
    return {name: found for name, octets in outcome.octets.items() if (found := hidden & {*leaks(octets, hidden)})}


@pytest.mark.smoke
def test_no_secret_is_anywhere(sealed):
    assert found_in(sealed, sealed) == {}


def test_the_search_finds_a_plaintext_value(plaintext):
    """Control: without sealing, the same search finds the value in the database, and every form of it in octets."""
    token = plaintext.proofs["token"].partition(" ")[2]
    assert token in leaks(plaintext.octets[str(plaintext.out / "airflow.db")], [token])
    for form in forms(token):
        assert token in leaks(b"--" + form.encode() + b"--", [token])


def test_debug_records_of_every_part_were_searched(sealed):
    for part in (
        b'"POST /sandbox/price HTTP/1.1" 200',
        b"sealed: use LoanAuth or .value",
        b"Authenticated 'pat@canary.example' with Authen JWT",
    ):
        assert part in sealed.printed


def test_no_secret_where_opening_fails(pulled, sealed):
    for outcome in pulled:
        assert found_in(outcome, sealed) == {}
