"""
Reprice the pipeline every morning (method Authen JWT).

Scenario: before its trading desk opens, a lender prices every loan in its pipeline, and prints the difference between
today's rates and the rates that were quoted to the borrowers.

Set-up:

1. The Connection ``loanauth_jwt`` of type *Loan Pricing Authentication*, with Auth URL, Username, Password, Origin,
   Client ID and Client secret.
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

CONN_ID = "loanauth_jwt"
PRICING_URL = "loan_pricing_url"  # a Variable, because pricing may have a different host than authentication
LOANS = Path(__file__).parent / "data" / "loans.csv"

# Starting a task takes longer than pricing a loan, so each task prices a batch of loans over one connection. A failed
# task repeats its whole batch. Twenty loans suit a total of forty; use fifty or more for thousands.
BATCH_SIZE = 20
# The service publishes no rate limits, so send few requests at the same time.
BATCHES_AT_ONCE = 4
TIMEOUT = 30  # seconds for each loan


@dag(
    schedule="0 6 * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="America/New_York"),
    catchup=False,  # yesterday's rates are of no use today
    # Pricing a loan changes nothing, so it can be retried. If the service rejects the password, the operator fails at
    # once, without retries, because more attempts could lock the user.
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["loanauth", "example"],
)
def reprice_pipeline_jwt() -> None:
    """Log in once, price every batch with that token, print the differences."""
    # One login for each DAG run, for any number of loans. XCom stores the token encrypted.
    token = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID, method="jwt").output

    @task
    def read_loans() -> list[list[dict[str, Any]]]:
        """Read the pipeline, in batches."""
        with LOANS.open(encoding="utf-8", newline="") as file:
            loans = [
                {
                    "loan_id": row["loan_id"],
                    "amount": int(row["amount"]),
                    "fico": int(row["fico"]),
                    "ltv": int(row["ltv"]),
                    "term_months": int(row["term_months"]),
                    "quoted_rate": float(row["quoted_rate"]),
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
                # Airflow stores what a task returns, unencrypted: return the rate, never a secret.
                priced.append({**loan, "rate": response.json()["rate"]})
        return priced

    @task
    def summarise(batches: list[list[dict[str, Any]]]) -> None:
        """Print a table, largest differences first."""
        loans = [{**loan, "move": loan["rate"] - loan["quoted_rate"]} for batch in batches for loan in batch]
        print(f"{'loan':8} {'amount':>10} {'quoted':>7} {'today':>7} {'move':>7}")
        for loan in sorted(loans, key=lambda loan: (-abs(loan["move"]), loan["loan_id"])):
            amount, quoted, rate, move = (loan[name] for name in ("amount", "quoted_rate", "rate", "move"))
            print(f"{loan['loan_id']:8} {amount:>10,} {quoted:>7.3f} {rate:>7.3f} {move:>+7.3f}")
        print(f"{len(loans)} loans priced")

    summarise(price.partial(token=token).expand(loans=read_loans()))


reprice_pipeline_jwt()
