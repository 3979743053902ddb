"""Deletion of the return values of a task on Airflow 3; on 2.11, ``integration/test_dags.py`` has it."""

from types import SimpleNamespace

import pytest

from airflow_provider_loanauth import _compat

TASK = {"dag_id": "nightly", "run_id": "manual__1", "task_id": "authenticate"}
NAMES = {"key": "return_value", **TASK}


class StoredXComs(dict):
    """XCom of Airflow 3 with the values of one task, by map index; on 3.0 a deletion loses its map index."""

    loses_index = False

    def delete(self, *, map_index, **names):
        assert names == NAMES
        self.pop(-1 if self.loses_index else map_index, None)

    def set(self, *, value, map_index, **names):
        # The request of Airflow's SDK has no body without a value.
        assert (names, value) == (NAMES, {})
        self[map_index] = value

    def get_one(self, *, map_index, **names):
        assert names == NAMES
        return self.get(map_index)

    def get_all(self, **names):
        assert names == NAMES
        return [*self.values()] or None


@pytest.mark.parametrize(
    ("values", "index", "left"),
    [
        ({}, None, []),
        ({-1: "sealed"}, None, []),
        ({0: "sealed", 3: "sealed"}, None, []),
        ({0: "sealed", 4: "beyond max_map_length"}, None, ["beyond max_map_length"]),
        ({0: "of the sibling", 3: "sealed"}, 3, ["of the sibling"]),
    ],
)
@pytest.mark.parametrize("version", ["3.0.6", "3.3.2"])
def test_delete_xcom_returns_how_many_values_are_left(values, index, left, version, monkeypatch):
    stored = StoredXComs(values)
    stored.loses_index = version == "3.0.6"
    modules = {
        "airflow": SimpleNamespace(__version__=version),
        "airflow.sdk.execution_time.xcom": SimpleNamespace(XCom=stored),
    }
    monkeypatch.setattr(_compat, "import_module", modules.__getitem__)
    monkeypatch.setattr(_compat.conf, "getint", lambda *option, **_: {("core", "max_map_length"): 4}[option])
    assert _compat.delete_xcom(**TASK, map_index=index) == (len(left) if index is None else 0)
    # On 3.0, an empty value replaces what cannot be deleted.
    assert [value for value in stored.values() if value] == left
