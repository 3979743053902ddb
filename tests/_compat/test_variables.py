"""Variables through the supervisor of a task, and through the database; and processes that must use neither."""

import sys
from contextlib import nullcontext
from types import SimpleNamespace
from unittest import mock

import pytest
import sqlalchemy.orm

from airflow_provider_loanauth import _compat, redaction
from airflow_provider_loanauth._compat import SupervisorError, variables

RUNNER = "airflow.sdk.execution_time.task_runner"


class Supervisor:
    """The channel to a supervisor, with the Variables of one API server."""

    def __init__(self, error="VARIABLE_NOT_FOUND"):
        self.values, self.error, self.sent = {}, error, []

    def send(self, message):
        kind, fields = message
        self.sent.append(kind)
        if kind == "PutVariable":
            assert fields["description"]
            self.values[fields["key"]] = fields["value"]
        elif kind == "DeleteVariable":
            del self.values[fields["key"]]
        elif fields["key"] in self.values:
            return SimpleNamespace(value=self.values[fields["key"]])
        else:
            return type("ErrorResponse", (), {"error": SimpleNamespace(value=self.error)})()
        return None


@pytest.fixture
def supervised(monkeypatch):
    """Run as a task of Airflow 3: return a function that sets its supervisor."""

    def use(channel):
        kinds = ("GetVariable", "PutVariable", "DeleteVariable")
        comms = SimpleNamespace(**{kind: lambda kind=kind, **fields: (kind, fields) for kind in kinds})
        monkeypatch.setitem(sys.modules, RUNNER, SimpleNamespace(SUPERVISOR_COMMS=channel))
        monkeypatch.setattr(variables, "import_module", {"airflow.sdk.execution_time.comms": comms}.__getitem__)
        return channel

    return use


def test_a_task_asks_its_supervisor(supervised):
    """Not ``Variable.get`` and ``Variable.set`` of the SDK, which ask the worker's secrets backends too."""
    supervisor = supervised(Supervisor())
    assert variables.read_variable("made.up") is None
    variables.write_variable("made.up", "text", "A description.")
    assert variables.read_variable("made.up") == "text"
    variables.delete_variable("made.up")
    assert variables.read_variable("made.up") is None
    assert supervisor.sent == ["GetVariable", "PutVariable", "GetVariable", "DeleteVariable", "GetVariable"]


def test_an_error_of_the_api_server_is_no_missing_variable(supervised):
    supervised(Supervisor(error="API_SERVER_ERROR"))
    with pytest.raises(SupervisorError, match="API_SERVER_ERROR"):
        variables.read_variable("made.up")


@pytest.fixture
def _database(monkeypatch):
    """The table of Variables in memory, with the model of this Airflow."""
    model = variables.import_module("airflow.models.variable").Variable
    engine = sqlalchemy.create_engine("sqlite://")
    model.__table__.create(engine)
    modules = {
        "airflow.utils.session": SimpleNamespace(create_session=sqlalchemy.orm.sessionmaker(engine).begin),
        "airflow.models.variable": SimpleNamespace(Variable=model),
    }
    monkeypatch.setattr(variables, "import_module", modules.__getitem__)
    yield
    engine.dispose()


@pytest.mark.usefixtures("_database")
def test_outside_of_a_task_the_database_is_used():
    """Also on Airflow 2.11, where ``Variable.get`` would ask the secrets backends."""
    for key, text in (("made.up", "first"), ("made.up", "text"), ("made_up", "other")):
        variables.write_variable(key, text, "A description.")
    assert variables.read_variable("made.up") == "text"
    with variables._database() as (session, model):
        assert {row.description for row in session.query(model)} == {"A description."}
    assert variables.list_variables("made_") == ["made_up"]
    for _ in range(2):
        variables.delete_variable("made.up")
    assert [variables.read_variable(key) for key in ("made.up", "made_up")] == [None, "other"]


class IntegrityError(Exception):
    """An error of SQLAlchemy with this name, whose text has the values."""


@pytest.mark.parametrize(
    ("error", "stored", "is_conflict"),
    [
        (IntegrityError("made-up text"), "of another", True),
        (RuntimeError("(1213, 'Deadlock found: made-up text')"), "of another", True),
        (RuntimeError("made-up text"), "of another", False),
        # Nobody else has written: no row can be inserted.
        (IntegrityError("made-up text"), None, False),
    ],
)
def test_two_writers_of_one_variable_conflict_in_the_database(error, stored, is_conflict, monkeypatch):
    monkeypatch.setattr(variables, "_database", mock.Mock(side_effect=error))
    monkeypatch.setattr(variables, "read_variable", {"made.up": stored}.get)
    with nullcontext() if is_conflict else pytest.raises(type(error), match="made-up text"):
        variables.write_variable("made.up", "text", "")


def test_a_forked_child_does_not_use_the_channel_of_its_parent(supervised, monkeypatch):
    """It would get the responses to its parent. Airflow itself forks each task, and then opens a new channel."""
    seen, first = [], supervised(Supervisor())
    monkeypatch.setattr(_compat, "_channel_of_parent", None)

    def mask_secret(_):
        # Airflow sends each secret to the supervisor, and reads a response.
        seen.append(sys.modules[RUNNER].SUPERVISOR_COMMS)
        if seen[-1] is None:
            # Meanwhile, another thread asks, and this process is forked.
            _compat._after_fork()
            with pytest.raises(SupervisorError, match="this process was forked from a task"):
                variables.read_variable("made.up")

    monkeypatch.setattr(redaction, "mask_secret", mask_secret)
    redaction.mask(["made-up-secret"])
    _compat._after_fork()
    with pytest.raises(SupervisorError, match="this process was forked from a task"):
        variables.read_variable("made.up")
    redaction.mask(["made-up-secret"])
    assert sys.modules[RUNNER].SUPERVISOR_COMMS is first
    new = supervised(Supervisor())
    redaction.mask(["made-up-secret"])
    assert seen == [first, None, new]
    assert variables.read_variable("made.up") is None
