"""The paths of stored classes, and what importing a module costs.

Which module may import which is checked by ``lint-imports`` (``make lint``), with the contracts in ``pyproject.toml``.
"""

from __future__ import annotations

import importlib
import sys

from tests.support.programs import run_python

PACKAGE = "airflow_provider_loanauth"


#: The modules that users import, and of each the names in ``__all__``.
PUBLIC = {
    module: importlib.import_module(f"{PACKAGE}.{module}").__all__
    for module in (
        *("hooks.loanauth", "operators.loanauth", "sensors.loanauth", "triggers.loanauth", "auth", "auth.httpx"),
        *("credentials", "check", "check.report", "models", "exceptions"),
    )
}


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
COSTLY = {"requests", "jwt", "urllib3", "wtforms", "httpx", "flask_appbuilder", "starlette", "uvicorn"}
COSTLY |= {"opentelemetry", "statsd"}


def newly_loaded(*modules, base=""):
    done = run_python("-c", NEWLY_LOADED.format(base=base), *modules)
    # Airflow 2.11 may print lines about its plugins.
    found = [line.split() for line in done.stdout.splitlines() if line.startswith("loaded:")]
    return {module: set(names) for _, module, *names in found}


def packages(modules):
    return {module.partition(".")[0] for module in modules}


def test_parsing_a_dag_loads_no_http_library():
    found = newly_loaded("operators.loanauth", "sensors.loanauth", "auth", base=BASE)
    assert {module: packages(loaded) & COSTLY for module, loaded in found.items()} == {
        module: set() for module in found
    }


def test_provider_metadata_and_command_load_no_other_package():
    """Every process of Airflow loads the metadata at its start, and every command of Airflow the commands."""
    found = newly_loaded("get_provider_info", "cli", "service.transport")
    # Modules that .pth files load were loaded before.
    for module in ("get_provider_info", "cli"):
        assert packages(found[module]) - set(sys.stdlib_module_names) == {PACKAGE}
    # Control. Without importing Airflow first, because 2.11 itself loads many of them.
    assert packages(found["service.transport"]) & COSTLY
