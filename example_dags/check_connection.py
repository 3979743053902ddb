"""
Check a Connection on a worker, where tasks run. Use this DAG if the Test button is disabled, or if its result differs
from that of tasks.

Scenario: a Connection is new, or tasks fail with it. The only task of this DAG checks what is between the worker and a
working login. Its log has the report, with what to do. The task fails if the Connection cannot be used.

Set-up: the Connection to check, of type *Loan Pricing Authentication*. Trigger the DAG manually and enter the id. The
task sends a credential to the service only with *Log in*.

This file is complete and can be copied alone. Parts that other examples also have are repeated on purpose.
"""

from __future__ import annotations

from typing import Any

try:
    from airflow.sdk import Param, dag, task
except ImportError:  # Airflow 2.11
    from airflow.decorators import dag, task
    from airflow.models.param import Param

import pendulum


@dag(
    schedule=None,  # manual only, because each run with *Log in* sends the password
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    params={
        "conn_id": Param("loanauth_default", type="string", title="Connection id"),
        "method": Param(
            None, type=["null", "string"], enum=[None, "jwt", "los", "ppe"], title="Method, if not the default"
        ),
        "login": Param(False, type="boolean", title="Log in"),
    },
    tags=["loanauth", "example"],
)
def check_connection() -> None:
    """Check a Connection, and log a report."""

    @task(retries=0)  # a retry would send a rejected password again
    def check(params: dict[str, Any] | None = None) -> None:
        """Print the report; fail if the Connection cannot be used here."""
        # Imported in the task, because Airflow parses this file again and again.
        from airflow_provider_loanauth.check import check_connection as check_on_this_worker

        # Airflow passes the parameters of the DAG run.
        values = params or {}
        report = check_on_this_worker(values["conn_id"], method=values["method"], login=values["login"])
        print(report)
        if report.status != "usable":
            raise ValueError(
                "The Connection cannot be used on this worker, or the check cannot tell. See the report above."
            )

    check()


check_connection()
