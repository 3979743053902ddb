"""Sensors whose service never responds, triggers that authenticate, and tasks whose login is retried.

For Airflow 2.11 to 3.3. Each sensor has the name of its mode, of what ends it, and of the end.
"""

from __future__ import annotations

from datetime import timedelta

import pendulum

try:
    from airflow.sdk import DAG
except ImportError:  # Airflow 2.11
    from airflow import DAG

from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from e2e.triggers import WaitingOperator

START = pendulum.datetime(2026, 1, 1, tz="UTC")
# Airflow fails a rescheduled task if it schedules the next poke before it knows that the last one has ended.
INTERVALS = {"poke": 5, "reschedule": 15, "deferrable": 5}
MODES = {"poke": {}, "reschedule": {"mode": "reschedule"}, "deferrable": {"deferrable": True}}
SHORTER, LONGER = timedelta(seconds=30), timedelta(hours=1)
LIMITS = {
    "timeout": {"timeout": SHORTER, "execution_timeout": LONGER},
    "execution_timeout": {"timeout": LONGER, "execution_timeout": SHORTER},
    # Only a person can correct the scheme of its address.
    "wrong_scheme": {},
}
#: What Airflow limits, and what ``soft_fail`` then skips. A wait that is not in one process has no execution_timeout.
ENDS = [(mode, "timeout", soft_fail) for mode in MODES for soft_fail in (False, True)]
ENDS += [("poke", "execution_timeout", False), *((mode, "wrong_scheme", True) for mode in MODES)]

with DAG("waits_that_end", schedule=None, start_date=START, max_active_tasks=4):
    for mode, limit, soft_fail in ENDS:
        is_wrong = limit == "wrong_scheme"
        LoanAuthSensor(
            task_id=f"{mode}-{limit}-{'skips' if soft_fail and not is_wrong else 'fails'}",
            loanauth_conn_id="wrong_scheme" if is_wrong else "closed",
            poke_interval=INTERVALS[mode],
            soft_fail=soft_fail,
            **MODES[mode],
            **LIMITS[limit],
        )

with DAG("authenticating_triggers", schedule=None, start_date=START):
    for number in range(2):
        WaitingOperator(task_id=f"right_{number}", blocks=False)
        WaitingOperator(task_id=f"wrong_{number}", blocks=True)

for dag_id, seconds in {"retried_login": 200, "retried_soon": 10}.items():
    with DAG(dag_id, schedule=None, start_date=START):
        LoanAuthOperator(
            task_id="authenticate",
            loanauth_conn_id="loanauth_jwt",
            reuse=False,
            retries=2,
            retry_delay=timedelta(seconds=seconds),
        )
