"""A DAG in which a user switches sealing off."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path

from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from tests.support.airflow_names import DAG, task

COMMON = {"start_date": datetime(2026, 1, 1, tzinfo=timezone.utc), "catchup": False}


@task
def write_value(value, name):
    Path(os.environ["PROOFS"], name).write_text(f"{type(value).__name__} {value}")


with DAG("plaintext", schedule=None, **COMMON) as plaintext_dag:
    write_value(LoanAuthOperator(task_id="token", loanauth_conn_id="marked_jwt", seal=False).output, "token")
    write_value(LoanAuthOperator(task_id="secret", loanauth_conn_id="marked_ppe", seal=False).output, "secret")
