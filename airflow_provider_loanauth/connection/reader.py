"""A Connection of Airflow, read whole, or a sentence that says what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cryptography.fernet import InvalidToken

from airflow_provider_loanauth._compat import AirflowException, AirflowNotFoundException, one_question_at_a_time
from airflow_provider_loanauth.exceptions import LoanAuthError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable


def read_connection(get: Callable[[str], Any], conn_id: str) -> Any:
    """
    Read a Connection, from wherever Airflow has it.

    :param get: ``get_connection`` of a hook
    :param conn_id: connection id
    :raises SettingsError: Airflow cannot read it
    :raises LoanAuthError: there is none of this id. Airflow says the same while its secrets backend or its API server
        does not answer, so this is no error that ``retries`` must not try again: nothing was sent
    """
    problem = None
    try:
        with one_question_at_a_time():
            conn = get(conn_id)
            # Airflow 2.11 decrypts at the first look: here, where what goes wrong is told in our words.
            _ = conn.password, conn.extra
    except AirflowNotFoundException:
        pass
    except (AirflowException, ValueError, InvalidToken) as error:
        # Airflow repeats an unreadable URI, password and all, in this error.
        problem = type(error).__name__
    else:
        return conn
    if problem is None:
        raise LoanAuthError(
            "Airflow has no readable connection of this id: define it in the UI, by AIRFLOW_CONN_..., or in a secrets "
            "backend. If it is there, its secrets backend or Airflow's API server did not answer: try again.",
            conn_id=conn_id,
        )
    raise SettingsError(
        f"Airflow has no readable connection of this id ({problem}): correct it in the UI, in AIRFLOW_CONN_..., or in "
        "the secrets backend.",
        conn_id=conn_id,
    )
