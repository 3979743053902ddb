"""What this process gets from its machine."""

import threading

import pytest

from airflow_provider_loanauth.system import system


def test_a_function_that_takes_too_long_goes_on_in_a_thread_with_a_name():
    names, may_end, has_ended = [], threading.Event(), threading.Event()

    def work():
        names.append(threading.current_thread().name)
        may_end.wait(10)
        has_ended.set()

    with pytest.raises(TimeoutError):
        system.run_within(0.01, work, name="made-up")
    assert not has_ended.is_set()
    may_end.set()
    assert has_ended.wait(10)
    assert names == ["made-up"]


def test_a_function_runs_in_the_thread_of_its_caller_if_none_can_be_started(monkeypatch):
    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert system.run_within(60, threading.get_ident, name="made-up") == threading.get_ident()
