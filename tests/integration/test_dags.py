"""
Real DAGs against the sandbox, run as ``airflow dags test`` runs them, with marked secrets everywhere.

``dags/sealed_dags.py`` keeps the credential sealed: afterwards the database, the logs and all that was printed are
searched for every secret and every token. ``airflow dags test`` masks nothing, so what is not found was never written.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from loanauth_sandbox.faults import make_fault
from loanauth_sandbox.server import running_sandbox
from tests.support.airflow_scratch import conn_variable
from tests.support.fernet_keys import OTHER_FERNET_KEY
from tests.support.paths import DAG_FILES
from tests.support.secret_accounts import COMPANY, SECRETS, canary_connections, with_wrong_password, without
from tests.support.secret_search import forms_of, found_in

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class RunResult:
    """What a step left behind."""

    out: Path
    home: Path

    @property
    def proofs(self):
        return {path.name: path.read_text() for path in sorted((self.out / "proofs").iterdir())}

    @property
    def printed(self):
        return (self.out / "printed.txt").read_bytes()

    @property
    def octets(self):
        """
        The database file as it is, every log file, and what was printed, by name.

        Without one kind of line: at DEBUG, ``airflow dags test`` on Airflow 3 prints each message of a task to its
        supervisor, also the one that says what to mask, the Connection's password first. No worker does that.
        """
        files = [self.out / "airflow.db", *(self.home / "logs").rglob("*")]
        printed = b"\n".join(line for line in self.printed.split(b"\n") if b"MaskSecret(" not in line)
        return {str(path): path.read_bytes() for path in files if path.is_file()} | {"printed": printed}

    def query(self, statement, *values):
        with closing(sqlite3.connect(self.out / "airflow.db")) as database:
            return database.execute(statement, values).fetchall()

    def states(self, dag_id):
        """Return the states of the last run by task."""
        rows = self.query(
            "select task_id, map_index, state from task_instance where dag_id = ? and run_id = "
            "(select run_id from dag_run where dag_id = ? order by id desc limit 1)",
            dag_id,
            dag_id,
        )
        return {f"{task}[{index}]" if index >= 0 else task: state for task, index, state in rows}

    def tries(self, dag_id, task_id):
        [(tries,)] = self.query(
            "select try_number from task_instance where dag_id = ? and task_id = ?", dag_id, task_id
        )
        return tries

    def xcom(self, dag_id, task_id):
        rows = self.query(
            "select value from xcom where dag_id = ? and task_id = ? and key = 'return_value'", dag_id, task_id
        )
        return [value if isinstance(value, str) else value.decode() for (value,) in rows]


def run(home, *steps):
    """Run steps (name, DAG file, environment) in one process; return their outcomes."""
    plan = [
        {
            "out": str(home / name),
            "file": str(DAG_FILES / file),
            "env": env | {"PROOFS": str(home / name / "proofs")},
        }
        for name, file, env in steps
    ]
    (home / "plan.json").write_text(json.dumps(plan))
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.dag_runner", str(home / "plan.json")],
        env=os.environ
        | {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "DEBUG",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    outcomes = [RunResult(home / name, home) for name, _, _ in steps]
    last = next(
        (step.printed[-4000:].decode() for step in reversed(outcomes) if (step.out / "printed.txt").exists()), ""
    )
    assert done.returncode == 0, done.stderr[-4000:] + last
    return outcomes


@pytest.fixture(scope="module")
def world(metadata_template, tmp_path_factory):
    """A healthy sandbox and one that answers a login page, a database, and Connections to both."""
    home = tmp_path_factory.mktemp("dags")
    shutil.copy(metadata_template, home)
    with (
        running_sandbox(accounts=[COMPANY]) as healthy,
        running_sandbox(accounts=[COMPANY], faults=[make_fault("html-200")]) as broken,
    ):
        defined = canary_connections(healthy.url)
        defined |= {
            "refused": with_wrong_password(defined["jwt"]),
            "unset": without(defined["jwt"], "origin"),
            "broken": canary_connections(broken.url)["jwt"],
        }
        env = dict(conn_variable(f"canary_{name}", connection) for name, connection in defined.items())
        env |= {"PRICE_URL": f"{healthy.url}/sandbox/price", "COMPANY_ID": COMPANY.company_id}
        yield home, env, healthy, broken


@pytest.fixture(scope="module")
def produced(world):
    """The sealed DAGs, then those that a user makes leaky, in one process; and what the sandbox saw of the first."""
    home, env, healthy, broken = world
    [sealed, clear] = run(home, ("sealed", "sealed_dags.py", env), ("clear", "clear_dags.py", env))
    return sealed, clear, healthy.counters(), broken.counters(), healthy.requests()


@pytest.fixture(scope="module")
def sealed(produced):
    return produced[0]


@pytest.fixture(scope="module")
def clear(produced):
    return produced[1]


@pytest.fixture(scope="module")
def pulled(world, produced):
    """A process that imports nothing of ours pulls; then one with another key, and one that has none."""
    home, env, healthy, _ = world
    [(run_id,)] = produced[0].query("select run_id from dag_run where dag_id = 'sealed_journey'")
    healthy.reset()
    env = env | {"PRODUCER_RUN": run_id}
    outcomes = run(
        home,
        ("pulled", "puller_dags.py", env),
        ("other-key", "puller_dags.py", env | {"AIRFLOW__CORE__FERNET_KEY": OTHER_FERNET_KEY}),
        ("no-key", "sealing_dags.py", env | {"AIRFLOW__CORE__FERNET_KEY": ""}),
    )
    return dict(zip(("pulled", "other-key", "no-key"), outcomes, strict=True)) | {"requests": healthy.requests()}


# --- what works


def test_taskflow_argument_mapped_tasks_nested_and_pulled(sealed):
    assert set(sealed.states("sealed_journey").values()) == {"success"}
    assert {"price_mapped[0]", "price_mapped[1]", "price_mapped[2]"} <= set(sealed.states("sealed_journey"))
    journey = {name: value for name, value in sealed.proofs.items() if not name.startswith("secret")}
    kinds = {name.rpartition("-")[0] for name in journey}
    assert kinds == {"argument", "mapped-L-1", "mapped-L-2", "mapped-L-3", "nested-0", "nested-1", "nested-2", "pulled"}
    values = {value for name, value in journey.items() if not name.startswith("argument")}
    # One token, whichever way it came; "argument" has that of the LOS run as well.
    assert len(values) == 1
    assert values < set(journey.values())


def test_both_other_methods(sealed):
    for dag_id in ("sealed_ppe", "sealed_los"):
        assert set(sealed.states(dag_id).values()) == {"success"}


def test_every_price_was_given_and_one_login_for_each_run(produced):
    _, _, counters, _, requests = produced
    # 1 argument, 3 mapped, 1 with a secret, 1 of the LOS run.
    assert counters.prices.succeeded == 6
    assert counters.prices.refused == 0
    let_in = [entry for entry in requests if entry.endpoint in ("token", "secret") and entry.status == 200]
    # Three sealed runs, the template's, two plain, and the task that returned the answer itself.
    assert len(let_in) == 7


def test_xcom_holds_it_sealed(sealed):
    for dag_id, method in (("sealed_journey", "jwt"), ("sealed_los", "los"), ("sealed_ppe", "ppe")):
        [stored] = sealed.xcom(dag_id, "authenticate")
        assert f"canary_{method}" in stored
        assert "gAAAA" in stored


def test_a_template_opens_it(clear):
    assert set(clear.states("template").values()) == {"success"}
    digest = hashlib.sha256(clear.proofs["value"].encode()).hexdigest()
    assert clear.proofs["in_command"].strip() == digest
    assert clear.proofs["in_environment"].strip() == digest


def test_unsealed_on_demand_it_is_a_plain_string(clear):
    assert set(clear.states("plain").values()) == {"success"}
    for name in ("token", "secret"):
        kind, _, value = clear.proofs[name].partition(" ")
        assert kind == "str"
        [stored] = clear.xcom("plain", name)
        assert json.loads(stored) == value
    assert clear.proofs["token"].count(".") == 2


def test_a_dag_file_that_never_imports_the_package_pulls(pulled, sealed):
    assert pulled["pulled"].states("puller") == {"pull": "success"}
    assert pulled["pulled"].proofs["type"] == "AccessToken"
    assert pulled["pulled"].proofs["value"] in sealed.proofs.values()


def test_nobody_configured_what_may_be_deserialized(sealed):
    """Where the DAGs ran, Airflow's own classes were allowed, as a new Airflow has it, and no others."""
    assert json.loads((sealed.out / "allowed.json").read_text()) == [r"airflow.*", ""]


def test_airflow_itself_prints_what_it_is_to_mask_at_debug(sealed):
    """What is left out of the search, and named in ``docs/security.md``. Should Airflow mend it, this tells."""
    told = [line for line in sealed.printed.split(b"\n") if b"MaskSecret(" in line]
    assert bool(found_in(b"\n".join(told), SECRETS)) is not version("apache-airflow").startswith("2.")


# --- what must fail


def test_a_refused_password_is_posted_once(sealed, produced):
    """With ``retries=5``, by the operator and by a task that calls the hook."""
    assert set(sealed.states("refused").values()) == {"failed"}
    assert [sealed.tries("refused", name) for name in ("operator", "hook", "settings")] == [1, 1, 1]
    counters = produced[2]
    # Both of the two tasks that sent it at all; the third had no Origin to send.
    assert counters.by_user["canary/pat"].refused == 2
    assert b"RejectedError" in sealed.printed
    assert b"Wrong Username or Password" in sealed.printed


def test_a_broken_service_is_asked_again_by_the_task(sealed, produced):
    """The control for the test above: here ``retries`` count, so there it was the refusal that stopped them."""
    assert sealed.states("broken")["operator"] == "failed"
    assert sealed.tries("broken", "operator") == 3
    assert produced[3].token == 3


def test_an_answer_in_clear_is_not_stored(sealed):
    assert sealed.states("broken")["return_answer"] == "failed"
    assert sealed.xcom("broken", "return_answer") == []
    assert b"is not stored in XCom" in sealed.printed


def test_another_key_says_what_to_do(pulled):
    assert pulled["other-key"].states("puller")["pull"] == "failed"
    assert b"this process has another Fernet key" in pulled["other-key"].printed
    assert b"Set the same [core] fernet_key on every component" in pulled["other-key"].printed


def test_no_key_fails_before_any_request(pulled):
    assert pulled["no-key"].states("sealing") == {"authenticate": "failed"}
    assert b"SealError" in pulled["no-key"].printed
    assert b"AIRFLOW__CORE__FERNET_KEY" in pulled["no-key"].printed
    assert pulled["requests"] == []


# --- what must not be found


def secrets_and_tokens(outcome):
    return SECRETS | {f"value of {name}": value for name, value in outcome.proofs.items()}


def test_no_secret_is_anywhere(sealed):
    hidden = secrets_and_tokens(sealed)
    assert len(hidden) > 12
    found = {name: hits for name, octets in sealed.octets.items() if (hits := found_in(octets, hidden))}
    assert not found


def test_the_search_is_able_to_find(clear):
    """The control: where a user unseals, the same search finds the value in the database, and in what was printed."""
    hidden = {"token": clear.proofs["token"].partition(" ")[2]}
    assert found_in(clear.octets[str(clear.out / "airflow.db")], hidden) == ["token"]
    for form in forms_of(hidden["token"]):
        assert found_in(b"--" + form + b"--", hidden) == ["token"]


def test_debug_records_of_every_part_were_searched(sealed):
    for part in (
        b'"POST /oauth/token HTTP/1.1" 200',
        b"sealed, .value opens it",
        b"Authenticated 'pat@canary.example' by Authen JWT",
    ):
        assert part in sealed.printed


def test_no_secret_where_opening_fails(pulled, sealed):
    hidden = secrets_and_tokens(sealed)
    for name in ("pulled", "other-key", "no-key"):
        found = {path: hits for path, octets in pulled[name].octets.items() if (hits := found_in(octets, hidden))}
        assert not found
