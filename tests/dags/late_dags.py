"""DAGs whose token has expired before it is used, or expires while a task runs; and DAGs that delete the credential."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import datetime, timezone

import requests

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.operators.loanauth import LoanAuthForgetOperator, LoanAuthOperator
from tests.support.airflow_names import DAG, task

COMMON = {"start_date": datetime(2026, 1, 1, tzinfo=timezone.utc), "catchup": False}
LOAN = {"amount": 300_000, "fico": 740, "ltv": 80, "term_months": 360}
STEP = os.environ["LATE_STEP"]
CONN_ID = "late_jwt"


def price_all(session, loans):
    rates = []
    for loan in loans:
        response = session.post(os.environ["PRICE_URL"], json=LOAN | {"loan_id": f"L-{loan}"}, timeout=30)
        response.raise_for_status()
        rates.append(response.json()["rate"])
    return rates


def wait_until_expired(token):
    time.sleep(max(0.0, token.expires_at.timestamp() - time.time()) + 0.1)


@task
def wait(token):
    wait_until_expired(token)


@task
def price(token, loans):
    with requests.Session() as session:
        session.auth = LoanAuth(token)
        return price_all(session, loans)


@task
def outlive(token):
    with requests.Session() as session:
        session.auth = LoanAuth(token)
        rates = price_all(session, [1])
        wait_until_expired(token)
        return rates + price_all(session, [2, 3])


@task
def price_in_a_loop(token):
    import httpx

    from airflow_provider_loanauth.auth.httpx import LoanAuth as AsyncLoanAuth

    async def main():
        async with httpx.AsyncClient(auth=AsyncLoanAuth(token), timeout=30, verify=False) as client:
            calls = [client.post(os.environ["PRICE_URL"], json=LOAN | {"loan_id": f"L-{loan}"}) for loan in range(20)]
            responses = await asyncio.gather(*calls)
        return [response.raise_for_status().json()["rate"] for response in responses]

    return asyncio.run(main())


@task
def price_next_day(loan, ti=None):
    source = {"dag_id": "late", "task_ids": "authenticate"}
    try:
        token = ti.xcom_pull(**source, run_id=os.environ["YESTERDAY"])
    except TypeError:  # 2.11
        token = ti.xcom_pull(**source, include_prior_dates=True)
    with requests.Session() as session:
        session.auth = LoanAuth(token)
        return price_all(session, [loan, loan + 1])


@task
def fail(token):
    raise ValueError("made-up failure of a task")


if STEP == "late":
    with DAG("late", schedule=None, **COMMON) as late_dag:
        authenticate = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID)
        expired = wait(authenticate.output)
        mapped = price.partial(token=authenticate.output).expand(loans=[[1, 2], [3], [4, 5]])
        expired >> mapped >> price_in_a_loop(authenticate.output)

if STEP == "outlive":
    with DAG("outlive", schedule=None, **COMMON) as outlive_dag:
        outlive(LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID, reuse=False).output)

if STEP == "next_day":
    with DAG("next_day", schedule=None, **COMMON) as next_day_dag:
        price_next_day.expand(loan=[10, 20, 30])

if STEP == "forget":
    with DAG("forget", schedule=None, **COMMON) as forget_dag:
        authenticate = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID)
        clean_up = LoanAuthForgetOperator(task_id="clean_up", credential_task_id="authenticate")
        again = LoanAuthForgetOperator(
            task_id="again", credential_task_id="{{ params.task_id }}", params={"task_id": "authenticate"}
        )
        authenticate >> price(authenticate.output, [1]) >> clean_up.as_teardown(setups=authenticate) >> again

    with DAG("forget_after_failure", schedule=None, **COMMON) as failing_dag:
        authenticate = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID)
        clean_up = LoanAuthForgetOperator(task_id="clean_up", credential_task_id="authenticate")
        authenticate >> fail(authenticate.output) >> clean_up.as_teardown(setups=authenticate)

    with DAG("forget_tenants", schedule=None, **COMMON) as tenants_dag:
        tenants = LoanAuthOperator.partial(task_id="authenticate").expand(loanauth_conn_id=[CONN_ID, "late_ppe"])
        clean_up = LoanAuthForgetOperator(task_id="clean_up", credential_task_id="authenticate")
        tenants >> price.partial(loans=[1]).expand(token=tenants.output) >> clean_up.as_teardown(setups=tenants)
