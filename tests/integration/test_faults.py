"""Each row of `fault_table.py` over real sockets by the hook; each outcome by `LoanAuth` and by a deferred sensor."""

from __future__ import annotations

import dataclasses
import time

import pytest
import requests

from airflow_provider_loanauth import exceptions
from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from airflow_provider_loanauth.system import system
from loanauth_sandbox.faults import KINDS
from loanauth_sandbox.server import running_sandbox
from tests.support.airflow_names import AirflowFailException, TaskDeferred
from tests.support.fault_table import FAILS_AT_ONCE, OUTCOMES, POKES_AGAIN, ROWS, WAITS
from tests.support.processes import start_new_process
from tests.support.secret_accounts import COMPANY, with_wrong_password
from tests.support.waiting import fire, stored

CONN_ID = "faulty"
TIMEOUT = 5.0  # seconds
SHORT_TIMEOUT = 0.25  # seconds, for faults that last until the deadline
MAX_WAIT = 15.0  # seconds
INTERVAL = 0.06  # seconds between two probes
SHORT_WAIT = 3.5 * INTERVAL


@pytest.fixture(scope="module")
def servers():
    with running_sandbox(accounts=[COMPANY]) as plain, running_sandbox(accounts=[COMPANY], tls="good") as tls:
        yield {False: plain, True: tls}


@dataclasses.dataclass
class Scenario:
    sandbox: object
    row: object
    waits: list  # seconds of each wait between two attempts of the hook

    def requests(self):
        counters = self.sandbox.counters()
        return counters.token + counters.secret

    def check_requests(self, expected):
        expected = expected if self.row.received else 0
        # A client that timed out may get here before the sandbox has counted its request.
        deadline = time.monotonic() + MAX_WAIT
        while self.requests() < expected and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.requests() == expected

    def failure(self, call):
        """Return the exception of a call, which must be that of the table."""
        with pytest.raises(getattr(exceptions, self.row.exception)) as raised:
            call()
        error = raised.value
        assert self.row.message.partition("Gave up after")[0] in str(error)
        assert str(error).endswith(f"(connection id '{CONN_ID}', method 'jwt')")
        return error

    def check_credential(self, value):
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
    is_slow = row.kind in ("hang", "stall") or "interval" in row.params
    conn["extra"]["timeout"] = SHORT_TIMEOUT if is_slow else TIMEOUT
    if row.wrong_password:
        conn = with_wrong_password(conn)
    define(CONN_ID, conn)
    sandbox.set_fault(row.kind, **row.params)
    if row.locked:
        sandbox.state.wrong_passwords[COMPANY.company_id, COMPANY.users[0].username] = 1
    yield Scenario(sandbox, row, waits)
    sandbox.clear_faults()


def each(rows):
    return pytest.mark.parametrize("scenario", rows, ids=[row.description for row in rows], indirect=True)


@pytest.mark.once
@each(ROWS)
def test_hook(scenario, logs):
    hook, row = LoanAuthHook(CONN_ID), scenario.row
    if row.exception is None:
        scenario.check_credential(hook.get_credential())
        assert row.message in logs.text
    else:
        error = scenario.failure(hook.get_credential)
        assert isinstance(error, AirflowFailException) == (row.task == FAILS_AT_ONCE)
        assert error.retryable == (row.sensor in (WAITS, POKES_AGAIN))
        assert error.retryable or row.sensor == row.task
        if "Gave up after" in row.message:
            assert row.message in str(error)
    scenario.check_requests(row.attempts)
    assert len(scenario.waits) == row.attempts - 1
    # The clock of the sandbox does not move, so later dates are in the past. A date has whole seconds only.
    at_least = [row.params["retry_at"] - 15] if "retry_at" in row.params else [row.params.get("retry_after", 0)] * 2
    assert all(wait >= least for wait, least in zip(scenario.waits, at_least, strict=False))
    attempts = [text for text in logs.at("warning") if text.startswith("Attempt ")]
    assert (len(attempts), ".." in "".join(attempts)) == (row.attempts - 1, False)


@pytest.mark.once
@each([row for row in OUTCOMES if row.exception])
def test_loanauth(scenario):
    url = f"{scenario.sandbox.url}/sandbox/price"
    scenario.failure(lambda: requests.post(url, json={}, auth=LoanAuth.from_connection(CONN_ID), timeout=5))
    scenario.check_requests(scenario.row.attempts)


WAITING = [row for row in OUTCOMES if row.sensor in (WAITS, POKES_AGAIN)]


@each(WAITING)
def test_sensor_that_is_deferred(scenario, logs):
    """`sensors/test_sensor.py` has the other modes, and the errors for which it does not wait."""

    def poke(deferred=None, event=None):
        """Poke as a worker does, with nothing but the values that Airflow stored."""
        start_new_process()
        options = {"timeout": 3600, "poke_interval": INTERVAL, "deferrable": True}
        sensor = LoanAuthSensor(task_id="wait", loanauth_conn_id=CONN_ID, **options)
        if deferred is None:
            return sensor.execute({})
        return sensor.resume_execution(deferred.method_name, stored(deferred, event.payload), {})

    with pytest.raises(TaskDeferred) as first:
        poke()
    deferred = first.value
    scenario.check_requests(1)
    # During the fault, the trigger sends no event, or one after an interval, and the next poke defers again.
    event = fire(deferred.trigger, MAX_WAIT if scenario.row.sensor == POKES_AGAIN else SHORT_WAIT)
    assert (event is not None) == (scenario.row.sensor == POKES_AGAIN)
    if event is not None:
        with pytest.raises(TaskDeferred) as again:
            poke(deferred, event)
        deferred = again.value
        scenario.check_requests(2)
    requests_before = scenario.requests()
    scenario.sandbox.clear_faults()
    event = fire(deferred.trigger, MAX_WAIT)
    assert event.payload == {"status": "ready"}
    scenario.check_credential(poke(deferred, event))
    if scenario.row.received:
        assert scenario.requests() == requests_before + 1
    assert {entry.endpoint for entry in scenario.sandbox.requests()} <= {"token", "secret", "probe"}
    assert logs.text.count("The service is not available yet: ") == (2 if scenario.row.sensor == POKES_AGAIN else 1)


@pytest.mark.once
def test_every_fault_of_the_sandbox_is_in_the_table():
    assert {row.kind for row in ROWS} == set(KINDS)
