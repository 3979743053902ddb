"""
Reprice a whole pipeline at night: a thousand loans, one login (method Authen JWT).

Scenario: a lender reprices every open loan before the day begins. The pricing service may still be down for maintenance
when the run starts, so the run waits for it without a worker slot. Then it logs in once, prices 1,000 loans in 20 tasks
of 50, prints a summary, and deletes the credential from XCom, even if a batch has failed. A loan that cannot be priced
does not fail the others: the summary lists it with the reason of the service.

Set-up:

1. The Connection ``loanauth_jwt`` of type *Loan Pricing Authentication*, with Auth URL, Username, Password, Origin,
   Client ID and Client secret.
2. The Variable ``loan_pricing_url``: the URL that prices one loan. The example uses the fields of the sandbox's
   ``/sandbox/price``. Replace the fields of request and response with those of your service.
3. A triggerer (``airflow triggerer``), as for any deferrable task.
4. The pool ``loan_pricing``: ``airflow pools set loan_pricing 8 "concurrent requests to loan pricing"``.

This file is complete and can be copied alone. Parts that other examples also have are repeated on purpose.
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

from airflow_provider_loanauth.notifications.loanauth import LoanAuthFailedNotifier
from airflow_provider_loanauth.operators.loanauth import LoanAuthForgetOperator
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor

if TYPE_CHECKING:
    from airflow_provider_loanauth.credentials import AccessToken

CONN_ID = "loanauth_jwt"
PRICING_URL = "loan_pricing_url"  # a Variable, because pricing may have a different host than authentication
LOANS = 1000
WITHOUT_SCORE = 123  # the number of a loan that cannot be priced, to show what happens then

# Starting a task takes about a second, pricing a loan some milliseconds, so 1,000 tasks would spend the night starting.
# But a failed task repeats its whole batch, so do not put all loans into one.
BATCH_SIZE = 50
# These statuses say that a loan is wrong. That is an assumption: ask your service which ones it uses. Any other status
# that is no success concerns the whole batch, and fails its task.
BAD_LOAN = {400, 422}
MAX_REASON = 200  # characters, because a reason may be a whole page
# The service publishes no rate limits, so send few requests at the same time. A pool limits all DAGs together; a limit
# of this DAG would not.
POOL = "loan_pricing"


def made_up_loan(number: int) -> dict[str, Any]:
    """Return a loan of the pipeline. The same number returns the same loan, so that a retry prices the same loans."""
    return {
        "loan_id": f"NB-{number:04}",
        "amount": 100_000 + number * 7_919 % 900_000,
        "fico": None if number == WITHOUT_SCORE else 620 + number * 37 % 200,
        "ltv": 50 + number * 13 % 47,
        "term_months": (180, 240, 360)[number % 3],
    }


def tell(context: Any) -> None:
    """Tell a person. Replace the print with your mail, chat or pager."""
    failed = f"DAG {context['dag'].dag_id}, run {context['run_id']} has failed: see the logs of its tasks."
    print(context.get("loanauth_message") or failed)


@dag(
    schedule="0 2 * * 1-5",
    start_date=pendulum.datetime(2026, 1, 1, tz="America/New_York"),
    catchup=False,  # the rates of a past night are of no use
    max_active_runs=1,  # overlapping runs would price the same loans twice
    # Pricing a loan changes nothing, so it can be retried. If the service rejects the password, the sensor fails at
    # once, without retries, because more attempts could lock the user.
    default_args={
        "retries": 2,
        "retry_delay": timedelta(minutes=2),
        "retry_exponential_backoff": True,
        "on_failure_callback": LoanAuthFailedNotifier(tell),  # says why a login failed
    },
    on_failure_callback=tell,  # says that the run has failed, whatever the reason is
    tags=["loanauth", "example"],
)
def nightly_batch() -> None:
    """Wait for the service, log in once, price 1,000 loans, summarise, delete the credential."""
    # The sensor waits until the service is available, logs in and returns the credential. While it is deferred, it uses
    # no worker slot.
    # After three hours it is too late to price.
    authenticate = LoanAuthSensor(
        task_id="authenticate",
        loanauth_conn_id=CONN_ID,
        deferrable=True,
        poke_interval=60,
        timeout=timedelta(hours=3),
    )

    @task
    def read_pipeline() -> list[list[int]]:
        """Return the numbers of the open loans in batches. Numbers, because XCom is meant for small values."""
        return [[*range(start, start + BATCH_SIZE)] for start in range(0, LOANS, BATCH_SIZE)]

    # If the token has expired when a batch starts, or expires during it, one task refreshes it for all.
    # multiple_outputs=False: otherwise Airflow stores each item of the dict as a separate XCom.
    @task(pool=POOL, execution_timeout=timedelta(minutes=15), multiple_outputs=False)
    def price(token: AccessToken, numbers: list[int]) -> dict[str, dict[str, Any]]:
        """Price one batch over one connection. Return the rates, and why the other loans could not be priced."""
        # Imported in the task, because Airflow parses this file again and again.
        from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

        url = Variable.get(PRICING_URL)
        rates, rejected = {}, {}
        # The session keeps its connection open. A new TLS connection for each loan would take several times as long.
        with LoanAuthHook(CONN_ID).get_conn(token) as session:
            for loan in map(made_up_loan, numbers):
                response = session.post(url, json=loan)
                if response.status_code in BAD_LOAN:
                    rejected[loan["loan_id"]] = f"{response.status_code} {response.text[:MAX_REASON]}"
                else:
                    response.raise_for_status()
                    rates[loan["loan_id"]] = response.json()["rate"]
        # Airflow stores what a task returns, unencrypted: return rates and reasons, never the token.
        return {"rates": rates, "rejected": rejected}

    @task
    def summarise(batches: list[dict[str, dict[str, Any]]]) -> None:
        """Print the loans that could not be priced, and the number of loans for each rate."""
        for loan_id, reason in [pair for batch in batches for pair in batch["rejected"].items()]:
            print(f"{loan_id} was not priced: {reason}")
        rates = [rate for batch in batches for rate in batch["rates"].values()]
        if not rates:
            raise ValueError("No loan was priced, so the URL or the fields are probably wrong.")
        for rate in sorted(set(rates)):
            print(f"{rate:7.3f} %  {rates.count(rate):4} loans")
        print(f"{len(rates)} loans priced, {sum(rates) / len(rates):.3f} % on average")

    # A teardown runs even if a batch has failed, and the DAG run still fails then.
    forget = LoanAuthForgetOperator(task_id="forget", credential_task_id="authenticate").as_teardown(
        setups=authenticate
    )

    priced = price.partial(token=authenticate.output).expand(numbers=read_pipeline())
    summarise(priced)
    priced >> forget


nightly_batch()
