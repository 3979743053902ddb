"""``_compat`` has one name for what Airflow has in several places, and it is the right one on this version."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth import _compat
from tests.support.airflow_names import serde

#: Where each name was, newest first (docs/compatibility.md).
PLACES = {
    "BaseOperator": ["airflow.sdk", "airflow.models"],
    "BaseHook": ["airflow.sdk", "airflow.hooks.base"],
    "AirflowException": ["airflow.sdk.exceptions", "airflow.exceptions"],
    "AirflowFailException": ["airflow.sdk.exceptions", "airflow.exceptions"],
    "get_fernet": ["airflow.sdk.crypto", "airflow.models.crypto"],
    "mask_secret": [
        "airflow.sdk.log",
        "airflow.sdk.execution_time.secrets_masker",
        "airflow.utils.log.secrets_masker",
    ],
}


def newest(name):
    for place in PLACES[name]:
        try:
            module = importlib.import_module(place)
        except ImportError:
            continue
        if name in dir(module) and hasattr(module, name):
            return getattr(module, name)
    raise LookupError(name)


@pytest.mark.parametrize("name", PLACES)
def test_a_name_comes_from_its_newest_place(name):
    assert getattr(_compat, name) is newest(name)


def test_all_is_complete_and_sorted():
    assert all(hasattr(_compat, name) for name in _compat.__all__)
    assert list(_compat.__all__) == sorted(
        _compat.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name)
    )


MODULES = ("get_provider_info", "plugin", "credentials", "hooks.loanauth", "operators.loanauth", "sensors.loanauth")


def test_no_deprecation_warning():
    """Of this package, in a fresh process where each warning is an error once Airflow itself is loaded."""
    code = (
        "import warnings, airflow\n"
        "try:\n    import airflow.sdk\nexcept ImportError:\n    import airflow.models, airflow.sensors.base\n"
        "import airflow.plugins_manager\n"
        "warnings.simplefilter('error')\n"
        + "".join(f"import airflow_provider_loanauth.{module}\n" for module in MODULES)
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


class Stored:
    def __init__(self, value):
        self.value = value

    def serialize(self):
        return {"value": self.value}

    @staticmethod
    def deserialize(data, version):
        return Stored(data["value"])


def test_allow_in_xcom_lets_airflow_deserialize_a_class():
    stored = serde.serialize(Stored("a"))
    with pytest.raises(ImportError, match="allow list"):
        serde.deserialize(stored)
    _compat.allow_in_xcom(Stored)
    assert serde.deserialize(stored).value == "a"


def test_trigger_timeouts_are_those_of_this_airflow():
    """Fails when a release of Airflow marks a task whose trigger did not fire in another way."""
    try:
        from airflow.models.trigger import TRIGGER_FAIL_REPR, TriggerFailureReason
    except ImportError:  # 2.11
        from airflow.jobs.scheduler_job_runner import SchedulerJobRunner

        source = inspect.getsource(SchedulerJobRunner.check_trigger_timeouts)
        [error] = re.findall(r'next_kwargs={"error": "(.*)"}', source)
        [method] = re.findall(r'next_method="(.*)"', source)
        expected = {error}
    else:
        method = TRIGGER_FAIL_REPR
        expected = {TriggerFailureReason.TRIGGER_TIMEOUT.value, "Trigger/execution timeout"}
    assert method == _compat.TRIGGER_FAIL_REPR
    assert expected == _compat.TRIGGER_TIMEOUTS


class StoredXComs:
    """XCom of Airflow 3 with the values of one task, by map index; on 3.0 a deletion loses its map index."""

    def __init__(self, values, *, loses_index=False):
        self.values, self.loses_index, self.reads = dict(values), loses_index, 0

    def delete(self, *, map_index=None, **_):
        self.values.pop(-1 if map_index is None or self.loses_index else map_index, None)

    def set(self, *, value, map_index, **_):
        self.values[map_index] = value

    def get_one(self, *, map_index=None, **_):
        self.reads += 1
        return self.values.get(-1 if map_index is None else map_index)

    def get_all(self, **_):
        return [*self.values.values()] or None


@pytest.mark.parametrize(
    ("values", "loses_index", "left"),
    [
        ({}, False, []),
        ({-1: "sealed"}, False, []),
        ({-1: "sealed"}, True, []),
        ({0: "sealed", 3: "sealed"}, False, []),
        ({0: "sealed", 3: "sealed"}, True, []),
        ({0: "sealed", 4: "beyond max_map_length"}, False, ["beyond max_map_length"]),
        ({4: {"map_index": 4}}, False, []),
        ({4: {"map_index": 4}}, True, []),
        ({4: {"map_index": 5}}, False, [{"map_index": 5}]),
    ],
    ids=[
        "nothing",
        "one",
        "one on 3.0",
        "mapped with gaps",
        "mapped on 3.0",
        "more than max_map_length",
        "with its map index",
        "with its map index on 3.0",
        "with a wrong map index",
    ],
)
def test_delete_xcom_returns_how_many_values_are_left(values, loses_index, left, monkeypatch):
    stored = StoredXComs(values, loses_index=loses_index)
    monkeypatch.setattr(_compat, "import_module", lambda _: SimpleNamespace(XCom=stored))
    monkeypatch.setattr(_compat.conf, "getint", lambda *_, **__: 4)
    number = _compat.delete_xcom("return_value", dag_id="nightly", run_id="manual__1", task_id="authenticate")
    assert number == len(left)
    # On 3.0, an empty value replaces what cannot be deleted.
    assert [value for value in stored.values.values() if value is not None] == left


def test_delete_xcom_reads_no_other_value_of_a_mapped_task_if_the_value_has_its_map_index(monkeypatch):
    stored = StoredXComs({900: {"map_index": 900}})
    monkeypatch.setattr(_compat, "import_module", lambda _: SimpleNamespace(XCom=stored))
    _compat.delete_xcom("loanauth_claim", dag_id="nightly", run_id="manual__1", task_id="authenticate")
    assert stored.reads <= 2
