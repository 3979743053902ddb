"""How a Connection is found in Airflow, and what is said, without a value of it, if it cannot be read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

from cryptography.fernet import InvalidToken

from airflow_provider_loanauth._compat import BaseHook, SupervisorError, airflow_errors, current_task, supervisor_turn
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError
from airflow_provider_loanauth.metadata import CONN_FIELDS, DEFAULT_CONN_ID

_NOT_FOUND = (
    "Airflow did not find a connection with this id: correct the id, or define the connection in the UI, in "
    "AIRFLOW_CONN_..., or in a secrets backend. If it is in Airflow's database, it may be encrypted with another "
    "Fernet key than that of Airflow now: add the former key, or enter the connection again. If a secrets backend or "
    "Airflow's API server is unavailable, try again. A script of yours on Airflow 3.1 or later looks in the database "
    "only with _AIRFLOW_PROCESS_CONTEXT=server."
)

_FORKED = (
    "This process was forked from a task, so it cannot ask Airflow for the connection with this id: call get_conn "
    "before you fork, or define AIRFLOW_CONN_... in the environment."
)


def read_connection(get: Callable[[str], Any], conn_id: str) -> Any:
    """Return the Connection of an id, as ``get``, the ``get_connection`` of a hook, finds it."""
    try:
        with supervisor_turn() as is_forked:
            conn = get(conn_id)
            # Airflow 2.11 decrypts these attributes when they are first read. Read them here, to handle errors below.
            _ = conn.password, conn.extra
    except SupervisorError as error:
        raise LoanAuthError(f"{error}.", conn_id=_abbreviated(conn_id)) from None
    except airflow_errors.AirflowNotFoundException:
        variable = f"AIRFLOW_CONN_{conn_id!s}".upper()
        if definition := os.environ.get(variable, "").strip():
            text = f"The environment variable {variable} is set, but Airflow cannot read it. {_advice_on(definition)}"
            raise SettingsError(text, conn_id=conn_id) from None
        if is_forked:
            raise LoanAuthError(_FORKED, conn_id=_abbreviated(conn_id)) from None
        # Airflow raises the same error while its secrets backend or API server is down, so the task may be retried.
        raise LoanAuthError(_NOT_FOUND, conn_id=_abbreviated(conn_id)) from None
    except (airflow_errors.AirflowException, ValueError, InvalidToken) as error:
        # Its text may contain the URI with its password.
        text = f"Airflow cannot read the connection with this id ({type(error).__name__}): correct its definition."
        raise SettingsError(text, conn_id=conn_id) from None
    except Exception as error:  # noqa: BLE001 - a secrets backend, a database driver or the API server may raise anything
        text = f"Airflow could not read the connection with this id ({type(error).__name__}): try again."
        raise LoanAuthError(text, conn_id=_abbreviated(conn_id)) from None
    return conn


def get_from_task_or_database(conn_id: str) -> Any:
    """Return a Connection; outside of a task, also from the database, where ``BaseHook`` of 3.1 does not look."""
    try:
        return BaseHook.get_connection(conn_id)
    except airflow_errors.AirflowNotFoundException:
        if current_task() is not None:
            raise
        return import_module("airflow.models.connection").Connection.get_connection_from_secrets(conn_id)


def is_defined(conn_id: str) -> bool:
    """Return whether Airflow finds a Connection here, also if its definition is wrong."""
    try:
        read_connection(get_from_task_or_database, conn_id)
    except LoanAuthError as error:
        return isinstance(error, SettingsError)
    return True


def _advice_on(definition: str) -> str:
    """Return what to correct in an environment variable, without a value of it."""
    with suppress(ValueError, TypeError):
        if beside := ", ".join(f'"{name}"' for name in json.loads(definition) if name in CONN_FIELDS):
            return f'In its JSON, move {beside} into "extra".'
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
