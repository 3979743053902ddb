"""
Price a nightly batch as soon as the service is available (deferrable sensor, method Authen JWT).

Scenario: the service is down for maintenance at night, with no fixed end. The batch must be priced before the trading
desk opens, so this DAG starts early, waits until the service is available, and prices at once.

Waiting uses no worker slot. All tasks of a triggerer that wait for the same service share one request per minute, which
has no credentials. After a recovery, they resume in random order, about 20 per second, and share one login.

Set-up:

1. The Connection ``loanauth_jwt`` of type *Loan Pricing Authentication*, with Auth URL, Username, Password, Origin,
   Client ID and Client secret.
2. The Variable ``loan_pricing_url``: the URL that prices one loan. The example uses the fields of the sandbox's
   ``/sandbox/price``. Replace the fields of request and response with those of your service.
3. A triggerer (``airflow triggerer``), as for any deferrable task.

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
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor

if TYPE_CHECKING:
    from airflow_provider_loanauth.credentials import AccessToken

CONN_ID = "loanauth_jwt"
PRICING_URL = "loan_pricing_url"  # a Variable, because pricing may have a different host than authentication
LOANS = Path(__file__).parent / "data" / "loans.csv"
BATCH_SIZE = 20
BATCHES_AT_ONCE = 4
TIMEOUT = 30  # seconds for each loan


@dag(
    schedule="30 3 * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="America/New_York"),
    catchup=False,  # tonight's batch replaces yesterday's
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["loanauth", "example"],
)
def price_when_open() -> None:
    """Wait for the service, log in once, price every batch with that token."""
    # Like the operator, the sensor returns the token, which XCom stores encrypted. If the service rejects the password,
    # the task fails at once, regardless of retries, so that the password is sent only once.
    token = LoanAuthSensor(
        task_id="wait_until_open",
        loanauth_conn_id=CONN_ID,
        method="jwt",
        deferrable=True,
        poke_interval=60,
        timeout=timedelta(hours=4).total_seconds(),  # after 7:30 the batch is of no use
    ).output

    @task
    def read_loans() -> list[list[dict[str, Any]]]:
        """Read the loans, in batches."""
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
    def price(token: AccessToken, loans: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Price one batch."""
        import requests  # imported in the task, because Airflow parses this file again and again

        url = Variable.get(PRICING_URL)
        with requests.Session() as session:
            session.auth = LoanAuth(token)
            priced = []
            for loan in loans:
                response = session.post(url, json=loan, timeout=TIMEOUT)
                response.raise_for_status()
                # Airflow stores what a task returns, unencrypted: return the rate, never a secret.
                priced.append({"loan_id": loan["loan_id"], "rate": response.json()["rate"]})
        return priced

    @task
    def summarise(batches: list[list[dict[str, Any]]]) -> None:
        """Print the rates."""
        loans = [loan for batch in batches for loan in batch]
        for loan in sorted(loans, key=lambda loan: (loan["rate"], loan["loan_id"])):
            print(f"{loan['loan_id']:8} {loan['rate']:>7.3f}")
        print(f"{len(loans)} loans priced")

    # Read the loans after waiting, so that they are tonight's.
    loans = read_loans()
    token >> loans
    summarise(price.partial(token=token).expand(loans=loans))


price_when_open()
