"""Real processes that share a login, through slow Variables in an SQLite file."""

from __future__ import annotations

import multiprocessing
from collections import Counter

import pytest

from tests.support import sharing_process
from tests.support.sharing_process import SlowVariables
from tests.support.simulation import NEW, OLD

pytestmark = pytest.mark.processes

#: Seconds until a test gives up. No test needs nearly as much.
LIMIT = 300
TOKEN = "made-up-token-1"


@pytest.fixture(scope="module")
def context():
    """Start processes that have imported this package once, and share nothing else."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([sharing_process.__name__])
    return context


@pytest.fixture
def store(tmp_path):
    store = SlowVariables(tmp_path / "variables.db")
    store.create()
    return store


@pytest.fixture
def log_in(context, tmp_path, store):
    """Return a function that lets processes log in at the same moment, some of them with the new password."""

    def run(old, new=0, fault=None, *, killed=0):
        start, results = context.Barrier(old + new), context.Queue()
        processes = [
            context.Process(
                target=sharing_process.run,
                args=(tmp_path / "variables.db", fault, number >= old, start, results),
                daemon=True,
            )
            for number in range(old + new)
        ]
        for process in processes:
            process.start()
        try:
            return Counter(results.get(timeout=LIMIT) for _ in range(old + new - killed))
        finally:
            for process in processes:
                process.join(LIMIT)
                process.kill()

    return run


def test_many_processes_make_one_login(log_in, store):
    assert log_in(32) == {TOKEN: 32}
    assert len(store.posts(OLD)) == 1


def test_many_processes_make_one_rejected_login(log_in, store):
    assert log_in(32, fault="rejected") == {"RejectedError": 32}
    assert len(store.posts(OLD)) == 1


def test_the_others_take_over_from_a_process_that_was_killed(log_in, store):
    assert log_in(8, fault="killed", killed=1) == {"made-up-token-2": 7}
    assert len(store.posts(OLD)) == 2


def test_two_passwords_at_once(log_in, store):
    """A password was changed, and half of the processes have read it before."""
    assert log_in(8, 8, "old rejected") == {"RejectedError": 8, TOKEN: 8}
    assert (len(store.posts(OLD)), len(store.posts(NEW))) == (1, 1)


def test_two_passwords_one_after_the_other(log_in, store):
    assert log_in(8, fault="old rejected") == {"RejectedError": 8}
    assert log_in(0, 8, "old rejected") == {TOKEN: 8}
    assert log_in(8, fault="old rejected") == {"RejectedError": 8}
    assert (len(store.posts(OLD)), len(store.posts(NEW))) == (1, 1)
