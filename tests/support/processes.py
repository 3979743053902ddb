"""What a new process of Airflow does not know, and processes that are forked from this one."""

import multiprocessing

from airflow_provider_loanauth.login import variables


def start_new_process():
    """Continue as a new process: with no credential and no remembered failure."""
    variables._MEMORIES.clear()


def fork(work):
    """Run a function in a forked child; return its process."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    return child


def status_of(child):
    """Return the exit code of a child; kill one that hangs."""
    child.join(90)
    child.kill()
    child.join()
    return child.exitcode
