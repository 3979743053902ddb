"""
The public names of the package, the size of its modules, and what importing them costs.

Which module may import which is checked by ``lint-imports`` (``make lint``), with the contracts in ``pyproject.toml``.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from importlib import metadata

import pytest

import airflow_provider_loanauth
from tests.support.paths import PACKAGE as ROOT

PACKAGE = "airflow_provider_loanauth"
MODULES = sorted(ROOT.rglob("*.py"))
MAX_LINES = 400


def test_a_module_is_short_and_has_a_docstring():
    texts = {path: path.read_text(encoding="utf-8") for path in MODULES}
    assert [path for path, text in texts.items() if len(text.splitlines()) > MAX_LINES] == []
    assert [path for path, text in texts.items() if not ast.get_docstring(ast.parse(text))] == []


def test_the_root_has_at_most_eleven_entries_beside_airflows_folders():
    entries = {path.name for path in ROOT.iterdir() if not path.name.startswith("__")}
    assert entries >= {"hooks", "operators", "sensors", "triggers", "py.typed"}
    assert len(entries - {"hooks", "operators", "sensors", "triggers", "py.typed"}) <= 11


def test_the_top_level_imports_nothing():
    tree = ast.parse((ROOT / "__init__.py").read_text())
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


# --- public names

PUBLIC = {
    "auth": "LoanAuth",
    "auth.httpx": "LoanAuth",
    "auth.requests": "LoanAuth",
    "auth.session": "PricingSession",
    "check": "check_connection",
    "check.report": "Report Step",
    "credentials": "AccessToken ApiSecret",
    "exceptions": "LoanAuthError RejectedError ResponseError SealError SettingsError UnavailableError",
    "get_provider_info": "get_provider_info",
    "hooks.loanauth": "LoanAuthHook Method",
    "models": "ApiSecretResponse LoanAppSessionPolicy Person TokenResponse",
    "operators.loanauth": "LoanAuthForgetOperator LoanAuthOperator",
    "plugin": "LoanAuthPlugin",
    "sensors.loanauth": "LoanAuthSensor",
    "triggers.loanauth": "ServiceReadyTrigger",
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names(module):
    loaded = importlib.import_module(f"{PACKAGE}.{module}")
    assert loaded.__all__ == PUBLIC[module].split()
    assert all(hasattr(loaded, name) for name in loaded.__all__)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("credentials", "AccessToken"),
        ("credentials", "ApiSecret"),
        ("triggers.loanauth", "ServiceReadyTrigger"),
        ("operators.loanauth", "LoanAuthOperator"),
        ("sensors.loanauth", "LoanAuthSensor"),
    ],
)
def test_classes_that_databases_name_are_not_moved(module, name):
    assert getattr(importlib.import_module(f"{PACKAGE}.{module}"), name).__module__ == f"{PACKAGE}.{module}"


def test_no_signature_shows_an_ellipsis():
    for module, names in PUBLIC.items():
        for name in names.split():
            public = getattr(importlib.import_module(f"{PACKAGE}.{module}"), name)
            members = [public, *(vars(public).values() if inspect.isclass(public) else ())]
            for member in filter(inspect.isfunction, members):
                defaults = [parameter.default for parameter in inspect.signature(member).parameters.values()]
                assert not any(default is ... for default in defaults), member


@pytest.mark.parametrize(
    ("module", "name", "expected"),
    [
        ("hooks.loanauth", "LoanAuthHook", {"loanauth_conn_id": "loanauth_default", "method": None}),
        ("hooks.loanauth", "LoanAuthHook.authen_jwt", {}),
        ("hooks.loanauth", "LoanAuthHook.authen_los", {}),
        ("hooks.loanauth", "LoanAuthHook.ppe_api_secret", {}),
        ("hooks.loanauth", "LoanAuthHook.authenticate", {"method": None}),
        ("hooks.loanauth", "LoanAuthHook.get_credential", {"method": None}),
        ("hooks.loanauth", "LoanAuthHook.get_conn", {}),
        ("hooks.loanauth", "LoanAuthHook.test_connection", {}),
        (
            "sensors.loanauth",
            "LoanAuthSensor.__init__",
            {"loanauth_conn_id": "loanauth_default", "method": None, "seal": True, "deferrable": False},
        ),
        ("triggers.loanauth", "ServiceReadyTrigger.__init__", {"deadline": None, "proxy": None}),
        ("hooks.loanauth", "LoanAuthHook.get_plaintext", {"method": None}),
        ("hooks.loanauth", "LoanAuthHook.aget_credential", {"method": None}),
        ("auth", "LoanAuth.__init__", {"min_ttl": 60}),
        ("check", "check_connection", {"method": None, "login": False}),
        ("auth", "LoanAuth.from_connection", {"conn_id": "loanauth_default", "method": None, "min_ttl": 60}),
        ("auth.httpx", "LoanAuth.__init__", {"min_ttl": 60}),
        (
            "operators.loanauth",
            "LoanAuthOperator.__init__",
            {"loanauth_conn_id": "loanauth_default", "method": None, "seal": True},
        ),
    ],
)
def test_public_signatures(module, name, expected):
    found = importlib.import_module(f"{PACKAGE}.{module}")
    for part in name.split("."):
        found = getattr(found, part)
    parameters = inspect.signature(inspect.unwrap(found)).parameters
    assert {key: parameters[key].default for key in expected} == expected


def test_versions_agree():
    assert metadata.version("airflow-provider-loanauth") == airflow_provider_loanauth.__version__
    info = importlib.import_module(f"{PACKAGE}.get_provider_info").get_provider_info()
    assert info["versions"][0] == airflow_provider_loanauth.__version__


# --- the modules that an import loads

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
# Modules of Airflow that a worker or a DAG processor has already loaded.
try:
    import airflow.sdk.serde
except ImportError:
    import airflow.serialization.serde
"""
COSTLY = {"requests", "jwt", "urllib3", "wtforms", "httpx", "flask_appbuilder", "starlette", "uvicorn"}
COSTLY |= {"opentelemetry", "statsd"}


def newly_loaded(*modules, base=""):
    done = subprocess.run(
        [sys.executable, "-c", NEWLY_LOADED.format(base=base), *modules],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    # Airflow 2.11 may print lines about its plugins.
    found = [line.split() for line in done.stdout.splitlines() if line.startswith("loaded:")]
    return {module: set(names) for _, module, *names in found}


def packages(modules):
    return {module.partition(".")[0] for module in modules}


#: What a DAG file loads of this package. Each module adds to the time of each parsing, so a new one needs a reason.
PARSED = {"_compat", "credentials", "exceptions", "redaction"}
PARSED_BY = {
    "operators.loanauth": PARSED | {"operators", "operators.loanauth"},
    "sensors.loanauth": PARSED | {"sensors", "sensors.loanauth"},
    "auth": PARSED
    | {"auth", "auth.base", "auth.origin", "auth.refresh_policy", "auth.requests"}
    | {"connection", "connection.address", "connection.methods"},
}


def test_parsing_a_dag_loads_no_http_library_and_few_modules():
    found = newly_loaded(*PARSED_BY, base=BASE)
    for module, expected in PARSED_BY.items():
        assert not packages(found[module]) & COSTLY
        own = {name.removeprefix(PACKAGE).removeprefix(".") for name in found[module] if packages([name]) == {PACKAGE}}
        # Airflow may have loaded the metadata.
        assert own - {"", "get_provider_info"} == expected


def test_provider_metadata_loads_no_other_package():
    """Every process of Airflow loads it at its start."""
    found = newly_loaded("get_provider_info", "service.transport")
    # Modules that .pth files load were loaded before.
    assert packages(found["get_provider_info"]) - set(sys.stdlib_module_names) == {PACKAGE}
    # Control. Without importing Airflow first, because 2.11 itself loads many of them.
    assert packages(found["service.transport"]) & COSTLY
