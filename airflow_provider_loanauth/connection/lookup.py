"""How a Connection is found in Airflow, and what is said, without a value of it, if it cannot be read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

from cryptography.fernet import InvalidToken

from airflow_provider_loanauth._compat import (
    BaseHook,
    airflow_errors,
    current_task,
    get_supervisor_channel,
    hidden_inherited_channel,
    is_outside_of_airflow,
    supervisor_turn,
)
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError
from airflow_provider_loanauth.metadata import CONN_FIELDS, DEFAULT_CONN_ID

_NOT_FOUND = (
    "Airflow did not find a connection with this id: define it in the UI, in AIRFLOW_CONN_..., or in a secrets "
    "backend. If it is in Airflow's database, it may be encrypted with another Fernet key than that of Airflow now: "
    "add the former key, or enter the connection again. If a secrets backend or Airflow's API server is unavailable, "
    "try again."
)

#: The Connection that this process has last read with an id, and how, for the processes that are forked from it.
_read: dict[str, tuple[Any, Any]] = {}


def read_connection(get: Callable[[str], Any], conn_id: str) -> Any:
    """Return the Connection of an id, as ``get``, the ``get_connection`` of a hook, finds it."""
    turn = supervisor_turn()
    try:
        with turn, hidden_inherited_channel() as is_forked:
            conn = get(conn_id)
            # Airflow 2.11 decrypts these attributes when they are first read. Read them here, to handle errors below.
            _ = conn.password, conn.extra
    except airflow_errors.AirflowNotFoundException:
        variable = f"AIRFLOW_CONN_{conn_id!s}".upper()
        if definition := os.environ.get(variable, "").strip():
            text = f"The environment variable {variable} is set, but Airflow cannot read it. {_problem_of(definition)}"
            raise SettingsError(text, conn_id=conn_id) from None
        if is_forked:
            return _read_by_task(get, conn_id)
        # Airflow raises the same error while its secrets backend or API server is down, so the task may be retried.
        raise LoanAuthError(_NOT_FOUND + _not_looked(get), conn_id=_abbreviated(conn_id)) from None
    except (airflow_errors.AirflowException, ValueError, InvalidToken) as error:
        # Its text may contain the URI with its password.
        text = f"Airflow cannot read the connection with this id ({type(error).__name__}): correct its definition."
        raise SettingsError(text, conn_id=conn_id) from None
    except Exception as error:  # noqa: BLE001 - a secrets backend, a database driver or the API server may raise anything
        text = f"Airflow could not read the connection with this id ({type(error).__name__}): try again."
        raise LoanAuthError(text, conn_id=_abbreviated(conn_id)) from None
    if not is_forked and get_supervisor_channel() is not None:
        _read[conn_id] = get, conn
    return conn


def _read_by_task(get: Callable[[str], Any], conn_id: str) -> Any:
    how, conn = _read.get(conn_id, (None, None))
    if how == get:
        return conn
    raise LoanAuthError(
        "This process was forked from a task, so it cannot ask Airflow for the connection with this id: call get_conn "
        "before you fork, or define AIRFLOW_CONN_... in the environment.",
        conn_id=_abbreviated(conn_id),
    ) from None


def get_from_task_or_database(conn_id: str) -> Any:
    """Return a Connection; outside of a task, also from the database, where ``BaseHook`` of 3.1 does not look."""
    try:
        return BaseHook.get_connection(conn_id)
    except airflow_errors.AirflowNotFoundException:
        if current_task() is not None:
            raise
        return import_module("airflow.models.connection").Connection.get_connection_from_secrets(conn_id)


def is_defined(conn_id: str) -> bool:
    """Return whether Airflow finds a Connection here, also if it cannot be read."""
    try:
        get_from_task_or_database(conn_id)
    except airflow_errors.AirflowNotFoundException:
        return bool(os.environ.get(f"AIRFLOW_CONN_{conn_id}".upper()))
    except Exception:  # noqa: BLE001 - whatever it is, the Connection was found
        return True
    return True


def _not_looked(get: Callable[[str], Any]) -> str:
    """Return where Airflow has not looked for a Connection: from 3.1 on, outside of a task, in its database."""
    if get is get_from_task_or_database or not is_outside_of_airflow():
        return ""
    return (
        " This process is no task, so Airflow did not look in its database: set AIRFLOW_CONN_..., or, where the "
        "database can be used, _AIRFLOW_PROCESS_CONTEXT=server."
    )


def _problem_of(definition: str) -> str:
    """Return what to correct in an environment variable, without a value of it."""
    with suppress(ValueError, TypeError):
        beside = [f'"{name}"' for name in json.loads(definition) if name in CONN_FIELDS]
        if beside:
            return f'In its JSON, move {", ".join(beside)} into "extra".'
    return (
        "Correct its JSON, where login and password are in quotes and the fields of this provider are inside of "
        '"extra", or its URI, where each value is percent-encoded.'
    )


def _abbreviated(conn_id: Any) -> str:
    """Return the start and the length of an id, because a token may have been passed in its place."""
    # Airflow stores the parameter of an operator in plaintext anyway.
    of_operator = getattr(getattr(current_task(), "task", None), "loanauth_conn_id", None)
    if conn_id in (DEFAULT_CONN_ID, str(of_operator)):
        return str(conn_id)
    if not isinstance(conn_id, str):
        return f"not text but {type(conn_id).__name__}"
    return f"{conn_id[: min(4, len(conn_id) // 4)]}… ({len(conn_id)} characters)"
