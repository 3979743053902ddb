"""A login stays out of urllib3's log at DEBUG, and out of OpenTelemetry; `test_secrets.py` has Sentry."""

import logging
import sys
from types import SimpleNamespace

import pytest
from opentelemetry.instrumentation.utils import is_http_instrumentation_enabled

from airflow_provider_loanauth.service import transport
from airflow_provider_loanauth.service.log_filter import unrecorded
from tests.support.pricing_fixtures import in_threads
from tests.support.wire_requests import secret_request, token_request

LOGGER = logging.getLogger("urllib3.connectionpool")


@pytest.mark.parametrize("make", [token_request, secret_request])
def test_urllib3_logs_nothing_of_a_login_at_debug(make, loopback, caplog):
    """Nor of a line without a colon, for which it would log all headers."""
    loopback.responses = [b"HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 2\r\n\r\n{}"]
    with caplog.at_level("DEBUG", logger="urllib3"):
        transport.send(make(loopback.url), timeout=5.0, verify=True)
    assert caplog.records == []


def test_records_of_other_requests_stay(logs):
    with unrecorded():
        LOGGER.debug("of the login")
        in_threads(1, lambda _: LOGGER.debug("of another thread"))
    LOGGER.debug("of another request")
    assert "of another request" in logs.text
    assert "of another thread" in logs.text
    assert "of the login" not in logs.text


def test_opentelemetry_traces_no_request_of_the_block():
    with unrecorded():
        assert not is_http_instrumentation_enabled()
    assert is_http_instrumentation_enabled()


@pytest.mark.parametrize("module", [None, SimpleNamespace()], ids=["not imported", "an old release"])
def test_a_process_that_uses_neither(module, monkeypatch):
    for name in ("sentry_sdk", "opentelemetry.instrumentation.utils"):
        monkeypatch.setitem(sys.modules, name, module)
    with unrecorded():
        pass
