"""
Makes every kind of value that the package stores: credentials, the two values of a shared refresh, deferred tasks.

As a program, it keeps them for a release: ``python -m tests.support.stored_values 0.1.0``; with the wheel of that
release as second argument, it also keeps the wheel and the reader, which later releases are tested with.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import pickle
import shutil
import sys
import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path
from unittest import mock

from tests.support.fernet_keys import FERNET_KEY
from tests.support.paths import ROOT

STORED = ROOT / "tests" / "data" / "stored"
TASK = ("nightly", "scheduled__2026-01-02T03:00:00+00:00", "group.authenticate", -1)
MAPPED_TASK = ("nightly-ü", "manual__1", "authenticate", 3)
ISSUED_AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc)
NOW = ISSUED_AT + timedelta(seconds=60)
METHODS = ("jwt", "los", "ppe")
PROXY = "http://made-up-user:made-up-password@127.0.0.1:1"


def write(sandbox):
    """
    Return values that the current code stores, each with what a reader must find in it (``facts``).

    :param sandbox: a running sandbox
    """
    from tests.support import stored_reader

    values = {
        "credentials": dict(credentials(sandbox)),
        "register": dict(register_values(sandbox)),
        "deferred": dict(deferred_tasks(sandbox)),
    }
    for kind, found in stored_reader.read(values).items():
        for name, facts in found.items():
            values[kind][name]["facts"] = facts
    return values


@contextlib.contextmanager
def connection(conn_id, value):
    with mock.patch.dict(os.environ, {f"AIRFLOW_CONN_{conn_id.upper()}": json.dumps(value)}):
        yield


def credentials(sandbox):
    """Yield credentials of each method, by hook, operator and sensor, of no task, of a task and of a mapped task."""
    from airflow_provider_loanauth._compat import TaskKey
    from airflow_provider_loanauth.hooks import loanauth as hook_module
    from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
    from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
    from tests.support.airflow_names import serde

    def by_hook(conn_id):
        return hook_module.LoanAuthHook(conn_id).get_credential()

    def by_operator(conn_id):
        return LoanAuthOperator(task_id="authenticate", loanauth_conn_id=conn_id).execute({})

    def by_sensor(conn_id):
        return LoanAuthSensor(task_id="authenticate", loanauth_conn_id=conn_id, deferrable=True).execute({})

    for method in METHODS:
        with connection(f"stored_{method}", sandbox.connections()[f"AIRFLOW_CONN_LOANAUTH_{method.upper()}"]):
            for get in (by_hook, by_operator, by_sensor):
                for suffix, task in {"": None, ", with its task": TASK, ", with its mapped task": MAPPED_TASK}.items():
                    with mock.patch.object(hook_module, "current_task", lambda task=task: task and TaskKey(*task)):
                        credential = get(f"stored_{method}")
                    entry = {"xcom": serde.serialize(credential)}
                    if get is by_hook:
                        entry["pickle"] = base64.b64encode(pickle.dumps(credential, protocol=4)).decode()
                    yield f"{method}, {get.__name__.replace('_', ' ')}{suffix}", entry


def register_values(sandbox):
    """Yield the values of a shared refresh: a claim and each kind of result."""
    from airflow_provider_loanauth.exceptions import RejectedError, ResponseError, SettingsError, UnavailableError

    errors = {
        "rejected": (RejectedError("made-up rejection", status=400), float("inf")),
        "unusable": (ResponseError("made-up response", status=200), 60.0),
        "proxy": (SettingsError("made-up proxy", status=407), 60.0),
        "unavailable": (UnavailableError("made-up outage", status=503), 10.0),
    }
    by_method = {
        method: sandbox.connections()[f"AIRFLOW_CONN_LOANAUTH_{method.upper()}"] | {"host": "https://lender.example"}
        for method in METHODS
    }
    for method, value in by_method.items():
        for name, (error, seconds) in {"refreshed": (None, 0.0), **errors}.items():
            yield f"{method}, {name}", _result(method, value, error, seconds)
    behind_proxy = by_method["jwt"] | {"extra": by_method["jwt"]["extra"] | {"proxy": PROXY}}
    yield "jwt, refreshed through a proxy", _result("jwt", behind_proxy, None, 0.0)
    yield "jwt, connection id that no key can contain", _result("jwt", by_method["jwt"], None, 0.0, conn_id="tenant/1")


def _result(method, value, error, seconds, conn_id="stored"):
    from airflow_provider_loanauth.auth import register as register_module
    from airflow_provider_loanauth.auth.register import Claim
    from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
    from tests.support import stored_reader

    entry = {
        "connection": value,
        "conn_id": conn_id,
        "method": method,
        "task": [*(MAPPED_TASK if method == "ppe" else TASK)],
        "issued_at": ISSUED_AT.isoformat(),
        "now": NOW.isoformat(),
        "xcom": {},
    }
    metadata = {"method": method, "conn_id": conn_id, "issued_at": NOW}
    if method == "ppe":
        credential = ApiSecret.seal("made-up-secret", valid=1767323045000, **metadata)
    else:
        credential = AccessToken.seal("made-up-token", expires_at=NOW + timedelta(hours=1), **metadata)
    register = stored_reader.register_of(entry)

    def write_xcom(key, value, task):
        assert [*task] == entry["task"]
        entry["xcom"][key] = json.loads(json.dumps(value))

    with (
        mock.patch.object(register_module, "write_xcom", write_xcom),
        mock.patch.object(register_module.socket, "gethostname", return_value="worker-1"),
    ):
        claim = Claim.new(40.0).next_attempt(45.5)
        register.write_claim(claim)
        register.write_refreshed(claim, credential=credential, error=error, seconds=seconds)
    return entry


def deferred_tasks(sandbox):
    """Yield what Airflow stores of a deferred sensor: trigger, method and keyword arguments; and both events."""
    from airflow_provider_loanauth.triggers.loanauth import ServiceReadyTrigger

    def event(**arguments):
        trigger = ServiceReadyTrigger(sandbox.url, poke_interval=0.05, **arguments)
        return asyncio.run(anext(trigger.run())).payload

    events = [event(), event(deadline=0.0)]
    # Nothing listens at port 1, so the service is unavailable.
    value = sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"] | {"host": "https://127.0.0.1:1/tenant"}
    behind_proxy = value | {"extra": value["extra"] | {"proxy": PROXY}}
    backoff = {"exponential_backoff": True, "max_wait": timedelta(seconds=300)}
    for name, parameters, connection_value in (
        ("a sensor", {}, value),
        ("a sensor with exponential back-off", backoff, value),
        ("a sensor behind a proxy", {}, behind_proxy),
    ):
        yield name, {**_deferral(parameters, connection_value), "events": events}


def _deferral(parameters, value):
    from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
    from tests.support.airflow_names import TaskDeferred

    options = {"poke_interval": 30, "timeout": 600, "deferrable": True}
    sensor = LoanAuthSensor(task_id="wait", loanauth_conn_id="stored_wait", **options, **parameters)
    with connection("stored_wait", value):
        try:
            sensor.execute({})
        except TaskDeferred as deferred:
            path, arguments = deferred.trigger.serialize()
            return {
                "trigger": [path, arguments],
                "next_method": deferred.method_name,
                "next_kwargs": deferred.kwargs,
            }
    raise AssertionError("the sensor was not deferred")


def keep(version, wheel=None):
    """
    Keep values of the current code as those of a release.

    :param version: the release
    :param wheel: its wheel, which is kept too, with the reader; None before the release
    """
    from loanauth_sandbox.server import running_sandbox

    folder = STORED / version
    folder.mkdir(parents=True, exist_ok=True)
    if wheel is not None:
        shutil.copy(wheel, folder)
        shutil.copy(ROOT / "tests" / "support" / "stored_reader.py", folder / "reader.py")
    with running_sandbox() as sandbox:
        for kind, entries in write(sandbox).items():
            text = json.dumps(entries, indent=1, ensure_ascii=False)
            (folder / f"{kind}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"AIRFLOW_HOME": home, "AIRFLOW__CORE__FERNET_KEY": FERNET_KEY}
        keep(*sys.argv[1:2], *map(Path, sys.argv[2:3]))
