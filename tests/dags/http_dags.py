"""Airflow's own HTTP operator, with a credential of this provider."""

from __future__ import annotations

import json
from datetime import datetime, timezone

from airflow.providers.http.operators.http import HttpOperator

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from tests.support.airflow_names import DAG
from tests.support.pricing_fixtures import loan

PRICE = {
    "http_conn_id": "pricing",
    "endpoint": "/sandbox/price",
    "headers": {"Content-Type": "application/json"},
    "auth_type": LoanAuth.from_task("authenticate"),
}
loans = [json.dumps(loan(number)) for number in range(2)]

with DAG("http", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc), catchup=False) as dag:
    authenticate = LoanAuthOperator(task_id="authenticate", loanauth_conn_id="loanauth_ppe")
    authenticate >> HttpOperator(task_id="price", data=loans[0], **PRICE)
    authenticate >> HttpOperator.partial(task_id="price_mapped", **PRICE).expand(data=loans)
