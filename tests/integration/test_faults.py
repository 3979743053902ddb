"""Every row of `fault_table.py`, over real sockets: by the hook, the operator, and the sensor in its three modes."""

from __future__ import annotations

import copy
import dataclasses
import math
import time

import pytest
import requests

from airflow_provider_loanauth import exceptions
from airflow_provider_loanauth._compat import AirflowFailException
from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from airflow_provider_loanauth.service.retry import call_with_retries
from loanauth_sandbox.accounts import Company, User
from loanauth_sandbox.faults import KINDS
from loanauth_sandbox.server import running_sandbox
from tests.support.airflow_names import AirflowRescheduleException, TaskDeferred
from tests.support.fault_table import FAILS, FAILS_AT_ONCE, POKES_AGAIN, ROWS, SUCCEEDS, WAITS, document
from tests.support.leaks import leaks, messages
from tests.support.paths import ROOT
from tests.support.processes import start_new_process
from tests.support.waiting import context_of_a_task, fire, stored

CONN_ID = "faulty"
TIMEOUT = 5.0  # seconds
SHORT_TIMEOUT = 0.3  # seconds, for faults without any response
INTERVAL = 0.05  # seconds between two probes
SHORT_WAIT = 6 * INTERVAL
MAX_WAIT = 15.0  # seconds

# Made up, with characters that are different in a URL, in Base64 and in repr.
COMPANY = Company(
    company_id="company-77",
    origin="https://lender.example",
    client_id="client-77",
    client_secret="made-up/client+sécret=77",
    los_client_id="los-client-77",
    los_client_secret="made-up/los+sécret=77",
    api_key="made-up/api+kéy=77",
    users=(User(username="pat@lender.example", password="made-up 'pässword'/+=77", user_id="user/77"),),
    label="lender",
)
WRONG_PASSWORD = "made-up 'wröng'/+=77"
SECRETS = [
    COMPANY.client_secret,
    COMPANY.los_client_secret,
    COMPANY.api_key,
    COMPANY.users[0].password,
    WRONG_PASSWORD,
]


@pytest.fixture(scope="module")
def servers():
    with running_sandbox(accounts=[COMPANY]) as plain, running_sandbox(accounts=[COMPANY], tls="good") as tls:
        yield {False: plain, True: tls}


@dataclasses.dataclass
class Scenario:
    """
    A fault that is set in the sandbox, and the observations of a test.

    :param waits: seconds of each wait between two attempts of the hook
    :param texts: texts that must not contain a secret
    """

    sandbox: object
    row: object
    method: str
    waits: list
    texts: list

    def requests(self):
        """Return how many authentication requests the sandbox has received."""
        counters = self.sandbox.counters()
        return counters.token + counters.secret

    def end_fault(self):
        """End the fault."""
        self.sandbox.clear_faults()

    def check_requests(self, expected):
        expected = expected if self.row.received else 0
        # A client that timed out may get here before the sandbox has counted its request.
        deadline = time.monotonic() + MAX_WAIT
        while self.requests() < expected and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.requests() == expected

    def sensor(self, **parameters):
        sensor = LoanAuthSensor(
            task_id="wait", loanauth_conn_id=CONN_ID, timeout=3600, **{"poke_interval": 30, **parameters}
        )
        self.texts.append(repr(sensor))
        return sensor

    def failure(self, call):
        """Return the exception of a call, which must be that of the table."""
        with pytest.raises(getattr(exceptions, self.row.exception)) as raised:
            call()
        error = raised.value
        assert type(error).__name__ == self.row.exception
        # The table has the message of method jwt.
        message = self.row.message.replace("access_token", "secret") if self.method == "ppe" else self.row.message
        assert message.partition("Gave up after")[0] in str(error)
        assert str(error).endswith(f"(connection id '{CONN_ID}', method '{self.method}')")
        self.texts.append(messages(error))
        return error

    def credential(self, value):
        """Check that a value is a credential that can be opened, and that no text contains its secret."""
        assert type(value) is (ApiSecret if self.method == "ppe" else AccessToken)
        assert (value.conn_id, value.method) == (CONN_ID, self.method)
        self.texts += [repr(value), str(value), repr(value.serialize())]
        assert leaks("\n".join(self.texts), [value.value]) == []
        return value


@pytest.fixture
def scenario(servers, define, monkeypatch, logs, memory_clock, request):
    row, method = request.param
    sandbox = servers[row.tls]
    sandbox.clear_faults()
    sandbox.reset()
    waits = []

    def wait(seconds):
        waits.append(seconds)
        memory_clock.pass_time(seconds)

    monkeypatch.setitem(call_with_retries.__kwdefaults__, "sleep", wait)
    # No text may depend on Airflow's masker, which works only when a text is logged.
    monkeypatch.setattr("airflow_provider_loanauth.redaction.mask_secret", lambda _: None)
    conn = copy.deepcopy(sandbox.connections()[f"AIRFLOW_CONN_LOANAUTH_{method.upper()}"])
    never_ends = row.kind in ("hang", "stall") or row.params.get("body") == "slow"
    conn["extra"]["timeout"] = SHORT_TIMEOUT if never_ends else TIMEOUT
    if row.wrong_password:
        conn["password"] = WRONG_PASSWORD
    define(CONN_ID, conn)
    sandbox.set_fault(row.kind, **row.params)
    if row.locked:
        lock(sandbox)
    scenario = Scenario(sandbox, row, method, waits, [])
    yield scenario
    sandbox.clear_faults()
    assert leaks("\n".join(scenario.texts), SECRETS) == []
    assert leaks(logs.text, SECRETS) == []


def lock(sandbox):
    """Send a wrong password once, without the provider, so that the user is locked."""
    response = requests.post(
        f"{sandbox.url}/oauth/token",
        headers={"Origin": COMPANY.origin},
        auth=(COMPANY.client_id, COMPANY.client_secret.encode()),
        files=[
            (name, (None, value))
            for name, value in (
                ("username", COMPANY.users[0].username),
                ("password", WRONG_PASSWORD),
                ("grant_type", "password"),
                ("client_id", COMPANY.client_id),
            )
        ],
        timeout=5,
    )
    assert response.json()["error_description"] == "Bad credentials"
    # From here on, only the requests of the provider count.
    sandbox.state.counters.token = 0


def each(methods=("jwt",), rows=ROWS):
    """Parametrize by the rows, and by the methods that can have the fault."""
    cases = [(row, method) for row in rows for method in methods if method in row.methods]
    names = [f"{row.id}-{method}" if len(methods) > 1 else row.id for row, method in cases]
    return pytest.mark.parametrize("scenario", cases, ids=names, indirect=True)


@each(("jwt", "los", "ppe"))
def test_hook(scenario, logs):
    hook, row = LoanAuthHook(CONN_ID), scenario.row
    if row.exception is None:
        credential = scenario.credential(hook.get_credential())
        message = row.message if scenario.method != "ppe" else "the service does not state when the API secret expires"
        assert message in logs.text
        assert leaks(logs.text, [credential.value]) == []
    else:
        error = scenario.failure(hook.get_credential)
        assert isinstance(error, AirflowFailException) == (row.task == FAILS_AT_ONCE)
        assert error.retryable == (row.sensor in (WAITS, POKES_AGAIN))
        if "Gave up after" in row.message:
            assert row.message in str(error)
    assert len(scenario.waits) == row.attempts - 1
    scenario.check_requests(row.attempts)
    retries = [text for text in logs.at("warning") if text.startswith("Attempt ")]
    assert [text.partition(":")[0] for text in retries] == [
        f"Attempt {number} of 3 failed" for number in range(1, row.attempts)
    ]
    for wait, text in zip(scenario.waits, retries, strict=True):
        assert text.endswith(f"Retrying in {wait:.1f} s.")
    scenario.texts.append(repr(hook))


@each()
def test_operator(scenario):
    operator = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID)
    scenario.texts.append(repr(operator))
    if scenario.row.task == SUCCEEDS:
        scenario.credential(operator.execute({}))
    else:
        error = scenario.failure(lambda: operator.execute({}))
        # Airflow decides by this class alone whether it retries the task.
        assert isinstance(error, AirflowFailException) == (scenario.row.task == FAILS_AT_ONCE)
    scenario.check_requests(scenario.row.attempts)


def ends_at_first_poke(scenario, sensor, context):
    """Return whether the sensor does not wait for this fault; check its result if so."""
    row = scenario.row
    if row.sensor == SUCCEEDS:
        scenario.credential(sensor.execute(context))
    elif row.sensor in (FAILS, FAILS_AT_ONCE):
        error = scenario.failure(lambda: sensor.execute(context))
        assert isinstance(error, AirflowFailException) == (row.sensor == FAILS_AT_ONCE)
    else:
        return False
    scenario.check_requests(1)
    return True


@each()
def test_sensor_that_pokes(scenario, monkeypatch, logs, memory_clock):
    slept = []
    # A poke sends nothing while the service asks to wait.
    pokes_per_request = math.ceil(scenario.row.params.get("retry_after", 0) / 30) or 1

    def sleep(seconds):
        slept.append(seconds)
        memory_clock.pass_time(seconds)
        scenario.check_requests(math.ceil(len(slept) / pokes_per_request))
        if len(slept) == 2:
            scenario.end_fault()

    monkeypatch.setattr(time, "sleep", sleep)
    sensor = scenario.sensor()
    if ends_at_first_poke(scenario, sensor, {}):
        assert slept == []
        return
    scenario.credential(sensor.execute({}))
    assert slept == [30] * max(2, pokes_per_request)
    assert logs.text.count("The service is not available yet: ") == len(slept)
    assert scenario.row.message.partition("Gave up after")[0] in logs.text
    assert scenario.waits == []


@each()
def test_sensor_that_is_rescheduled(scenario, monkeypatch):
    context = context_of_a_task(monkeypatch)
    if ends_at_first_poke(scenario, scenario.sensor(mode="reschedule"), context):
        return
    for poke in (1, 2):
        start_new_process()
        with pytest.raises(AirflowRescheduleException) as raised:
            scenario.sensor(mode="reschedule").execute(context)
        assert 25 < raised.value.reschedule_date.timestamp() - time.time() <= 30
        scenario.check_requests(poke)
    scenario.end_fault()
    start_new_process()
    scenario.credential(scenario.sensor(mode="reschedule").execute(context))


@each()
def test_sensor_that_is_deferred(scenario, logs):
    sensor = scenario.sensor(deferrable=True, poke_interval=INTERVAL)
    if ends_at_first_poke(scenario, sensor, {}):
        assert scenario.sandbox.counters().probe == 0
        return

    def poke(deferred=None, event=None):
        """Poke as a worker does, with nothing but the values that Airflow stored."""
        start_new_process()
        sensor = scenario.sensor(deferrable=True, poke_interval=INTERVAL)
        if deferred is None:
            return sensor.execute({})
        arguments = stored(deferred, event.payload)
        scenario.texts += [repr(arguments), repr(event)]
        return sensor.resume_execution(deferred.method_name, arguments, {})

    with pytest.raises(TaskDeferred) as first:
        poke()
    deferred = first.value
    scenario.texts += [repr(deferred.trigger), repr(deferred.trigger.serialize()), repr(vars(deferred.trigger))]
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
    scenario.end_fault()
    event = fire(deferred.trigger, MAX_WAIT)
    assert event.payload == "ready"
    scenario.credential(poke(deferred, event))
    if scenario.row.received:
        assert scenario.requests() == requests_before + 1
    assert {entry.endpoint for entry in scenario.sandbox.requests()} <= {"token", "probe"}
    assert logs.text.count("The service is not available yet: ") == (2 if scenario.row.sensor == POKES_AGAIN else 1)


@each(rows=[row for row in ROWS if row.exception])
def test_loanauth(scenario):
    url = f"{scenario.sandbox.url}/sandbox/price"
    scenario.failure(lambda: requests.post(url, json={}, auth=LoanAuth.from_connection(CONN_ID), timeout=5))
    scenario.check_requests(scenario.row.attempts)
    if scenario.row.exception in ("RejectedError", "ResponseError"):
        scenario.failure(lambda: requests.post(url, json={}, auth=LoanAuth.from_connection(CONN_ID), timeout=5))
        scenario.check_requests(1)


def test_every_fault_of_the_sandbox_is_in_the_table():
    assert {row.kind for row in ROWS} == set(KINDS)


def test_every_row_has_a_unique_id():
    assert len({row.id for row in ROWS}) == len(ROWS)
    assert len({row.description for row in ROWS}) == len(ROWS)


def test_the_document_is_generated_from_the_table():
    path = ROOT / "docs" / "faults.md"
    assert path.read_text(encoding="utf-8") == document(), "run: python -m tests.support.fault_table docs/faults.md"


@each(rows=[row for row in ROWS if row.wrong_password])
def test_a_wrong_password_does_not_lock_the_user(scenario):
    scenario.failure(LoanAuthHook(CONN_ID).get_credential)
    assert list(scenario.sandbox.state.wrong_passwords.values()) == [1]


@each(rows=[row for row in ROWS if row.exception == "UnavailableError"])
def test_waits_are_bounded(scenario):
    scenario.failure(LoanAuthHook(CONN_ID).get_credential)
    retry_after = scenario.row.params.get("retry_after", scenario.row.params.get("retry_at"))
    for number, wait in enumerate(scenario.waits):
        if retry_after is None:
            assert 0 <= wait <= 2**number
        else:
            # An HTTP date has whole seconds only.
            assert retry_after - 15 <= wait <= retry_after + 1
