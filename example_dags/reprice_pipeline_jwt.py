"""
Reprice the pipeline every morning (method Authen JWT).

Scenario: before its trading desk opens, a lender asks for today's rate of every loan in its pipeline and prints which
loans have moved away from the rate that the borrower was quoted.

Set-up:

1. The Connection ``loanauth_jwt`` of type *Loan Pricing Authentication*, with Auth URL, Username, Password, Origin,
   Client ID and Client secret.
2. The Variable ``loan_pricing_url``: the address that prices one loan. ``make demo`` sets it to the sandbox's
   ``/sandbox/price``, which is this project's own invention: put the address, the fields and the answer of your service
   in its place.
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
PRICING_URL = "loan_pricing_url"  # a Variable: pricing may live on another host than authentication
LOANS = Path(__file__).parent / "data" / "loans.csv"

# A task costs Airflow more time than a rate costs the service, so a task prices a batch of loans, over one connection.
# A batch is also what is tried again after a failure. Five suit forty loans; take fifty or more for thousands.
BATCH_SIZE = 5
# The service publishes no limits, so be a polite caller.
BATCHES_AT_ONCE = 4
TIMEOUT = 30  # seconds a loan


@dag(
    schedule="0 6 * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="America/New_York"),
    catchup=False,  # yesterday's rates are of no use today
    # Asking for a rate changes nothing, so it may be repeated. A refused password is not: the operator then fails at
    # once, whatever is said here, because repeating it can lock the user.
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["loanauth", "example"],
)
def reprice_pipeline_jwt() -> None:
    """Log in once, price every batch with that one token, print what moved."""
    # The one login of a run, whatever the number of loans. XCom holds its token encrypted.
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
        import requests  # here and not above: Airflow parses this file again and again

        url = Variable.get(PRICING_URL)
        with requests.Session() as session:
            # Puts the token on each request to this host, and to no other; renews it, should it run out on the way.
            session.auth = LoanAuth(token)
            priced = []
            for loan in loans:
                answer = session.post(url, json=loan, timeout=TIMEOUT)
                answer.raise_for_status()
                # What a task returns is stored in clear: hand on the rate, never a secret.
                priced.append({**loan, "rate": answer.json()["rate"]})
        return priced

    @task
    def summarise(batches: list[list[dict[str, Any]]]) -> None:
        """Print a table, the largest moves first."""
        loans = [{**loan, "move": loan["rate"] - loan["quoted_rate"]} for batch in batches for loan in batch]
        print(f"{'loan':8} {'amount':>10} {'quoted':>7} {'today':>7} {'move':>7}")
        for loan in sorted(loans, key=lambda loan: (-abs(loan["move"]), loan["loan_id"])):
            amount, quoted, rate, move = (loan[name] for name in ("amount", "quoted_rate", "rate", "move"))
            print(f"{loan['loan_id']:8} {amount:>10,} {quoted:>7.3f} {rate:>7.3f} {move:>+7.3f}")
        print(f"{len(loans)} loans priced")

    summarise(price.partial(token=token).expand(loans=read_loans()))


reprice_pipeline_jwt()
