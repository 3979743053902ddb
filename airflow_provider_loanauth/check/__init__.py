"""Checking of everything between this machine and a working login."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_loanauth.metadata import DEFAULT_CONN_ID, Method

if TYPE_CHECKING:
    from airflow_provider_loanauth.check.report import Report

__all__ = ["check_connection"]


def check_connection(conn_id: str = DEFAULT_CONN_ID, *, method: Method | None = None, login: bool = False) -> Report:
    """Check everything between this machine and a working login, step by step.

    :param conn_id: connection id
    :param method: a :data:`Method`
    :param login: log in once if the service is available, also in a pause. Each call sends the password, also a wrong
        one. Without it, no credential is sent to the service
    :return: the report, which contains no secret. Problems are steps of the report, and not exceptions
    """
    # Airflow's command line imports this package at its start, so nothing else is imported before it is needed.
    from airflow_provider_loanauth.check.steps import run

    return run(conn_id, method, login=login)
