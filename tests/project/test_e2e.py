"""Parts of the end-to-end tests in which a mistake could hide a problem. The tests have targets of their own."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from e2e import servers
from e2e.batch import Result
from e2e.cluster import CeleryAirflow
from e2e.servers import PostgreSQL, Redis, missing_servers
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


def test_missing_servers_are_named_with_their_packages(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(servers, "DEBIAN_POSTGRESQL", tmp_path)
    message = missing_servers()
    assert "PostgreSQL (package postgresql)" in message
    assert "Redis (package redis-server)" in message
    for program in (tmp_path / "redis-server", tmp_path / "15" / "bin" / "postgres"):
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch(mode=0o755)
    assert missing_servers() == ""


@pytest.mark.parametrize("version", ["2.11", "3.3"])
def test_only_a_worker_of_airflow_2_knows_the_metadata_database(tmp_path, version):
    airflow = CeleryAirflow(
        version,
        python=sys.executable,
        home=tmp_path / "home",
        environment={"AIRFLOW__CORE__DAGS_FOLDER": "dags"},
        fernet_key="fernet-key",
        password="password",
        postgresql=PostgreSQL(Path("bin"), 54321, "database-password", tmp_path),
        redis=Redis(54322, "redis-password", tmp_path),
    )
    environment = airflow.worker_environment("worker-a")
    assert ("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN" in environment) == (version == "2.11")
    assert "AIRFLOW__API_AUTH__JWT_SECRET" not in environment
    assert ("database-password" in str(environment)) == (version == "2.11")
    assert environment["AIRFLOW__CORE__FERNET_KEY"] == "fernet-key"
    assert environment["AIRFLOW_HOME"] != airflow.worker_environment("worker-b")["AIRFLOW_HOME"]


def result(*, states=(("success", 3),), logins=(0.0, 18.0, 36.5), rejected=0):
    """Return a result of three tasks with a token lifetime of 20 seconds."""
    return Result(20, Counter(dict(states)), 40, list(logins), rejected, [0.5], [0.1])


def test_a_batch_with_one_login_for_each_lifetime_has_no_problem():
    assert result().problems(3) == []


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"states": [("success", 2), ("failed", 1)]}, "some tasks did not succeed"),
        ({"states": [("success", 2)]}, "some tasks did not succeed"),
        ({"logins": [0.0]}, "the token did not expire"),
        ({"logins": [0.0, 18.0, 18.5]}, "1 tasks logged in too soon"),
        ({"logins": [0.0, 15.0]}, "1 tasks logged in too soon"),
        ({"rejected": 1}, "1 logins were rejected"),
    ],
)
def test_each_wrong_number_of_a_batch_is_a_problem(changed, problem):
    (found,) = result(**changed).problems(3)
    assert found.startswith(problem)


def test_a_limited_number_of_extra_logins_can_be_allowed():
    late = result(logins=[0.0, 18.0, 18.5, 19.0])
    assert late.extra_logins == 2
    assert late.problems(3, max_extra=2) == []
    assert late.problems(3, max_extra=1)
