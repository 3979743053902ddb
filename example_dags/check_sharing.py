"""
Check that the tasks of a DAG run share a refreshed token, with any executor.

Scenario: Airflow is new, or has a different executor, a different image or a new Fernet key. This DAG logs in, waits
until the token has expired, then starts eight mapped tasks at the same time. Each of them needs a new token. The last
task prints how many tokens they used: one if they share it, rarely two. The DAG sends logins only, and no pricing
request.

Set-up: a Connection of type *Loan Pricing Authentication* whose method returns a token (``jwt`` or ``los``). Trigger
the DAG manually and enter the id. The run takes as long as a token is valid, often an hour. While it waits, it uses no
worker slot. A run with ``airflow dags test`` proves nothing, because it runs all tasks in one process.

This file is complete and can be copied alone. Parts that other examples also have are repeated on purpose.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

try:
    from airflow.sdk import Param, dag, task
except ImportError:  # Airflow 2.11
    from airflow.decorators import dag, task
    from airflow.models.param import Param

import pendulum

from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator

if TYPE_CHECKING:
    from airflow_provider_loanauth.credentials import AccessToken

TASKS = 8
# Two tasks may refresh at the same moment. A second token is therefore no error.
MAX_TOKENS = 2


@dag(
    schedule=None,  # manual only
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    params={"conn_id": Param("loanauth_default", type="string", title="Connection id")},
    tags=["loanauth", "example"],
)
def check_sharing() -> None:
    """Log in, wait until the token has expired, then count the tokens that mapped tasks use."""
    token = LoanAuthOperator(task_id="authenticate", loanauth_conn_id="{{ params.conn_id }}").output

    @task.sensor(mode="reschedule", poke_interval=30, timeout=timedelta(days=1))
    def wait_for_expiry(token: AccessToken) -> bool:
        """Return whether the token has expired."""
        # Not until `expires_at`, which is a time of the service's clock, in whole seconds.
        if token.lifetime is None:
            raise ValueError("The service does not say when this token expires, so there is nothing to wait for.")
        return pendulum.now("UTC") > token.issued_at + timedelta(seconds=token.lifetime)

    @task
    def use(token: AccessToken, number: int) -> str:
        """Return a digest of the token that a pricing request of this task would have."""
        # Imported in the task, because Airflow parses this file again and again.
        import hashlib

        import requests

        from airflow_provider_loanauth.auth import LoanAuth

        # The request is only prepared and never sent. LoanAuth refreshes the token if it has expired.
        request = requests.Request("GET", "https://pricing.lender.example/", auth=LoanAuth(token)).prepare()
        digest = hashlib.sha256(request.headers["Authorization"].encode()).hexdigest()[:12]
        print(f"Task {number} uses the token with the digest {digest}")
        return digest

    @task
    def count(digests: list[str]) -> None:
        """Print the number of different tokens; fail if the tasks have not shared one."""
        tokens = len(set(digests))
        print(f"{TASKS} tasks used {tokens} token(s) after the first one had expired")
        if tokens > MAX_TOKENS:
            raise ValueError("The tasks do not share a refreshed token. Their logs say why.")

    used = use.partial(token=token).expand(number=list(range(TASKS)))
    wait_for_expiry(token) >> used
    count(used)


check_sharing()
