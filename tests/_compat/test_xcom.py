"""Deletion of the return values of a task, also of a mapped one, on each version of Airflow."""

from types import SimpleNamespace

import pytest

from airflow_provider_loanauth import _compat

TASK = {"dag_id": "nightly", "run_id": "manual__1", "task_id": "authenticate"}
NAMES = {"key": "return_value", **TASK}


class StoredXComs:
    """XCom of Airflow 3 with the values of one task, by map index; on 3.0 a deletion loses its map index."""

    def __init__(self, values, *, loses_index=False):
        self.values, self.loses_index = dict(values), loses_index

    def delete(self, *, map_index=None, **names):
        assert names == NAMES
        self.values.pop(-1 if map_index is None or self.loses_index else map_index, None)

    def set(self, *, value, map_index, **names):
        # The request of Airflow's SDK has no body without a value.
        assert (names, value) == (NAMES, {})
        self.values[map_index] = value

    def get_one(self, *, map_index, **names):
        assert names == NAMES
        return self.values.get(map_index)

    def get_all(self, **names):
        assert names == NAMES
        return [*self.values.values()] or None


def use_modules(monkeypatch, modules):
    """Let the code import only these modules of Airflow."""

    def import_module(name):
        if name not in modules:
            raise ImportError(name)
        return modules[name]

    monkeypatch.setattr(_compat, "import_module", import_module)


@pytest.mark.parametrize(
    ("values", "index", "loses_index", "left"),
    [
        ({}, None, False, []),
        ({-1: "sealed"}, None, False, []),
        ({-1: "sealed"}, None, True, []),
        ({0: "sealed", 3: "sealed"}, None, True, []),
        ({0: "sealed", 4: "beyond max_map_length"}, None, False, ["beyond max_map_length"]),
        ({0: "of the sibling", 3: "sealed"}, 3, False, ["of the sibling"]),
        ({0: "of the sibling", 3: "sealed"}, 3, True, ["of the sibling"]),
    ],
)
def test_delete_xcom_returns_how_many_values_are_left(values, index, loses_index, left, monkeypatch):
    stored = StoredXComs(values, loses_index=loses_index)
    modules = {
        "airflow": SimpleNamespace(__version__="3.0.6" if loses_index else "3.3.2"),
        "airflow.sdk.execution_time.xcom": SimpleNamespace(XCom=stored),
    }
    use_modules(monkeypatch, modules)
    monkeypatch.setattr(_compat.conf, "getint", lambda *option, **_: {("core", "max_map_length"): 4}[option])
    assert _compat.delete_xcom(**TASK, map_index=index) == (len(left) if index is None else 0)
    # On 3.0, an empty value replaces what cannot be deleted.
    assert [value for value in stored.values.values() if value or not loses_index] == left


def test_airflow_2_deletes_in_the_database(monkeypatch):
    deleted = []
    stored = SimpleNamespace(clear=lambda **names: deleted.append(names))
    use_modules(monkeypatch, {"airflow.models.xcom": SimpleNamespace(XCom=stored)})
    assert [_compat.delete_xcom(**TASK), _compat.delete_xcom(**TASK, map_index=3)] == [0, 0]
    assert deleted == [TASK | {"map_index": None}, TASK | {"map_index": 3}]
