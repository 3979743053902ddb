"""Real processes that share a login, through slow Variables in an SQLite file, and send it to a sandbox."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import signal
import sqlite3
import time
from collections import Counter

import pytest
import urllib3.util.connection

from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.login import lease
from airflow_provider_loanauth.login import shared as shared_login
from airflow_provider_loanauth.login import variables as login_variables
from airflow_provider_loanauth.service import transport
from airflow_provider_loanauth.service.client import Client
from airflow_provider_loanauth.system import system
from loanauth_sandbox.server import running_sandbox

pytestmark = [pytest.mark.processes, pytest.mark.once]

#: Seconds until a test gives up. No test needs nearly as much.
LIMIT = 300
#: Longer than in the package, because many processes that start at once on a small machine are slow.
CLAIM_DELAY = 4.0


class SlowVariables:
    """Variables in an SQLite file. Each operation takes a random time, a write longer; the first may be a conflict."""

    def __init__(self, path, longer=0.0):
        self._path, self._longer = path, longer
        self._conflict = random.random() < 0.3

    def execute(self, statement, *values):
        with contextlib.closing(sqlite3.connect(self._path, timeout=60, isolation_level=None)) as database:
            return database.execute(statement, values).fetchall()

    def read(self, key):
        with self._slow():
            rows = self.execute("SELECT value FROM variables WHERE key = ?", key)
        return rows[0][0] if rows else None

    def write(self, key, text, description):
        time.sleep(self._longer)
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


def log_in(path, connection, kind, start, results):
    """Log in, at the same moment as the others; put the class of the result."""
    lease.MIN_DELAY, lease.LEASE_SECONDS = CLAIM_DELAY, 20.0
    lease.MAX_WAIT = shared_login.MAX_WAIT = 60.0
    # Of claims that are written at the same moment, the last one counts: that of a host without a network.
    store, send = SlowVariables(path, longer=1.0 if kind == "no network" else 0.0), transport.send
    login_variables.read_variable, login_variables.write_variable = store.read, store.write
    os.environ["AIRFLOW_CONN_MADE_UP"] = connection
    system.hostname = lambda: kind

    def send_and_die(*arguments, **options):
        response = send(*arguments, **options)
        if kind == "first dies" and store.count_login() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return response

    def unreachable(*_, **__):
        raise OSError("Network is unreachable")

    transport.send = send_and_die
    client = Client("made_up", max_attempts=3)
    settings = client.settings()
    if kind == "no network":
        urllib3.util.connection.create_connection = unreachable
    start.wait(LIMIT)
    try:
        result = shared_login.get_credential(client, settings, reuse=True)
    except LoanAuthError as error:
        result = error
    results.put((kind, type(result).__name__))


@pytest.mark.parametrize(
    ("kinds", "password", "takes", "logins"),
    [
        ({"healthy": 32}, "right", 0, (1, 0)),
        ({"first dies": 8}, "right", 0, (2, 0)),
        ({"healthy": 8, "no network": 8}, "right", 0, (1, 0)),
        ({"healthy": 60}, "wrong", 2, (0, 1)),
        ({"healthy": 60}, "wrong", 8, (0, 1)),
        ({"first dies": 60}, "wrong", 0, (0, 2)),
    ],
)
def test_so_many_logins_of_many_processes(kinds, password, takes, logins, tmp_path):
    """Each of them needs a credential at the same moment; the service takes some seconds."""
    path = tmp_path / "variables.db"
    store = SlowVariables(path)
    store.execute("CREATE TABLE variables (key TEXT PRIMARY KEY, value TEXT)")
    store.execute("CREATE TABLE logins (made_up TEXT)")
    # Processes that have imported this module once, and share nothing else.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with running_sandbox() as sandbox:
        if takes:
            sandbox.set_fault("latency", where="token", seconds=takes)
        connection = sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"]
        if password == "wrong":
            connection["password"] = "made-up-wrong"
        start, results = context.Barrier(sum(kinds.values())), context.Queue()
        processes = []
        for kind in Counter(kinds).elements():
            arguments = (path, json.dumps(connection), kind, start, results)
            processes.append(context.Process(target=log_in, args=arguments, daemon=True))
        for process in processes:
            process.start()
        try:
            ended = Counter(results.get(timeout=LIMIT) for _ in processes["first dies" in kinds :])
        finally:
            for process in processes:
                process.join(LIMIT)
                process.kill()
        counts = sandbox.counters().authentications
    assert (counts.succeeded, counts.rejected) == logins
    expected = "RejectedError" if password == "wrong" else "ActiveCredential"
    for kind, number in kinds.items():
        assert kind == "no network" or ended[kind, expected] == number - (kind == "first dies")
