"""Metrics through Airflow's ``Stats``, without secrets (``docs/operating.md``).

``about`` has the ``conn_id`` and the ``method`` that a metric is about: settings, or a credential.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow_provider_loanauth._compat import get_stats, task_logger
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, UnavailableError
from airflow_provider_loanauth.system import system

#: Maximum length of a tag. Airflow drops a StatsD metric that has more than 250 characters with its tags.
MAX_TAG_LENGTH = 100
#: Airflow drops a StatsD metric with any other character.
_NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9_.-]")

_log = task_logger(__name__)
#: Classes of errors that were logged.
_logged: set[str] = set()


@contextmanager
def login(about: Any) -> Iterator[None]:
    """Record how long the login takes that the block sends, or how it failed."""
    started = system.monotonic()
    try:
        yield
    except RejectedError:
        _send("incr", "rejected", about)
        raise
    except UnavailableError:
        _send("incr", "unavailable", about)
        raise
    except LoanAuthError as error:
        _send("incr", "failed", about, error_type=type(error).__name__)
        raise
    ended = system.monotonic()
    _send("incr", "logins", about)
    _send("timing", "login_duration", about, (ended - started) * 1000)


def count_refresh(about: Any, *, shared: bool) -> None:
    """Count a refresh that succeeded; ``shared``: this process took over a credential that another one requested."""
    _send("incr", "shared_refreshes" if shared else "refreshes", about)


def count_not_sent(about: Any, error: LoanAuthError) -> None:
    """Count a task that fails with the error of an earlier login, and sends nothing."""
    _send("incr", "not_sent", about, error_type=type(error).__name__)


def set_expiry(about: Any, seconds: float | None) -> None:
    """Record in how many seconds a credential expires, if they are known; 0 if it has expired."""
    if seconds is not None:
        _send("gauge", "seconds_to_expiry", about, max(0.0, seconds))


def record_wait(about: Any, started: float) -> None:
    """Record the time since the start of a sensor (UTC) that waits no longer."""
    _send("timing", "wait_duration", about, max(0.0, system.time() - started) * 1000)


def _send(kind: str, name: str, about: Any, *value: float, **more: str) -> None:
    """Send a metric. An error is logged once per process for each class: any backend can be configured."""
    texts = {"conn_id": about.conn_id, "method": about.method} | more
    tags = {label: _NOT_IN_TAGS.sub("_", text)[:MAX_TAG_LENGTH] for label, text in texts.items() if text}
    try:
        getattr(get_stats(), kind)(f"loanauth.{name}", *value, tags=tags)
    except Exception as error:  # noqa: BLE001 - a task needs no metrics
        kind_of_error = type(error).__name__
        if kind_of_error not in _logged:
            _logged.add(kind_of_error)
            # Not the text of the error, which may contain a URL.
            _log.warning("Metrics of loanauth cannot be recorded (%s). The task continues.", kind_of_error)
