"""
Price a thousand loans concurrently in one task, with ``httpx`` on an event loop (method Authen JWT).

Scenario: a trading desk wants all quotes within seconds of a market move. One task sends many requests at the same
time, with the credential of the first task. If it has expired, all requests wait for one refresh.

Set-up: the Connection ``loanauth_jwt`` and the Variable ``loan_pricing_url``, as in ``nightly_batch.py``.

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

from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator

if TYPE_CHECKING:
    from airflow_provider_loanauth.credentials import AccessToken

CONN_ID = "loanauth_jwt"
PRICING_URL = "loan_pricing_url"  # a Variable, because pricing may have a different host than authentication
LOANS = 1000
# The service publishes no rate limits, so send few requests at the same time.
MAX_CONCURRENT_REQUESTS = 20


def made_up_loan(number: int) -> dict[str, Any]:
    """Return a loan. The same number returns the same loan."""
    return {
        "loan_id": f"PA-{number:04}",
        "amount": 100_000 + number * 7_919 % 900_000,
        "fico": 620 + number * 37 % 200,
        "ltv": 50 + number * 13 % 47,
        "term_months": (180, 240, 360)[number % 3],
    }


@dag(
    schedule=None,  # triggered manually, or by a system that watches the market
    start_date=pendulum.datetime(2026, 1, 1, tz="America/New_York"),
    catchup=False,
    default_args={"retries": 1, "retry_delay": timedelta(seconds=10)},
    tags=["loanauth", "example"],
)
def price_async() -> None:
    """Log in, price 1,000 loans concurrently in one task, print the lowest and the highest rate."""
    token = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID).output

    # multiple_outputs=False: otherwise Airflow stores each item of the dict as a separate XCom.
    @task(multiple_outputs=False)
    def price(token: AccessToken) -> dict[str, float]:
        """Price all loans. From Airflow 3.2 on, it can be an ``async def`` that reads in ``asyncio.to_thread``."""
        import asyncio

        from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

        # Both are read before the event loop starts, because a request to Airflow would block it.
        url = Variable.get(PRICING_URL)
        client = LoanAuthHook(CONN_ID).get_async_conn(token)

        async def price_all() -> dict[str, float]:
            limit = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)
            async with client:

                async def price_one(number: int) -> tuple[str, float]:
                    async with limit:
                        response = await client.post(url, json=made_up_loan(number))
                    priced = response.raise_for_status().json()
                    return priced["loan_id"], priced["rate"]

                return dict(await asyncio.gather(*(price_one(number) for number in range(LOANS))))

        return asyncio.run(price_all())

    @task
    def summarise(rates: dict[str, float]) -> None:
        """Print the lowest and the highest rate."""
        print(f"{len(rates)} loans priced, from {min(rates.values()):.3f} % to {max(rates.values()):.3f} %")

    summarise(price(token))


price_async()
