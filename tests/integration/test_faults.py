"""Every row of `fault_table.py`, over real sockets: by the hook, the operator, and the sensor in its three modes."""

from __future__ import annotations

import copy
import dataclasses
import time

import pytest
import requests

from airflow_provider_loanauth import exceptions
from airflow_provider_loanauth._compat import AirflowFailException
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from airflow_provider_loanauth.service.retry import retrying
from loanauth_sandbox.accounts import Company, User
from loanauth_sandbox.faults import KINDS
from loanauth_sandbox.server import running_sandbox
from tests.support.airflow_names import AirflowRescheduleException, TaskDeferred
from tests.support.fault_table import FAILS, FAILS_AT_ONCE, LOOKS_AGAIN, ROWS, SUCCEEDS, WAITS, document
from tests.support.leaks import leaks, told
from tests.support.paths import ROOT
from tests.support.waiting import context_of_a_task, fire, stored

CONN_ID = "faulty"
TIMEOUT = 5.0  # seconds
SHORT_TIMEOUT = 0.3  # where nothing comes, however long one waits
INTERVAL = 0.05  # seconds between two questions of a probe
A_WHILE = 6 * INTERVAL
PATIENCE = 15.0

# Made up; with characters that look otherwise in an address, in Base64 and in repr.
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
class Stage:
    """
    The sandbox with a fault on, and what there is to look at afterwards.

    :param waits: seconds that the hook wanted to sleep between two attempts
    :param told: texts in which no secret may be
    """

    sandbox: object
    row: object
    method: str
    waits: list
    told: list

    def requests(self):
        """Return how many authentications were asked for."""
        counters = self.sandbox.counters()
        return counters.token + counters.secret

    def mend(self):
        """End the fault."""
        self.sandbox.clear_faults()

    def check_seen(self, expected):
        expected = expected if self.row.seen else 0
        # Who gave up on an answer may be told before the request is counted.
        deadline = time.monotonic() + PATIENCE
        while self.requests() < expected and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.requests() == expected

    def sensor(self, **parameters):
        sensor = LoanAuthSensor(
            task_id="wait", loanauth_conn_id=CONN_ID, timeout=3600, **{"poke_interval": 30, **parameters}
        )
        self.told.append(repr(sensor))
        return sensor

    def failure(self, call):
        """Return what a call raises, which is what the table says."""
        with pytest.raises(getattr(exceptions, self.row.exception)) as raised:
            call()
        error = raised.value
        assert type(error).__name__ == self.row.exception
        # The table speaks of method jwt.
        said = self.row.says.replace("access_token", "secret") if self.method == "ppe" else self.row.says
        assert said.partition("It was still so")[0] in str(error)
        assert str(error).endswith(f"(connection id '{CONN_ID}', method '{self.method}')")
        self.told.append(told(error))
        return error

    def credential(self, value):
        """Check that a value is a credential that opens, and that it does not show itself."""
        assert type(value) is (ApiSecret if self.method == "ppe" else AccessToken)
        assert (value.conn_id, value.method) == (CONN_ID, self.method)
        self.told += [repr(value), str(value), repr(value.serialize())]
        assert leaks("\n".join(self.told), [value.value]) == []
        return value


@pytest.fixture
def stage(servers, define, monkeypatch, logs, request):
    row, method = request.param
    sandbox = servers[row.tls]
    sandbox.clear_faults()
    sandbox.reset()
    waits = []
    monkeypatch.setitem(retrying.__kwdefaults__, "sleep", waits.append)
    # Nothing may depend on Airflow's masker: it has not run where an exception is only built.
    monkeypatch.setattr("airflow_provider_loanauth.sealing.mask_secret", lambda _: None)
    conn = copy.deepcopy(sandbox.connections()[f"AIRFLOW_CONN_LOANAUTH_{method.upper()}"])
    conn["extra"]["timeout"] = SHORT_TIMEOUT if row.kind in ("hang", "stall") else TIMEOUT
    if row.wrong_password:
        conn["password"] = WRONG_PASSWORD
    define(CONN_ID, conn)
    sandbox.set_fault(row.kind, **row.params)
    if row.locked:
        lock(sandbox)
    stage = Stage(sandbox, row, method, waits, [])
    yield stage
    sandbox.clear_faults()
    assert leaks("\n".join(stage.told), SECRETS) == []
    assert leaks(logs.text, SECRETS) == []


def lock(sandbox):
    """Send a wrong password once, without the provider, so that the next one finds the user locked."""
    answer = requests.post(
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
    assert answer.json()["error_description"] == "Bad credentials"
    # The requests of the task are what is counted from here on.
    sandbox.state.counters.token = 0


def each(methods=("jwt",), rows=ROWS):
    """Parametrize by the rows, and by the methods that can meet them."""
    cases = [(row, method) for row in rows for method in methods if method in row.methods]
    names = [f"{row.id}-{method}" if len(methods) > 1 else row.id for row, method in cases]
    return pytest.mark.parametrize("stage", cases, ids=names, indirect=True)


@each(("jwt", "los", "ppe"))
def test_hook(stage, logs):
    hook, row = LoanAuthHook(CONN_ID), stage.row
    if row.exception is None:
        credential = stage.credential(hook.get_credential())
        said = row.says if stage.method != "ppe" else "the service does not say how long the API secret lasts"
        assert said in logs.text
        assert leaks(logs.text, [credential.value]) == []
    else:
        error = stage.failure(hook.get_credential)
        assert isinstance(error, AirflowFailException) == (row.task == FAILS_AT_ONCE)
        assert error.retryable == (row.sensor in (WAITS, LOOKS_AGAIN))
        if "It was still so" in row.says:
            assert row.says in str(error)
    assert len(stage.waits) == row.attempts - 1
    stage.check_seen(row.attempts)
    retries = [text for text in logs.at("warning") if text.startswith("Attempt ")]
    assert [text.partition(":")[0] for text in retries] == [
        f"Attempt {number} of 3" for number in range(1, row.attempts)
    ]
    for wait, text in zip(stage.waits, retries, strict=True):
        assert text.endswith(f"Trying again in {wait:.1f} s.")
    stage.told.append(repr(hook))


@each()
def test_operator(stage):
    operator = LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID)
    stage.told.append(repr(operator))
    if stage.row.task == SUCCEEDS:
        stage.credential(operator.execute({}))
    else:
        error = stage.failure(lambda: operator.execute({}))
        # Airflow asks nothing else when it decides whether to try again.
        assert isinstance(error, AirflowFailException) == (stage.row.task == FAILS_AT_ONCE)
    stage.check_seen(stage.row.attempts)


def ends_at_first_look(stage, sensor, context):
    """Check a sensor that does not wait; tell whether it was one."""
    row = stage.row
    if row.sensor == SUCCEEDS:
        stage.credential(sensor.execute(context))
    elif row.sensor in (FAILS, FAILS_AT_ONCE):
        error = stage.failure(lambda: sensor.execute(context))
        assert isinstance(error, AirflowFailException) == (row.sensor == FAILS_AT_ONCE)
    else:
        return False
    stage.check_seen(1)
    return True


@each()
def test_sensor_that_pokes(stage, monkeypatch, logs):
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        stage.check_seen(len(slept))
        if len(slept) == 2:
            stage.mend()

    monkeypatch.setattr(time, "sleep", sleep)
    sensor = stage.sensor()
    if ends_at_first_look(stage, sensor, {}):
        assert slept == []
        return
    stage.credential(sensor.execute({}))
    assert slept == [30, 30]
    assert logs.text.count("Not yet: ") == 2
    assert stage.row.says.partition("It was still so")[0] in logs.text
    assert stage.waits == []


@each()
def test_sensor_that_is_rescheduled(stage, monkeypatch):
    context = context_of_a_task(monkeypatch)
    if ends_at_first_look(stage, stage.sensor(mode="reschedule"), context):
        return
    for look in (1, 2):
        # A new object each time, as in a new process: it keeps no state.
        with pytest.raises(AirflowRescheduleException) as raised:
            stage.sensor(mode="reschedule").execute(context)
        assert 25 < raised.value.reschedule_date.timestamp() - time.time() <= 30
        stage.check_seen(look)
    stage.mend()
    stage.credential(stage.sensor(mode="reschedule").execute(context))


@each()
def test_sensor_that_is_deferred(stage, logs):
    sensor = stage.sensor(deferrable=True, poke_interval=INTERVAL)
    if ends_at_first_look(stage, sensor, {}):
        assert stage.sandbox.counters().probe == 0
        return

    def look(deferred=None, event=None):
        """Look as a worker does that knows only what Airflow stored."""
        sensor = stage.sensor(deferrable=True, poke_interval=INTERVAL)
        if deferred is None:
            return sensor.execute({})
        arguments = stored(deferred, event.payload)
        stage.told += [repr(arguments), repr(event)]
        return sensor.resume_execution(deferred.method_name, arguments, {})

    with pytest.raises(TaskDeferred) as first:
        look()
    deferred = first.value
    stage.told += [repr(deferred.trigger), repr(deferred.trigger.serialize()), repr(vars(deferred.trigger))]
    stage.check_seen(1)
    # While the fault is on: no word from the trigger, or one after an interval, and the worker is turned away again.
    event = fire(deferred.trigger, PATIENCE if stage.row.sensor == LOOKS_AGAIN else A_WHILE)
    assert (event is not None) == (stage.row.sensor == LOOKS_AGAIN)
    if event is not None:
        with pytest.raises(TaskDeferred) as again:
            look(deferred, event)
        deferred = again.value
        stage.check_seen(2)
    looks = stage.requests()
    stage.mend()
    event = fire(deferred.trigger, PATIENCE)
    assert event.payload == "ready"
    stage.credential(look(deferred, event))
    if stage.row.seen:
        assert stage.requests() == looks + 1
    assert {entry.endpoint for entry in stage.sandbox.requests()} <= {"token", "probe"}
    assert logs.text.count("Not yet: ") == (2 if stage.row.sensor == LOOKS_AGAIN else 1)


def test_every_fault_of_the_sandbox_is_in_the_table():
    assert {row.kind for row in ROWS} == set(KINDS)


def test_every_row_has_a_name_of_its_own():
    assert len({row.id for row in ROWS}) == len(ROWS)
    assert len({row.what for row in ROWS}) == len(ROWS)


def test_the_document_is_generated_from_the_table():
    path = ROOT / "docs" / "faults.md"
    assert path.read_text(encoding="utf-8") == document(), "run: python -m tests.support.fault_table docs/faults.md"


@each(rows=[row for row in ROWS if row.wrong_password])
def test_a_wrong_password_does_not_lock_the_user(stage):
    stage.failure(LoanAuthHook(CONN_ID).get_credential)
    assert list(stage.sandbox.state.wrong_passwords.values()) == [1]


@each(rows=[row for row in ROWS if row.exception == "UnavailableError"])
def test_waits_are_bounded(stage):
    stage.failure(LoanAuthHook(CONN_ID).get_credential)
    asked = stage.row.params.get("retry_after", stage.row.params.get("retry_at"))
    for number, wait in enumerate(stage.waits):
        if asked is None:
            assert 0 <= wait <= 2**number
        else:
            # An HTTP date has whole seconds only.
            assert asked - 15 <= wait <= asked + 1
