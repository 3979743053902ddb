"""`make demo`: what it prints, that it stops everything, and that it fails where something is wrong."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts import demo
from scripts.programs import ProgramError
from tests.support.paths import EXAMPLE_DAGS
from tests.support.programs import run_python

pytestmark = [pytest.mark.processes, pytest.mark.once]

DAGS = {method: next(EXAMPLE_DAGS.glob(f"*_{method}.py")).stem for method in demo.METHODS}


def running(text):
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if text.encode() in (process / "cmdline").read_bytes() + (process / "environ").read_bytes():
                found.add(int(process.name))
    return found


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_it_runs_a_dag_of_each_method_with_one_login(tmp_path):
    done = run_python("-m", "scripts.demo", "--directory", tmp_path)
    assert done.stderr == ""
    assert "FAILED" not in done.stdout
    for method, name in demo.METHODS.items():
        rows = [line.split()[-3:] for line in done.stdout.splitlines() if line.startswith(f"  {name} ")]
        assert rows == [[DAGS[method], "1", "40"]]
    wait_until(lambda: not running(str(tmp_path)))


def test_ctrl_c_in_the_middle_leaves_nothing_running(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "scripts.demo", "--directory", tmp_path], stdout=subprocess.PIPE, text=True
    ) as program:
        for line in program.stdout:
            if "the sandbox listens" in line:
                break
        # The sandbox, and an Airflow that migrates its database.
        wait_until(lambda: len(running(str(tmp_path)) - {program.pid}) >= 2)
        program.send_signal(signal.SIGINT)
        rest = program.stdout.read()
        assert program.wait(60) == 130
    assert "All programs have been stopped" in rest
    assert "Traceback" not in rest
    wait_until(lambda: not running(str(tmp_path)))


def test_a_directory_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "precious").write_text("x", encoding="utf-8")
    with pytest.raises(ProgramError, match="is not empty"):
        demo.demo(tmp_path)
    assert (tmp_path / "precious").exists()


def test_a_credential_that_is_not_sealed_fails_the_demo(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "airflow.db")) as database:
        database.execute("CREATE TABLE xcom (task_id, value)")
        database.execute("INSERT INTO xcom VALUES ('authenticate', '\"made-up-plaintext-token\"')")
        database.commit()
    with pytest.raises(ProgramError, match="not sealed"):
        demo.Run("jwt", "some_jwt", tmp_path, tmp_path / "x.log").xcom()
