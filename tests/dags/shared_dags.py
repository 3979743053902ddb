"""DAGs that share one login.

``airflow dags test`` runs all tasks in one process. Each task that uses a credential begins like a new process, so
that it must use the Variables to find what another task has done.
"""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import requests

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.exceptions import RejectedError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.login import variables as login_variables
from airflow_provider_loanauth.notifications.loanauth import LoanAuthFailedNotifier
from airflow_provider_loanauth.operators.loanauth import LoanAuthForgetOperator, LoanAuthOperator
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from tests.support.airflow_names import DAG, get_current_context, task, task_group
from tests.support.processes import start_new_process

COMMON = {"start_date": datetime(2026, 1, 1, tzinfo=timezone.utc), "catchup": False}
LOAN = {"loan_id": "L-1", "amount": 300_000, "fico": 740, "ltv": 80, "term_months": 360}
STEP = os.environ["SHARED_STEP"]
CONN_ID = "marked_jwt"


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


if STEP == "share":
    with DAG("share", schedule=None, **COMMON) as share_dag:
        first = operator()
        wait_for_expiry(first.output) >> price(first.output)

    with DAG("another", schedule=None, **COMMON) as another_dag:
        LoanAuthSensor(task_id="wait", loanauth_conn_id=CONN_ID, deferrable=True, timeout=300) >> operator()


@task(trigger_rule="all_done")
def obey():
    start_new_process()
    try:
        price_with(LoanAuth.from_connection(CONN_ID))
    except RejectedError as error:
        Path(os.environ["PROOFS"], "message").write_text(str(error))


@task
def delete_variable():
    for key in login_variables.list_variables(f"{login_variables.key_of('jwt', CONN_ID)}."):
        login_variables.delete_variable(key)


def tell(context):
    with Path(os.environ["PROOFS"], "told").open("a") as told:
        told.write(context["loanauth_message"] + "\n")


NOTIFY = {"on_failure_callback": LoanAuthFailedNotifier(tell)}

if STEP == "rejected":
    retries = {"retries": 2, "retry_delay": timedelta(0)}
    with DAG("rejected_one", schedule=None, default_args=NOTIFY | retries, **COMMON) as one:
        operator()

    with DAG("rejected_two", schedule=None, default_args=NOTIFY, **COMMON) as two:
        operator() >> obey() >> delete_variable() >> operator("again")


CLEARED = []


@task(trigger_rule="all_done")
def clear_once():
    """Clear tasks of this run, as Airflow's REST API does it."""
    from airflow.models.taskinstance import TaskInstance, clear_task_instances
    from airflow.utils.session import create_session

    if CLEARED:
        return
    ti = get_current_context()["ti"]
    CLEARED.append(ti.run_id)
    with create_session() as session:
        tasks = session.query(TaskInstance).filter(TaskInstance.dag_id == ti.dag_id, TaskInstance.run_id == ti.run_id)
        clear_task_instances(tasks.all(), session)


@task(retries=int(os.environ["RETRIES"]), retry_delay=timedelta(0))
def log_in():
    """Say whether the password was sent, and fail so that Airflow retries, which it does not after a rejection."""
    start_new_process()
    try:
        LoanAuthHook(CONN_ID).get_credential()
    except RejectedError as error:
        with Path(os.environ["PROOFS"], "tries").open("a") as tries:
            tries.write("sent " if error.sent else "not ")
        raise RuntimeError("made-up failure") from error


@task
def fail():
    raise RuntimeError("made-up failure")


if STEP == "cleared":
    with DAG("cleared", schedule=None, **COMMON) as cleared_dag:
        log_in() >> clear_once()


def note_the_credential(context):
    """Write down of which Connection the credential is that the forgetting task is about to delete."""
    ti = context["ti"]
    credential = ti.xcom_pull("lender.authenticate", map_indexes=ti.map_index)
    Path(os.environ["PROOFS"], f"forgets_{ti.map_index}").write_text(getattr(credential, "conn_id", "nothing"))


@task
def wait_for_nothing(): ...


if STEP == "forget":
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
            credential >> wait_for_nothing() >> end.as_teardown(setups=credential)

        lender.expand(conn_id=[CONN_ID, "marked_ppe"])

    with DAG("forget_after_failure", schedule=None, **COMMON) as failing_dag:
        authenticate = operator()
        clean_up = LoanAuthForgetOperator(task_id="clean_up", credential_task_id="authenticate", shared=True)
        authenticate >> fail() >> clean_up.as_teardown(setups=authenticate)
