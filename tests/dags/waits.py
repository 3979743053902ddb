"""Sensors in every mode, each followed by a task that uses its credential. Run by ``test_sensor_runs.py``."""

from __future__ import annotations

import datetime as dt
import logging
import os

import requests

from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from tests.support.airflow_names import DAG, task
from tests.support.pricing_fixtures import loan
from tests.support.waiting import MODES

# The test searches these records for secrets. All records of Airflow at DEBUG would be too many: see there.
for name in ("airflow.task.hooks.airflow_provider_loanauth", "airflow_provider_loanauth", "urllib3"):
    logging.getLogger(name).setLevel(logging.DEBUG)


@task
def price(token, address):
    headers = {"Authorization": f"Bearer {token.value}"}
    requests.post(f"{address}/sandbox/price", json=loan(), headers=headers, timeout=10).raise_for_status()
    return type(token).__name__


with DAG(
    "waits",
    start_date=dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc),
    schedule=None,
    default_args={"retries": 3, "retry_delay": dt.timedelta(0)},
) as dag:
    for mode, parameters in MODES.items():
        for when in ("open", "late"):
            name = f"{mode}_{when}"
            sensor = LoanAuthSensor(
                task_id=name,
                loanauth_conn_id=name,
                poke_interval=0.2,
                timeout=120,
                **parameters,
            )
            price.override(task_id=f"use_{name}")(sensor.output, os.environ[f"ADDRESS_OF_{name.upper()}"])
        down = {"loanauth_conn_id": "down", "poke_interval": 0.2, "timeout": 0.5}
        LoanAuthSensor(task_id=f"{mode}_down", **down, **parameters)
        LoanAuthSensor(task_id=f"{mode}_down_soft", soft_fail=True, **down, **parameters)
