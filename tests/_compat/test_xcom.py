"""XCom of any task instance: errors of Airflow and of its database, deletion, and forked processes."""

from __future__ import annotations

import multiprocessing
import sys
from types import SimpleNamespace

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from airflow_provider_loanauth._compat import TaskKey, xcom

TASK = TaskKey("nightly", "manual__1", "authenticate")


def sdk_error(status):
    """Return the error that Airflow's SDK raises for a response of the API server."""
    try:
        from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
        from airflow.sdk.execution_time.comms import ErrorResponse
    except ImportError:  # 2.11 has no SDK
        error = RuntimeError("API_SERVER_ERROR")
        error.error = SimpleNamespace(detail={"status_code": status})
        return error
    return AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": status}))


def database_error(*statements):
    """Return the error that SQLAlchemy raises for the last statement."""
    engine = create_engine("sqlite://")
    with engine.begin() as connection, pytest.raises(SQLAlchemyError) as raised:  # noqa: PT012
        for statement in ("pragma foreign_keys=on", *statements):
            connection.execute(text(statement))
    return raised.value


PARENT = "create table task_instance (id integer primary key)"
CHILD = "create table xcom (id integer primary key references task_instance (id))"
INSERT = "insert into xcom values (1)"


@pytest.fixture
def failing_xcom(monkeypatch):
    """Make Airflow's XCom raise an error, as on Airflow 3 or as on 2.11."""

    def fail(error, *, supervised):
        def set_value(*_, **__):
            raise error

        def import_module(name):
            if name.startswith("airflow.sdk") and not supervised:
                raise ImportError(name)
            return SimpleNamespace(XCom=SimpleNamespace(set=set_value))

        monkeypatch.setattr(xcom, "import_module", import_module)

    return fail


@pytest.mark.parametrize(
    ("error", "supervised"),
    [
        (sdk_error(409), True),
        (database_error(PARENT, CHILD, "insert into task_instance values (1)", INSERT, INSERT), False),
    ],
    ids=["3.x", "2.11"],
)
def test_a_value_that_another_process_wrote_at_the_same_moment(error, supervised, failing_xcom):
    failing_xcom(error, supervised=supervised)
    with pytest.raises(xcom.XComConflictError) as raised:
        xcom.write_xcom("made_up", {}, TASK)
    # The text of an error of a database contains the values.
    assert raised.value.__suppress_context__


@pytest.mark.parametrize(
    ("error", "supervised"),
    [
        *((sdk_error(status), True) for status in (400, 403, 404, 500, None)),
        (database_error(PARENT, CHILD, INSERT), False),
        (database_error(INSERT), False),
        (ValueError("DAG run not found"), False),
        # The other versions do not write to the database themselves.
        (database_error(PARENT, CHILD, "insert into task_instance values (1)", INSERT, INSERT), True),
    ],
)
def test_any_other_error_of_a_write_is_raised(error, supervised, failing_xcom):
    failing_xcom(error, supervised=supervised)
    with pytest.raises(type(error)) as raised:
        xcom.write_xcom("made_up", {}, TASK)
    assert raised.value is error


@pytest.mark.parametrize("status", [403, 404, 409, 500, None])
def test_the_status_of_an_error_of_the_sdk(status):
    assert xcom.xcom_status(sdk_error(status)) == status


@pytest.mark.parametrize("error", [ValueError("409"), database_error(INSERT), TimeoutError()])
def test_other_errors_have_no_status(error):
    assert xcom.xcom_status(error) is None


class StoredXComs:
    """XCom of Airflow 3 with the values of one task, by map index; on 3.0 a deletion loses its map index."""

    def __init__(self, values, *, loses_index=False):
        self.values, self.loses_index, self.reads = dict(values), loses_index, 0

    def delete(self, *, map_index=None, **_):
        self.values.pop(-1 if map_index is None or self.loses_index else map_index, None)

    def set(self, *, value, map_index, **_):
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
    monkeypatch.setattr(xcom, "import_module", lambda _: SimpleNamespace(XCom=stored))
    monkeypatch.setattr(xcom.conf, "getint", lambda *_, **__: 4)
    number = xcom.delete_xcom("return_value", dag_id="nightly", run_id="manual__1", task_id="authenticate")
    assert number == len(left)
    # On 3.0, an empty value replaces what cannot be deleted.
    assert [value for value in stored.values.values() if value] == left


def test_delete_xcom_reads_no_other_value_of_a_mapped_task_if_the_value_has_its_map_index(monkeypatch):
    stored = StoredXComs({900: {"map_index": 900}})
    monkeypatch.setattr(xcom, "import_module", lambda _: SimpleNamespace(XCom=stored))
    xcom.delete_xcom("loanauth_claim", dag_id="nightly", run_id="manual__1", task_id="authenticate")
    assert stored.reads <= 2


# --- the channel of a forked child


@pytest.mark.processes
@pytest.mark.parametrize("new_channel", [False, True])
def test_a_forked_child_does_not_use_the_channel_of_its_parent(new_channel, monkeypatch):
    """It would get the responses to its parent. Airflow itself forks each task, and then opens a new channel."""
    runner = SimpleNamespace(SUPERVISOR_COMMS=object())
    monkeypatch.setitem(sys.modules, "airflow.sdk.execution_time.task_runner", runner)
    stored = SimpleNamespace(XCom=StoredXComs({-1: "made-up"}))
    monkeypatch.setattr(xcom, "import_module", lambda _: stored)
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()

    def read():
        try:
            return xcom.read_xcom("made-up", TaskKey("d", "r", "t"))
        except RuntimeError as error:
            return str(error)

    def read_in_child():
        if new_channel:
            runner.SUPERVISOR_COMMS = object()
        results.put(read())

    child = context.Process(target=read_in_child)
    child.start()
    child.join(120)
    assert child.exitcode == 0
    assert (results.get() == "made-up") is new_channel
    assert read() == "made-up"
