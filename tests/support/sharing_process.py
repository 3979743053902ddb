"""A real process that shares a login with others, through Variables in an SQLite file."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

from airflow_provider_loanauth._compat.variables import VariableConflictError
from airflow_provider_loanauth.auth import login_variables, shared_login
from airflow_provider_loanauth.auth.refresh_policy import ActiveCredential
from airflow_provider_loanauth.auth.shared_login import SharedLogin
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError
from airflow_provider_loanauth.models import TokenResponse
from airflow_provider_loanauth.service.client import AuthenticationResult
from tests.support.simulation import LIFETIME, NEW, OLD

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

    def create(self):
        self.execute("CREATE TABLE variables (key TEXT PRIMARY KEY, value TEXT)")
        self.execute("CREATE TABLE posts (password TEXT)")

    def read(self, key):
        with self._slow():
            rows = self.execute("SELECT value FROM variables WHERE key = ?", key)
        return rows[0][0] if rows else None

    def write(self, key, text, description):
        with self._slow():
            if self._conflict:
                self._conflict = False
                raise VariableConflictError
            self.execute("INSERT OR REPLACE INTO variables VALUES (?, ?)", key, text)

    def delete(self, key):
        self.execute("DELETE FROM variables WHERE key = ?", key)

    def count_post(self, settings):
        """Count a post of a password; return how many there were before."""
        before = len(self.posts(settings))
        self.execute("INSERT INTO posts VALUES (?)", str.__str__(settings.login.password))
        return before

    def posts(self, settings):
        return self.execute("SELECT * FROM posts WHERE password = ?", str.__str__(settings.login.password))

    @contextlib.contextmanager
    def _slow(self):
        time.sleep(random.uniform(0.0, 0.1))
        yield
        time.sleep(random.uniform(0.0, 0.1))


def run(path, fault, is_new, start, results):
    """
    Log in, at the same moment as the others; put the value of the credential or the type of the error.

    ``fault``: ``rejected``: each login; ``old rejected``: with the old password; ``killed``: the first that logs in.
    """
    shared_login.MIN_CLAIM_DELAY, settings = CLAIM_DELAY, replace(NEW if is_new else OLD, timeout=1.0)
    store = SlowVariables(path)
    for name in ("read", "write", "delete"):
        setattr(login_variables, f"{name}_variable", getattr(store, name))

    def authenticate(settings, *, sleep):
        before = store.count_post(settings)
        if fault == "killed" and before == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.2)
        if fault == "rejected" or (fault == "old rejected" and not is_new):
            raise RejectedError("made-up rejection", status=400)
        now = datetime.now(timezone.utc)
        return AuthenticationResult(
            settings=settings,
            response=TokenResponse(access_token=f"made-up-token-{before + 1}"),
            requested_at=now,
            expires_at=now + timedelta(seconds=LIFETIME),
            lifetime=LIFETIME,
        )

    start.wait(300)
    try:
        login = SharedLogin(SimpleNamespace(authenticate=authenticate), settings, ActiveCredential.can_be_taken_over)
        results.put(str(login.get().value))
    except LoanAuthError as error:
        results.put(type(error).__name__)
