"""Tasks that log in, and that Airflow retries: twice, after minutes or after ten seconds. For 2.11 to 3.3."""

from __future__ import annotations

from datetime import timedelta

import pendulum

try:
    from airflow.sdk import DAG
except ImportError:  # Airflow 2.11
    from airflow import DAG

from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator

#: Retries of each DAG, and seconds before each of them.
RETRIES = {"retried_login": (2, 200), "retried_soon": (2, 10)}

for dag_id, (retries, seconds) in RETRIES.items():
    with DAG(dag_id, schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC")):
        LoanAuthOperator(
            task_id="authenticate",
            loanauth_conn_id="loanauth_jwt",
            reuse=False,
            retries=retries,
            retry_delay=timedelta(seconds=seconds),
        )
