"""How a Connection is found in Airflow, and what is said, without a value of it, if it cannot be read."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from cryptography.fernet import InvalidToken

from airflow_provider_loanauth._compat import SUPERVISOR_LOCK, BaseHook, airflow_errors, current_task
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError
from airflow_provider_loanauth.metadata import DEFAULT_CONN_ID


def read_connection(get: Callable[[str], Any], conn_id: str) -> Any:
    """Return the Connection of an id, as ``get``, the ``get_connection`` of a hook, finds it."""
    try:
        with SUPERVISOR_LOCK.current:
            conn = get(conn_id)
            # Airflow 2.11 decrypts these attributes when they are first read. Read them here, to handle errors below.
            _ = conn.password, conn.extra
    except airflow_errors.AirflowNotFoundException:
        if os.environ.get(variable := f"AIRFLOW_CONN_{conn_id!s}".upper(), "").strip():
            raise SettingsError(
                f"The environment variable {variable} is set, but Airflow cannot read it. Correct its JSON, where the "
                'fields of this provider are inside of "extra", or its URI, where each value is percent-encoded.',
                conn_id=conn_id,
            ) from None
        # Airflow raises the same error while its secrets backend or API server is down, so the task may be retried.
        raise LoanAuthError(
            "Airflow did not find a connection with this id: define it in the UI, in AIRFLOW_CONN_..., or in a secrets "
            "backend. If it is defined, its secrets backend or Airflow's API server may be unavailable: try again.",
            conn_id=_abbreviated(conn_id),
        ) from None
    except (airflow_errors.AirflowException, ValueError, InvalidToken) as error:
        # The text of the error is not used, because it may contain the URI with its password.
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


def _abbreviated(conn_id: Any) -> str:
    """Return the start and the length of an id, because a token may have been passed in its place."""
    # Airflow stores the parameter of an operator in plaintext anyway.
    of_operator = getattr(getattr(current_task(), "task", None), "loanauth_conn_id", DEFAULT_CONN_ID)
    if conn_id in (DEFAULT_CONN_ID, of_operator):
        return str(conn_id)
    if not isinstance(conn_id, str):
        return f"not text but {type(conn_id).__name__}"
    return f"{conn_id[: min(4, len(conn_id) // 4)]}… ({len(conn_id)} characters)"
