import importlib
import json
import pkgutil
import re
from pathlib import Path

import airflow
import jsonschema

from airflow_provider_loanauth import __version__
from airflow_provider_loanauth.cli import get_cli_commands
from airflow_provider_loanauth.get_provider_info import get_provider_info
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.metadata import CONN_FIELDS, LABELS
from airflow_provider_loanauth.notifications.loanauth import LoanAuthFailedNotifier
from tests.support.paths import ROOT


def test_the_metadata_passes_the_schema():
    path = Path(airflow.__path__[0]) / "provider_info.schema.json"
    jsonschema.validate(get_provider_info(), json.loads(path.read_text()))


def test_every_named_page_module_and_class_exists():
    info = get_provider_info()
    assert info["package-name"] == "airflow-provider-loanauth"
    assert info["versions"] == [__version__]
    assert {tag for entry in info["integrations"] for tag in entry["tags"]} == {"service"}
    for kind in ("hooks", "operators", "sensors", "triggers"):
        for entry in info[kind]:
            assert all(map(importlib.import_module, entry["python-modules"]))
    assert [pkgutil.resolve_name(name) for name in info["notifications"]] == [LoanAuthFailedNotifier]
    assert [pkgutil.resolve_name(name) for name in info["cli"]] == [get_cli_commands]
    [connection] = info["connection-types"]
    assert connection["connection-type"] == LoanAuthHook.conn_type == "loanauth"
    assert connection["hook-name"] == LoanAuthHook.hook_name
    assert pkgutil.resolve_name(connection["hook-class-name"]) is LoanAuthHook
    # From Airflow 3.2 on, one without the other disables the methods of the hook.
    assert connection["conn-fields"]
    assert connection["ui-field-behaviour"]
    assert all((ROOT / page.lstrip("/")).exists() for entry in info["integrations"] for page in entry["how-to-guide"])


def test_no_default_values():
    """With a default, the form overwrites values that were set as JSON (apache/airflow #67054)."""
    assert not [name for name, declared in CONN_FIELDS.items() if "default" in declared["schema"]]
    assert all("null" in declared["schema"]["type"] for declared in CONN_FIELDS.values())


def test_the_page_names_every_field_of_the_connection():
    text = (ROOT / "docs" / "connection.md").read_text(encoding="utf-8")
    for name, label in LABELS.items():
        assert re.search(rf"^\| {label} \| (extra )?`{name}` \|", text, re.MULTILINE), label
