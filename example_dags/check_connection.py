"""
Check a Connection from a worker, where tasks run: for when the Test button is off, or answers otherwise than tasks do.

Scenario: a Connection is new, or tasks fail with it. This authenticates with it once, on a worker, and keeps nothing.
When it fails, the log of its one task says what is wrong and what to do, in the same words as the Test button.

Set-up: the Connection to check, of type *Loan Pricing Authentication*. Trigger the DAG by hand and give the id.
"""

from __future__ import annotations

try:
    from airflow.sdk import Param, dag
except ImportError:  # Airflow 2.11, whose form asks for secrets again when it tests a stored connection
    from airflow.decorators import dag
    from airflow.models.param import Param

import pendulum

from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator


@dag(
    schedule=None,  # by hand only: each run is a login
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    params={
        "conn_id": Param("loanauth_default", type="string", title="Connection id"),
        "method": Param(
            None, type=["null", "string"], enum=[None, "jwt", "los", "ppe"], title="Method, if another one"
        ),
    },
    tags=["loanauth", "example"],
)
def check_connection() -> None:
    """Authenticate, and say who, by which method, until when."""
    LoanAuthOperator(
        task_id="check",
        loanauth_conn_id="{{ params.conn_id }}",
        method="{{ params.method or '' }}",
        do_xcom_push=False,  # nobody pulls it
    )


check_connection()
