"""The command, as a user starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.airflow_scratch import conn_variable


@pytest.mark.smoke
def test_check_logs_in(sandbox):
    connection = sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    done = subprocess.run(
        [sys.executable, "-m", "airflow_provider_loanauth", "check", "lender", "--login", "--json"],
        env=os.environ | dict([conn_variable("lender", connection)]),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"]
    assert sandbox.counters().authentications.succeeded == 1
