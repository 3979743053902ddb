import importlib
import json
import re
from pathlib import Path

import airflow
import jsonschema

from airflow_provider_loanauth import __version__
from airflow_provider_loanauth.connection.methods import METHODS
from airflow_provider_loanauth.get_provider_info import get_provider_info
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.metadata import CONN_FIELDS, LABELS, UI_FIELD_BEHAVIOUR
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
    [notifier] = info["notifications"]
    assert notifier == f"{LoanAuthFailedNotifier.__module__}.{LoanAuthFailedNotifier.__name__}"
    [connection] = info["connection-types"]
    assert connection["connection-type"] == LoanAuthHook.conn_type == "loanauth"
    assert connection["hook-name"] == LoanAuthHook.hook_name
    assert connection["hook-class-name"] == f"{LoanAuthHook.__module__}.{LoanAuthHook.__name__}"
    # From Airflow 3.2 on, one without the other disables the methods of the hook.
    assert connection["conn-fields"]
    assert connection["ui-field-behaviour"]
    assert all((ROOT / page.lstrip("/")).exists() for entry in info["integrations"] for page in entry["how-to-guide"])


def test_the_code_reads_every_field():
    """A field that no code reads would mislead users."""
    read_elsewhere = {"host", "method", "company_id", "timeout", "verify", "proxy", "share_logins"}
    read_elsewhere |= {"credential_header", "company_header", "key_in_headers"}
    read_by_methods = {name for method in METHODS.values() for name in method.fields.values()}
    assert read_by_methods | read_elsewhere == set(LABELS)
    assert UI_FIELD_BEHAVIOUR["relabeling"] == {name: LABELS[name] for name in ("host", "login", "password")}
    assert set(CONN_FIELDS) == set(LABELS) - {"host", "login", "password"}


def test_no_default_values():
    """With a default, the form overwrites values that were set as JSON (apache/airflow #67054)."""
    assert not [name for name, declared in CONN_FIELDS.items() if "default" in declared["schema"]]
    assert all("null" in declared["schema"]["type"] for declared in CONN_FIELDS.values())


def test_the_page_names_every_field_of_the_connection():
    text = (ROOT / "docs" / "connection.md").read_text(encoding="utf-8")
    for name, label in LABELS.items():
        assert re.search(rf"^\| {label} \| (extra )?`{name}` \|", text, re.MULTILINE), label
