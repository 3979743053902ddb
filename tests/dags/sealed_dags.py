"""DAGs that keep the credential sealed: what they leave behind is searched for every secret."""

from __future__ import annotations

import hashlib
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import requests

from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator

try:
    from airflow.sdk import DAG, task
except ImportError:
    from airflow import DAG
    from airflow.decorators import task

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
COMMON = {"start_date": START, "catchup": False}
LOAN = {"loan_id": "L-1", "amount": 300_000, "fico": 740, "ltv": 80, "term_months": 360}


def prove(name, credential):
    """Leave proof outside of Airflow that a task got at the value: it is what the canary search looks for."""
    digest = hashlib.sha256(credential.value.encode()).hexdigest()
    Path(os.environ["PROOFS"], f"{name}-{digest[:8]}.txt").write_text(credential.value)


def price(headers, loan):
    answer = requests.post(os.environ["PRICE_URL"], json=LOAN | {"loan_id": loan}, headers=headers, timeout=60)
    answer.raise_for_status()
    return answer.json()["rate"]


@task
def price_one(token):
    prove("argument", token)
    return price({"Authorization": f"Bearer {token.value}"}, "L-1")


@task
def price_mapped(token, loan):
    prove(f"mapped-{loan}", token)
    return price({"Authorization": f"Bearer {token.value}"}, loan)


@task
def nest(token):
    return {"list": [1, [token]], "deep": {"er": {"token": token}}, "by-hand": (token,)}


@task
def unnest(nested):
    found = [nested["list"][1][0], nested["deep"]["er"]["token"], nested["by-hand"][0]]
    for number, token in enumerate(found):
        prove(f"nested-{number}", token)
    # What a user would do to see what there is.
    print(nested, found, *map(str, found), *map(repr, found), f"{found[0]}", format(found[0]))  # noqa: T201


@task
def pull(ti=None):
    prove("pulled", ti.xcom_pull(task_ids="authenticate"))


with DAG("sealed_journey", schedule=None, **COMMON) as sealed_journey_dag:
    authenticate = LoanAuthOperator(task_id="authenticate", loanauth_conn_id="canary_jwt")
    price_one(authenticate.output)
    price_mapped.partial(token=authenticate.output).expand(loan=["L-1", "L-2", "L-3"])
    unnest(nest(authenticate.output))
    authenticate >> pull()


@task
def price_with_secret(secret):
    prove("secret", secret)
    return price({"secret": secret.value, "companyid": os.environ["COMPANY_ID"]}, "L-9")


with DAG("sealed_ppe", schedule=None, **COMMON) as sealed_ppe_dag:
    price_with_secret(LoanAuthOperator(task_id="authenticate", loanauth_conn_id="canary_ppe").output)

with DAG("sealed_los", schedule=None, **COMMON) as sealed_los_dag:
    # The method by template, as the connection.
    price_one(
        LoanAuthOperator(
            task_id="authenticate",
            loanauth_conn_id="{{ params.connection }}",
            method="{{ params.method }}",
            params={"connection": "canary_los", "method": "los"},
        ).output
    )


@task
def call_hook(conn_id):
    LoanAuthHook(conn_id).authenticate()


@task
def return_answer():
    return LoanAuthHook("canary_jwt").authenticate()


STUBBORN = {"retries": 5, "retry_delay": timedelta(0)}

with DAG("refused", schedule=None, **COMMON) as refused_dag:
    LoanAuthOperator(task_id="operator", loanauth_conn_id="canary_refused", **STUBBORN)
    call_hook.override(task_id="hook", **STUBBORN)("canary_refused")
    LoanAuthOperator(task_id="settings", loanauth_conn_id="canary_unset", **STUBBORN)

with DAG("broken", schedule=None, **COMMON) as broken_dag:
    LoanAuthOperator(task_id="operator", loanauth_conn_id="canary_broken", retries=2, retry_delay=timedelta(0))
    return_answer()
