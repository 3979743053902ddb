"""
Opens what a release has stored, with the code of this release: XCom values, pickles, triggers and deferred tasks.

As a program, it reads values from the standard input and writes what it found to the standard output, both as JSON. A
copy of this file is kept for each release, because it uses names of that release that are not public.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pickle
import pkgutil
import sys
from datetime import datetime
from unittest import mock

try:
    from airflow.sdk import serde
except ImportError:  # Airflow 2.11 to 3.1
    from airflow.serialization import serde

import airflow_provider_loanauth
from airflow_provider_loanauth import credentials as credentials_module
from airflow_provider_loanauth._compat import TaskKey
from airflow_provider_loanauth.auth import register as register_module
from airflow_provider_loanauth.auth.register import Register
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor


def describe_credential(credential):
    return {
        "class": type(credential).__name__,
        "method": credential.method,
        "conn_id": credential.conn_id,
        "issued_at": credential.issued_at.isoformat(),
        "expires_at": credential.expires_at and credential.expires_at.isoformat(),
        "task": credential.task and [*credential.task],
        "valid": getattr(credential, "valid", None),
        "sha256": hashlib.sha256(credential.value.encode()).hexdigest(),
    }


def read_credential(entry):
    found = describe_credential(serde.deserialize(entry["xcom"]))
    if "pickle" in entry and describe_credential(pickle.loads(base64.b64decode(entry["pickle"]))) != found:
        raise ValueError("the pickle and the XCom value differ")
    return found


def register_of(entry):
    """Return the register of an entry as a task has it that uses the same Connection."""
    variable = f"AIRFLOW_CONN_{entry['conn_id'].upper()}"
    with mock.patch.dict(os.environ, {variable: json.dumps(entry["connection"])}):
        settings = LoanAuthHook(entry["conn_id"]).client.settings(entry["method"])
    issued_at, now = (datetime.fromisoformat(entry[name]) for name in ("issued_at", "now"))
    return Register(TaskKey(*entry["task"]), settings, issued_at=issued_at, now=lambda: now)


def read_register(entry):
    register = register_of(entry)

    def read_xcom(key, task):
        return entry["xcom"].get(key) if [*task] == entry["task"] else None

    with mock.patch.object(register_module, "read_xcom", read_xcom):
        claim, refreshed = register.read_claim(), register.read_refreshed()
    error = refreshed.error
    return {
        "claim": claim and [claim.name, claim.seconds, claim.attempt],
        "refreshed under": refreshed.claim,
        "by": refreshed.by,
        "credential": refreshed.credential and describe_credential(refreshed.credential),
        "error": error and [type(error).__name__, str(error.args[0]), error.status],
        "seconds": str(refreshed.seconds),
    }


def read_deferred(entry):
    path, arguments = entry["trigger"]
    trigger = pkgutil.resolve_name(path)(**arguments)
    results = []
    for event in entry["events"]:
        sensor = LoanAuthSensor(task_id="wait", loanauth_conn_id="made-up")
        with mock.patch.object(sensor, "_poke_once", return_value="made-up credential"):
            results.append(sensor.resume_execution(entry["next_method"], {**entry["next_kwargs"], "event": event}, {}))
    names = ("address", "poke_interval", "deadline", "max_interval", "proxy")
    return {"trigger": {name: getattr(trigger, name) for name in names}, "results": results}


READERS = {"credentials": read_credential, "register": read_register, "deferred": read_deferred}


def read(values):
    """
    Open values, and return what is in each of them. If that fails, it is the error, under the key ``failed``.

    :param values: entries by kind (``credentials``, ``register``, ``deferred``) and name
    """
    # Masking takes seconds for so many tokens.
    with mock.patch.object(credentials_module, "mask"):
        return {
            kind: {name: _read_or_fail(READERS[kind], entry) for name, entry in entries.items()}
            for kind, entries in values.items()
        }


def _read_or_fail(read_entry, entry):
    try:
        return read_entry(entry)
    except Exception as error:  # noqa: BLE001 - an error is a result too
        return {"failed": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    result = {"code": airflow_provider_loanauth.__file__, "found": read(json.load(sys.stdin))}
    sys.stdout.write(f"\n{json.dumps(result)}\n")
