"""One task that seals, for an Airflow without a usable Fernet key."""

from __future__ import annotations

from datetime import datetime, timezone

from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from tests.support.airflow_names import DAG

with DAG("sealing", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc), catchup=False) as sealing_dag:
    LoanAuthOperator(task_id="authenticate", loanauth_conn_id="marked_jwt", retries=0)
