"""DAGs that use one Connection, and last longer than its token. For Airflow 2.11 to 3.3; ``e2e/batch.py`` runs them.

Each pricing task prices a loan at once, waits until its token has expired, at most for ``wait`` seconds, and then
prices for some seconds. Each task that fails because of a login tells of it with an XCom.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import Any

import pendulum

try:
    from airflow.sdk import DAG, task
except ImportError:  # Airflow 2.11
    from airflow import DAG
    from airflow.decorators import task

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.notifications.loanauth import LoanAuthFailedNotifier
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator

NUMBERS = range(6)
LOANS = 3


@task
def price(token: Any, loan: int, **context: Any) -> None:
    """Price loans before and after the token expires."""
    import requests

    auth, params = LoanAuth(token), context["params"]

    def price_one() -> None:
        body = {"amount": 300_000, "fico": 740, "ltv": 80, "term_months": 360, "loan_id": loan}
        requests.post(params["url"], json=body, auth=auth, timeout=30).raise_for_status()

    price_one()
    left = (token.expires_at - datetime.now(timezone.utc)).total_seconds() + 0.5
    time.sleep(min(max(0.0, left), params["wait"]))
    end = time.monotonic() + params["seconds"]
    price_one()
    while time.monotonic() < end:
        time.sleep(1)
        price_one()


def tell(context: Any) -> None:
    """Leave the message where the program counts it."""
    context["ti"].xcom_push("told", context["loanauth_message"])


for number in NUMBERS:
    with DAG(
        f"batch_{number}",
        schedule=None,
        start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
        params={"url": "", "seconds": 0, "wait": 0},
        # Tasks that are killed run again.
        default_args={
            "retries": 10,
            "retry_delay": timedelta(seconds=1),
            "on_failure_callback": LoanAuthFailedNotifier(tell),
        },
    ):
        authenticate = LoanAuthOperator(task_id="authenticate", loanauth_conn_id="loanauth_jwt")
        price.partial(token=authenticate.output).expand(loan=[*range(LOANS)])
