"""Parts of the end-to-end tests in which a mistake could hide a problem. The tests have targets of their own."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from e2e.batch import TASKS, Result
from e2e.cluster import CeleryAirflow
from e2e.servers import PostgreSQL, Redis
from scripts.programs import Programs

#: Starts a program with a process group of its own, as Airflow starts a task, and writes its process id to a file.
STARTS_A_TASK = """
import os, subprocess, sys, time
task = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], preexec_fn=os.setpgrp)
open(sys.argv[1] + ".new", "w").write(str(task.pid))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""


def runs(pid):
    """Return whether a process runs. One that has ended may remain until its parent reads its status."""
    stat = Path("/proc", pid, "stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped at the end"])
def test_no_process_of_a_program_is_left(tmp_path, kill):
    pid_file = tmp_path / "pid"
    with Programs(tmp_path) as programs:
        program = programs.start_command("worker", sys.executable, "-c", STARTS_A_TASK, str(pid_file), environment={})
        programs.wait("the task", pid_file.exists, seconds=60)
        task = pid_file.read_text()
        assert runs(task)
        if kill:
            programs.kill(program)
            assert not runs(task)
            assert program.wait(60) == -9
    assert not runs(task)


@pytest.mark.parametrize("version", ["2.11", "3.3"])
def test_only_a_worker_of_airflow_2_knows_the_metadata_database(tmp_path, version):
    airflow = CeleryAirflow(
        version,
        python=sys.executable,
        home=tmp_path / "home",
        environment={"AIRFLOW__CORE__DAGS_FOLDER": "dags"},
        postgresql=PostgreSQL(Path("bin"), 54321, "database-password", tmp_path),
        redis=Redis(54322, "redis-password", tmp_path),
    )
    environment = airflow.worker_environment("worker-a")
    assert ("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN" in environment) == (version == "2.11")
    assert "AIRFLOW__API_AUTH__JWT_SECRET" not in environment
    assert ("database-password" in str(environment)) == (version == "2.11")
    assert environment["AIRFLOW__CORE__FERNET_KEY"] == airflow.environment["AIRFLOW__CORE__FERNET_KEY"]
    assert environment["AIRFLOW_HOME"] != airflow.worker_environment("worker-b")["AIRFLOW_HOME"]


def result(*, states=(("success", TASKS),), logins=(0.0, 40.0), rejected=0):
    """Return a result of a batch with one expiry."""
    return Result(Counter(dict(states)), list(logins), rejected)


def test_a_batch_with_one_login_for_each_lifetime_has_no_problem():
    assert result().problems() == []


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"states": [("success", TASKS - 1), ("failed", 1)]}, "some tasks did not succeed"),
        ({"states": [("success", TASKS - 1)]}, "some tasks did not succeed"),
        ({"logins": [0.0]}, "1 logins instead of 2: the token did not expire"),
        ({"logins": [0.0, 40.0, 40.5]}, "1 tasks logged in too soon"),
        ({"logins": [0.0, 17.0]}, "1 tasks logged in too soon"),
        ({"rejected": 1}, "1 logins were rejected instead of 0"),
    ],
)
def test_each_wrong_number_of_a_batch_is_a_problem(changed, problem):
    (found,) = result(**changed).problems()
    assert found.startswith(problem)
