"""Fixtures for the rows of ``fault_table.py``: a fault in a sandbox, and the checks that all ways to use it share."""

from __future__ import annotations

import dataclasses
import time

import pytest

from airflow_provider_loanauth import exceptions
from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from airflow_provider_loanauth.system import system
from loanauth_sandbox.server import running_sandbox
from tests.support.fault_table import ROWS
from tests.support.secret_accounts import COMPANY, with_wrong_password

CONN_ID = "faulty"
TIMEOUT = 5.0  # seconds
SHORT_TIMEOUT = 0.25  # seconds, for faults that last until the deadline
MAX_WAIT = 15.0  # seconds


@pytest.fixture(scope="module")
def servers():
    with running_sandbox(accounts=[COMPANY]) as plain, running_sandbox(accounts=[COMPANY], tls="good") as tls:
        yield {False: plain, True: tls}


@dataclasses.dataclass
class Scenario:
    """A fault that is set in the sandbox, and the observations of a test."""

    sandbox: object
    row: object
    waits: list  # seconds of each wait between two attempts of the hook

    def requests(self):
        """Return how many authentication requests the sandbox has received."""
        counters = self.sandbox.counters()
        return counters.token + counters.secret

    def check_requests(self, expected):
        expected = expected if self.row.received else 0
        # A client that timed out may get here before the sandbox has counted its request.
        deadline = time.monotonic() + MAX_WAIT
        while self.requests() < expected and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.requests() == expected

    def sensor(self, **parameters):
        usual = {"task_id": "wait", "loanauth_conn_id": CONN_ID, "timeout": 3600, "poke_interval": 30}
        return LoanAuthSensor(**(usual | parameters))

    def failure(self, call):
        """Return the exception of a call, which must be that of the table."""
        with pytest.raises(getattr(exceptions, self.row.exception)) as raised:
            call()
        error = raised.value
        assert self.row.message.partition("Gave up after")[0] in str(error)
        assert str(error).endswith(f"(connection id '{CONN_ID}', method 'jwt')")
        return error

    def check_credential(self, value):
        """Check that a value is a credential that can be opened."""
        assert type(value) is AccessToken
        assert (value.conn_id, value.method) == (CONN_ID, "jwt")
        assert value.value


@pytest.fixture
def scenario(servers, define, monkeypatch, memory_clock, request):
    row = request.param
    sandbox = servers[row.tls]
    sandbox.clear_faults()
    sandbox.reset()
    waits = []

    def wait(seconds):
        waits.append(seconds)
        memory_clock.pass_time(seconds)

    monkeypatch.setattr(system, "sleep", wait)
    conn = sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
    is_slow = row.kind in ("hang", "stall") or row.params.get("body") == "slow" or "interval" in row.params
    conn["extra"]["timeout"] = SHORT_TIMEOUT if is_slow else TIMEOUT
    if row.wrong_password:
        conn = with_wrong_password(conn)
    define(CONN_ID, conn)
    sandbox.set_fault(row.kind, **row.params)
    if row.locked:
        sandbox.state.wrong_passwords[COMPANY.company_id, COMPANY.users[0].username] = 1
    yield Scenario(sandbox, row, waits)
    sandbox.clear_faults()


def each(rows=ROWS):
    return pytest.mark.parametrize("scenario", rows, ids=[row.description for row in rows], indirect=True)
