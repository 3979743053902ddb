"""A Connection of Airflow, read whole, or a sentence that says what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cryptography.fernet import InvalidToken

from airflow_provider_loanauth._compat import AirflowException, one_question_at_a_time
from airflow_provider_loanauth.exceptions import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable


def read_connection(get: Callable[[str], Any], conn_id: str) -> Any:
    """
    Read a Connection, from wherever Airflow has it.

    :param get: ``get_connection`` of a hook
    :param conn_id: connection id
    :raises SettingsError: there is none of this id, or Airflow cannot read it
    """
    try:
        with one_question_at_a_time():
            conn = get(conn_id)
            # Airflow 2.11 decrypts at the first look: here, where what goes wrong is told in our words.
            _ = conn.password, conn.extra
    except (AirflowException, ValueError, InvalidToken) as error:
        # Airflow repeats an unreadable URI, password and all, in this error.
        problem = type(error).__name__
    else:
        return conn
    raise SettingsError(
        f"Airflow has no readable connection of this id ({problem}): define it in the UI, by AIRFLOW_CONN_..., or "
        "in a secrets backend.",
        conn_id=conn_id,
    )
