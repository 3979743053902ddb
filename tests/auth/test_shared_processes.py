"""Real processes that share one refresh, through a slow store in an SQLite file."""

from __future__ import annotations

import multiprocessing

import pytest

from tests.support import refreshing_process
from tests.support.refreshing_process import SlowStore

pytestmark = pytest.mark.processes

#: Seconds until a test gives up. No test needs nearly as much.
LIMIT = 300


@pytest.fixture(scope="module")
def context():
    """Start processes that have imported this package once, and share nothing else."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([refreshing_process.__name__])
    return context


def results_of(context, path, number, fault=None, *, killed=0):
    """Let processes refresh at the same moment; return their results, and the number of logins."""
    store = SlowStore(path / "xcom.db")
    store.create()
    start, results = context.Barrier(number), context.Queue()
    processes = [
        context.Process(target=refreshing_process.run, args=(path / "xcom.db", fault, start, results), daemon=True)
        for _ in range(number)
    ]
    for process in processes:
        process.start()
    try:
        return [results.get(timeout=LIMIT) for _ in range(number - killed)], store.logins()
    finally:
        for process in processes:
            process.join(LIMIT)
            process.kill()


def test_many_processes_make_one_login(context, tmp_path):
    assert results_of(context, tmp_path, 32) == (["made-up-token-1"] * 32, 1)


def test_many_processes_make_one_rejected_login(context, tmp_path):
    assert results_of(context, tmp_path, 32, "rejected") == (["RejectedError"] * 32, 1)


def test_the_others_take_over_from_a_process_that_was_killed(context, tmp_path):
    assert results_of(context, tmp_path, 8, "killed", killed=1) == (["made-up-token-2"] * 7, 2)
