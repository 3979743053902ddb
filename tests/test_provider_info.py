from __future__ import annotations

import importlib
import json
import warnings
from importlib import metadata
from pathlib import Path

import airflow
import jsonschema

from airflow_provider_loanauth.connection.methods import METHODS
from airflow_provider_loanauth.get_provider_info import CONN_FIELDS, LABELS, UI_FIELD_BEHAVIOUR, get_provider_info
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

#: Every field of the form, and its label.
EXPECTED_LABELS = {
    "host": "Auth URL",
    "login": "Username",
    "password": "Password",
    "origin": "Origin",
    "client_id": "Client ID",
    "client_secret": "Client secret",
    "los_client_id": "LOS client ID",
    "los_client_secret": "LOS client secret",
    "api_key": "API key",
    "user_id": "User ID",
    "method": "Method",
    "company_id": "Company ID",
    "timeout": "Timeout",
    "verify": "Verify TLS",
    "proxy": "Proxy",
    "api_key_in_headers": "API key in headers",
    "share_logins": "Share logins",
}


def test_entry_point():
    [entry] = [
        entry
        for entry in metadata.entry_points(group="apache_airflow_provider")
        if entry.value.startswith("airflow_provider_loanauth.")
    ]
    assert entry.load() is get_provider_info


def test_the_metadata_passes_the_schema():
    path = Path(airflow.__path__[0]) / "provider_info.schema.json"
    jsonschema.validate(get_provider_info(), json.loads(path.read_text()))


def test_airflow_finds_the_provider():
    from airflow.providers_manager import ProvidersManager

    manager = ProvidersManager()
    provider = manager.providers["airflow-provider-loanauth"]
    assert provider.version == metadata.version("airflow-provider-loanauth")
    with warnings.catch_warnings():
        # Airflow 3.2 and later have a second manager for tasks, and warn when a task uses this one.
        warnings.simplefilter("ignore")
        hook = manager.hooks["loanauth"]
    assert hook.hook_class_name == f"{LoanAuthHook.__module__}.{LoanAuthHook.__name__}"
    assert hook.hook_name == LoanAuthHook.hook_name
    assert hook.connection_id_attribute_name == LoanAuthHook.conn_name_attr
    assert hook.connection_testable


def test_every_named_module_and_class_exists():
    info = get_provider_info()
    assert info["package-name"] == "airflow-provider-loanauth"
    modules = [
        name
        for kind in ("hooks", "operators", "sensors", "triggers")
        for entry in info.get(kind, [])
        for name in entry["python-modules"]
    ]
    assert modules
    for name in modules:
        importlib.import_module(name)
    [connection] = info["connection-types"]
    assert connection["connection-type"] == LoanAuthHook.conn_type == "loanauth"
    assert connection["hook-class-name"] == f"{LoanAuthHook.__module__}.{LoanAuthHook.__name__}"
    # From Airflow 3.2 on, one without the other disables the methods of the hook.
    assert connection["conn-fields"]
    assert connection["ui-field-behaviour"]
    integrations = {entry["integration-name"] for entry in info["integrations"]}
    assert {entry["integration-name"] for kind in ("hooks", "operators") for entry in info[kind]} <= integrations


def test_the_labels_of_the_form():
    assert LABELS == EXPECTED_LABELS
    assert UI_FIELD_BEHAVIOUR["relabeling"] == {name: EXPECTED_LABELS[name] for name in ("host", "login", "password")}
    assert set(CONN_FIELDS) == set(EXPECTED_LABELS) - {"host", "login", "password"}


def test_the_code_reads_every_field():
    """A field that no code reads would mislead users."""
    read_elsewhere = {"host", "method", "company_id", "timeout", "verify", "proxy", "share_logins"}
    read_by_methods = {
        name for method in METHODS.values() for name in [*method.fields.values(), *method.switches.values()]
    }
    assert read_by_methods | read_elsewhere == set(EXPECTED_LABELS)


def test_no_default_values():
    """With a default, the form overwrites values that were set as JSON (apache/airflow #67054)."""
    assert not [name for name, declared in CONN_FIELDS.items() if "default" in declared["schema"]]
    assert all("null" in declared["schema"]["type"] for declared in CONN_FIELDS.values())
