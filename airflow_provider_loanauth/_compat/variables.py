"""Airflow Variables on each version: read, written and deleted without asking a worker's secrets backends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from airflow_provider_loanauth._compat import SupervisorError, get_supervisor_channel, supervisor_turn


def read_variable(key: str) -> str | None:
    """Return the text of a Variable; None if there is none. Raises any error of Airflow."""
    if get_supervisor_channel():
        # For Variable.get of the SDK, any error of the API server is "not found".
        response = _send("GetVariable", key=key)
        if type(response).__name__ == "ErrorResponse":
            if response.error.value == "VARIABLE_NOT_FOUND":
                return None
            raise SupervisorError(response.error.value)
        return str(response.value)
    with _database() as (session, variable):
        row = session.query(variable).filter(variable.key == key).one_or_none()
        return None if row is None else row.val


def write_variable(key: str, text: str, description: str) -> None:
    """Write a Variable. What another process has written at the same moment may stand. Raises any other error."""
    if get_supervisor_channel():
        # To one of two writers, the API server of 3.0 responds with 500; the supervisor then tries again.
        _send("PutVariable", key=key, value=text, description=description)
        return
    try:
        with _database() as (session, variable):
            row = session.query(variable).filter(variable.key == key).one_or_none() or variable(key=key)
            row.val, row.description = text, description
            session.add(row)
    except Exception as error:
        # Of two writers that insert the same key, one fails, on MySQL with a deadlock. The row of the other is there.
        is_conflict = type(error).__name__ == "IntegrityError" or "deadlock" in str(error).lower()
        if not is_conflict or read_variable(key) is None:
            raise


def delete_variable(key: str) -> None:
    """Delete a Variable, if there is one. Raises any error of Airflow."""
    if get_supervisor_channel():
        _send("DeleteVariable", key=key)
        return
    with _database() as (session, variable):
        session.query(variable).filter(variable.key == key).delete()


def list_variables(prefix: str) -> list[str]:
    """Return the keys with a prefix, from the database: the Test button and the command know no connection id."""
    with _database() as (session, variable):
        return [key for (key,) in session.query(variable.key).filter(variable.key.startswith(prefix, autoescape=True))]


def _send(message: str, **fields: Any) -> Any:
    comms = import_module("airflow.sdk.execution_time.comms")
    with supervisor_turn():
        return get_supervisor_channel().send(getattr(comms, message)(**fields))


@contextmanager
def _database() -> Iterator[tuple[Any, Any]]:
    with import_module("airflow.utils.session").create_session() as session:
        yield session, import_module("airflow.models.variable").Variable
