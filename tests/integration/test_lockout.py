"""
The lock-out guard, in real DAG runs: with ``retries=5``, a wrong password is posted once, whoever posts it.

What counts is what the sandbox was asked. One task of the same run has no guard and is tried again.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
import shutil
import sqlite3
import subprocess
import sys

from loanauth_sandbox.accounts import default_accounts
from loanauth_sandbox.server import running_sandbox
from tests.support.airflow_scratch import conn_variable
from tests.support.leaks import leaks, said_by
from tests.support.paths import DAG_FILES
from tests.support.secret_search import found_in

COMPANY = default_accounts()[0]
SENSORS = [f"sensor_{mode}{soft}" for mode in ("poke", "reschedule", "deferrable") for soft in ("", "_soft")]
#: These find the service open.
AT_ONCE = ["operator", "hook", *SENSORS]
#: These find it closed first, and wait.
LATE = [f"late_{name}" for name in SENSORS]
CONTROL = "without_guard"


def company_of(names):
    """Return a company with a user for each task."""
    user = COMPANY.users[0]
    users = [
        dataclasses.replace(user, username=f"{name}@lender.example", user_id=f"user-of-{name}", label=name)
        for name in names
    ]
    return dataclasses.replace(COMPANY, users=tuple(users))


def with_wrong_password(sandbox, name):
    conn = copy.deepcopy(sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])
    return conn_variable(name, {**conn, "login": f"{name}@lender.example", "password": "made-up-wrong-password"})


def test_a_wrong_password_is_posted_once(metadata_template, tmp_path):
    """One test, because one DAG run shows it all, and takes its time."""
    shutil.copy(metadata_template, tmp_path / "airflow.db")
    (tmp_path / "dags").mkdir()
    shutil.copy(DAG_FILES / "lockout.py", tmp_path / "dags")
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/airflow.db",
        "LOCKOUT_TASKS": ",".join([*AT_ONCE, *LATE, CONTROL]),
    }
    with contextlib.ExitStack() as stack:
        together = [*AT_ONCE, CONTROL]
        sandboxes = dict.fromkeys(together, stack.enter_context(running_sandbox(accounts=[company_of(together)])))
        for name in LATE:
            sandboxes[name] = stack.enter_context(running_sandbox(accounts=[company_of([name])]))
            sandboxes[name].set_fault("status", status=503, where="token", times=1)
        for name, sandbox in sandboxes.items():
            environment |= dict([with_wrong_password(sandbox, name)])
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.airflow_cli", "dags", "test", "lockout"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=1800,
        )
        refused = {name: sandbox.counters().by_user for name, sandbox in sandboxes.items()}
        turned_away = {name: sandboxes[name].counters().faults for name in LATE}
        locked = {
            name: sandbox.state.wrong_passwords[COMPANY.company_id, f"{name}@lender.example"]
            for name, sandbox in sandboxes.items()
        }
    output = done.stdout + done.stderr
    assert "Wrong Username or Password, or a locked user." in output, output[-5000:]

    # Without the guard, Airflow tries again in this very run. With it, once; also where the service was closed first.
    expected = dict.fromkeys([*AT_ONCE, *LATE], 1) | {CONTROL: 6}
    assert {name: tally[f"{COMPANY.label}/{name}"].refused for name, tally in refused.items()} == expected
    assert locked == expected
    assert turned_away == {name: {"status": 1} for name in LATE}

    # It fails; with soft_fail too, because a skip would hide it.
    with contextlib.closing(sqlite3.connect(tmp_path / "airflow.db")) as database:
        rows = database.execute("SELECT task_id, state, try_number FROM task_instance WHERE dag_id = 'lockout'")
        states = {task: (state, tries) for task, state, tries in rows}
    assert states == {name: ("failed", tries) for name, tries in expected.items()}

    secrets = {"password": "made-up-wrong-password", "client secret": COMPANY.client_secret}
    assert leaks(said_by(output), secrets.values()) == []
    assert found_in((tmp_path / "airflow.db").read_bytes(), secrets) == []
