"""
Metrics through Airflow's ``Stats``, and spans through OpenTelemetry (``docs/monitoring.md``).

Neither contains a secret: tags and attributes are the connection id, the method, host and port of the service, and the
class and the HTTP status of an error. If a metric or a span cannot be recorded, the task continues.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from airflow_provider_loanauth._compat import get_stats
from airflow_provider_loanauth.exceptions import RejectedError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Maximum length of a tag. Airflow drops a StatsD metric that has more than 250 characters with its tags.
MAX_TAG_LENGTH = 100
#: Airflow drops a StatsD metric with any other character.
_NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9_.-]")
_DEFAULT_PORTS = {"http": 80, "https": 443}

# A child of Airflow's logger, so that its lines reach the log of the task.
_log = logging.getLogger(f"airflow.task.hooks.{__name__}")
#: Classes of errors that were logged.
_logged: set[str] = set()


class Labels(NamedTuple):
    """
    What a metric or a span is about.

    :param conn_id: id of a Connection that exists; None if it is not known
    :param method: ``jwt``, ``los`` or ``ppe``; None if it is not known
    """

    conn_id: str | None
    method: str | None

    @property
    def tags(self) -> dict[str, str]:
        """The tags of a metric."""
        values = {"method": self.method, "conn_id": self.conn_id}
        return {name: _NOT_IN_TAGS.sub("_", value)[:MAX_TAG_LENGTH] for name, value in values.items() if value}

    @property
    def attributes(self) -> dict[str, str | int]:
        """The attributes of a span."""
        values = {"loanauth.conn_id": self.conn_id, "loanauth.method": self.method}
        return {name: value for name, value in values.items() if value}


@contextmanager
def login(labels: Labels, url: str) -> Iterator[None]:
    """
    Record the request that the block sends: a span, and whether it succeeded, was rejected, or the service was
    unavailable.

    :param labels: connection id and method
    :param url: URL of the service, of which only host and port are recorded
    """
    started = time.monotonic()
    with _span("loanauth.login", labels, kind="CLIENT", url=url):
        try:
            yield
        except RejectedError:
            _send("incr", "rejected", labels)
            raise
        except UnavailableError:
            _send("incr", "unavailable", labels)
            raise
        ended = time.monotonic()
    _send("incr", "logins", labels)
    _send("timing", "login_duration", labels, (ended - started) * 1000)


@contextmanager
def refresh(labels: Labels) -> Iterator[None]:
    """
    Record a span of the block, which refreshes a credential.

    :param labels: connection id and method
    """
    with _span("loanauth.refresh", labels):
        yield


def count_refresh(labels: Labels, *, shared: bool) -> None:
    """
    Count a refresh that succeeded.

    :param labels: connection id and method
    :param shared: whether another process requested the credential, and this one took it over
    """
    _send("incr", "shared_refreshes" if shared else "refreshes", labels)


def set_expiry(labels: Labels, seconds: float | None) -> None:
    """
    Record in how many seconds a credential expires.

    :param labels: connection id and method
    :param seconds: the seconds, negative if it has expired; None if they are not known: nothing is recorded
    """
    if seconds is not None:
        _send("gauge", "seconds_to_expiry", labels, max(0.0, seconds))


def record_wait(labels: Labels, get_start: Callable[[], float], error: Exception | None = None) -> None:
    """
    Record that a sensor no longer waits: a span, and the time if the sensor has a credential.

    :param labels: connection id and method
    :param get_start: function that returns when its first poke began, in seconds since the epoch (UTC)
    :param error: why the sensor has no credential; None if it has one
    """
    with _errors_logged():
        started, ended = get_start(), time.time()
        if error is None:
            _send("timing", "wait_duration", labels, max(0.0, ended - started) * 1000)
        tracer = _tracer()
        if tracer is not None:
            span = tracer.start_span("loanauth.wait", attributes=labels.attributes, start_time=int(started * 1e9))
            _end(span, error, ended=int(ended * 1e9))


def _send(kind: str, name: str, labels: Labels, *value: float) -> None:
    with _errors_logged():
        getattr(get_stats(), kind)(f"loanauth.{name}", *value, tags=labels.tags)


@contextmanager
def _span(name: str, labels: Labels, *, kind: str = "INTERNAL", url: str | None = None) -> Iterator[None]:
    """
    Record a span of the block, with the class of its exception, but without the message and the traceback.

    :param name: name of the span
    :param labels: its attributes
    :param kind: name of a ``SpanKind``
    :param url: URL of the service, of which only host and port are recorded
    """
    span, error = None, None
    with ExitStack() as scope:
        with _errors_logged():
            tracer = _tracer()
            if tracer is not None:
                trace = sys.modules["opentelemetry.trace"]
                attributes = labels.attributes | ({} if url is None else _server(url))
                span = tracer.start_span(name, kind=trace.SpanKind[kind], attributes=attributes)
                # If the span cannot be ended below, it must not get the message and the traceback of an error.
                scope.enter_context(trace.use_span(span, record_exception=False, set_status_on_exception=False))
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            if span is not None:
                with _errors_logged():
                    # Before the exception reaches use_span, which would record its message and its traceback.
                    _end(span, error)
            # An exception must not keep its own traceback alive.
            del error


def _tracer() -> Any:
    """Return a tracer; None if this process has not imported OpenTelemetry, because then nothing records spans."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    return None if trace is None else trace.get_tracer("airflow_provider_loanauth")


def _server(url: str) -> dict[str, str | int]:
    """Return host and port of a URL as attributes. Its path may contain a secret."""
    parts = urlsplit(url)
    return {"server.address": parts.hostname or "", "server.port": parts.port or _DEFAULT_PORTS[parts.scheme]}


def _end(span: Any, error: BaseException | None, *, ended: int | None = None) -> None:
    """
    End a span, with the class and the HTTP status of an error. The text of an error may contain a URL.

    :param span: the span
    :param error: the error, or None
    :param ended: when it ended, in nanoseconds since the epoch (UTC); None: now
    """
    if error is not None:
        name, status = type(error).__name__, getattr(error, "status", None)
        span.set_attribute("error.type", name)
        if isinstance(status, int):
            span.set_attribute("http.response.status_code", status)
        span.set_status(sys.modules["opentelemetry.trace"].StatusCode.ERROR, name)
    span.end(ended)


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
