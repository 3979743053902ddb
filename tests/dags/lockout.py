"""
Every way to send a wrong password, each with a separate user and with ``retries=5``. Run by ``test_lockout.py``.

``LOCKOUT_TASKS`` lists the tasks: names of :data:`WAYS`. A task with a name that begins with ``late`` gets a 503 at its
first poke.
"""

from __future__ import annotations

import datetime as dt
import os

from airflow_provider_loanauth.exceptions import RejectedError
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from tests.support.airflow_names import DAG, task


def operator(name):
    LoanAuthOperator(task_id=name, loanauth_conn_id=name)


def hook(name):
    @task(task_id=name)
    def price():
        LoanAuthHook(name).get_credential()

    price()


def without_guard(name):
    """Show that Airflow retries a task in this run, if the error permits it."""

    @task(task_id=name)
    def price():
        try:
            LoanAuthHook(name).get_credential()
        except RejectedError:
            raise RuntimeError("an error that permits retries") from None

    price()


def sensor(name):
    LoanAuthSensor(
        task_id=name,
        loanauth_conn_id=name,
        # Tasks share the first error for 10 s. In `dags test` of Airflow 3.0, a second reschedule is a TypeError.
        poke_interval=11 if name.startswith("late_sensor_reschedule") else 0.2,
        timeout=300,
        mode="reschedule" if "reschedule" in name else "poke",
        deferrable="deferrable" in name,
        soft_fail="soft" in name,
    )


WAYS = {"operator": operator, "hook": hook, "without": without_guard, "sensor": sensor}

with DAG(
    "lockout",
    start_date=dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc),
    schedule=None,
    default_args={"retries": 5, "retry_delay": dt.timedelta(0)},
) as dag:
    for task_name in os.environ["LOCKOUT_TASKS"].split(","):
        WAYS[task_name.removeprefix("late_").partition("_")[0]](task_name)
