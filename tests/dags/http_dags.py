"""Airflow's own HTTP hook and operator, with the credentials of this provider."""

from __future__ import annotations

import json
from datetime import datetime, timezone

from airflow.providers.http.hooks.http import HttpHook
from airflow.providers.http.operators.http import HttpOperator

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from tests.support.airflow_names import DAG, task

COMMON = {"start_date": datetime(2026, 1, 1, tzinfo=timezone.utc), "catchup": False}
LOAN = {"loan_id": "L-1", "amount": 300_000, "fico": 740, "ltv": 80, "term_months": 360}
JSON = {"Content-Type": "application/json"}
CREDENTIAL = LoanAuth.from_task("authenticate")
COMMON_PRICE = {
    "http_conn_id": "pricing",
    "endpoint": "/sandbox/price",
    "headers": JSON,
    "response_filter": lambda response: response.json()["rate"],
}


@task
def by_hook():
    """Price loans, each by a call of the hook, in a task that does not pull the credential itself."""
    hook = HttpHook(method="POST", http_conn_id="pricing", auth_type=CREDENTIAL)
    loans = [LOAN | {"loan_id": f"L-{number}"} for number in range(3)]
    return [hook.run("/sandbox/price", data=json.dumps(loan), headers=JSON).json()["rate"] for loan in loans]


def after_login(dag_id, conn_id):
    with DAG(dag_id, schedule=None, **COMMON) as dag:
        authenticate = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=conn_id)
        by_operator = HttpOperator(task_id="by_operator", data=json.dumps(LOAN), auth_type=CREDENTIAL, **COMMON_PRICE)
        by_mapped_operator = HttpOperator.partial(
            task_id="by_mapped_operator", auth_type=CREDENTIAL, **COMMON_PRICE
        ).expand(data=[json.dumps(LOAN | {"loan_id": f"L-{number}"}) for number in range(2)])
        authenticate >> [by_hook(), by_operator, by_mapped_operator]
        if conn_id == "http_jwt":
            # For a token only: the company id, which must be sent with an API secret, is not in XCom.
            header = "Bearer {{ ti.xcom_pull('authenticate').value }}"
            authenticate >> HttpOperator(
                task_id="by_header",
                data=json.dumps(LOAN),
                **COMMON_PRICE | {"headers": JSON | {"Authorization": header}},
            )
    return dag


http_jwt_dag = after_login("http_jwt", "http_jwt")
http_ppe_dag = after_login("http_ppe", "http_ppe")
