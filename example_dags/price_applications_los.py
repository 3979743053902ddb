"""
Price the applications that came in overnight (method Authen LOS).

Scenario: a loan origination system (LOS) exports its new applications every night. This DAG prices them with the client
credentials of the LOS integration, and prints the rate and the monthly payment to return to the LOS.

Set-up:

1. The Connection ``loanauth_los`` of type *Loan Pricing Authentication*, with Auth URL, Username, Password, Origin,
   LOS client ID and LOS client secret.
2. The Variable ``loan_pricing_url``: the URL that prices one loan. ``make demo`` sets it to the sandbox's
   ``/sandbox/price``. Replace the fields of request and response with those of your service.

Copy this file together with ``data/loans.csv``. Parts that other examples also have are repeated on purpose.
"""

from __future__ import annotations

import csv
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pendulum

try:
    from airflow.sdk import Variable, dag, task
except ImportError:  # Airflow 2.11
    from airflow.decorators import dag, task
    from airflow.models import Variable

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator

if TYPE_CHECKING:
    from airflow_provider_loanauth.credentials import AccessToken

CONN_ID = "loanauth_los"
PRICING_URL = "loan_pricing_url"  # a Variable, because pricing may have a different host than authentication
APPLICATIONS = Path(__file__).parent / "data" / "loans.csv"

# Starting a task takes longer than pricing a loan, so each task prices a batch of loans over one connection. A failed
# task repeats its whole batch. Twenty loans suit a total of forty; use fifty or more for thousands.
BATCH_SIZE = 20
# The service publishes no rate limits, so send few requests at the same time.
BATCHES_AT_ONCE = 4
TIMEOUT = 30  # seconds for each loan


def monthly_payment(amount: float, rate: float, months: int) -> float:
    """Return principal and interest of a fully amortising loan. ``rate`` is in percent per year."""
    monthly = rate / 1200
    return amount * monthly / (1 - (1 + monthly) ** -months) if monthly else amount / months


@dag(
    schedule="30 4 * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="America/New_York"),
    catchup=False,  # an older run would price today's export again
    # Pricing a loan changes nothing, so it can be retried. If the service rejects the password, the operator fails at
    # once, without retries, because more attempts could lock the user.
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["loanauth", "example"],
)
def price_applications_los() -> None:
    """Log in once as the LOS integration, price every batch with that token, print the results."""
    # One login for each DAG run, for any number of loans. XCom stores the token encrypted.
    token = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID, method="los").output

    @task
    def read_applications() -> list[list[dict[str, Any]]]:
        """Read the export, in batches."""
        with APPLICATIONS.open(encoding="utf-8", newline="") as file:
            loans = [
                {
                    "loan_id": row["loan_id"],
                    "purpose": row["purpose"],
                    "amount": int(row["amount"]),
                    "fico": int(row["fico"]),
                    "ltv": int(row["ltv"]),
                    "term_months": int(row["term_months"]),
                }
                for row in csv.DictReader(file)
            ]
        return [loans[start : start + BATCH_SIZE] for start in range(0, len(loans), BATCH_SIZE)]

    @task(max_active_tis_per_dagrun=BATCHES_AT_ONCE)
    def price(token: AccessToken, loans: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Price one batch."""
        import requests  # imported in the task, because Airflow parses this file again and again

        url = Variable.get(PRICING_URL)
        with requests.Session() as session:
            # LoanAuth adds the token to each request to this origin, and to no other. It refreshes the token if it
            # expires.
            session.auth = LoanAuth(token)
            priced = []
            for loan in loans:
                response = session.post(url, json=loan, timeout=TIMEOUT)
                response.raise_for_status()
                rate = response.json()["rate"]
                payment = round(monthly_payment(loan["amount"], rate, loan["term_months"]), 2)
                # Airflow stores what a task returns, unencrypted: return the rate, never a secret.
                priced.append({**loan, "rate": rate, "payment": payment})
        return priced

    @task
    def summarise(batches: list[list[dict[str, Any]]]) -> None:
        """Print a table, in the order of the export."""
        loans = [loan for batch in batches for loan in batch]
        print(f"{'loan':8} {'purpose':10} {'amount':>10} {'months':>7} {'rate':>7} {'payment':>10}")
        for loan in loans:
            amount, months, rate, payment = (loan[name] for name in ("amount", "term_months", "rate", "payment"))
            print(f"{loan['loan_id']:8} {loan['purpose']:10} {amount:>10,} {months:>7} {rate:>7.3f} {payment:>10,.2f}")
        print(f"{len(loans)} loans priced")

    summarise(price.partial(token=token).expand(loans=read_applications()))


price_applications_los()
