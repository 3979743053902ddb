"""DAGs that keep the credential sealed. Afterwards everything that they stored is searched for every secret."""

from __future__ import annotations

import hashlib
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import requests

from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.operators.loanauth import LoanAuthForgetOperator, LoanAuthOperator
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from tests.support.airflow_names import DAG, task, task_group
from tests.support.pricing_fixtures import loan
from tests.support.waiting import MODES

COMMON = {"start_date": datetime(2026, 1, 1, tzinfo=timezone.utc), "schedule": None, "catchup": False}


def prove(name, credential):
    """Write the opened value to a file outside of Airflow. The search for leaks searches for these values."""
    digest = hashlib.sha256(credential.value.encode()).hexdigest()
    Path(os.environ["PROOFS"], f"{name}-{digest[:8]}.txt").write_text(credential.value)


def price(headers, number=1):
    requests.post(os.environ["PRICE_URL"], json=loan(number), headers=headers, timeout=60).raise_for_status()


@task
def price_one(token):
    prove("argument", token)
    price({"Authorization": f"Bearer {token.value}"})


@task
def price_mapped(token, number):
    prove(f"mapped-{number}", token)
    price({"Authorization": f"Bearer {token.value}"}, number)


@task
def nest(token):
    return {"list": [1, [token]], "deep": {"er": {"token": token}}, "by-hand": (token,)}


@task
def unnest(nested):
    found = [nested["list"][1][0], nested["deep"]["er"]["token"], nested["by-hand"][0]]
    for number, token in enumerate(found):
        prove(f"nested-{number}", token)
    # As a user would do to inspect the values.
    print(nested, found, *map(str, found), *map(repr, found), f"{found[0]}", format(found[0]))  # noqa: T201


@task
def pull(ti=None):
    prove("pulled", ti.xcom_pull(task_ids="authenticate"))


with DAG("sealed_journey", **COMMON) as sealed_journey_dag:
    authenticate = LoanAuthOperator(task_id="authenticate", loanauth_conn_id="marked_jwt")
    price_one(authenticate.output)
    price_mapped.partial(token=authenticate.output).expand(number=[1, 2, 3])
    unnest(nest(authenticate.output))
    authenticate >> pull()


@task
def price_with_secret(secret):
    prove("secret", secret)
    price({"secret": secret.value, "companyid": os.environ["COMPANY_ID"]})


with DAG("sealed_ppe", **COMMON) as sealed_ppe_dag:
    price_with_secret(LoanAuthOperator(task_id="authenticate", loanauth_conn_id="marked_ppe").output)

with DAG("sealed_los", **COMMON) as sealed_los_dag:
    # The method is a template too, as the connection.
    price_one(
        LoanAuthOperator(
            task_id="authenticate",
            loanauth_conn_id="{{ params.connection }}",
            method="{{ params.method }}",
            params={"connection": "marked_los", "method": "los"},
        ).output
    )


@task
def try_once(conn_id):
    LoanAuthHook(conn_id, max_attempts=1).get_credential()


RETRIES = {"retries": 5, "retry_delay": timedelta(0)}

with DAG("rejected", **COMMON) as rejected_dag:
    LoanAuthOperator(task_id="operator", loanauth_conn_id="marked_rejected", **RETRIES)
    try_once.override(task_id="hook", **RETRIES)("marked_rejected")
    LoanAuthOperator(task_id="settings", loanauth_conn_id="marked_unset", **RETRIES)
    for name, mode in MODES.items():
        LoanAuthSensor(task_id=name, loanauth_conn_id="marked_rejected", **mode, **RETRIES)


@task_group
def lender(conn_id):
    credential = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=conn_id)
    forget = LoanAuthForgetOperator(task_id="forget", credential_task_id=credential.task_id, shared=True)
    credential >> forget.as_teardown(setups=credential)


with DAG("forget", **COMMON) as forget_dag:
    lender.expand(conn_id=["marked_jwt", "marked_ppe"])
