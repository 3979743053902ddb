"""
Protection against locked accounts, in real DAG runs: with ``retries=5``, a wrong password is sent once by each task.

The requests are counted by the sandbox. One task of the same run hides the error from Airflow, and is retried.
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
from tests.support.leaks import leaks, without_masking_lines
from tests.support.paths import DAG_FILES
from tests.support.secret_search import found_in

COMPANY = default_accounts()[0]
SENSORS = [f"sensor_{mode}{soft}" for mode in ("poke", "reschedule", "deferrable") for soft in ("", "_soft")]
#: For these the service is available.
AT_ONCE = ["operator", "hook", *SENSORS]
#: For these the service is unavailable at first, so they wait.
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


def test_a_wrong_password_is_sent_once(metadata_template, tmp_path):
    """One test, because one DAG run shows everything and takes long."""
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
        sharing = [*AT_ONCE, CONTROL]
        sandboxes = dict.fromkeys(sharing, stack.enter_context(running_sandbox(accounts=[company_of(sharing)])))
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
        counts_by_user = {name: sandbox.counters().by_user for name, sandbox in sandboxes.items()}
        faults = {name: sandboxes[name].counters().faults for name in LATE}
        wrong_passwords = {
            name: sandbox.state.wrong_passwords[COMPANY.company_id, f"{name}@lender.example"]
            for name, sandbox in sandboxes.items()
        }
    output = done.stdout + done.stderr
    assert "Username or Password is wrong, or the user is locked." in output, output[-5000:]

    # One request for each task, also if the service was unavailable at first.
    expected = dict.fromkeys([*AT_ONCE, *LATE, CONTROL], 1)
    rejected = {name: counts[f"{COMPANY.label}/{name}"].rejected for name, counts in counts_by_user.items()}
    assert rejected == expected
    assert wrong_passwords == expected
    assert faults == {name: {"status": 1} for name in LATE}

    # Each task fails, even with soft_fail, because a skip would hide the error. The control is retried in the same run,
    # and sends nothing again, because `dags test` runs all tries in one process.
    with contextlib.closing(sqlite3.connect(tmp_path / "airflow.db")) as database:
        rows = database.execute("SELECT task_id, state, try_number FROM task_instance WHERE dag_id = 'lockout'")
        states = {task: (state, tries) for task, state, tries in rows}
    assert states == {name: ("failed", tries) for name, tries in (expected | {CONTROL: 6}).items()}

    secrets = {"password": "made-up-wrong-password", "client secret": COMPANY.client_secret}
    assert leaks(without_masking_lines(output), secrets.values()) == []
    assert found_in((tmp_path / "airflow.db").read_bytes(), secrets) == []
