"""
Check a Connection on a worker, where tasks run. Use this DAG if the Test button is disabled, or if its result differs
from that of tasks.

Scenario: a Connection is new, or tasks fail with it. The only task of this DAG authenticates once and stores nothing.
If the task fails, its log says what is wrong and what to do, as the Test button does.

Set-up: the Connection to check, of type *Loan Pricing Authentication*. Trigger the DAG manually and enter the id.

This file is complete and can be copied alone. Parts that other examples also have are repeated on purpose.
"""

from __future__ import annotations

try:
    from airflow.sdk import Param, dag
except ImportError:  # Airflow 2.11, whose form does not send stored secrets to a test
    from airflow.decorators import dag
    from airflow.models.param import Param

import pendulum

from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator


@dag(
    schedule=None,  # manual only, because each run is a login
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    params={
        "conn_id": Param("loanauth_default", type="string", title="Connection id"),
        "method": Param(
            None, type=["null", "string"], enum=[None, "jwt", "los", "ppe"], title="Method, if not the default"
        ),
    },
    tags=["loanauth", "example"],
)
def check_connection() -> None:
    """Authenticate, and log the user, the method and the expiry."""
    LoanAuthOperator(
        task_id="check",
        loanauth_conn_id="{{ params.conn_id }}",
        method="{{ params.method or '' }}",
        do_xcom_push=False,  # no task needs it
    )


check_connection()
