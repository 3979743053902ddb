"""
What each release has stored in Airflow's database, and must be found and read later: XCom values (format 1), pickles of
Airflow 2.11, Variables, deferred triggers.
"""

from __future__ import annotations

import base64
import json
import pickle
import pkgutil
import re

import pytest

from airflow_provider_loanauth import __version__
from airflow_provider_loanauth.login.variables import LoginVariables
from airflow_provider_loanauth.triggers.loanauth import LoanAuthSensorTrigger
from tests.support.airflow_names import serde
from tests.support.fernet_keys import FERNET_KEY, OTHER_FERNET_KEY
from tests.support.paths import ROOT
from tests.support.simulation import OLD
from tests.support.stored_values import STORED, facts_of

KEPT = {
    f"{path.stem}, {entry['facts']['method']}": entry
    for path in sorted(STORED.glob("*.json"))
    for entry in json.loads(path.read_text(encoding="utf-8"))
}
each_credential = pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)


@each_credential
def test_a_stored_xcom_value_is_read_and_stored_again_as_it_was(kept):
    credential = serde.deserialize(kept["xcom"])
    assert facts_of(credential) == kept["facts"]
    assert serde.serialize(credential) == kept["xcom"]


@each_credential
def test_a_stored_pickle_is_loaded(kept):
    credential = pickle.loads(base64.b64decode(kept["pickle"]))
    assert facts_of(credential) == kept["facts"]
    assert credential == serde.deserialize(kept["xcom"])


def test_the_values_of_each_release_are_kept():
    dated = re.findall(r"^## \[(\S+)\] - \d", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {*dated} - {__version__} <= {path.stem for path in STORED.glob("*.json")}


def test_the_key_of_a_shared_login_is_the_same_in_each_process(fernet):
    """Processes find the login of each other by it. During a rotation of the Fernet key, the first key counts."""
    for keys in (FERNET_KEY, f"{FERNET_KEY},{OTHER_FERNET_KEY}"):
        fernet(keys)
        assert LoginVariables(OLD).keys["login"] == "loanauth.jwt.made-up.047690dc9f09c014.login"


#: The trigger of a deferred task.
TRIGGER = json.loads(
    '["airflow_provider_loanauth.triggers.loanauth.LoanAuthSensorTrigger", {"address": "https://lender.pricing.examp'
    'le/tenant1", "poke_interval": 30.0, "deadline": 1767323045.5, "proxy": null}]'
)


def test_a_stored_trigger_is_made_again_and_stored_as_it_was():
    from airflow.models.trigger import Trigger

    path, arguments = TRIGGER
    trigger = pkgutil.resolve_name(path)(**arguments)
    assert type(trigger) is LoanAuthSensorTrigger
    assert list(trigger.serialize()) == TRIGGER
    # As the scheduler writes it, encrypted on 2.11.
    row = Trigger.from_object(trigger)
    assert [row.classpath, row.kwargs] == TRIGGER
