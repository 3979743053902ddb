"""
DAGs that share one login.

``airflow dags test`` runs all tasks in one process. Each task that uses a credential begins like a new process, so
that it must use the Variables to find what another task has done.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import httpx
import requests

from airflow_provider_loanauth import _compat
from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.auth.httpx import LoanAuth as HttpxLoanAuth
from airflow_provider_loanauth.exceptions import RejectedError
from airflow_provider_loanauth.login import variables as login_variables
from airflow_provider_loanauth.operators.loanauth import LoanAuthForgetOperator, LoanAuthOperator
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from tests.support.airflow_names import DAG, get_current_context, task
from tests.support.processes import start_new_process

COMMON = {"start_date": datetime(2026, 1, 1, tzinfo=timezone.utc), "catchup": False}
LOAN = {"loan_id": "L-1", "amount": 300_000, "fico": 740, "ltv": 80, "term_months": 360}
STEP = os.environ["SHARED_STEP"]
CONN_ID = "marked_jwt"


def prove(name, content):
    """Write what a task has seen to a file outside of Airflow."""
    Path(os.environ["PROOFS"], f"{name}.json").write_text(json.dumps(content))


def operator(task_id="authenticate"):
    return LoanAuthOperator(task_id=task_id, loanauth_conn_id=CONN_ID, pre_execute=lambda _: start_new_process())


def price_with(auth):
    response = requests.post(os.environ["PRICE_URL"], json=LOAN, auth=auth, timeout=60)
    response.raise_for_status()
    return response.json()["rate"]


@task
def wait_for_expiry(token):
    # By the clock of this process; the times in the token are whole seconds.
    expired = max(token.expires_at.timestamp(), token.issued_at.timestamp() + token.lifetime)
    time.sleep(max(0.0, expired - time.time()) + 0.1)


@task
def price(token):
    start_new_process()
    return price_with(LoanAuth(token))


@task
def with_connection():
    start_new_process()
    return price_with(LoanAuth.from_connection(CONN_ID))


@task
def with_async_httpx(token):
    start_new_process()

    async def main():
        async with httpx.AsyncClient(auth=HttpxLoanAuth(token), timeout=60) as client:
            responses = await asyncio.gather(*(client.post(os.environ["PRICE_URL"], json=LOAN) for _ in range(5)))
        return [response.raise_for_status().json()["rate"] for response in responses]

    return asyncio.run(main())


if STEP == "share":
    with DAG("share", schedule=None, **COMMON) as share_dag:
        first = operator()
        wait_for_expiry(first.output) >> price(first.output) >> with_connection() >> with_async_httpx(first.output)

    with DAG("another", schedule=None, **COMMON) as another_dag:
        LoanAuthSensor(task_id="wait", loanauth_conn_id=CONN_ID, deferrable=True, timeout=300) >> operator()


@task(trigger_rule="all_done")
def obey(name):
    start_new_process()
    try:
        price_with(LoanAuth.from_connection(CONN_ID))
    except RejectedError as error:
        prove(name, {"message": str(error), "status": error.status})


@task(trigger_rule="all_done")
def delete_variable():
    message = json.loads(Path(os.environ["PROOFS"], "rejected_one.json").read_text())["message"]
    login_variables.delete_variable(re.search("Variable '(loanauth[^']+)'", message)[1])


if STEP == "rejected":
    RETRIED = COMMON | {"default_args": {"retries": 2, "retry_delay": timedelta(0)}}
    with DAG("rejected_one", schedule=None, **RETRIED) as one_dag:
        operator() >> obey("rejected_one")

    with DAG("rejected_two", schedule=None, **RETRIED) as two_dag:
        operator() >> obey("rejected_two")

    with DAG("rejected_then_deleted", schedule=None, **COMMON) as deleted_dag:
        delete_variable() >> operator("again")


CLEARED = set()


def clear(*task_ids):
    """Clear tasks of this run as Airflow's REST API does it."""
    from airflow.models.taskinstance import TaskInstance, clear_task_instances
    from airflow.utils.session import create_session

    ti = get_current_context()["ti"]
    with create_session() as session:
        query = session.query(TaskInstance).filter(
            TaskInstance.dag_id == ti.dag_id, TaskInstance.run_id == ti.run_id, TaskInstance.task_id.in_(task_ids)
        )
        clear_task_instances(query.all(), session)


@task(trigger_rule="all_done")
def clear_once(task_ids):
    dag_id = get_current_context()["ti"].dag_id
    if dag_id not in CLEARED:
        CLEARED.add(dag_id)
        clear(*task_ids)


@task
def fail(name):
    seen = Path(os.environ["PROOFS"], f"{name}.json")
    tries = json.loads(seen.read_text()) if seen.exists() else []
    tries.append(_compat.cleared_try() is not None)
    prove(name, tries)
    raise RuntimeError("made-up failure")


if STEP == "cleared":
    with DAG("tries", schedule=None, **COMMON) as tries_dag:
        fail("tries") >> clear_once(["fail", "clear_once"])

    with DAG("tries_with_retries", schedule=None, **COMMON) as retries_dag:
        retried = fail.override(retries=1, retry_delay=timedelta(0))("tries_with_retries")
        retried >> clear_once(["fail", "clear_once"])

    with DAG("cleared", schedule=None, **COMMON) as cleared_dag:
        operator() >> clear_once(["authenticate", "clear_once"])

if STEP == "forget":
    with DAG("forget_shared", schedule=None, **COMMON) as forget_dag:
        mapped = LoanAuthOperator.partial(task_id="authenticate").expand(loanauth_conn_id=[CONN_ID, "marked_ppe"])
        mapped >> LoanAuthForgetOperator(task_id="clean_up", credential_task_id="authenticate", shared=True)

    with DAG("forget_after_failure", schedule=None, **COMMON) as failing_dag:
        authenticate = operator()
        clean_up = LoanAuthForgetOperator(task_id="clean_up", credential_task_id="authenticate", shared=True)
        authenticate >> fail("failure") >> clean_up.as_teardown(setups=authenticate)
