"""
A real process that refreshes together with others, through values in an SQLite file.

Each function that starts with ``run`` is called in a process of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import time
from datetime import datetime, timedelta, timezone

from airflow_provider_loanauth._compat.xcom import XComConflictError
from airflow_provider_loanauth.auth import shared
from airflow_provider_loanauth.auth.register import Register
from airflow_provider_loanauth.auth.shared import SharedRefresh
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError
from airflow_provider_loanauth.models import TokenResponse
from airflow_provider_loanauth.service.client import AuthenticationResult
from tests.support.simulation import LIFETIME, TASK, active_of, settings_of

#: Made longer than in the package, because many processes that start at once on a small machine are slow.
CLAIM_DELAY, CLAIM_MARGIN = 4.0, 8.0


class SlowStore:
    """
    The values of a task in an SQLite file. Each operation takes a random time, and the first write may be a conflict.

    :param path: path of the file
    """

    def __init__(self, path):
        self._path = path
        self._conflict = random.random() < 0.3

    @contextlib.contextmanager
    def connected(self):
        with contextlib.closing(sqlite3.connect(self._path, timeout=60, isolation_level=None)) as database:
            yield database

    def create(self):
        with self.connected() as database:
            database.execute("CREATE TABLE xcom (key TEXT PRIMARY KEY, value TEXT)")
            database.execute("CREATE TABLE logins (pid INTEGER)")

    def read(self, key):
        self._wait()
        with self.connected() as database:
            row = database.execute("SELECT value FROM xcom WHERE key = ?", (key,)).fetchone()
        self._wait()
        return row and json.loads(row[0])

    def write(self, key, value):
        self._wait()
        if self._conflict:
            self._conflict = False
            raise XComConflictError
        with self.connected() as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("DELETE FROM xcom WHERE key = ?", (key,))
            database.execute("INSERT INTO xcom VALUES (?, ?)", (key, json.dumps(value)))
            database.execute("COMMIT")
        self._wait()

    def count_login(self):
        """Count a login; return how many there were before."""
        with self.connected() as database:
            database.execute("INSERT INTO logins VALUES (?)", (os.getpid(),))
            return self._count(database) - 1

    def logins(self):
        with self.connected() as database:
            return self._count(database)

    @staticmethod
    def _count(database):
        return database.execute("SELECT COUNT(*) FROM logins").fetchone()[0]

    @staticmethod
    def _wait():
        time.sleep(random.uniform(0.0, 0.1))


def run(path, fault, start, results):
    """
    Refresh once, at the same moment as the others; put the value of the credential or the type of the error.

    :param path: path of the file of :class:`SlowStore`
    :param fault: ``rejected``: each login; ``killed``: the first process that logs in; None
    :param start: barrier of all processes
    :param results: queue
    """
    shared.MIN_CLAIM_DELAY, shared.CLAIM_MARGIN = CLAIM_DELAY, CLAIM_MARGIN
    store, settings = SlowStore(path), settings_of(timeout=1.0)

    def authenticate(_):
        before = store.count_login()
        if fault == "killed" and before == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.2)
        if fault == "rejected":
            raise RejectedError("made-up rejection", status=400)
        now = datetime.now(timezone.utc)
        result = AuthenticationResult(
            settings=settings,
            response=TokenResponse(access_token=f"made-up-token-{before + 1}"),
            requested_at=now,
            expires_at=now + timedelta(seconds=LIFETIME),
            lifetime=LIFETIME,
        )
        return active_of(result.response.access_token, time.monotonic() + LIFETIME, issued_here=True), result

    refresh = SharedRefresh(
        Register(TASK, settings, issued_at=datetime(2026, 11, 21, tzinfo=timezone.utc), store=store),
        settings,
        stale=active_of("made-up-token-0", time.monotonic() - 10),
        rejected=False,
        min_ttl=60.0,
        authenticate=authenticate,
        check=lambda: None,
        claims={},
    )
    start.wait(300)
    try:
        results.put(str(refresh.refresh().value))
    except LoanAuthError as error:
        results.put(type(error).__name__)
