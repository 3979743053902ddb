"""Every row of `fault_table.py` over real sockets by the hook, and each error by `LoanAuth`."""

from __future__ import annotations

import pytest
import requests

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from loanauth_sandbox.faults import KINDS
from tests.support.airflow_names import AirflowFailException
from tests.support.fault_scenarios import CONN_ID, each
from tests.support.fault_table import FAILS_AT_ONCE, OUTCOMES, POKES_AGAIN, ROWS, WAITS, table
from tests.support.paths import ROOT

pytestmark = pytest.mark.once


@each()
def test_hook(scenario, logs):
    hook, row = LoanAuthHook(CONN_ID), scenario.row
    if row.exception is None:
        scenario.check_credential(hook.get_credential())
        assert row.message in logs.text
    else:
        error = scenario.failure(hook.get_credential)
        assert isinstance(error, AirflowFailException) == (row.task == FAILS_AT_ONCE)
        assert error.retryable == (row.sensor in (WAITS, POKES_AGAIN))
        if "Gave up after" in row.message:
            assert row.message in str(error)
    scenario.check_requests(row.attempts)
    assert len(scenario.waits) == row.attempts - 1
    # The clock of the sandbox does not move, so later dates are in the past. A date has whole seconds only.
    at_least = [row.params["retry_at"] - 15] if "retry_at" in row.params else [row.params.get("retry_after", 0)] * 2
    assert all(wait >= least for wait, least in zip(scenario.waits, at_least, strict=False))
    attempts = [text for text in logs.at("warning") if text.startswith("Attempt ")]
    assert (len(attempts), ".." in "".join(attempts)) == (row.attempts - 1, False)


@each([row for row in OUTCOMES if row.exception])
def test_loanauth(scenario):
    url = f"{scenario.sandbox.url}/sandbox/price"
    scenario.failure(lambda: requests.post(url, json={}, auth=LoanAuth.from_connection(CONN_ID), timeout=5))
    scenario.check_requests(scenario.row.attempts)


def test_every_fault_of_the_sandbox_is_in_the_table():
    assert {row.kind for row in ROWS} == set(KINDS)


def test_the_table_of_the_docs_is_generated():
    page = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    assert page.endswith("|---|\n" + table()), "run: python -m tests.support.fault_table docs/faults.md"
