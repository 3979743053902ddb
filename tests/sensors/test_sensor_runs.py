"""The sensor in real DAG runs: its XCom in every mode, available at the first poke or later, and its timeouts."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from importlib.metadata import version

import pytest

from loanauth_sandbox.accounts import default_accounts
from loanauth_sandbox.server import running_sandbox
from tests.support.airflow_scratch import conn_variable
from tests.support.leaks import leaks, without_masking_lines
from tests.support.paths import DAG_FILES, EXAMPLE_DAGS
from tests.support.secret_search import found_in

pytestmark = pytest.mark.processes

DAG_FILE = DAG_FILES / "waits.py"
EXAMPLE = EXAMPLE_DAGS / "price_when_open.py"
MODES = ["poke", "reschedule", "deferrable"]
WAITS = [f"{mode}_{when}" for mode in MODES for when in ("open", "late")]
COMPANY = default_accounts()[0]


def scratch_environment(home, metadata_template):
    """Return the environment of an Airflow in a home of its own, with an empty DAG folder."""
    shutil.copy(metadata_template, home / "airflow.db")
    (home / "dags").mkdir()
    return {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
    }


def dags_test(dag_id, environment):
    return subprocess.run(
        [sys.executable, "-m", "tests.support.airflow_cli", "dags", "test", dag_id],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )


def test_every_mode_returns_its_credential_and_times_out_as_expected(metadata_template, tmp_path):
    """One test, because one DAG run shows everything and takes long."""
    environment = scratch_environment(tmp_path, metadata_template)
    shutil.copy(DAG_FILE, tmp_path / "dags")
    with contextlib.ExitStack() as stack:
        sandboxes = {name: stack.enter_context(running_sandbox()) for name in [*WAITS, "down"]}
        for name, sandbox in sandboxes.items():
            environment |= dict([conn_variable(name, sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])])
            environment[f"ADDRESS_OF_{name.upper()}"] = sandbox.url
            if name.endswith("late"):
                sandbox.set_fault("status", status=503, where="token", times=1)
        sandboxes["down"].set_fault("status", status=503)
        done = dags_test("waits", environment)
        counters = {name: sandbox.counters() for name, sandbox in sandboxes.items()}
    output = done.stdout + done.stderr
    with contextlib.closing(sqlite3.connect(tmp_path / "airflow.db")) as database:
        rows = database.execute("SELECT task_id, state, try_number FROM task_instance WHERE dag_id = 'waits'")
        states = {task: (state, tries) for task, state, tries in rows}
        rows = database.execute("SELECT task_id, value FROM xcom WHERE dag_id = 'waits' AND key = 'return_value'")
        returned = {task: value if isinstance(value, str) else bytes(value).decode() for task, value in rows}

    # Despite retries=3 each task has one try: Airflow does not retry after a timeout of a sensor either.
    expected = {task: ("success", 1) for name in WAITS for task in (name, f"use_{name}")}
    if version("apache-airflow").startswith("3.0."):
        # On 3.0 ``dags test`` fails in Airflow's own date arithmetic when a sensor is rescheduled twice.
        states = {task: state for task, state in states.items() if not task.startswith("reschedule_down")}
    modes = [mode for mode in MODES if f"{mode}_down" in states]
    expected |= {f"{mode}_down": ("failed", 1) for mode in modes}
    expected |= {f"{mode}_down_soft": ("skipped", 1) for mode in modes}
    assert states == expected, output[-5000:]

    for name in WAITS:
        late = name.endswith("late")
        # The next task received the credential, and could use it.
        assert "AccessToken" in returned[f"use_{name}"]
        assert "credentials.AccessToken" in returned[name]
        assert counters[name].prices.succeeded == 1
        # One successful authentication, and one rejected poke where the service was unavailable at first.
        assert counters[name].authentications.succeeded == 1
        assert counters[name].token == 1 + late
        assert counters[name].probe >= 1

    secrets = {"password": COMPANY.users[0].password, "client secret": COMPANY.client_secret}
    assert leaks(without_masking_lines(output), secrets.values()) == []
    assert found_in((tmp_path / "airflow.db").read_bytes(), secrets) == []


def test_the_example_waits_until_the_service_is_available_then_prices(metadata_template, tmp_path):
    environment = scratch_environment(tmp_path, metadata_template)
    text = EXAMPLE.read_text(encoding="utf-8")
    assert text.count("poke_interval=60,") == 1
    # An interval of a minute is too long for a test.
    (tmp_path / "dags" / EXAMPLE.name).write_text(text.replace("poke_interval=60,", "poke_interval=0.3,"), "utf-8")
    shutil.copytree(EXAMPLE.parent / "data", tmp_path / "dags" / "data")
    with running_sandbox() as sandbox:
        sandbox.set_fault("status", status=503, times=3)
        connections = sandbox.connections()
        environment |= {
            "AIRFLOW_CONN_LOANAUTH_JWT": conn_variable("x", connections["AIRFLOW_CONN_LOANAUTH_JWT"])[1],
            "AIRFLOW_VAR_LOAN_PRICING_URL": f"{sandbox.url}/sandbox/price",
        }
        done = dags_test("price_when_open", environment)
        counters = sandbox.counters()
    assert "40 loans priced" in done.stdout, done.stdout[-5000:] + done.stderr[-5000:]
    assert (counters.authentications.succeeded, counters.authentications.rejected) == (1, 0)
    # Unavailable for the first poke and two probes; then a probe succeeds, then the second poke.
    assert counters.token == 2
    assert counters.probe >= 3
    assert (counters.prices.succeeded, counters.prices.rejected) == (40, 0)
