"""
Refresh the quotes of a broker portal (method PPE API secret).

Scenario: a wholesale lender shows its brokers a rate for each of their loans. Once a day, before they log in, this DAG
prices all loans again and prints the quotes, best rate first. The portal has an API key instead of a user's password.

Set-up:

1. The Connection ``loanauth_ppe`` of type *Loan Pricing Authentication*, with Auth URL, API key, User ID and Company
   ID.
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
    from airflow_provider_loanauth.credentials import ApiSecret

CONN_ID = "loanauth_ppe"
PRICING_URL = "loan_pricing_url"  # a Variable, because pricing may have a different host than authentication
LOANS = Path(__file__).parent / "data" / "loans.csv"

# Starting a task takes longer than pricing a loan, so each task prices a batch of loans over one connection. A failed
# task repeats its whole batch. Twenty loans suit a total of forty; use fifty or more for thousands.
BATCH_SIZE = 20
# The service publishes no rate limits, so send few requests at the same time.
BATCHES_AT_ONCE = 4
TIMEOUT = 30  # seconds for each loan


@dag(
    schedule="15 5 * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="America/New_York"),
    catchup=False,  # an older run must not replace today's quotes
    # Pricing a loan changes nothing, so it can be retried. Only if the service rejects the API key by name
    # (invalid_grant) does the operator fail at once. After a 401, it is tried again at the end of a pause.
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["loanauth", "example"],
)
def refresh_quotes_ppe() -> None:
    """Fetch the API secret once, price every batch with it, print the quotes."""
    # This task sends the API key once, for any number of loans. XCom stores the secret encrypted.
    secret = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID, method="ppe").output

    @task
    def read_loans() -> list[list[dict[str, Any]]]:
        """Read the brokers' loans, in batches."""
        with LOANS.open(encoding="utf-8", newline="") as file:
            loans = [
                {
                    "loan_id": row["loan_id"],
                    "amount": int(row["amount"]),
                    "fico": int(row["fico"]),
                    "ltv": int(row["ltv"]),
                    "term_months": int(row["term_months"]),
                }
                for row in csv.DictReader(file)
            ]
        return [loans[start : start + BATCH_SIZE] for start in range(0, len(loans), BATCH_SIZE)]

    @task(max_active_tis_per_dagrun=BATCHES_AT_ONCE)
    def price(secret: ApiSecret, loans: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Price one batch."""
        import requests  # imported in the task, because Airflow parses this file again and again

        url = Variable.get(PRICING_URL)
        with requests.Session() as session:
            # LoanAuth adds the headers secret and companyid (the Connection's Company ID), for this origin only.
            session.auth = LoanAuth(secret)
            priced = []
            for loan in loans:
                response = session.post(url, json=loan, timeout=TIMEOUT)
                response.raise_for_status()
                # Airflow stores what a task returns, unencrypted: return the rate, never a secret.
                priced.append({**loan, "rate": response.json()["rate"]})
        return priced

    @task
    def summarise(batches: list[list[dict[str, Any]]]) -> None:
        """Print a table, best rates first."""
        loans = [loan for batch in batches for loan in batch]
        print(f"{'loan':8} {'amount':>10} {'score':>6} {'ltv':>5} {'months':>7} {'rate':>7}")
        for loan in sorted(loans, key=lambda loan: (loan["rate"], loan["loan_id"])):
            amount, score, ltv, months, rate = (loan[name] for name in ("amount", "fico", "ltv", "term_months", "rate"))
            print(f"{loan['loan_id']:8} {amount:>10,} {score:>6} {ltv:>4}% {months:>7} {rate:>7.3f}")
        print(f"{len(loans)} loans priced")

    summarise(price.partial(secret=secret).expand(loans=read_loans()))


refresh_quotes_ppe()
