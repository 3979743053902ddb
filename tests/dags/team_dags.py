"""DAGs of two teams, and of none, for ``[core] multi_team`` (Airflow 3.3; older versions ignore it)."""

from __future__ import annotations

import copy
import os
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

import requests

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from tests.support.processes import start_new_process

try:
    from airflow.sdk import DAG, get_current_context, task
except ImportError:
    from airflow import DAG
    from airflow.decorators import task
    from airflow.operators.python import get_current_context

try:  # 3.3
    from airflow.api_fastapi.execution_api.routes.xcoms import has_xcom_access
    from airflow.api_fastapi.execution_api.security import _jwt_bearer
    from airflow.models.team import Team
except ImportError:
    Team = None

COMMON = {"start_date": datetime(2026, 1, 1, tzinfo=timezone.utc), "catchup": False}
LOAN = {"loan_id": "L-1", "amount": 300_000, "fico": 740, "ltv": 80, "term_months": 360}
CONN_ID = "marked_jwt"

#: Credentials that a DAG gave to the DAGs that run after it.
GIVEN = {}


@contextmanager
def checked_access():
    """Check access to XCom as the API server does. ``airflow dags test`` allows everything."""
    if Team is None:
        yield
        return
    from airflow.api_fastapi.execution_api.datamodels.token import TIClaims, TIToken
    from airflow.sdk.execution_time import supervisor

    token = TIToken(id=get_current_context()["ti"].id, claims=TIClaims(scope="execution"))
    overrides = supervisor.in_process_api_server().app.dependency_overrides
    before = dict(overrides)
    del overrides[has_xcom_access]
    overrides[_jwt_bearer] = lambda: token
    try:
        yield
    finally:
        overrides.clear()
        overrides.update(before)


@task
def found_teams():
    """Make two DAGs those of teams. ``airflow dags test`` makes them DAGs of no team again."""
    if Team is None:
        return
    from airflow.models import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    with create_session() as session:
        for name in ("lender", "broker"):
            bundle = session.merge(DagBundleModel(name=f"{name}-dags"))
            bundle.teams = [session.merge(Team(name=name))]
            session.flush()
            if dag := session.get(DagModel, name):
                dag.bundle_name = bundle.name


@task
def give(token):
    GIVEN[token.task.dag_id] = token


def price_late(token):
    start_new_process()
    expired = copy.copy(token)
    expired.expires_at = token.issued_at + timedelta(milliseconds=1)
    with checked_access():
        response = requests.post(os.environ["PRICE_URL"], json=LOAN, auth=LoanAuth(expired), timeout=60)
    response.raise_for_status()


@task
def price_own(token, number):
    price_late(token)


@task
def price_given(dag_id, number):
    price_late(GIVEN[dag_id])


with DAG("lender", schedule=None, **COMMON) as lender_dag:
    authenticate = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID)
    found_teams() >> authenticate
    give(authenticate.output) >> price_own.partial(token=authenticate.output).expand(number=[0, 1])

with DAG("everyone", schedule=None, **COMMON) as everyone_dag:
    give(LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID).output)

with DAG("broker", schedule=None, **COMMON) as broker_dag:
    founded = found_teams()
    for giver in ("lender", "everyone"):
        founded >> price_given.override(task_id=f"price_with_{giver}").partial(dag_id=giver).expand(number=[0, 1])
