"""Metrics through Airflow's ``Stats``, and spans through OpenTelemetry, without secrets (``docs/monitoring.md``)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from airflow_provider_loanauth._compat import get_stats, task_logger
from airflow_provider_loanauth.connection.address import DEFAULT_PORTS
from airflow_provider_loanauth.exceptions import LoanAuthError, RejectedError, UnavailableError
from airflow_provider_loanauth.metadata import Method
from airflow_provider_loanauth.system import system

#: Maximum length of a tag. Airflow drops a StatsD metric that has more than 250 characters with its tags.
MAX_TAG_LENGTH = 100
#: Airflow drops a StatsD metric with any other character.
_NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9_.-]")

_log = task_logger(__name__)
#: Classes of errors that were logged.
_logged: set[str] = set()


class Labels(NamedTuple):
    """What a metric or a span is about: the id of a Connection that exists, and the method; None if not known."""

    conn_id: str | None
    method: Method | None

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of a span."""
        return {f"loanauth.{name}": text for name, text in self._asdict().items() if text}


@contextmanager
def _errors_logged() -> Iterator[None]:
    """Log an error of the block and continue. Errors of one class are logged once per process."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - any backend can be configured, and a task needs none
        name = type(error).__name__
        if name not in _logged:
            _logged.add(name)
            # Not the text of the error, which may contain a URL.
            _log.warning("Metrics or spans of loanauth cannot be recorded (%s). The task continues.", name)


@contextmanager
def login(labels: Labels, url: str) -> Iterator[None]:
    """Record the login that the block sends to this URL: a span, and whether and how it failed."""
    started, parts = system.monotonic(), urlsplit(url)
    server = {"server.address": parts.hostname or "", "server.port": parts.port or DEFAULT_PORTS[parts.scheme]}
    with span("loanauth.login", labels.attributes | server, kind="CLIENT"):
        try:
            yield
        except RejectedError:
            _send("incr", "rejected", labels)
            raise
        except UnavailableError:
            _send("incr", "unavailable", labels)
            raise
        except LoanAuthError as error:
            _send("incr", "failed", labels, error_type=type(error).__name__)
            raise
        ended = system.monotonic()
    _send("incr", "logins", labels)
    _send("timing", "login_duration", labels, (ended - started) * 1000)


def count_refresh(labels: Labels, *, shared: bool) -> None:
    """Count a refresh that succeeded; ``shared``: this process took over a credential that another one requested."""
    _send("incr", "shared_refreshes" if shared else "refreshes", labels)


def count_user_warnings(labels: Labels, fields: list[str]) -> None:
    """Count the fields of a response that say that a person should look at the user."""
    for field in fields:
        _send("incr", "user_warnings", labels, field=field)


def count_not_sent(labels: Labels, error: LoanAuthError) -> None:
    """Count a task that fails with the error of an earlier login, and sends nothing."""
    _send("incr", "not_sent", labels, error_type=type(error).__name__)


def set_expiry(labels: Labels, seconds: float | None) -> None:
    """Record in how many seconds a credential expires, if they are known; negative if it has expired."""
    if seconds is not None:
        _send("gauge", "seconds_to_expiry", labels, max(0.0, seconds))


@_errors_logged()
def record_wait(labels: Labels, started: float, error: Exception | None = None) -> None:
    """Record that a sensor no longer waits: a span, and unless an error is why, the time since its start (UTC)."""
    ended = system.time()
    if error is None:
        _send("timing", "wait_duration", labels, max(0.0, ended - started) * 1000)
    if tracer := _tracer():
        span = tracer.start_span("loanauth.wait", attributes=labels.attributes, start_time=int(started * 1e9))
        _end(span, error, ended=int(ended * 1e9))


@_errors_logged()
def _send(kind: str, name: str, labels: Labels, *value: float, **more: str) -> None:
    texts = labels._asdict() | more
    tags = {label: _NOT_IN_TAGS.sub("_", text)[:MAX_TAG_LENGTH] for label, text in texts.items() if text}
    getattr(get_stats(), kind)(f"loanauth.{name}", *value, tags=tags)


@contextmanager
def span(name: str, attributes: dict[str, Any], *, kind: str = "INTERNAL") -> Iterator[None]:
    """Record a span of the block."""
    begun = None
    with ExitStack() as scope:
        with _errors_logged():
            if tracer := _tracer():
                trace = sys.modules["opentelemetry.trace"]
                begun = tracer.start_span(name, kind=trace.SpanKind[kind], attributes=attributes)
                # If the span cannot be ended below, it must not get the message and the traceback of an error.
                scope.enter_context(trace.use_span(begun, record_exception=False, set_status_on_exception=False))
        try:
            yield
        except BaseException as error:
            # Before it reaches use_span, which would record its message and its traceback.
            _end(begun, error)
            raise
        _end(begun)


def _tracer() -> Any:
    """Return a tracer; None if this process has not imported OpenTelemetry, because then nothing records spans."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    return trace and trace.get_tracer("airflow_provider_loanauth")


@_errors_logged()
def _end(span: Any, error: BaseException | None = None, *, ended: int | None = None) -> None:
    """End a span, with the class and the HTTP status of an error, at a time in nanoseconds since the epoch (UTC)."""
    if span is None:
        return
    if error is not None:
        # Not the text of the error, which may contain a URL.
        name, status = type(error).__name__, getattr(error, "status", None)
        span.set_attribute("error.type", name)
        if isinstance(status, int):
            span.set_attribute("http.response.status_code", status)
        span.set_status(sys.modules["opentelemetry.trace"].StatusCode.ERROR, name)
    span.end(ended)
