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

import pytest

from airflow_provider_loanauth.exceptions import LoanAuthError
from airflow_provider_loanauth.login import lease
from airflow_provider_loanauth.login import shared as shared_login
from airflow_provider_loanauth.login import variables as login_variables
from airflow_provider_loanauth.service import transport
from airflow_provider_loanauth.service.client import Client
from loanauth_sandbox.server import running_sandbox

pytestmark = [pytest.mark.processes, pytest.mark.once]

#: Seconds until a test gives up. No test needs nearly as much.
LIMIT = 300
#: Longer than in the package, because many processes that start at once on a small machine are slow.
CLAIM_DELAY = 4.0


class SlowVariables:
    """Variables in an SQLite file. Each operation takes a random time."""

    def __init__(self, path):
        self._path = path

    def execute(self, statement, *values):
        time.sleep(random.uniform(0.0, 0.1))
        with contextlib.closing(sqlite3.connect(self._path, timeout=60, isolation_level=None)) as database:
            rows = database.execute(statement, values).fetchall()
        time.sleep(random.uniform(0.0, 0.1))
        return rows

    def read(self, key):
        rows = self.execute("SELECT value FROM variables WHERE key = ?", key)
        return rows[0][0] if rows else None

    def write(self, key, text, description):
        self.execute("INSERT OR REPLACE INTO variables VALUES (?, ?)", key, text)

    def count_login(self):
        return self.execute("INSERT INTO logins VALUES (NULL) RETURNING rowid")[0][0]


def log_in(path, connection, first_dies, start, results):
    """Log in, at the same moment as the others; put the class of the result."""
    lease.MIN_DELAY, lease.LEASE_SECONDS = CLAIM_DELAY, 20.0
    lease.MAX_WAIT = shared_login.MAX_WAIT = 60.0
    store, send = SlowVariables(path), transport.send
    login_variables.read_variable, login_variables.write_variable = store.read, store.write
    os.environ["AIRFLOW_CONN_MADE_UP"] = connection

    def send_and_die(*arguments, **options):
        response = send(*arguments, **options)
        if first_dies and store.count_login() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return response

    transport.send = send_and_die
    client = Client("made_up", max_attempts=3)
    start.wait(LIMIT)
    try:
        result = shared_login.get_credential(client, client.settings(), reuse=True)
    except LoanAuthError as error:
        result = error
    results.put(type(result).__name__)


@pytest.mark.parametrize(
    ("number", "first_dies", "password", "takes", "logins"),
    [
        (32, False, "right", 0, (1, 0)),
        (8, True, "right", 0, (2, 0)),
        (60, False, "wrong", 8, (0, 1)),
        (60, True, "wrong", 0, (0, 2)),
    ],
)
def test_so_many_logins_of_many_processes(number, first_dies, password, takes, logins, tmp_path):
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
        start, results = context.Barrier(number), context.Queue()
        arguments = (path, json.dumps(connection), first_dies, start, results)
        processes = [context.Process(target=log_in, args=arguments, daemon=True) for _ in range(number)]
        for process in processes:
            process.start()
        try:
            ended = {results.get(timeout=LIMIT) for _ in processes[first_dies:]}
        finally:
            for process in processes:
                process.join(LIMIT)
                process.kill()
        counts = sandbox.counters().authentications
    assert (counts.succeeded, counts.rejected) == logins
    assert ended == {"RejectedError" if password == "wrong" else "ActiveCredential"}
