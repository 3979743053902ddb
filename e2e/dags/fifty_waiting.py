"""Fifty deferred sensors on one service, for the end-to-end tests."""

from __future__ import annotations

import datetime as dt

try:
    from airflow.sdk import DAG
except ImportError:
    from airflow import DAG

from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor

with DAG(
    "fifty_waiting",
    start_date=dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc),
    schedule=None,
    # Airflow 3.0 may fail a deferred task because of a stale event of its executor (apache/airflow #66374, #67287).
    default_args={"retries": 1, "retry_delay": dt.timedelta(0)},
) as dag:
    for number in range(50):
        LoanAuthSensor(
            task_id=f"wait_{number:02}", loanauth_conn_id="waiting", poke_interval=5, timeout=600, deferrable=True
        )
