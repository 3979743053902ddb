"""DAGs of the end-to-end tests, for Airflow 2.11 to 3.3. The file tries several import paths for that reason.

``price_by_template`` puts the token into a template, as users do. ``price_by_name`` puts it into an environment
variable with the name of a token. ``price_again`` is cleared after its token has expired. ``trigger_with_token`` puts
the token into the configuration of a DAG run, which no DAG should do.
``print_the_secret`` prints secrets, which no DAG should do. ``wait_for_the_service`` runs while the service is
unavailable.
"""

from __future__ import annotations

from typing import Any

import pendulum

try:
    from airflow.providers.standard.operators.bash import BashOperator
    from airflow.providers.standard.operators.python import PythonOperator
    from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
    from airflow.sdk import DAG, task
except ImportError:  # Airflow 2.11
    from airflow import DAG
    from airflow.decorators import task
    from airflow.operators.bash import BashOperator
    from airflow.operators.python import PythonOperator
    from airflow.operators.trigger_dagrun import TriggerDagRunOperator

from airflow import __version__ as airflow_version

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor

PRICING_URL = "{{ var.value.loan_pricing_url }}"
OPENED = "{{ ti.xcom_pull('authenticate').value }}"
LOAN = {"loan_id": "L-1", "amount": 300_000, "fico": 740, "ltv": 80, "term_months": 360}
#: The DAG logs in on its own, so that its token is known by its name.
ALONE: dict[str, Any] = {"loanauth_conn_id": "loanauth_jwt", "reuse": False}
SETTINGS: dict[str, Any] = {"start_date": pendulum.datetime(2026, 1, 1, tz="UTC"), "tags": ["e2e"]}


def price_with_header(url: str, header: str) -> float:
    """Price with a header that was rendered from a template."""
    import requests

    response = requests.post(url, json=LOAN, headers={"Authorization": header}, timeout=30)
    response.raise_for_status()
    return float(response.json()["rate"])


def show(text: str) -> None:
    """Print a text. No task should print a credential."""
    print(text)


def price_with_credential(url: str, **context: Any) -> float:
    """Price with the credential itself."""
    import requests

    credential = context["ti"].xcom_pull(task_ids="authenticate")
    response = requests.post(url, json=LOAN, auth=LoanAuth(credential), timeout=30)
    response.raise_for_status()
    return float(response.json()["rate"])


def print_what_was_sent(url: str) -> None:
    """Authenticate in this task, price, and print the secret that was sent."""
    import requests

    for conn_id, header in (("loanauth_ppe", "secret"), ("loanauth_jwt", "Authorization")):
        response = requests.post(url, json=LOAN, auth=LoanAuth.from_connection(conn_id), timeout=30)
        response.raise_for_status()
        print(f"sent by {conn_id}:", response.request.headers[header])


with DAG("price_by_template", schedule=None, **SETTINGS):
    authenticate = LoanAuthOperator(task_id="authenticate", loanauth_conn_id="loanauth_jwt")
    authenticate >> [
        PythonOperator(
            task_id="price_with_header",
            python_callable=price_with_header,
            op_kwargs={"url": PRICING_URL, "header": f"Bearer {OPENED}"},
        ),
        PythonOperator(
            task_id="price_with_credential", python_callable=price_with_credential, op_kwargs={"url": PRICING_URL}
        ),
    ]

with DAG("price_by_name", schedule=None, **SETTINGS):
    # Airflow masks this variable because of its name, even on versions that mask no other rendered field.
    LoanAuthOperator(task_id="authenticate", **ALONE) >> BashOperator(
        task_id="price",
        bash_command='case "$PRICING_TOKEN" in eyJ*.*.*) ;; *) exit 1 ;; esac',
        env={"PRICING_TOKEN": OPENED},
    )

with DAG("price_again", schedule=None, **SETTINGS):
    LoanAuthOperator(task_id="authenticate", **ALONE) >> PythonOperator(
        task_id="price_with_credential", python_callable=price_with_credential, op_kwargs={"url": PRICING_URL}
    )

with DAG("trigger_with_token", schedule=None, **SETTINGS):
    LoanAuthOperator(task_id="authenticate", **ALONE) >> TriggerDagRunOperator(
        task_id="trigger", trigger_dag_id="triggered", trigger_run_id="e2e_triggered", conf={"header": OPENED}
    )

# It stays paused, so that the scheduler does not run the tasks of ``airflow dags test``.
with DAG("triggered", schedule=None, **SETTINGS):
    LoanAuthOperator(task_id="authenticate", loanauth_conn_id="loanauth_ppe") >> PythonOperator(
        task_id="print_it", python_callable=show, op_args=[f"the secret is {OPENED}"]
    )

# Airflow fails a task that is queued again before the scheduler knows that it has ended. Hence the interval and the
# retry.
WAITING: dict[str, Any] = {
    "poke_interval": 10,
    "timeout": 300,
    "retries": 1,
    "retry_delay": pendulum.duration(seconds=1),
}

with DAG("wait_for_the_service", schedule=None, **SETTINGS):
    LoanAuthSensor(task_id="poke", loanauth_conn_id="loanauth_jwt", **WAITING)
    LoanAuthSensor(task_id="reschedule", loanauth_conn_id="loanauth_jwt", mode="reschedule", **WAITING)
    LoanAuthSensor(task_id="deferred", loanauth_conn_id="loanauth_jwt", deferrable=True, **WAITING)

with DAG("print_the_secret", schedule=None, **SETTINGS):
    opened = LoanAuthOperator(task_id="authenticate", loanauth_conn_id="loanauth_ppe")
    (
        opened
        >> PythonOperator(task_id="print_it", python_callable=show, op_args=[f"the secret is {OPENED}"])
        >> PythonOperator(
            task_id="print_what_was_sent", python_callable=print_what_was_sent, op_kwargs={"url": PRICING_URL}
        )
    )
    if tuple(map(int, airflow_version.split(".")[:2])) >= (3, 2):

        @task
        async def print_on_a_loop(credential: Any) -> None:
            """Open and print the credential on an event loop. From 3.2 on, a task may be a coroutine."""
            print("opened on a loop:", credential.value)

        print_on_a_loop(opened.output)
