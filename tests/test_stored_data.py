"""What each release has stored, and must be read later: XCom values, pickles of 2.11, Variables, deferred triggers."""

from __future__ import annotations

import base64
import json
import pickle
import pkgutil
import re

import pytest
from airflow.models.trigger import Trigger

from airflow_provider_loanauth import __version__
from airflow_provider_loanauth.credentials import XCOM, decrypt, encrypt
from airflow_provider_loanauth.exceptions import RejectedError, SealError
from airflow_provider_loanauth.login.variables import LoginVariables, Row
from airflow_provider_loanauth.triggers.loanauth import LoanAuthSensorTrigger
from tests.support.airflow_names import serde
from tests.support.fernet_keys import FERNET_KEY, OTHER_FERNET_KEY
from tests.support.paths import ROOT
from tests.support.programs import run_python
from tests.support.simulation import OLD
from tests.support.stored_values import STORED, facts_of

KEPT = {
    f"{path.stem}, {entry['facts']['method']}": entry
    for path in sorted(STORED.glob("*.json"))
    for entry in json.loads(path.read_text(encoding="utf-8"))
}
each_credential = pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)


@each_credential
def test_a_stored_value_and_a_stored_pickle_are_read(kept):
    credential = serde.deserialize(kept["xcom"])
    assert facts_of(credential) == kept["facts"]
    assert serde.serialize(credential) == kept["xcom"]
    unpickled = pickle.loads(base64.b64decode(kept["pickle"]))
    assert (unpickled, facts_of(unpickled)) == (credential, kept["facts"])


PULL = """
import json, sys
from airflow import plugins_manager
from tests.support.airflow_names import serde
# As every process of Airflow does at its start.
load = getattr(plugins_manager, "ensure_plugins_loaded", None) or plugins_manager._get_plugins
load()
assert type(serde.deserialize(json.loads(sys.argv[1]))).__name__ == "AccessToken"
"""


@pytest.mark.once  # tests/integration/test_dags.py deserializes a credential in the processes of each Airflow
@pytest.mark.processes
def test_the_plugin_registers_the_classes():
    """Nothing else registers them: a process that loads no plugin cannot deserialize a credential."""
    stored = json.dumps(next(iter(KEPT.values()))["xcom"])
    run_python("-c", PULL, stored, environment={"AIRFLOW__CORE__LAZY_LOAD_PLUGINS": "True"})


def changed(stored, more, less):
    """Return what another build stores: a field more, and one less."""
    return {name: value for name, value in stored.items() if name != less} | more


@pytest.mark.parametrize("more", [{}, {"made_up": 7}])
@pytest.mark.parametrize("less", [None, "expires_at", "lifetime"])
@each_credential
def test_an_xcom_value_with_a_field_more_or_less_opens_unless_it_was_altered(kept, less, more):
    credential = serde.deserialize(kept["xcom"])
    stored = credential.serialize()
    metadata, value = json.loads(decrypt(stored["sealed"], XCOM))
    document = json.dumps([changed(metadata, more, less), value])
    stored = changed(stored, more, less) | {"sealed": encrypt(document, XCOM)}
    read = credential.deserialize(stored, 1)
    assert facts_of(read) == kept["facts"] | ({less: None} if less else {})
    assert read.serialize() == stored
    for name in stored.keys() - {"sealed"} | {"unknown"}:
        with pytest.raises(SealError):
            credential.deserialize({**stored, name: kept["facts"]["issued_at"]}, 1).value  # noqa: B018


def test_the_values_of_each_release_are_kept():
    dated = re.findall(r"^## \[(\S+)\] - \d", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {*dated} - {__version__} <= {path.stem for path in STORED.glob("*.json")}


def test_the_key_of_a_shared_login_is_the_same_in_each_process(fernet):
    """Processes find the login of each other by it. During a rotation of the Fernet key, the first key counts."""
    for keys in (FERNET_KEY, f"{FERNET_KEY},{OTHER_FERNET_KEY}"):
        fernet(keys)
        assert LoginVariables(OLD).keys["login"] == "loanauth.jwt.made-up.2f4f152a164f706b.login"


def test_the_login_that_an_earlier_build_has_shared_is_used(variables, logs):
    """Its row has fields that no longer exist, and lacks one that was added. Nothing is lost, and nothing is logged."""
    earlier = ROOT / "tests" / "data" / "stored_rows" / "2a2f1bf.json"
    variables.update(json.loads(earlier.read_text(encoding="utf-8")))
    credential = LoginVariables(OLD).read_row().credential
    assert (credential.value, credential.lifetime, credential.after_401) == ("made-up-token", 3600.0, False)
    assert logs.at("warning") == []


#: What a process stores of a credential and of a refusal. Another build may leave the second line of each out.
CREDENTIAL = {"value": "made-up-token", "issued_at": "2001-09-09T01:46:40+00:00"}
OPTIONAL = {"expires_at": "2001-09-09T02:46:40+00:00", "lifetime": 3600.0, "after_401": False}
REFUSAL = {"kind": "RejectedError", "at": 1e9, "seconds": 86_400.0, "is_cleared": False}
OPTIONAL_OF_REFUSAL = {"message": "made-up rejection", "status": 400, "code": "invalid_grant", "by": "h", "count": 1}


@pytest.mark.parametrize("more", [{}, {"made_up": 7}])
@pytest.mark.parametrize("less", [None, *OPTIONAL, *OPTIONAL_OF_REFUSAL])
def test_a_row_with_a_field_more_or_less_is_used(less, more, variables, clock):
    credential = changed(CREDENTIAL | OPTIONAL, more, less)
    refusal = changed(REFUSAL | OPTIONAL_OF_REFUSAL, more, less)
    stored = LoginVariables(OLD)
    stored.write("login", changed({"credential": credential, "by": "h", "refusal": refusal}, more, less), {})
    row = stored.read_row()
    assert row.credential.value == "made-up-token"
    assert row.credential.lifetime == (None if less == "lifetime" else 3600.0)
    assert row.refusal.holds()
    assert type(row.refusal.error(OLD)) is RejectedError


@pytest.mark.parametrize(
    "content",
    [
        ["made-up"],
        {"credential": {"value": "made-up-token"}},
        {"credential": CREDENTIAL | {"issued_at": 7}},
        {"refusal": REFUSAL | OPTIONAL_OF_REFUSAL | {"at": "made-up"}},
        {"refusal": REFUSAL | OPTIONAL_OF_REFUSAL | {"count": float("inf")}},
    ],
)
def test_a_row_of_another_shape_counts_as_none_and_is_named_once(content, variables, logs):
    stored = LoginVariables(OLD)
    stored.write("login", content, {})
    assert (stored.read_row(), stored.read_row()) == (Row(), Row())
    [line] = logs.at("warning")
    assert stored.keys["login"] in line
    assert "made-up-token" not in logs.text


def test_a_stored_trigger_is_made_again_and_stored_as_it_was():
    path = "airflow_provider_loanauth.triggers.loanauth.LoanAuthSensorTrigger"
    arguments = {"address": "https://lender.example/x", "poke_interval": 30.0, "deadline": 1767323045.5, "proxy": None}
    trigger = pkgutil.resolve_name(path)(**arguments)
    assert type(trigger) is LoanAuthSensorTrigger
    assert trigger.serialize() == (path, arguments)
    # As the scheduler writes it, encrypted on 2.11.
    row = Trigger.from_object(trigger)
    assert (row.classpath, row.kwargs) == (path, arguments)
