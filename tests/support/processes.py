"""What a new process of Airflow does not know."""

from airflow_provider_loanauth.login import memory


def start_new_process():
    """Continue as a new process: with no credential and no remembered failure."""
    memory._MEMORIES.clear()
