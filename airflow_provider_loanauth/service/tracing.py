"""
Keeping requests out of tracing. Sentry and OpenTelemetry record the URL of each request, and the URL of a PPE API
secret request contains the API key (``service-interface.md`` §4.3).
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def not_traced() -> Iterator[None]:
    """Keep the requests of this block out of Sentry's breadcrumbs and spans, and out of OpenTelemetry's spans."""
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
