"""What a new process of Airflow does not know."""

from __future__ import annotations

from airflow_provider_loanauth.service.process_logins import LOGINS


def start_new_process():
    """Continue as a new process: with no credential and no remembered failure."""
    LOGINS.__init__()
