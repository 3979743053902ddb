"""Sensors in every mode, each followed by a task that uses its credential. Run by ``test_sensor_runs.py``."""

from __future__ import annotations

import datetime as dt
import logging
import os

from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from tests.support.airflow_names import DAG, task

# The test searches these records for secrets. All records of Airflow at DEBUG would be too many: see there.
for name in ("airflow.task.hooks.airflow_provider_loanauth", "airflow_provider_loanauth", "urllib3"):
    logging.getLogger(name).setLevel(logging.DEBUG)

MODES = {"poke": {}, "reschedule": {"mode": "reschedule"}, "deferrable": {"deferrable": True}}
#: How a wait for a service that is down ends.
ENDS = {
    "": {"timeout": 0.5},
    "_soft": {"timeout": 0.5, "soft_fail": True},
}
LOAN = {"loan_id": "L-1", "amount": 250_000, "fico": 740, "ltv": 80.0, "term_months": 360}


@task
def price(token, address):
    import requests

    bearer = token.value
    response = requests.post(
        f"{address}/sandbox/price", json=LOAN, headers={"Authorization": f"Bearer {bearer}"}, timeout=10
    )
    response.raise_for_status()
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
                # The failure counts for ten seconds, and on 3.0 ``dags test`` cannot reschedule a sensor twice.
                poke_interval=11 if name == "reschedule_late" else 0.2,
                timeout=120,
                **parameters,
            )
            price.override(task_id=f"use_{name}")(sensor.output, os.environ[f"ADDRESS_OF_{name.upper()}"])
        for end, limits in ENDS.items():
            LoanAuthSensor(
                task_id=f"{mode}_down{end}", loanauth_conn_id="down", poke_interval=0.2, **limits, **parameters
            )
