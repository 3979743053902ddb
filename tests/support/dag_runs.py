"""Runs DAG files in another process, and reads what they have left: states, XCom values, the database, logs, output.

``python -m tests.support.dag_runs PLAN`` is that process; it runs each step as ``airflow dags test`` does.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import logging
import os
import shutil
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tests.support.airflow_scratch import reload_fernet_key, variables_of
from tests.support.paths import DAG_FILES
from tests.support.programs import run_python


@dataclass
class RunResult:
    out: Path
    home: Path

    @property
    def proofs(self):
        return {path.name: path.read_text() for path in sorted((self.out / "proofs").iterdir())}

    @property
    def printed(self):
        return (self.out / "printed.txt").read_bytes()

    @property
    def octets(self):
        """The contents of the database file, of every log file, and of the printed output, by name.

        One kind of line is left out: at DEBUG, ``airflow dags test`` on Airflow 3 prints each message of a task to its
        supervisor, including those with the values to mask, such as the Connection's password. No worker does that.
        """
        files = [self.out / "airflow.db", *(self.home / "logs").rglob("*")]
        printed = b"\n".join(line for line in self.printed.split(b"\n") if b"MaskSecret(" not in line)
        return {str(path): path.read_bytes() for path in files if path.is_file()} | {"printed": printed}

    def query(self, statement, *values):
        with closing(sqlite3.connect(self.out / "airflow.db")) as database:
            return database.execute(statement, values).fetchall()

    def states(self, dag_id):
        """Return the states of the last run by task."""
        columns = {name for (name,) in self.query("select name from pragma_table_info('task_instance')")}
        index = "map_index" if "map_index" in columns else "region_index"  # from Airflow 3.4 on
        rows = self.query(
            f"select task_id, {index}, state from task_instance where dag_id = ? and run_id = "
            "(select run_id from dag_run where dag_id = ? order by id desc limit 1)",
            dag_id,
            dag_id,
        )
        return {f"{task}[{index}]" if index >= 0 else task: state for task, index, state in rows}

    def tries(self, dag_id, task_id):
        [(tries,)] = self.query(
            "select try_number from task_instance where dag_id = ? and task_id = ?", dag_id, task_id
        )
        return tries

    def xcom(self, dag_id, task_id):
        rows = self.query(
            "select value from xcom where dag_id = ? and task_id = ? and key = 'return_value'", dag_id, task_id
        )
        return [value if isinstance(value, str) else value.decode() for (value,) in rows]


def run(home, *steps, environment=None):
    """Run steps (name, DAG file, changes to the environment) in one new process; return a RunResult for each."""
    outcomes = [RunResult(home / name, home) for name, _, _ in steps]
    plan = [
        {"out": str(one.out), "file": str(DAG_FILES / file), "env": env | {"PROOFS": str(one.out / "proofs")}}
        for one, (_, file, env) in zip(outcomes, steps, strict=True)
    ]
    path = home / "plan.json"
    path.write_text(json.dumps(plan))
    variables = variables_of(home) | {
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "DEBUG",
    }
    changes = variables | (environment or {})
    done = run_python("-m", "tests.support.dag_runs", str(path), environment=changes, check=False)
    printed = [one.printed for one in outcomes if (one.out / "printed.txt").exists()]
    assert done.returncode == 0, done.stderr + b"".join(printed)[-4000:].decode()
    return outcomes


def cache_task_api():
    """Build the API for tasks once, as 3.3 does. From 3.0 to 3.2 it is built for each task, in 3 to 5 seconds."""
    try:
        from airflow.sdk.execution_time import supervisor
    except ImportError:
        return
    supervisor.in_process_api_server = functools.cache(supervisor.in_process_api_server)


def run_step(step, home):
    out = Path(step["out"])
    (out / "proofs").mkdir(parents=True)
    printed = os.open(out / "printed.txt", os.O_CREAT | os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(printed, stream)
    os.environ.update(step["env"])
    reload_fernet_key()
    (home / "dags").mkdir(exist_ok=True)
    for previous in (home / "dags").glob("*.py"):
        previous.unlink()
    path = shutil.copy(step["file"], home / "dags")
    for dag in dags_of(path):
        dag.test()
    sys.stdout.flush()
    sys.stderr.flush()
    with closing(sqlite3.connect(home / "airflow.db")) as database:
        # The copy must contain the data of the write-ahead log too.
        database.execute("pragma wal_checkpoint(truncate)")
    shutil.copy(home / "airflow.db", out)


def dags_of(path):
    from airflow import settings

    from tests.support.airflow_names import DAG

    settings.initialize()
    # Not every version prints the log records of libraries.
    handler = logging.StreamHandler(sys.stdout)
    logging.getLogger("urllib3").handlers = [handler]
    logging.getLogger("urllib3").setLevel(logging.DEBUG)
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return [value for value in vars(module).values() if isinstance(value, DAG)]


if __name__ == "__main__":
    cache_task_api()
    for planned in json.loads(Path(sys.argv[1]).read_text()):
        run_step(planned, Path(os.environ["AIRFLOW_HOME"]))
