"""`pytest_plugin.py` without `loanauth_dags`. `tests/project/test_code_blocks.py` runs it with Airflow."""

from __future__ import annotations

import json
import os

import pytest
from raw_http import TOKEN, send

pytestmark = pytest.mark.once

PREFIX = "AIRFLOW_CONN_"
DEFAULT = {"loanauth_default": "jwt", "loanauth_jwt": "jwt", "loanauth_los": "los", "loanauth_ppe": "ppe"}


def test_the_fixtures(loanauth_sandbox, loanauth_connections, loanauth_pricing_url):
    assert send(loanauth_sandbox, TOKEN).status == 200
    methods = {conn_id: connection["extra"]["method"] for conn_id, connection in loanauth_connections.items()}
    assert methods == DEFAULT
    assert {one["host"] for one in loanauth_connections.values()} == {loanauth_sandbox.url}
    defined = {name: json.loads(value) for name, value in os.environ.items() if name.startswith(PREFIX)}
    assert defined == {f"{PREFIX}{conn_id.upper()}": value for conn_id, value in loanauth_connections.items()}
    assert loanauth_pricing_url == f"{loanauth_sandbox.url}/sandbox/price"
    assert [os.environ[name].split(",")[-1] for name in ("NO_PROXY", "no_proxy")] == ["127.0.0.1"] * 2
    assert not [name for name in os.environ if name.startswith("AIRFLOW_VAR_")]


@pytest.mark.parametrize("loanauth_conn_ids", [{"lender_prod": "JWT"}])
def test_an_unknown_method(loanauth_conn_ids, request):
    with pytest.raises(pytest.fail.Exception, match="the method of lender_prod is none of jwt, los, ppe"):
        request.getfixturevalue("loanauth_connections")


def test_a_scratch_airflow_needs_the_setting(request):
    assert "loanauth-airflow-" not in os.environ.get("AIRFLOW_HOME", "")
    with pytest.raises(pytest.fail.Exception, match="needs the setting loanauth_dags"):
        request.getfixturevalue("loanauth_airflow")
