"""Reading a Connection from Airflow, and the errors if it cannot be read."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cryptography.fernet import InvalidToken

from airflow_provider_loanauth._compat import (
    AirflowException,
    AirflowNotFoundException,
    BaseHook,
    current_task,
    supervisor_lock,
)
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError
from airflow_provider_loanauth.get_provider_info import DEFAULT_CONN_ID
from airflow_provider_loanauth.redaction import sanitize_exceptions

if TYPE_CHECKING:
    from collections.abc import Callable

#: Maximum number of characters that an error shows of an id that Airflow did not find.
MAX_ID_START = 4


@sanitize_exceptions
def read_connection(get: Callable[[str], Any], conn_id: str) -> Any:
    """
    Read a Connection from any source that Airflow supports.

    :param get: ``get_connection`` of a hook
    :param conn_id: connection id
    :return: the Airflow Connection
    :raises SettingsError: Airflow cannot read the Connection
    :raises LoanAuthError: Airflow did not find the Connection. Airflow raises the same error while its secrets backend
        or API server is down, so the task may be retried
    """
    try:
        with supervisor_lock():
            conn = get(conn_id)
            # Airflow 2.11 decrypts these attributes when they are first read. Read them here, to handle errors below.
            _ = conn.password, conn.extra
    except AirflowNotFoundException:
        raise LoanAuthError(
            "Airflow did not find a connection with this id: define it in the UI, in AIRFLOW_CONN_..., or in a secrets "
            "backend. If it is defined, its secrets backend or Airflow's API server may be unavailable: try again.",
            conn_id=_abbreviated(conn_id),
        ) from None
    except (AirflowException, ValueError, InvalidToken) as error:
        # The text of the error is not used, because it may contain the URI with its password.
        raise SettingsError(
            f"Airflow cannot read the connection with this id ({type(error).__name__}): correct it in the UI, in "
            "AIRFLOW_CONN_..., or in the secrets backend.",
            conn_id=conn_id,
        ) from None
    return conn


def get_from_task_or_database(conn_id: str) -> Any:
    """
    Return a Connection, as a task gets it; outside of a task, also from Airflow's database.

    From Airflow 3.1 on, ``BaseHook.get_connection`` does not read the database outside of a task.

    :param conn_id: connection id
    :return: the Airflow Connection
    :raises Exception: any error of Airflow
    """
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        if current_task() is not None:
            raise
        return import_module("airflow.models.connection").Connection.get_connection_from_secrets(conn_id)


def _abbreviated(conn_id: Any) -> str:
    """
    Return the start and the length of a connection id: enough to find a misspelling.

    If Airflow has no such Connection, the text may be a token that was passed in the place of an id.
    """
    if conn_id == DEFAULT_CONN_ID:
        return DEFAULT_CONN_ID
    if not isinstance(conn_id, str):
        return f"not text but {type(conn_id).__name__}"
    return f"{conn_id[: min(MAX_ID_START, len(conn_id) // 4)]}… ({len(conn_id)} characters)"
