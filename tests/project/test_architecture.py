"""The paths of stored classes, what importing a module costs, and the ``repr`` of what stands in a DAG file.

Which module may import which is checked by ``lint-imports`` (``make lint``), with the contracts in ``.importlinter``.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from datetime import datetime, timezone
from functools import partial
from importlib.util import find_spec

import pytest

from airflow_provider_loanauth._compat import BaseOperator
from airflow_provider_loanauth.auth import LoanAuth, httpx
from airflow_provider_loanauth.auth.base import BaseLoanAuth
from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.redaction import SecretStr
from tests.support.programs import run_python

PACKAGE = "airflow_provider_loanauth"


def load(module):
    """Import a module. Where httpx2 is not installed, the module for it stands for that for httpx, which is alike."""
    return importlib.import_module(f"{PACKAGE}.{module if find_spec('httpx2') else module.replace('httpx2', 'httpx')}")


#: The modules that users import, and of each the names in ``__all__``.
PUBLIC = {
    module: load(module).__all__
    for module in (
        *("hooks.loanauth", "operators.loanauth", "sensors.loanauth", "triggers.loanauth"),
        *("auth", "auth.httpx", "auth.httpx2", "notifications.loanauth", "policies.retry"),
        *("credentials", "check", "check.report", "models", "exceptions"),
    )
}


NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
#: Values for the parameters of public classes.
VALUES = {
    "access_token": SecretStr("CANARY"),
    "secret": SecretStr("CANARY"),
    "sealed": "CANARY",
    "conn_id": "tenant_a",
    "address": "https://auth.example",
    "credential": AccessToken.seal("CANARY", method="jwt", conn_id="c", issued_at=NOW),
    "credential_task_id": "authenticate",
    "issued_at": NOW,
    "method": "jwt",
    "checked_at": NOW,
    "machine": "worker",
    "message": "Made up.",
    "name": "tcp",
    "notifier": print,
    "outcome": "ok",
    "steps": (),
    "task_id": "a_task",
    "versions": {},
}
#: Further objects of the public interface.
OTHERS = {
    "from_task": lambda: LoanAuth.from_task("authenticate"),
    # A connection id may be a token that was passed in its place.
    "from_connection": lambda: LoanAuth.from_connection("CANARY"),
    "from_connection of httpx": lambda: httpx.LoanAuth.from_connection("CANARY"),
    "get_conn": LoanAuthHook("tenant_a").get_conn,
    "get_async_conn": LoanAuthHook("tenant_a").get_async_conn,
    "get_async_conn of httpx2": partial(
        LoanAuthHook("tenant_a").get_async_conn, library="httpx2" if find_spec("httpx2") else "httpx"
    ),
}


def made(cls):
    """Return an object with the parameters that it needs."""
    parameters = inspect.signature(cls).parameters.values()
    needed = {each.name for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD}
    if issubclass(cls, BaseLoanAuth):
        needed |= {"credential"}
    return cls(**{name: VALUES[name] for name in needed | ({"task_id"} if issubclass(cls, BaseOperator) else set())})


MAKERS = OTHERS | {
    f"{module}.{name}": partial(made, cls)
    for module, names in PUBLIC.items()
    for name in names
    if inspect.isclass(cls := getattr(load(module), name))
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_each_public_object_has_the_same_representation_at_each_parse(make, define, sandbox):
    """Airflow stores it for what is a parameter of an operator: a change would be a new DAG version (3.0, 3.1)."""
    define("tenant_a", sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])
    first, second = make(), make()
    assert f"{first!r} {first}" == f"{second!r} {second}"
    assert " at 0x" not in repr(first)
    assert "CANARY" not in f"{first!r} {first}"


#: Databases have the paths of these classes.
STORED = {
    "credentials": ("AccessToken", "ApiSecret"),
    "triggers.loanauth": ("LoanAuthSensorTrigger",),
    "operators.loanauth": ("LoanAuthOperator",),
    "sensors.loanauth": ("LoanAuthSensor",),
}


def test_stored_classes_stay_where_they_are():
    for module, names in STORED.items():
        loaded = importlib.import_module(f"{PACKAGE}.{module}")
        assert all(getattr(loaded, name).__module__ == loaded.__name__ for name in names)


#: Import each module in a child of its own, and print what that has loaded.
NEWLY_LOADED = """
import importlib, os, sys
{base}
before = set(sys.modules)
for module in sys.argv[1:]:
    if not os.fork():
        importlib.import_module("airflow_provider_loanauth." + module)
        print("loaded:", module, *sorted(set(sys.modules) - before), flush=True)
        os._exit(0)
    os.wait()
"""
BASE = """
# Modules of Airflow that a worker or a DAG processor has already loaded.
try:
    from airflow.sdk import BaseOperator, BaseSensorOperator, conf
except ImportError:
    from airflow.models import BaseOperator
    from airflow.sensors.base import BaseSensorOperator
    from airflow.configuration import conf
try:
    from airflow.sdk import BaseHook
except ImportError:
    from airflow.hooks.base import BaseHook
try:
    import airflow.sdk.serde
except ImportError:
    import airflow.serialization.serde
"""
COSTLY = {"requests", "jwt", "urllib3", "wtforms", "httpx", "httpx2", "flask_appbuilder", "starlette", "uvicorn"}
COSTLY |= {"opentelemetry", "statsd"}


def newly_loaded(*modules, base=""):
    done = run_python("-c", NEWLY_LOADED.format(base=base), *modules)
    # Airflow 2.11 may print lines about its plugins.
    found = [line.split() for line in done.stdout.splitlines() if line.startswith("loaded:")]
    return {module: set(names) for _, module, *names in found}


def packages(modules):
    return {module.partition(".")[0] for module in modules}


@pytest.mark.processes
def test_parsing_a_dag_loads_no_http_library():
    found = newly_loaded(
        "operators.loanauth", "sensors.loanauth", "notifications.loanauth", "policies.retry", "auth", base=BASE
    )
    assert {module: packages(loaded) & COSTLY for module, loaded in found.items()} == {
        module: set() for module in found
    }


@pytest.mark.processes
def test_provider_metadata_and_command_load_no_other_package():
    """Every process of Airflow loads the metadata at its start, and every command of Airflow the commands."""
    found = newly_loaded("get_provider_info", "cli", "service.transport")
    # Modules that .pth files load were loaded before.
    for module in ("get_provider_info", "cli"):
        assert packages(found[module]) - set(sys.stdlib_module_names) == {PACKAGE}
    # Control. Without importing Airflow first, because 2.11 itself loads many of them.
    assert packages(found["service.transport"]) & COSTLY
