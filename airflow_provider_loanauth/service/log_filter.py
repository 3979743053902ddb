"""Keeps logins out of urllib3's log, Sentry and OpenTelemetry: they record URLs, and one URL has the API key."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

# Loggers of urllib3. It also logs all headers of a response when one cannot be parsed.
_LOGGERS = [f"urllib3.{name}" for name in ("connectionpool", "connection", "util.retry", "response", "poolmanager")]
# urllib3 logs in the thread that sends.
_is_sending: ContextVar[bool] = ContextVar("is_sending", default=False)


def _is_logged(_: logging.LogRecord) -> bool:
    return not _is_sending.get()


@contextmanager
def unrecorded() -> Iterator[None]:
    """Keep the requests of this block out of urllib3's log, Sentry and OpenTelemetry."""
    for name in _LOGGERS:
        # For each request, because configuring logging removes filters. Adding one twice has no effect. It is never
        # removed: ``logging`` iterates over its filters without a lock, and could skip another one in another thread.
        logging.getLogger(name).addFilter(_is_logged)
    # Neither library is imported here: one that this process has not imported records nothing.
    sentry: Any = sys.modules.get("sentry_sdk")
    opentelemetry: Any = sys.modules.get("opentelemetry.instrumentation.utils")
    with ExitStack() as stack:
        stack.callback(_is_sending.reset, _is_sending.set(True))
        # Sentry before 2.0 has no isolation scopes.
        if hasattr(sentry, "isolation_scope"):
            # What is recorded in this scope is dropped with it. A span that has no parent is not recorded.
            scope = stack.enter_context(sentry.isolation_scope())
            scope.span = sentry.get_current_scope().span = None
        if hasattr(opentelemetry, "suppress_http_instrumentation"):
            stack.enter_context(opentelemetry.suppress_http_instrumentation())
        yield
