"""Deferred sensors, and triggers that authenticate, in a real Airflow with scheduler, workers and triggerer."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import sys
import time
from importlib.metadata import version

import pytest

from e2e.standalone import Airflow
from loanauth_sandbox.accounts import default_accounts
from scripts.programs import Programs
from tests.support.leaks import leaks
from tests.support.paths import DAG_FILES

pytestmark = [pytest.mark.processes, pytest.mark.once]

#: Of the fifty; the end-to-end tests run all of them.
SENSORS = 12
TIMEOUT = 1200.0
COMPANY = default_accounts()[0]
SECRETS = [COMPANY.users[0].password, COMPANY.client_secret]


@pytest.fixture(scope="module")
def airflow(tmp_path_factory, shared_sandbox):
    home, logs = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("logs")
    (home / "dags").mkdir()
    (home / "plugins").mkdir()
    text = (DAG_FILES / "fifty_waiting.py").read_text()
    (home / "dags" / "waiting.py").write_text(text.replace("range(50)", f"range({SENSORS})"))
    # The triggerer imports what is in this folder.
    shutil.copy(DAG_FILES / "authenticating_triggers.py", home / "plugins")
    (home / "dags" / "triggers.py").write_text("from authenticating_triggers import dag  # of airflow\n")
    airflow = Airflow(
        ".".join(version("apache-airflow").split(".")[:2]),
        python=sys.executable,
        home=home,
        environment={
            "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__MAX_ACTIVE_TASKS_PER_DAG": str(SENSORS),
            "AIRFLOW_CONN_WAITING": json.dumps(shared_sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]),
        },
    )
    with Programs(logs) as airflow.programs:
        airflow.start(airflow.programs)
        yield airflow


def states(airflow, dag_id):
    uri = f"file:{airflow.home / 'airflow.db'}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=30)) as connection:
        query = "SELECT state, COUNT(*) FROM task_instance WHERE dag_id = ? GROUP BY state"
        return dict(connection.execute(query, [dag_id]).fetchall())


def run(airflow, dag_id):
    airflow.wait_for_dag(airflow.programs, dag_id)
    airflow.trigger(dag_id, "night", {})


def wait(airflow, dag_id, expected):
    airflow.programs.wait(str(expected), lambda: states(airflow, dag_id) == expected, seconds=TIMEOUT)


def test_deferred_sensors_wait_together(airflow, sandbox):
    sandbox.set_fault("refuse")
    run(airflow, "fifty_waiting")
    wait(airflow, "fifty_waiting", {"deferred": SENSORS})
    # All of them must still wait after this time.
    time.sleep(12)
    assert states(airflow, "fifty_waiting") == {"deferred": SENSORS}
    sandbox.clear_faults()
    wait(airflow, "fifty_waiting", {"success": SENSORS})
    counters = sandbox.counters()
    assert (counters.authentications.succeeded, counters.authentications.rejected) == (1, 0)
    assert counters.token == 1
    # Each sensor sends one before it takes over the login; the triggers share theirs.
    assert counters.probe > SENSORS
    with contextlib.closing(sqlite3.connect(airflow.home / "airflow.db")) as connection:
        dump = "\n".join(connection.iterdump())
    assert dump.count("airflow_provider_loanauth.credentials.AccessToken") >= SENSORS
    # Arguments and events of the triggers are in the database.
    assert leaks(dump, SECRETS) == []
    for log in [*airflow.programs.logs.glob("*.log"), *(airflow.home / "logs").rglob("*.log")]:
        assert leaks(log.read_bytes(), SECRETS) == [], log


def test_a_trigger_that_would_block_the_event_loop_fails_and_the_others_go_on(airflow, sandbox):
    """Without the error, the loop waits for a lock whose owner waits for the loop: no trigger ever goes on."""
    run(airflow, "authenticating_triggers")
    # There, no trigger can use credentials.
    is_old = version("apache-airflow").startswith(("3.0.", "3.1."))
    wait(airflow, "authenticating_triggers", {"failed": 6} if is_old else {"success": 3, "failed": 3})
    texts = [
        log.read_text(encoding="utf-8", errors="replace") for log in (airflow.home / "logs").rglob("*wrong_*/*.log")
    ]
    assert sum("get_credential() would block the event loop of the triggerer" in text for text in texts) >= 3
