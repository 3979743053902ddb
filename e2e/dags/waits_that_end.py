"""Sensors whose service never responds, in every mode: each ends at the limit in its name. For Airflow 2.11 to 3.3."""

from __future__ import annotations

from datetime import timedelta

import pendulum

try:
    from airflow.sdk import DAG
except ImportError:  # Airflow 2.11
    from airflow import DAG

from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor

MODES = {"poke": {}, "reschedule": {"mode": "reschedule"}, "deferrable": {"deferrable": True}}
SHORTER, LONGER = timedelta(seconds=30), timedelta(hours=1)
LIMITS = {
    "timeout": {"timeout": SHORTER, "execution_timeout": LONGER},
    "execution_timeout": {"timeout": LONGER, "execution_timeout": SHORTER},
}

with DAG("waits_that_end", schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC"), max_active_tasks=4):
    for mode, parameters in MODES.items():
        for limit, limits in LIMITS.items():
            for soft_fail in (False, True):
                LoanAuthSensor(
                    task_id=f"{mode}-{limit}-{'skips' if soft_fail else 'fails'}",
                    loanauth_conn_id="closed",
                    poke_interval=3600,  # it must not matter
                    soft_fail=soft_fail,
                    **parameters,
                    **limits,
                )
        # Only a person can correct the scheme of its address.
        LoanAuthSensor(
            task_id=f"{mode}-wrong_scheme-fails", loanauth_conn_id="wrong_scheme", poke_interval=5, **parameters
        )
