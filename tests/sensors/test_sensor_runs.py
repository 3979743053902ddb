"""The sensor in a real DAG run: its XCom in every mode, available at the first poke or later, and its timeouts."""

from __future__ import annotations

import contextlib
import shutil
from importlib.metadata import version

import pytest

from loanauth_sandbox.accounts import default_accounts
from loanauth_sandbox.server import running_sandbox
from tests.support.airflow_scratch import conn_variable
from tests.support.dag_runs import run
from tests.support.leaks import leaks
from tests.support.waiting import MODES

pytestmark = pytest.mark.processes

WAITS = [f"{mode}_{when}" for mode in MODES for when in ("open", "late")]
COMPANY = default_accounts()[0]


def test_every_mode_returns_its_credential_and_times_out_as_expected(metadata_template, tmp_path):
    shutil.copy(metadata_template, tmp_path)
    # Airflow's alarm at execution_timeout may interrupt a log call, which then keeps the lock of its handler for ever.
    environment = {"AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO"}
    with contextlib.ExitStack() as stack:
        sandboxes = {name: stack.enter_context(running_sandbox()) for name in [*WAITS, "down"]}
        for name, sandbox in sandboxes.items():
            connection = sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
            if name == "down":
                # With ``dags test``, the alarm may also interrupt Airflow's API server while it reads a Variable.
                connection["extra"] |= {"share_logins": False}
            environment |= dict([conn_variable(name, connection)])
            environment[f"ADDRESS_OF_{name.upper()}"] = sandbox.url
            if name.endswith("late"):
                sandbox.set_fault("status", status=503, where="token", times=1)
        sandboxes["down"].set_fault("status", status=503)
        [outcome] = run(tmp_path, ("waits", "waits.py", environment))
        counters = {name: sandbox.counters() for name, sandbox in sandboxes.items()}
    states = {task: (state, outcome.tries("waits", task)) for task, state in outcome.states("waits").items()}

    # Despite retries=3 each task has one try: Airflow does not retry after a timeout of a sensor either.
    expected = {task: ("success", 1) for name in WAITS for task in (name, f"use_{name}")}
    if version("apache-airflow").startswith("3.0."):
        # On 3.0 ``dags test`` fails in Airflow's own date arithmetic when a sensor is rescheduled twice.
        states = {task: state for task, state in states.items() if not task.startswith("reschedule_down")}
    modes = [mode for mode in MODES if f"{mode}_down" in states]
    expected |= {f"{mode}_down": ("failed", 1) for mode in modes}
    expected |= {f"{mode}_down_soft": ("skipped", 1) for mode in modes}
    unexpected = {task: state for task, state in states.items() if state != expected.get(task)}
    assert unexpected == {}, f"{unexpected}\n{outcome.printed[-5000:].decode()}"
    assert states.keys() == expected.keys()

    for name in WAITS:
        assert "credentials.AccessToken" in outcome.xcom("waits", name)[0]
        # The next task received the credential, and could use it.
        assert counters[name].prices.succeeded == 1
        # One successful authentication, and one rejected poke where the service was unavailable at first.
        assert counters[name].authentications.succeeded == 1
        assert counters[name].token == 1 + name.endswith("late")

    assert b"Starting new HTTP connection" in outcome.printed  # a record at DEBUG
    # Airflow's safeguard against operators that are called by hand.
    assert b"cannot be called outside" not in outcome.printed
    for octets in outcome.octets.values():
        assert leaks(octets, [COMPANY.users[0].password, COMPANY.client_secret]) == []
