"""A credential of a task, and XCom values in a dict, for tests outside of Airflow's tasks."""

from __future__ import annotations

import pytest

from airflow_provider_loanauth._compat import TaskKey
from airflow_provider_loanauth.auth import register, shared

TASK = TaskKey("nightly", "manual__1", "authenticate")


class XComValues:
    """
    The XCom values of a task, in place of Airflow's XCom.

    :ivar stored: values by key
    :ivar calls: names of the functions that were called, in order
    :ivar read_error: function that returns or raises the exception of a read; None, also as its result: no error
    :ivar write_error: the same for writing
    """

    def __init__(self):
        self.stored = {}
        self.calls = []
        self.read_error = self.write_error = None

    def read(self, key, task):
        assert task == TASK
        self.calls.append("read")
        self._fail(self.read_error)
        return self.stored.get(key)

    def write(self, key, value, task):
        assert task == TASK
        self.calls.append("write")
        self._fail(self.write_error)
        self.stored[key] = value

    @staticmethod
    def _fail(error):
        raised = error and error()
        if raised is not None:
            raise raised


@pytest.fixture
def xcom(monkeypatch):
    """XCom values, and no delay between writing a claim and reading it again."""
    values = XComValues()
    monkeypatch.setattr(register, "read_xcom", values.read)
    monkeypatch.setattr(register, "write_xcom", values.write)
    monkeypatch.setattr(shared, "MIN_CLAIM_DELAY", 0.0)
    monkeypatch.setattr(shared, "POLL_SECONDS", (0.01, 0.02))
    return values
