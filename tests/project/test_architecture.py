"""The ``repr`` of what stands in a DAG file, and what importing a module costs."""

from __future__ import annotations

import importlib
import inspect
import sys
from datetime import datetime, timezone
from importlib.util import find_spec

import pytest

from airflow_provider_loanauth.auth import LoanAuth, httpx
from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.notifications.loanauth import LoanAuthFailedNotifier
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from airflow_provider_loanauth.policies.retry import LoanAuthRetryPolicy
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
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
        *("credentials", "check", "models", "exceptions"),
    )
}

CREDENTIAL = AccessToken.seal("CANARY", method="jwt", conn_id="c", issued_at=datetime(2026, 1, 1, tzinfo=timezone.utc))
#: A connection id may be a token that was passed in its place.
IN_DAG_FILES = (
    lambda: CREDENTIAL,
    lambda: LoanAuth(CREDENTIAL),
    lambda: LoanAuth.from_task("authenticate"),
    lambda: httpx.LoanAuth.from_connection("CANARY"),
    lambda: LoanAuthHook("tenant_a"),
    lambda: LoanAuthHook("tenant_a").get_conn(),
    lambda: LoanAuthHook("tenant_a").get_async_conn(),
    lambda: LoanAuthOperator(task_id="authenticate"),
    lambda: LoanAuthSensor(task_id="wait"),
    lambda: LoanAuthFailedNotifier(print),
    LoanAuthRetryPolicy,
)


@pytest.mark.parametrize("make", IN_DAG_FILES, ids=lambda make: inspect.getsource(make).strip())
def test_an_object_has_the_same_representation_at_each_parse(make, define, sandbox):
    """Airflow stores it for what is a parameter of an operator: a change would be a new DAG version (3.0, 3.1)."""
    define("tenant_a", sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])
    first, second = (f"{one!r} {one}" for one in (make(), make()))
    assert first == second
    assert " at 0x" not in first
    assert "CANARY" not in first


NEWLY_LOADED = """
import importlib, sys
{base}
before = set(sys.modules)
for module in sys.argv[1:]:
    importlib.import_module("airflow_provider_loanauth." + module)
print("loaded:", *{{name.partition(".")[0] for name in set(sys.modules) - before}})
"""
BASE = """
# Modules of Airflow that a worker or a DAG processor has already loaded.
try:
    from airflow.sdk import BaseOperator, BaseSensorOperator, conf
except ImportError:
    from airflow.configuration import conf
    from airflow.models import BaseOperator
    from airflow.sensors.base import BaseSensorOperator
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
    printed = run_python("-c", NEWLY_LOADED.format(base=base), *modules).stdout
    # Airflow 2.11 may print lines about its plugins.
    [line] = [line for line in printed.splitlines() if line.startswith("loaded:")]
    return {*line.split()[1:]}


@pytest.mark.processes
def test_parsing_a_dag_loads_no_http_library():
    modules = ("operators.loanauth", "sensors.loanauth", "notifications.loanauth", "policies.retry", "auth")
    assert newly_loaded(*modules, base=BASE) & COSTLY == set()


@pytest.mark.processes
def test_provider_metadata_and_command_load_no_other_package():
    """Every process of Airflow loads the metadata at its start, and every command of Airflow the commands."""
    assert newly_loaded("get_provider_info", "cli") - set(sys.stdlib_module_names) == {PACKAGE}
    # Control. Without importing Airflow first, because 2.11 itself loads many of them.
    assert newly_loaded("service.transport") & COSTLY
