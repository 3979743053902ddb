"""
Reprice a whole pipeline at night: a thousand loans, one login (method Authen JWT).

Scenario: a lender reprices every open loan before the day begins. The pricing service may still be closed for its own
maintenance when the schedule fires, so the run waits for it, without a worker. Then it logs in once, prices 1,000 loans
in 20 tasks of 50, prints what changed, and removes the credential from XCom, also when a batch has failed.

Set-up:

1. The Connection ``loanauth_jwt`` of type *Loan Pricing Authentication*, with Auth URL, Username, Password, Origin,
   Client ID and Client secret.
2. The Variable ``loan_pricing_url``: the address that prices one loan. The sandbox's ``/sandbox/price`` is this
   project's own invention: put the address, the fields and the answer of your service in its place.
3. A triggerer, which every Airflow has that runs deferrable tasks; and the pool ``loan_pricing``:
   ``airflow pools set loan_pricing 8 "calls to loan pricing at once"``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pendulum

try:
    from airflow.sdk import Variable, dag, task
except ImportError:  # Airflow 2.11
    from airflow.decorators import dag, task
    from airflow.models import Variable

from airflow_provider_loanauth.operators.loanauth import LoanAuthForgetOperator
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor

if TYPE_CHECKING:
    from airflow_provider_loanauth.credentials import AccessToken

CONN_ID = "loanauth_jwt"
PRICING_URL = "loan_pricing_url"  # a Variable: pricing may live on another host than authentication
LOANS = 1000

# A task costs Airflow a second or so, a rate some milliseconds: 1,000 tasks of one loan would spend the night starting
# tasks. A batch is also what is tried again, so not all 1,000 in one.
BATCH_SIZE = 50
# The service publishes no limits, so be a polite caller. A pool holds for all DAGs that price together, a limit of this
# DAG would not.
POOL = "loan_pricing"


def made_up_loan(number: int) -> dict[str, Any]:
    """Return a loan of the pipeline; the same at every call, so that a task that is tried again prices the same."""
    return {
        "loan_id": f"NB-{number:04}",
        "amount": 100_000 + number * 7_919 % 900_000,
        "fico": 620 + number * 37 % 200,
        "ltv": 50 + number * 13 % 47,
        "term_months": (180, 240, 360)[number % 3],
    }


@dag(
    schedule="0 2 * * 1-5",
    start_date=pendulum.datetime(2026, 1, 1, tz="America/New_York"),
    catchup=False,  # rates of a night that is over help nobody
    max_active_runs=1,  # a run that is late must not overlap with the next one: the same loans would be priced twice
    # Asking for a rate changes nothing, so it may be repeated. A refused password is not: the sensor then fails at
    # once, whatever is said here, because repeating it can lock the user.
    default_args={"retries": 2, "retry_delay": timedelta(minutes=2), "retry_exponential_backoff": True},
    tags=["loanauth", "example"],
)
def nightly_batch() -> None:
    """Wait, log in once, price 1,000 loans, summarise, clean up."""
    # Waits until the service lets us in, and returns the credential: one task is the wait and the login. Deferred, it
    # holds no worker slot. After three hours the night is over.
    authenticate = LoanAuthSensor(
        task_id="authenticate",
        loanauth_conn_id=CONN_ID,
        deferrable=True,
        poke_interval=60,
        timeout=timedelta(hours=3),
    )

    @task
    def read_pipeline() -> list[list[int]]:
        """Say which loans are open, in batches. Numbers, not loans: XCom is for small things."""
        return [[*range(start, start + BATCH_SIZE)] for start in range(0, LOANS, BATCH_SIZE)]

    # A batch that starts late or takes long does not mind that the token has run out: it is renewed, once per process.
    # multiple_outputs: of a dict, Airflow would otherwise store each loan as an XCom of its own.
    @task(pool=POOL, execution_timeout=timedelta(minutes=15), multiple_outputs=False)
    def price(token: AccessToken, numbers: list[int]) -> dict[str, float]:
        """Price one batch over one connection."""
        # Here and not above: Airflow parses this file again and again.
        from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

        url = Variable.get(PRICING_URL)
        rates = {}
        # Keep-alive: a new TLS connection for each loan would take several times as long as its rate.
        with LoanAuthHook(CONN_ID).get_conn(token) as session:
            for number in numbers:
                answer = session.post(url, json=made_up_loan(number))
                answer.raise_for_status()
                priced = answer.json()
                rates[priced["loan_id"]] = priced["rate"]
        # What a task returns is stored in clear: rates, never the token.
        return rates

    @task
    def summarise(batches: list[dict[str, float]]) -> None:
        """Print how many loans got which rate."""
        rates = [rate for batch in batches for rate in batch.values()]
        for rate in sorted(set(rates)):
            print(f"{rate:7.3f} %  {rates.count(rate):4} loans")
        print(f"{len(rates)} loans priced, {sum(rates) / len(rates):.3f} % on average")

    # A teardown runs also when a batch has failed for good, and does not hide that it has.
    forget = LoanAuthForgetOperator(task_id="forget", credential_task_id="authenticate").as_teardown(
        setups=authenticate
    )

    priced = price.partial(token=authenticate.output).expand(numbers=read_pipeline())
    summarise(priced)
    priced >> forget


nightly_batch()
