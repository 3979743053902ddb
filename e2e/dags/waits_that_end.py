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
#: What Airflow limits, and what ``soft_fail`` then skips. A wait that is not in one process has no execution_timeout.
ENDS = [(mode, "timeout", soft_fail) for mode in MODES for soft_fail in (False, True)]
ENDS += [("poke", "execution_timeout", False)]

with DAG("waits_that_end", schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC"), max_active_tasks=4):
    for mode, limit, soft_fail in ENDS:
        LoanAuthSensor(
            task_id=f"{mode}-{limit}-{'skips' if soft_fail else 'fails'}",
            loanauth_conn_id="closed",
            poke_interval=5,
            soft_fail=soft_fail,
            **MODES[mode],
            **LIMITS[limit],
        )
    for mode, parameters in MODES.items():
        # Only a person can correct the scheme of its address.
        LoanAuthSensor(
            task_id=f"{mode}-wrong_scheme-fails",
            loanauth_conn_id="wrong_scheme",
            poke_interval=5,
            soft_fail=True,
            **parameters,
        )
