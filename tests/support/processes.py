"""What a new process of Airflow does not know."""

from __future__ import annotations

from airflow_provider_loanauth.auth.refresh import _PROCESS_CACHE
from airflow_provider_loanauth.service.memory import PROCESS_FAILURES


def start_new_process():
    """Continue as a new process: with no cached credential and no remembered failure."""
    _PROCESS_CACHE.clear()
    PROCESS_FAILURES.clear()
