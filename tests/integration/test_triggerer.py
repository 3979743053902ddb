"""Deferred sensors, and triggers that authenticate, in a real Airflow with scheduler, workers and triggerer."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import sys
from importlib.metadata import version

import pytest

from e2e.airflow import Airflow
from loanauth_sandbox.accounts import default_accounts
from loanauth_sandbox.server import running_sandbox
from scripts.programs import Programs
from tests.support.leaks import leaks
from tests.support.paths import DAG_FILES

pytestmark = [pytest.mark.processes, pytest.mark.once]

#: Of the fifty; the end-to-end tests run all of them.
SENSORS = 6
TIMEOUT = 1200.0
COMPANY = default_accounts()[0]
SECRETS = [COMPANY.users[0].password, COMPANY.client_secret]


@pytest.fixture
def services():
    with running_sandbox() as waiting, running_sandbox() as working:
        waiting.set_fault("refuse")
        yield {"WAITING": waiting, "WORKING": working}


@pytest.fixture
def airflow(tmp_path, services):
    home, logs = tmp_path / "home", tmp_path / "logs"
    for folder in (home / "dags", home / "plugins", logs):
        folder.mkdir(parents=True)
    text = (DAG_FILES / "fifty_waiting.py").read_text()
    (home / "dags" / "waiting.py").write_text(text.replace("range(50)", f"range({SENSORS})"))
    # The triggerer imports what is in this folder.
    shutil.copy(DAG_FILES / "authenticating_triggers.py", home / "plugins")
    (home / "dags" / "triggers.py").write_text("from authenticating_triggers import dag  # of airflow\n")
    environment = {
        f"AIRFLOW_CONN_{name}": json.dumps(sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])
        for name, sandbox in services.items()
    }
    environment |= {
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__PARALLELISM": "4",
    }
    installed = ".".join(version("apache-airflow").split(".")[:2])
    airflow = Airflow(installed, python=sys.executable, home=home, environment=environment)
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


def test_deferred_sensors_wait_together_while_others_use_the_triggerer(airflow, services):
    run(airflow, "fifty_waiting")
    wait(airflow, "fifty_waiting", {"deferred": SENSORS})
    # Triggers that would block the event loop fail. Without the error, no trigger ever goes on.
    run(airflow, "authenticating_triggers")
    wait(airflow, "authenticating_triggers", {"success": 2, "failed": 2})
    texts = [
        log.read_text(encoding="utf-8", errors="replace") for log in (airflow.home / "logs").rglob("*wrong_*/*.log")
    ]
    assert sum("get_credential() would block the event loop of the triggerer" in text for text in texts) >= 2
    # Meanwhile more than an interval has passed.
    assert states(airflow, "fifty_waiting") == {"deferred": SENSORS}
    services["WAITING"].clear_faults()
    wait(airflow, "fifty_waiting", {"success": SENSORS})
    counters = services["WAITING"].counters()
    assert (counters.authentications.succeeded, counters.token) == (1, 1)
    # Each sensor sends one before it takes over the login; the triggers share theirs.
    assert counters.probe > SENSORS
    with contextlib.closing(sqlite3.connect(airflow.home / "airflow.db")) as connection:
        dump = "\n".join(connection.iterdump())
    assert dump.count("airflow_provider_loanauth.credentials.AccessToken") >= SENSORS
    # Arguments and events of the triggers are in the database.
    assert leaks(dump, SECRETS) == []
    for log in [*airflow.programs.logs.glob("*.log"), *(airflow.home / "logs").rglob("*.log")]:
        assert leaks(log.read_bytes(), SECRETS) == [], log
