"""
DAGs whose tasks refresh one credential together.

``airflow dags test`` runs all tasks in one process. Each task that uses a credential begins like a new process, with
no cached credential and no remembered failure, so that it must use the register to find what another task has done.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import httpx
import requests

from airflow_provider_loanauth import _compat
from airflow_provider_loanauth._compat import xcom as compat_xcom
from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.auth.httpx import LoanAuth as HttpxLoanAuth
from airflow_provider_loanauth.exceptions import RejectedError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.operators.loanauth import LoanAuthForgetOperator, LoanAuthOperator
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from tests.support.processes import start_new_process

try:
    from airflow.sdk import DAG, get_current_context, task
except ImportError:
    from airflow import DAG
    from airflow.decorators import task
    from airflow.operators.python import get_current_context

COMMON = {"start_date": datetime(2026, 1, 1, tzinfo=timezone.utc), "catchup": False}
LOAN = {"loan_id": "L-1", "amount": 300_000, "fico": 740, "ltv": 80, "term_months": 360}
STEP = os.environ["SHARED_STEP"]
CONN_ID = "marked_jwt"


def prove(name, content):
    """Write what a task has seen to a file outside of Airflow."""
    Path(os.environ["PROOFS"], f"{name}.json").write_text(json.dumps(content))


def as_expired(token):
    """Return a credential as it is when its lifetime is over, so that no task has to wait for that."""
    expired = copy.copy(token)
    expired.expires_at = token.issued_at + timedelta(milliseconds=1)
    return expired


def price_with(auth):
    response = requests.post(os.environ["PRICE_URL"], json=LOAN, auth=auth, timeout=60)
    response.raise_for_status()
    return response.json()["rate"]


@task
def expire(token):
    return as_expired(token)


@task
def price(token, number=0):
    start_new_process()
    return price_with(LoanAuth(token))


@task
def price_late(token, number=0):
    start_new_process()
    return price_with(LoanAuth(as_expired(token)))


# --- each way to use a credential; and no use of XCom while it is fresh


@task
def with_httpx(token):
    start_new_process()
    with httpx.Client(auth=HttpxLoanAuth(token), timeout=60) as client:
        return client.post(os.environ["PRICE_URL"], json=LOAN).raise_for_status().json()["rate"]


@task
def with_async_httpx(token):
    start_new_process()

    async def main():
        async with httpx.AsyncClient(auth=HttpxLoanAuth(token), timeout=60) as client:
            responses = await asyncio.gather(*(client.post(os.environ["PRICE_URL"], json=LOAN) for _ in range(5)))
        return [response.raise_for_status().json()["rate"] for response in responses]

    return asyncio.run(main())


@task
def with_from_task():
    start_new_process()
    return price_with(LoanAuth.from_task("expire")())


@task
def with_get_conn(token):
    start_new_process()
    with LoanAuthHook(CONN_ID).get_conn(token) as session:
        return session.post(os.environ["PRICE_URL"], json=LOAN).json()["rate"]


@task
def price_while_fresh(token):
    """Count the calls of Airflow's XCom class; at last once with an expired credential, as a control."""
    start_new_process()
    xcom, _ = compat_xcom._xcom()
    calls = []
    originals = {name: vars(xcom).get(name) for name in ("get_one", "get_all", "set")}

    def counted(name, function):
        return staticmethod(lambda *args, **kwargs: (calls.append(name), function(*args, **kwargs))[1])

    for name in originals:
        if hasattr(xcom, name):
            setattr(xcom, name, counted(name, getattr(xcom, name)))
    try:
        with requests.Session() as session:
            session.auth = LoanAuth(token)
            for _ in range(20):
                session.post(os.environ["PRICE_URL"], json=LOAN, timeout=60).raise_for_status()
        fresh = list(calls)
        price_with(LoanAuth(as_expired(token)))
    finally:
        for name, original in originals.items():
            if original is not None:
                setattr(xcom, name, original)
            elif name in vars(xcom):
                delattr(xcom, name)
    prove("fresh", {"fresh": fresh, "expired": calls})


if STEP == "share":
    with DAG("share", schedule=None, **COMMON) as share_dag:
        authenticate = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID)
        expired = expire(authenticate.output)
        (
            expired
            >> price(expired)
            >> with_httpx(expired)
            >> with_async_httpx(expired)
            >> with_from_task()
            >> with_get_conn(expired)
            >> price_while_fresh(authenticate.output)
        )

if STEP == "unaware":
    # The first API secret has expired. It has no expiry, so only a 401 shows that.
    with DAG("unaware", schedule=None, **COMMON) as unaware_dag:
        authenticate = LoanAuthOperator(task_id="authenticate", loanauth_conn_id="marked_ppe")
        price.partial(token=authenticate.output).expand(number=[0, 1, 2])


# --- what issues a credential


@task
def issue_with_hook():
    return LoanAuthHook(CONN_ID).get_credential()


@task
def issue_async():
    return asyncio.run(LoanAuthHook(CONN_ID).aget_credential())


@task
def issue_mapped(number):
    return LoanAuthHook(CONN_ID).get_credential()


@task
def issue_nested():
    return {"list": [1, LoanAuthHook(CONN_ID).get_credential()]}


@task
def check_task(token, name):
    token = token["list"][1] if isinstance(token, dict) else token
    ti = get_current_context()["ti"]
    index = f"-{ti.map_index}" if ti.map_index is not None and ti.map_index >= 0 else ""
    prove(f"task-{name}{index}", {"of": token.task, "run_id": ti.run_id})


if STEP == "issuers":
    with DAG("issuers", schedule=None, **COMMON) as issuers_dag:
        sensor = {"loanauth_conn_id": "late_jwt", "poke_interval": 0.2, "timeout": 300}
        issuers = {
            "operator": LoanAuthOperator(task_id="operator", loanauth_conn_id=CONN_ID).output,
            "poke": LoanAuthSensor(task_id="poke", **sensor).output,
            "reschedule": LoanAuthSensor(task_id="reschedule", mode="reschedule", **sensor).output,
            "deferrable": LoanAuthSensor(task_id="deferrable", deferrable=True, **sensor).output,
            "issue_with_hook": issue_with_hook(),
            "issue_async": issue_async(),
            "issue_nested": issue_nested(),
        }
        for issuer, output in issuers.items():
            check_task.override(task_id=f"check_{issuer}")(output, issuer)
        mapped = issue_mapped.expand(number=[0, 1])
        check_task.override(task_id="check_issue_mapped").partial(name="issue_mapped").expand(token=mapped)


# --- a changed password


@task
def change_password(connection):
    os.environ["AIRFLOW_CONN_MARKED_JWT"] = os.environ[connection]


@task
def price_rejected(token, number):
    start_new_process()
    try:
        price_with(LoanAuth(as_expired(token)))
    except RejectedError as error:
        prove(f"rejected-{number}", {"message": str(error), "status": error.status})


if STEP == "rejected":
    with DAG("rejected", schedule=None, **COMMON) as rejected_dag:
        authenticate = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID)
        changed = change_password.override(task_id="change")("WRONG_CONNECTION")
        repaired = change_password.override(task_id="repair")("RIGHT_CONNECTION")
        rejections = price_rejected.partial(token=authenticate.output).expand(number=[0, 1, 2])
        authenticate >> changed >> rejections >> repaired >> price_late(authenticate.output)


# --- tasks that run again, runs side by side, and deletion


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


def keys_of(task_id, map_index):
    """Return which values of the register a task of this run has."""
    ti = get_current_context()["ti"]
    issuing = _compat.TaskKey(ti.dag_id, ti.run_id, task_id, map_index)
    return [
        key
        for key in (f"loanauth_claim.jwt.{CONN_ID}", f"loanauth_refreshed.jwt.{CONN_ID}")
        if compat_xcom.read_xcom(key, issuing)
    ]


CLEARED = set()


@task
def see(task_id, map_index):
    dag_id = get_current_context()["ti"].dag_id
    prove(f"{dag_id}-{'second' if dag_id in CLEARED else 'first'}-run", keys_of(task_id, map_index))


@task
def clear_once(task_ids, map_index=-1):
    dag_id = get_current_context()["ti"].dag_id
    if dag_id not in CLEARED:
        CLEARED.add(dag_id)
        prove(f"{dag_id}-before-the-second-run", keys_of(task_ids[0], map_index))
        clear(*task_ids)


@task
def price_both_days(token, number):
    """The first refreshed token is valid for a second, so only one task gets one on the first day."""
    start_new_process()
    if "clear_pricing" in CLEARED:
        return price_with(LoanAuth(as_expired(token)))
    if number == 0:
        requests.post(os.environ["PRICE_URL"], json=LOAN, auth=LoanAuth(as_expired(token)), timeout=60)
        time.sleep(1.2)
    return None


if STEP == "clear_pricing":
    with DAG("clear_pricing", schedule=None, **COMMON) as clear_pricing_dag:
        authenticate = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID)
        prices = price_both_days.partial(token=authenticate.output).expand(number=[0, 1, 2])
        prices >> clear_once(["price_both_days"])

if STEP == "clear_authentication":
    with DAG("clear_authentication", schedule=None, **COMMON) as clear_authentication_dag:
        authenticate = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID)
        seen = authenticate >> see("authenticate", -1)
        seen >> price_late(authenticate.output) >> clear_once(["authenticate", "see", "price_late"])

    with DAG("clear_mapped", schedule=None, **COMMON) as clear_mapped_dag:
        tokens = issue_mapped.expand(number=[0, 1])
        seen = tokens >> see("issue_mapped", 1)
        seen >> price_late.expand(token=tokens) >> clear_once(["issue_mapped", "see", "price_late"], map_index=1)

if STEP.startswith("backfill"):
    with DAG("backfill", schedule=None, **COMMON) as backfill_dag:
        price_late(LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID).output)

if STEP == "forget":
    with DAG("forget", schedule=None, **COMMON) as forget_dag:
        authenticate = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID)
        price_late(authenticate.output) >> LoanAuthForgetOperator(task_id="clean_up", credential_task_id="authenticate")

    with DAG("forget_mapped", schedule=None, **COMMON) as forget_mapped_dag:
        tokens = issue_mapped.expand(number=[0, 1])
        price_late.expand(token=tokens) >> LoanAuthForgetOperator(task_id="clean_up", credential_task_id="issue_mapped")

# --- an issuing task that is not there any more


@task
def price_with_lost_task(token, lost):
    start_new_process()
    token = as_expired(token)
    token.task = token.task._replace(**lost)
    started = time.monotonic()
    rate = price_with(LoanAuth(token))
    prove(f"lost-{'-'.join(lost)}", {"seconds": time.monotonic() - started})
    return rate


@task
def read_and_write():
    """Use XCom values of other tasks of this run: one that is not mapped, one that is."""
    ti = get_current_context()["ti"]
    issuing = _compat.TaskKey(ti.dag_id, ti.run_id, "authenticate")
    mapped = issuing._replace(task_id="price_with_lost_task", map_index=1)
    seen = []
    for issuer, value in ((issuing, 1), (issuing, 2), (mapped, 3), (mapped, 4)):
        before = compat_xcom.read_xcom("made_up", issuer)
        compat_xcom.write_xcom("made_up", {"value": value, "of": list(_compat.current_task())}, issuer)
        seen.append([before and before["value"], compat_xcom.read_xcom("made_up", issuer)["value"]])
    prove("xcom", {"seen": seen, "task": _compat.current_task(), "run_id": ti.run_id})


if STEP == "lost":
    with DAG("lost", schedule=None, **COMMON) as lost_dag:
        read_and_write()
        authenticate = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID)
        price_with_lost_task.partial(token=authenticate.output).expand(
            lost=[{"run_id": "deleted"}, {"task_id": "deleted"}, {"map_index": 7}]
        )
