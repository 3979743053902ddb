"""A sensor that logs in, and mapped tasks that share the login. Their metrics are counted."""

from __future__ import annotations

import os
from datetime import datetime, timezone

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from tests.support.airflow_names import DAG, task


@task
def price(token, loan):
    import requests

    body = {"loan_id": loan, "amount": 300_000, "fico": 740, "ltv": 80, "term_months": 360}
    requests.post(os.environ["PRICE_URL"], json=body, auth=LoanAuth(token), timeout=60).raise_for_status()


with DAG("monitored", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc), catchup=False) as dag:
    token = LoanAuthSensor(task_id="wait", loanauth_conn_id="loanauth_jwt", timeout=60).output
    price.partial(token=token).expand(loan=["L-1", "L-2", "L-3"])
