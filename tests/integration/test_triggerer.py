"""Triggers that authenticate, in a real Airflow. The end-to-end tests have deferred sensors."""

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
from scripts.programs import Programs
from tests.support.leaks import leaks
from tests.support.paths import DAG_FILES

pytestmark = [pytest.mark.processes, pytest.mark.once]

DAG_ID = "authenticating_triggers"
COMPANY = default_accounts()[0]
SECRETS = [COMPANY.users[0].password, COMPANY.client_secret]


@pytest.fixture
def airflow(tmp_path, sandbox):
    home, logs = tmp_path / "home", tmp_path / "logs"
    for folder in (home / "dags", home / "plugins", logs):
        folder.mkdir(parents=True)
    # The triggerer imports what is in this folder.
    shutil.copy(DAG_FILES / f"{DAG_ID}.py", home / "plugins")
    (home / "dags" / "triggers.py").write_text(f"from {DAG_ID} import dag  # of airflow\n")
    environment = {
        "AIRFLOW_CONN_WORKING": json.dumps(sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__PARALLELISM": "4",
    }
    installed = ".".join(version("apache-airflow").split(".")[:2])
    airflow = Airflow(installed, python=sys.executable, home=home, environment=environment)
    with Programs(logs) as airflow.programs:
        airflow.start(airflow.programs)
        yield airflow


def states(airflow):
    uri = f"file:{airflow.home / 'airflow.db'}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=30)) as connection:
        return dict(connection.execute("SELECT state, COUNT(*) FROM task_instance GROUP BY state").fetchall())


def test_triggers_authenticate_and_those_that_would_block_the_event_loop_fail(airflow):
    """Without the error, no trigger ever goes on."""
    airflow.wait_for_dag(airflow.programs, DAG_ID)
    airflow.trigger(DAG_ID, "night", {})
    airflow.programs.wait(DAG_ID, lambda: states(airflow) == {"success": 2, "failed": 2}, seconds=1200.0)
    logs = [*airflow.programs.logs.glob("*.log"), *(airflow.home / "logs").rglob("*.log")]
    texts = [log.read_text(encoding="utf-8", errors="replace") for log in logs if "wrong_" in str(log)]
    assert sum("get_credential() would block the event loop of the triggerer" in text for text in texts) >= 2
    with contextlib.closing(sqlite3.connect(airflow.home / "airflow.db")) as connection:
        assert leaks("\n".join(connection.iterdump()), SECRETS) == []
    for log in logs:
        assert leaks(log.read_bytes(), SECRETS) == [], log
