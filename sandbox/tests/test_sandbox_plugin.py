"""`pytest_plugin.py` without `loanauth_dags`. `tests/project/test_testing_your_dags.py` runs it with Airflow."""

from __future__ import annotations

import json
import os

import pytest
from raw_http import TOKEN, send


def test_the_fixtures(loanauth_sandbox, loanauth_connections):
    assert send(loanauth_sandbox, TOKEN).status == 200
    defined = {name: json.loads(value) for name, value in os.environ.items() if name in loanauth_connections}
    assert {name.removeprefix("AIRFLOW_CONN_LOANAUTH_"): one["extra"]["method"] for name, one in defined.items()} == {
        "JWT": "jwt",
        "LOS": "los",
        "PPE": "ppe",
        "DEFAULT": "jwt",
    }
    assert {one["host"] for one in defined.values()} == {loanauth_sandbox.url}
    assert os.environ["AIRFLOW_VAR_LOAN_PRICING_URL"] == f"{loanauth_sandbox.url}/sandbox/price"
    assert os.environ["NO_PROXY"].endswith("127.0.0.1")


def test_a_scratch_airflow_needs_the_setting(request):
    assert "loanauth-airflow-" not in os.environ.get("AIRFLOW_HOME", "")
    with pytest.raises(pytest.fail.Exception, match="needs the setting loanauth_dags"):
        request.getfixturevalue("loanauth_airflow")
