"""DAGs of the end-to-end tests, for Airflow 2.11 to 3.3. The file tries several import paths for that reason."""

from __future__ import annotations

import os
from typing import Any

import pendulum
import requests

try:
    from airflow.providers.standard.operators.bash import BashOperator
    from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
    from airflow.sdk import DAG, task
except ImportError:  # Airflow 2.11
    from airflow import DAG
    from airflow.decorators import task
    from airflow.operators.bash import BashOperator
    from airflow.operators.trigger_dagrun import TriggerDagRunOperator

from airflow import __version__ as airflow_version

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor

OPENED = "{{ ti.xcom_pull('authenticate').value }}"
LOAN = {"loan_id": "L-1", "amount": 300_000, "fico": 740, "ltv": 80, "term_months": 360}
SETTINGS: dict[str, Any] = {"start_date": pendulum.datetime(2026, 1, 1, tz="UTC"), "tags": ["e2e"]}


def log_in() -> LoanAuthOperator:
    """Return a task that logs in on its own, so that its token is known by the name of its DAG."""
    return LoanAuthOperator(task_id="authenticate", loanauth_conn_id="loanauth_jwt", reuse=False)


def price(**credential: Any) -> requests.Response:
    """Price a loan."""
    response = requests.post(os.environ["AIRFLOW_VAR_LOAN_PRICING_URL"], json=LOAN, timeout=30, **credential)
    response.raise_for_status()
    return response


@task
def price_with_header(header: str) -> None:
    """Price with a header that was rendered from a template."""
    price(headers={"Authorization": header})


@task
def price_with_credential(credential: Any) -> None:
    """Price with the credential itself."""
    price(auth=LoanAuth(credential))


@task
def print_it(text: str) -> None:
    """Print a text. No task should print a credential."""
    print(text)


@task
def print_what_was_sent() -> None:
    """Authenticate in this task, price, and print the secret that was sent."""
    for conn_id, header in (("loanauth_ppe", "secret"), ("loanauth_jwt", "Authorization")):
        response = price(auth=LoanAuth.from_connection(conn_id))
        print(f"sent by {conn_id}:", response.request.headers[header])


with DAG("price_by_template", schedule=None, **SETTINGS):
    log_in() >> price_with_header(header=f"Bearer {OPENED}")

with DAG("price_by_name", schedule=None, **SETTINGS):
    # Airflow masks this variable because of its name, even on versions that mask no other rendered field.
    log_in() >> BashOperator(
        task_id="price",
        bash_command='case "$PRICING_TOKEN" in eyJ*.*.*) ;; *) exit 1 ;; esac',
        env={"PRICING_TOKEN": OPENED},
    )

with DAG("price_again", schedule=None, **SETTINGS):
    price_with_credential(log_in().output)

with DAG("trigger_with_token", schedule=None, **SETTINGS):
    log_in() >> TriggerDagRunOperator(
        task_id="trigger", trigger_dag_id="triggered", trigger_run_id="e2e_triggered", conf={"header": OPENED}
    )

# It stays paused, so that the scheduler does not run the tasks of ``airflow dags test``.
with DAG("triggered", schedule=None, **SETTINGS):
    LoanAuthOperator(task_id="authenticate", loanauth_conn_id="loanauth_ppe") >> print_it(f"the secret is {OPENED}")

with DAG("wait_for_the_service", schedule=None, **SETTINGS):
    # Airflow fails a task that is queued again before the scheduler knows that it has ended. Hence these values.
    waiting: dict[str, Any] = {"loanauth_conn_id": "loanauth_jwt", "poke_interval": 10, "timeout": 300}
    waiting |= {"retries": 1, "retry_delay": pendulum.duration(seconds=1)}
    LoanAuthSensor(task_id="poke", **waiting)
    LoanAuthSensor(task_id="reschedule", mode="reschedule", **waiting)
    LoanAuthSensor(task_id="deferred", deferrable=True, **waiting)

with DAG("print_the_secret", schedule=None, **SETTINGS):
    opened = LoanAuthOperator(task_id="authenticate", loanauth_conn_id="loanauth_ppe")
    opened >> print_it(f"the secret is {OPENED}") >> print_what_was_sent()
    if tuple(map(int, airflow_version.split(".")[:2])) >= (3, 2):

        @task
        async def print_on_a_loop(credential: Any) -> None:
            """Open and print the credential on an event loop. From 3.2 on, a task may be a coroutine."""
            print("opened on a loop:", credential.value)

        print_on_a_loop(opened.output)
