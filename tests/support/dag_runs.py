"""Runs DAG files in other processes, and reads what they have left: states, XCom values, the database, logs, output."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tests.support.airflow_scratch import variables_of
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
    done = run_python("-m", "tests.support.dag_runner", str(path), environment=changes, check=False)
    printed = [one.printed for one in outcomes if (one.out / "printed.txt").exists()]
    assert done.returncode == 0, done.stderr + b"".join(printed)[-4000:].decode()
    return outcomes
