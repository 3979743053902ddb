"""
Price a nightly batch as soon as the service opens (deferrable sensor, method Authen JWT).

Scenario: the service is closed for maintenance at night, and nobody knows exactly until when. The batch is due before
the desk comes in, so this DAG starts early, waits until the service lets it in, and prices at once.

What it costs to wait: no worker, and per event loop of the triggerer one request a minute, without credentials, for all
tasks that wait for the same service, however many. Measured with a thousand of them (``make bench-wait``): one request
an interval for all together, and 2.3 KiB of the triggerer's memory for each.

Set-up:

1. The Connection ``loanauth_jwt`` of type *Loan Pricing Authentication*, with Auth URL, Username, Password, Origin,
   Client ID and Client secret.
2. The Variable ``loan_pricing_url``: the address that prices one loan. ``make demo`` sets it to the sandbox's
   ``/sandbox/price``, which is this project's own invention: put the address, the fields and the answer of your service
   in its place.
3. A triggerer (``airflow triggerer``), as any deferrable task needs it.
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
PRICING_URL = "loan_pricing_url"  # a Variable: pricing may live on another host than authentication
LOANS = Path(__file__).parent / "data" / "loans.csv"
BATCH_SIZE = 5
BATCHES_AT_ONCE = 4
TIMEOUT = 30  # seconds a loan


@dag(
    schedule="30 3 * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="America/New_York"),
    catchup=False,  # tonight's batch takes the place of yesterday's
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["loanauth", "example"],
)
def price_when_open() -> None:
    """Wait, log in once, price every batch with that one token."""
    # Its XCom is the token, encrypted, as the operator's would be. A refused password fails the task at once, whatever
    # retries or soft_fail say: it is sent once.
    token = LoanAuthSensor(
        task_id="wait_until_open",
        loanauth_conn_id=CONN_ID,
        method="jwt",
        deferrable=True,
        poke_interval=60,
        timeout=timedelta(hours=4).total_seconds(),  # after half past seven the batch is of no use
    ).output

    @task
    def read_loans() -> list[list[dict[str, Any]]]:
        """Read the batch, in parts."""
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
        """Price one part."""
        import requests  # here and not above: Airflow parses this file again and again

        url = Variable.get(PRICING_URL)
        with requests.Session() as session:
            session.auth = LoanAuth(token)
            priced = []
            for loan in loans:
                answer = session.post(url, json=loan, timeout=TIMEOUT)
                answer.raise_for_status()
                # What a task returns is stored in clear: hand on the rate, never a secret.
                priced.append({"loan_id": loan["loan_id"], "rate": answer.json()["rate"]})
        return priced

    @task
    def summarise(batches: list[list[dict[str, Any]]]) -> None:
        """Print the rates."""
        loans = [loan for batch in batches for loan in batch]
        for loan in sorted(loans, key=lambda loan: (loan["rate"], loan["loan_id"])):
            print(f"{loan['loan_id']:8} {loan['rate']:>7.3f}")
        print(f"{len(loans)} loans priced")

    # The loans are read only when the service is there, so that they are tonight's.
    loans = read_loans()
    token >> loans
    summarise(price.partial(token=token).expand(loans=loans))


price_when_open()
