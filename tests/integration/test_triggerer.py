"""Fifty deferred sensors wait for one unavailable service, in a real Airflow with scheduler, workers and triggerer."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import sys
import time
from importlib.metadata import version

from e2e.standalone import Airflow
from loanauth_sandbox.accounts import default_accounts
from scripts.programs import Programs
from tests.support.leaks import leaks
from tests.support.paths import DAG_FILES

SENSORS = 50
TIMEOUT = 1200.0
COMPANY = default_accounts()[0]
SECRETS = [COMPANY.users[0].password, COMPANY.client_secret]


def states(database):
    """Return how many tasks are in each state."""
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
        rows = connection.execute("SELECT state, COUNT(*) FROM task_instance GROUP BY state").fetchall()
    return dict(rows)


def test_fifty_deferred_sensors_wait_together(tmp_path, sandbox):
    home, logs = tmp_path / "home", tmp_path / "logs"
    logs.mkdir()
    (home / "dags").mkdir(parents=True)
    shutil.copy(DAG_FILES / "fifty_waiting.py", home / "dags")
    airflow = Airflow(
        ".".join(version("apache-airflow").split(".")[:2]),
        python=sys.executable,
        home=home,
        environment={
            "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__MAX_ACTIVE_TASKS_PER_DAG": str(SENSORS),
            "AIRFLOW_CONN_WAITING": json.dumps(sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]),
        },
    )
    database = home / "airflow.db"
    sandbox.set_fault("refuse")
    try:
        with Programs(logs) as programs:
            airflow.start(programs)
            airflow.wait_for_dag(programs, "fifty_waiting")
            airflow.trigger("fifty_waiting", "night", {})
            programs.wait("50 deferred", lambda: states(database) == {"deferred": SENSORS}, seconds=TIMEOUT)
            # All of them must still wait after this time.
            time.sleep(12)
            assert states(database) == {"deferred": SENSORS}
            sandbox.clear_faults()
            programs.wait("50 done", lambda: states(database) == {"success": SENSORS}, seconds=TIMEOUT)
    finally:
        sandbox.clear_faults()
    counters = sandbox.counters()
    assert (counters.authentications.succeeded, counters.authentications.rejected) == (1, 0)
    assert counters.token == 1
    # While they waited, the triggerer sent a few for all. Then each sensor sends one before it takes over the login.
    assert SENSORS + 1 <= counters.probe <= SENSORS + 3
    with contextlib.closing(sqlite3.connect(database)) as connection:
        dump = "\n".join(connection.iterdump())
    assert dump.count("airflow_provider_loanauth.credentials.AccessToken") >= SENSORS
    # Arguments and events of the triggers are in the database.
    assert leaks(dump, SECRETS) == []
    for log in [*logs.glob("*.log"), *(home / "logs").rglob("*.log")]:
        assert leaks(log.read_bytes(), SECRETS) == [], log
