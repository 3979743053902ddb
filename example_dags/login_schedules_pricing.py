"""
Log in once, then start every DAG that prices: none of them starts if the login is rejected.

Scenario: a lender has many DAGs that price loans at night. If the password was changed at the service, each of them
would start, and fail in the middle. Here, one DAG logs in, and its task emits an asset. The pricing DAGs are scheduled
by that asset, so they start after a login that has succeeded, and not at all otherwise. No credential is passed between
the DAGs: all tasks of a Connection share its login.

Set-up:

1. The Connection ``loanauth_jwt`` of type *Loan Pricing Authentication*, with Auth URL, Username, Password, Origin,
   Client ID and Client secret, and *Share logins* on, which is the default.
2. The Variable ``loan_pricing_url``: the URL that prices one loan. The example uses the fields of the sandbox's
   ``/sandbox/price``. Replace the fields of request and response with those of your service.

This file is complete and can be copied alone. Parts that other examples also have are repeated on purpose. The DAGs may
also be in a file each: the asset is known by its name.
"""

from __future__ import annotations

from typing import Any

import pendulum

try:
    from airflow.sdk import Asset, Variable, dag, task
except ImportError:  # Airflow 2.11
    from airflow.datasets import Dataset as Asset
    from airflow.decorators import dag, task
    from airflow.models import Variable

from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator

CONN_ID = "loanauth_jwt"
PRICING_URL = "loan_pricing_url"  # a Variable, because pricing may have a different host than authentication
LOGIN = Asset(f"loanauth-login-{CONN_ID}")
LOANS = [
    {"loan_id": "LS-1", "amount": 320_000, "fico": 741, "ltv": 80, "term_months": 360},
    {"loan_id": "LS-2", "amount": 185_000, "fico": 688, "ltv": 65, "term_months": 180},
]


@dag(
    schedule="0 5 * * 1-5",
    start_date=pendulum.datetime(2026, 1, 1, tz="America/New_York"),
    catchup=False,  # an old login is of no use
    tags=["loanauth", "example"],
)
def login_schedules_pricing() -> None:
    """Log in, and tell the pricing DAGs."""
    # reuse=False: always send a login, to find out whether the password is still accepted. A task that fails emits no
    # asset. If the login is rejected, the task fails at once, and nothing sends the password again.
    LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID, reuse=False, outlets=[LOGIN])


@dag(
    schedule=[LOGIN],
    start_date=pendulum.datetime(2026, 1, 1, tz="America/New_York"),
    catchup=False,
    default_args={"retries": 2},
    tags=["loanauth", "example"],
)
def price_after_login() -> None:
    """Price loans with the login of the other DAG. Copy this DAG as often as you need it."""

    @task
    def price(loan: dict[str, Any]) -> float:
        """Price one loan."""
        # Imported in the task, because Airflow parses this file again and again.
        from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

        # Without a credential, the session takes the shared login over.
        with LoanAuthHook(CONN_ID).get_conn() as session:
            response = session.post(Variable.get(PRICING_URL), json=loan)
        response.raise_for_status()
        rate: float = response.json()["rate"]
        return rate

    price.expand(loan=LOANS)


login_schedules_pricing()
price_after_login()
