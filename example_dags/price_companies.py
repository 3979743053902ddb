"""
Price the loans of several companies, each with its own Connection (method Authen JWT).

Scenario: a lender prices for three companies. Each of them has its own user at the service. If the login of a company
fails, its loans are not priced, and those of the others are.

Set-up:

1. A Connection of type *Loan Pricing Authentication* for each company, with the ids in ``COMPANIES``.
2. The Variable ``loan_pricing_url``: the URL that prices one loan. The example uses the fields of the sandbox's
   ``/sandbox/price``. Replace the fields of request and response with those of your service.

This file is complete and can be copied alone. Parts that other examples also have are repeated on purpose.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pendulum

try:
    from airflow.sdk import Variable, dag, task, task_group
except ImportError:  # Airflow 2.11
    from airflow.decorators import dag, task, task_group
    from airflow.models import Variable

from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator

if TYPE_CHECKING:
    from airflow_provider_loanauth.credentials import AccessToken

PRICING_URL = "loan_pricing_url"  # a Variable, because pricing may have a different host than authentication


def made_up_loans(company: str, count: int) -> list[dict[str, Any]]:
    """Return the loans of a company."""
    numbers = range(1, count + 1)
    return [
        {"loan_id": f"{company}-{n}", "amount": 200_000, "fico": 700, "ltv": 80, "term_months": 360} for n in numbers
    ]


COMPANIES = [
    {"conn_id": "loanauth_company_a", "loans": made_up_loans("A", 1)},
    {"conn_id": "loanauth_company_b", "loans": made_up_loans("B", 2)},
    {"conn_id": "loanauth_company_c", "loans": made_up_loans("C", 3)},
]


@dag(
    schedule="0 3 * * 1-5",
    start_date=pendulum.datetime(2026, 1, 1, tz="America/New_York"),
    catchup=False,  # the rates of a past night are of no use
    # Pricing a loan changes nothing, so it can be retried. If the service rejects a password, its operator fails at
    # once, without retries, because more attempts could lock the user.
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["loanauth", "example"],
)
def price_companies() -> None:
    """For each company: authenticate, then price its loans."""

    @task
    def price(conn_id: str, token: AccessToken, loans: list[dict[str, Any]]) -> dict[str, float]:
        """Price the loans of one company. Return their rates."""
        # Imported in the task, because Airflow parses this file again and again.
        from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

        url = Variable.get(PRICING_URL)
        rates = {}
        # get_conn accepts only a token of this company's own Connection.
        with LoanAuthHook(conn_id).get_conn(token) as session:
            for loan in loans:
                response = session.post(url, json=loan)
                response.raise_for_status()
                rates[loan["loan_id"]] = response.json()["rate"]
        print(f"{len(rates)} loans priced with {conn_id}")
        return rates

    # In a mapped task group, the two tasks of a company belong together. Without a group, Airflow leaves out a company
    # whose login has failed, and so the tokens of the next companies shift to the loans of others.
    @task_group
    def company(conn_id: str, loans: list[dict[str, Any]]) -> None:
        token = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=conn_id).output
        price(conn_id, token, loans)

    company.expand_kwargs(COMPANIES)


price_companies()
