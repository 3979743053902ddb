"""The example DAGs, all parsed in one process. `test_example_runs.py` runs them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from airflow_provider_loanauth.get_provider_info import LABELS
from scripts import demo
from tests.support.paths import EXAMPLE_DAGS, ROOT

FILES = sorted(EXAMPLE_DAGS.glob("*.py"))
EXAMPLES = {method: next(EXAMPLE_DAGS.glob(f"*_{method}.py")) for method in demo.METHODS}

PARSE = """
import importlib.util, json, sys
from pathlib import Path

try:
    from airflow.sdk import DAG, BaseOperator, Param, Variable, dag, task
except ImportError:
    from airflow import DAG
    from airflow.decorators import dag, task
    from airflow.models import BaseOperator, Variable
    from airflow.models.param import Param

before = set(sys.modules)
for name in sys.argv[1:]:
    path = Path(name)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # Those of the files before it too: none of them may load an HTTP library.
    modules = sorted(set(sys.modules) - before)
    dag = getattr(module, path.stem)()
    print("parsed:", json.dumps({
        "modules": modules,
        "dag_id": dag.dag_id,
        "schedule": dag.schedule if hasattr(dag, "schedule") else dag.schedule_interval,
        "catchup": dag.catchup,
        "tasks": {task.task_id: hasattr(task, "expand_input") for task in dag.tasks},
        "retries": {task.task_id: task.retries for task in dag.tasks},
        "logins": [task.method for task in dag.tasks if type(task).__name__ == "LoanAuthOperator"],
    }))
"""


@pytest.fixture(scope="module")
def parsed():
    """Every example, parsed in one process: by the name of the file."""
    done = subprocess.run(
        [sys.executable, "-c", PARSE, *FILES],
        env=os.environ | {"AIRFLOW__CORE__DEFAULT_TASK_RETRIES": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line.partition("parsed:")[2]) for line in done.stdout.splitlines() if "parsed:" in line]
    return dict(zip([file.stem for file in FILES], found, strict=True))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_file_states_scenario_and_set_up_and_imports_no_http_library(file, parsed):
    found = parsed[file.stem]
    assert found["dag_id"] == file.stem
    assert found["schedule"] is None or found["catchup"] is False
    assert not {"requests", "urllib3", "jwt", "starlette", "uvicorn"} & set(found["modules"])
    text = file.read_text(encoding="utf-8")
    assert "\nScenario: " in text
    assert "\nSet-up:" in text


def test_a_check_that_fails_is_not_repeated(parsed):
    """A retry would send a rejected password again, which can lock the account."""
    assert parsed["check_connection"]["retries"] == {"check": 0}


@pytest.mark.parametrize("method", demo.METHODS)
def test_the_dag_of_a_method_logs_in_once_for_mapped_tasks_every_day(method, parsed):
    found = parsed[EXAMPLES[method].stem]
    assert found["schedule"].split()[2:] == ["*", "*", "*"]
    assert found["logins"] == [method]
    assert [name for name, mapped in found["tasks"].items() if mapped] == ["price"]


def test_the_page_names_every_field_of_the_connection():
    text = (ROOT / "docs" / "connection.md").read_text(encoding="utf-8")
    for name, label in LABELS.items():
        assert re.search(rf"^\| {label} \| (extra )?`{name}` \|", text, re.MULTILINE), label
