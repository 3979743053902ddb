"""What a new process of Airflow does not know, and processes that are forked from this one."""

import os
import signal
import time
import traceback

from airflow_provider_loanauth.login import memory


def start_new_process():
    """Continue as a new process: with no credential and no remembered failure."""
    memory._MEMORIES.clear()


def fork(work):
    """Run a function in a forked child; return the id of its process."""
    child = os.fork()
    if not child:
        status = 1
        signal.alarm(60)
        try:
            work()
            status = 0
        except BaseException:  # noqa: BLE001 - the test shows what the child has printed
            traceback.print_exc()
        finally:
            os._exit(status)
    return child


def status_of(child):
    """Return the exit code of a child; kill one that hangs, perhaps before it could set its alarm."""
    ends_at = time.monotonic() + 90
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > ends_at:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(ended[1])
