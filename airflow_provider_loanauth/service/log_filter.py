"""How the secrets of a request stay out of urllib3's log records, and out of Sentry and OpenTelemetry."""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from airflow_provider_loanauth.redaction import encoded_forms

if TYPE_CHECKING:
    from collections.abc import Iterator

# Loggers of urllib3 that log URLs. The URL of PPE API secret contains the API key.
_LOGGERS = [f"urllib3.{name}" for name in ("connectionpool", "connection", "util.retry", "response", "poolmanager")]
# Those of the request that is being sent. urllib3 logs in the thread that sends.
_SECRETS: ContextVar[tuple[str, ...]] = ContextVar("secrets", default=())


class _RedactingFilter(logging.Filter):
    """Redacts records of urllib3, at any level, while a request is sent."""

    def filter(self, record: logging.LogRecord) -> bool:
        secrets = _SECRETS.get()
        if not secrets:
            return True
        if record.exc_info:
            # urllib3 logs all headers when one cannot be parsed; they may contain an issued credential.
            message = (
                "The response of the service has malformed headers. They are hidden, because they may contain a secret."
            )
            record.exc_info = record.exc_text = None
        else:
            message = record.getMessage()
            # Computed for each record and not for each request, because most requests produce no record.
            forms = {form for secret in secrets for form in encoded_forms(secret)}
            for form in sorted(forms, key=len, reverse=True):
                message = message.replace(form, "***")
        record.msg, record.args = message, ()
        return True


# It is never removed. ``logging`` iterates over its list of filters without a lock, so removing one in one thread could
# make ``logging`` skip another one in another thread.
_FILTER = _RedactingFilter()


@contextmanager
def secrets_hidden(secrets: tuple[str, ...]) -> Iterator[None]:
    """Hide secrets in urllib3's log records of this block."""
    for name in _LOGGERS:
        # Add it for each request, because configuring logging removes filters. Adding it twice has no effect.
        logging.getLogger(name).addFilter(_FILTER)
    token = _SECRETS.set(secrets)
    try:
        yield
    finally:
        _SECRETS.reset(token)


@contextmanager
def not_traced() -> Iterator[None]:
    """Keep the requests of this block out of Sentry and OpenTelemetry, which record URLs, one of which has a key."""
    # Neither library is imported here: one that this process has not imported records nothing.
    sentry: Any = sys.modules.get("sentry_sdk")
    opentelemetry: Any = sys.modules.get("opentelemetry.instrumentation.utils")
    with ExitStack() as stack:
        # Sentry before 2.0 has no isolation scopes.
        if hasattr(sentry, "isolation_scope"):
            # What is recorded in this scope is dropped with it. A span that has no parent is not recorded.
            scope = stack.enter_context(sentry.isolation_scope())
            scope.span = sentry.get_current_scope().span = None
        if hasattr(opentelemetry, "suppress_http_instrumentation"):
            stack.enter_context(opentelemetry.suppress_http_instrumentation())
        yield
