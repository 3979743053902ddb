"""What the documentation offers to every Airflow: the check of a connection, and the DAG of the README."""

from __future__ import annotations

import re
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest
from airflow_scratch import conn_variable
from test_dags import run

from airflow_provider_loanauth.sandbox.server import running_sandbox

pytestmark = pytest.mark.xdist_group("dags")

ROOT = Path(__file__).parent.parent


def test_a_connection_is_checked_by_a_dag(metadata_template, tmp_path):
    shutil.copy(metadata_template, tmp_path)
    text = (ROOT / "example_dags" / "check_connection.py").read_text()
    assert text.endswith("\n\n\ncheck_connection()\n")
    (tmp_path / "check.py").write_text(text.removesuffix("check_connection()\n") + "made = check_connection()\n")
    with running_sandbox() as sandbox:
        env = dict([conn_variable("loanauth_default", sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])])
        [outcome] = run(tmp_path, ("checked", tmp_path / "check.py", env))
        counters = sandbox.counters()
    assert outcome.states("check_connection") == {"check": "success"}
    assert (counters.authentications.succeeded, counters.prices.succeeded) == (1, 0)
    assert outcome.xcom("check_connection", "check") == []
    assert b"by Authen JWT" in outcome.printed


def test_the_dag_of_the_readme(tmp_path):
    """As it stands; on 2.11 with the one line changed that the README names."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    instead = "from airflow.decorators import dag, task"
    assert f"On Airflow 2.11 the second line is `{instead}`" in (ROOT / "README.md").read_text()
    lines = block.splitlines()
    if version("apache-airflow").startswith("2."):
        lines[1] = instead
    assert lines[-1] == "price_two_loans()"
    lines[-1] = "made = price_two_loans()"
    module = {}
    exec("\n".join(lines), module)
    assert set(module["made"].task_ids) == {"authenticate", "price"}
