"""Real processes that share a login, through slow Variables in an SQLite file."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from airflow_provider_loanauth.login import shared as shared_login
from airflow_provider_loanauth.login import variables as login_variables
from airflow_provider_loanauth.models import TokenResponse
from airflow_provider_loanauth.service.client import AuthenticationResult
from tests.support.simulation import OLD

pytestmark = pytest.mark.processes

#: Seconds until a test gives up. No test needs nearly as much.
LIMIT = 300
#: Longer than in the package, because many processes that start at once on a small machine are slow.
CLAIM_DELAY = 4.0


class SlowVariables:
    """Variables in an SQLite file. Each operation takes a random time, and the first write may be a conflict."""

    def __init__(self, path):
        self._path = path
        self._conflict = random.random() < 0.3

    def execute(self, statement, *values):
        with contextlib.closing(sqlite3.connect(self._path, timeout=60, isolation_level=None)) as database:
            return database.execute(statement, values).fetchall()

    def read(self, key):
        with self._slow():
            rows = self.execute("SELECT value FROM variables WHERE key = ?", key)
        return rows[0][0] if rows else None

    def write(self, key, text, description):
        with self._slow():
            if self._conflict:
                self._conflict = False
                return False
            self.execute("INSERT OR REPLACE INTO variables VALUES (?, ?)", key, text)
            return True

    def count_login(self):
        return self.execute("INSERT INTO logins VALUES (NULL) RETURNING rowid")[0][0]

    @contextlib.contextmanager
    def _slow(self):
        time.sleep(random.uniform(0.0, 0.1))
        yield
        time.sleep(random.uniform(0.0, 0.1))


def log_in(path, first_dies, start, results):
    """Log in, at the same moment as the others; put the value of the credential."""
    shared_login.MIN_CLAIM_DELAY = CLAIM_DELAY
    store = SlowVariables(path)
    login_variables.read_variable, login_variables.write_variable = store.read, store.write

    def authenticate(settings, *, on_failure):
        number = store.count_login()
        if first_dies and number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.2)
        response = TokenResponse(access_token=f"made-up-token-{number}")
        now = datetime.now(timezone.utc)
        return AuthenticationResult(settings=settings, response=response, requested_at=now, lifetime=3600.0)

    client, settings = SimpleNamespace(authenticate=authenticate, max_attempts=3), replace(OLD, timeout=1.0)
    start.wait(LIMIT)
    credential = shared_login.get_credential(client, settings, reuse=True)
    results.put(str(credential.value))


@pytest.mark.parametrize(
    ("number", "first_dies", "values"), [(32, False, {"made-up-token-1": 32}), (8, True, {"made-up-token-2": 7})]
)
def test_many_processes_make_one_login_and_one_more_if_the_first_is_killed(number, first_dies, values, tmp_path):
    path = tmp_path / "variables.db"
    store = SlowVariables(path)
    store.execute("CREATE TABLE variables (key TEXT PRIMARY KEY, value TEXT)")
    store.execute("CREATE TABLE logins (made_up TEXT)")
    # Processes that have imported this module once, and share nothing else.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    start, results = context.Barrier(number), context.Queue()
    processes = [
        context.Process(target=log_in, args=(path, first_dies, start, results), daemon=True) for _ in range(number)
    ]
    for process in processes:
        process.start()
    try:
        assert Counter(results.get(timeout=LIMIT) for _ in range(number - first_dies)) == values
    finally:
        for process in processes:
            process.join(LIMIT)
            process.kill()
    assert store.execute("SELECT COUNT(*) FROM logins") == [(1 + first_dies,)]
