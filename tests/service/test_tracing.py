"""Requests that carry a secret in their URL stay out of Sentry and OpenTelemetry, if the process uses these at all."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import sentry_sdk
from opentelemetry.instrumentation.utils import is_http_instrumentation_enabled

from airflow_provider_loanauth.service.tracing import not_traced
from tests.support.sentry import sentry  # noqa: F401 - a fixture


def test_sentry_records_nothing_of_the_block(sentry):  # noqa: F811 - the fixture
    with sentry_sdk.start_transaction(name="task") as task:
        sentry_sdk.add_breadcrumb(message="before")
        with not_traced():
            sentry_sdk.add_breadcrumb(message="CANARY breadcrumb")
            assert sentry_sdk.get_current_span() is None
            with sentry_sdk.start_span(name="CANARY span"):
                pass
        assert sentry_sdk.get_current_span() is task
        sentry_sdk.capture_message("made up")
    assert "before" in sentry.text
    assert "made up" in sentry.text
    assert "CANARY" not in sentry.text


def test_opentelemetry_traces_no_request_of_the_block():
    with not_traced():
        assert not is_http_instrumentation_enabled()
    assert is_http_instrumentation_enabled()


@pytest.mark.parametrize("name", ["sentry_sdk", "opentelemetry.instrumentation.utils"])
@pytest.mark.parametrize("module", [None, SimpleNamespace()], ids=["not imported", "an old release"])
def test_a_process_that_uses_neither(name, module, monkeypatch):
    if module is None:
        monkeypatch.delitem(sys.modules, name)
    else:
        monkeypatch.setitem(sys.modules, name, module)
    with not_traced():
        pass
