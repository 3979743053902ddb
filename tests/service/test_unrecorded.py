"""What is not recorded of a login; `integration/test_secrets.py` has the logs of urllib3 at DEBUG, and Sentry."""

import logging
import sys
from types import SimpleNamespace

import pytest
from opentelemetry.instrumentation.utils import is_http_instrumentation_enabled

from airflow_provider_loanauth.service.transport import unrecorded
from tests.support.pricing_fixtures import in_threads

LOGGER = logging.getLogger("urllib3.connectionpool")


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
