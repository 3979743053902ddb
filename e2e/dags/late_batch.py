"""
A batch that lasts longer than its token, for Airflow 2.11 to 3.3.

Each mapped task prices one loan, and returns how long it waited for its credential. ``e2e/batch.py`` runs the DAG.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pendulum

try:
    from airflow.sdk import DAG, task
except ImportError:  # Airflow 2.11
    from airflow import DAG
    from airflow.decorators import task

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator

LOAN = {"amount": 300_000, "fico": 740, "ltv": 80, "term_months": 360}

with DAG(
    "late_batch",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    params={"url": "", "tasks": 1},
    # Tasks of a worker that is killed run again.
    default_args={"retries": 3, "retry_delay": timedelta(seconds=1)},
):
    authenticate = LoanAuthOperator(task_id="authenticate", loanauth_conn_id="loanauth_jwt")

    @task
    def loans(**context: Any) -> list[int]:
        """Return the numbers of the loans."""
        return list(range(context["params"]["tasks"]))

    @task
    def price(token: Any, loan: int, **context: Any) -> dict[str, Any]:
        """Price a loan; return whether a refreshed credential was sent, and the seconds until it was sent."""
        import requests

        started = time.monotonic()
        url = context["params"]["url"]
        response = requests.post(url, json=LOAN | {"loan_id": loan}, auth=LoanAuth(token), timeout=30)
        waited = time.monotonic() - started - response.elapsed.total_seconds()
        response.raise_for_status()
        refreshed = response.request.headers["Authorization"] != f"Bearer {token.value}"
        return {"refreshed": refreshed, "waited": waited}

    price.partial(token=authenticate.output).expand(loan=loans())
