"""Deletion of the return values of a task, also of a mapped one, on each version of Airflow."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from airflow_provider_loanauth._compat import xcom


class StoredXComs:
    """XCom of Airflow 3 with the values of one task, by map index; on 3.0 a deletion loses its map index."""

    def __init__(self, values, *, loses_index=False):
        self.values, self.loses_index, self.reads = dict(values), loses_index, 0

    def delete(self, *, map_index=None, **_):
        self.values.pop(-1 if map_index is None or self.loses_index else map_index, None)

    def set(self, key, value, *, map_index, **_):
        # The request of Airflow's SDK has no body then.
        assert value is not None
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
    ],
    ids=[
        "nothing",
        "one",
        "one on 3.0",
        "mapped with gaps",
        "mapped on 3.0",
        "more than max_map_length",
    ],
)
def test_delete_xcom_returns_how_many_values_are_left(values, loses_index, left, monkeypatch):
    stored = StoredXComs(values, loses_index=loses_index)
    module = SimpleNamespace(XCom=stored, __version__="3.0.6" if loses_index else "3.3.2")
    monkeypatch.setattr(xcom, "import_module", lambda _: module)
    monkeypatch.setattr(xcom.conf, "getint", lambda *_, **__: 4)
    number = xcom.delete_xcom(dag_id="nightly", run_id="manual__1", task_id="authenticate")
    assert number == len(left)
    # On 3.0, an empty value replaces what cannot be deleted.
    assert [value for value in stored.values.values() if value] == left
