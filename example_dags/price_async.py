"""
Price a thousand loans at once, in one task: ``httpx`` on an event loop (method Authen JWT).

Scenario: a desk wants all quotes within seconds of a market move. One task sends many requests at the same time; the
credential is the one that the first task got, and where it has run out, all requests wait for one renewal.

Set-up: the Connection ``loanauth_jwt`` and the Variable ``loan_pricing_url``, as in ``nightly_batch.py``; on the
workers ``pip install 'airflow-provider-loanauth[httpx]'``.
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

from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator

if TYPE_CHECKING:
    from airflow_provider_loanauth.credentials import AccessToken

CONN_ID = "loanauth_jwt"
PRICING_URL = "loan_pricing_url"  # a Variable: pricing may live on another host than authentication
LOANS = 1000
# Requests on their way at the same time. The service publishes no limits, so be a polite caller.
AT_ONCE = 20
TIMEOUT = 30  # seconds


def made_up_loan(number: int) -> dict[str, Any]:
    """Return a loan; the same at every call."""
    return {
        "loan_id": f"PA-{number:04}",
        "amount": 100_000 + number * 7_919 % 900_000,
        "fico": 620 + number * 37 % 200,
        "ltv": 50 + number * 13 % 47,
        "term_months": (180, 240, 360)[number % 3],
    }


@dag(
    schedule=None,  # started by hand, or by whatever watches the market
    start_date=pendulum.datetime(2026, 1, 1, tz="America/New_York"),
    catchup=False,
    default_args={"retries": 1, "retry_delay": timedelta(seconds=10)},
    tags=["loanauth", "example"],
)
def price_async() -> None:
    """Log in, price 1,000 loans concurrently in one task, print the extremes."""
    token = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID).output

    # multiple_outputs: of a dict, Airflow would otherwise store each loan as an XCom of its own.
    @task(multiple_outputs=False)
    def price(token: AccessToken) -> dict[str, float]:
        """Price all loans. From Airflow 3.2 on, this may be an ``async def`` without the inner function."""
        import asyncio

        import httpx

        from airflow_provider_loanauth.auth_httpx import LoanAuth

        # Read before the loop begins: asking Airflow blocks, and an event loop must not be blocked.
        url = Variable.get(PRICING_URL)

        async def price_all() -> dict[str, float]:
            # Here, and not by the limits of the client alone: httpx gets slow with a long queue of its own.
            few = asyncio.Semaphore(AT_ONCE)
            async with httpx.AsyncClient(auth=LoanAuth(token), timeout=TIMEOUT) as client:

                async def price_one(number: int) -> tuple[str, float]:
                    async with few:
                        answer = await client.post(url, json=made_up_loan(number))
                    priced = answer.raise_for_status().json()
                    return priced["loan_id"], priced["rate"]

                return dict(await asyncio.gather(*(price_one(number) for number in range(LOANS))))

        return asyncio.run(price_all())

    @task
    def summarise(rates: dict[str, float]) -> None:
        """Print the lowest and the highest rate."""
        print(f"{len(rates)} loans priced, from {min(rates.values()):.3f} % to {max(rates.values()):.3f} %")

    summarise(price(token))


price_async()
