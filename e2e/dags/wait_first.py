"""A deferrable sensor waits for the service, and then a task logs in. For Airflow 2.11 to 3.3."""

from __future__ import annotations

from datetime import timedelta

import pendulum

try:
    from airflow.sdk import DAG
except ImportError:  # Airflow 2.11
    from airflow import DAG

from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor

with DAG(
    "wait_first",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    default_args={"loanauth_conn_id": "loanauth_jwt", "retries": 3, "retry_delay": timedelta(seconds=1)},
):
    sensor = LoanAuthSensor(task_id="wait", poke_interval=5, timeout=600, deferrable=True)
    sensor >> LoanAuthOperator(task_id="authenticate")
