"""What this process gets from its machine."""

import threading

from airflow_provider_loanauth.system import system


def test_a_function_runs_in_the_thread_of_its_caller_if_none_can_be_started(monkeypatch):
    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert system.run_within(60, threading.get_ident, name="made-up") == threading.get_ident()
