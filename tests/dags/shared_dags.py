"""DAGs that share one login. Each task begins like a new process, and so finds in Variables what another one did."""

from __future__ import annotations

import os
import time
from datetime import datetime, timezone
from pathlib import Path

import requests

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.operators.loanauth import LoanAuthForgetOperator, LoanAuthOperator
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from tests.support.airflow_names import DAG, task, task_group
from tests.support.processes import start_new_process

COMMON = {"start_date": datetime(2026, 1, 1, tzinfo=timezone.utc), "catchup": False}
LOAN = {"loan_id": "L-1", "amount": 300_000, "fico": 740, "ltv": 80, "term_months": 360}
CONN_ID = "marked_jwt"


def operator():
    return LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID, pre_execute=lambda _: start_new_process())


@task
def wait_for_expiry(token):
    # By the clock of this process; the times in the token are whole seconds.
    expired = max(token.expires_at.timestamp(), token.issued_at.timestamp() + token.lifetime)
    time.sleep(max(0.0, expired - time.time()) + 0.1)


@task
def price(token):
    start_new_process()
    requests.post(os.environ["PRICE_URL"], json=LOAN, auth=LoanAuth(token), timeout=60).raise_for_status()


@task
def fail():
    raise RuntimeError("made-up failure")


def note_the_credential(context):
    """Write down of which Connection the credential is that the forgetting task is about to delete."""
    ti = context["ti"]
    credential = ti.xcom_pull("lender.authenticate", map_indexes=ti.map_index)
    Path(os.environ["PROOFS"], f"forgets_{ti.map_index}").write_text(getattr(credential, "conn_id", "nothing"))


with DAG("share", schedule=None, **COMMON) as share_dag:
    first = operator()
    wait_for_expiry(first.output) >> price(first.output)

with DAG("another", schedule=None, **COMMON) as another_dag:
    LoanAuthSensor(task_id="wait", loanauth_conn_id=CONN_ID, deferrable=True, timeout=300) >> operator()

with DAG("forget_shared", schedule=None, **COMMON) as forget_dag:
    mapped = LoanAuthOperator.partial(task_id="authenticate").expand(loanauth_conn_id=[CONN_ID, "marked_ppe"])
    mapped >> LoanAuthForgetOperator(task_id="clean_up", credential_task_id="authenticate", shared=True)

with DAG("forget_in_group", schedule=None, **COMMON) as group_dag:

    @task_group
    def lender(conn_id):
        credential = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=conn_id)
        end = LoanAuthForgetOperator(
            task_id="clean_up", credential_task_id=credential.task_id, shared=True, pre_execute=note_the_credential
        )
        credential >> end.as_teardown(setups=credential)

    lender.expand(conn_id=[CONN_ID, "marked_ppe"])

with DAG("forget_after_failure", schedule=None, **COMMON) as failing_dag:
    authenticate = operator()
    clean_up = LoanAuthForgetOperator(task_id="clean_up", credential_task_id="authenticate", shared=True)
    authenticate >> fail() >> clean_up.as_teardown(setups=authenticate)
