"""The secrets of a request stay out of urllib3's log records at DEBUG, and out of Sentry and OpenTelemetry."""

from __future__ import annotations

import logging
import sys
import threading
from types import SimpleNamespace

import pytest
import sentry_sdk
from opentelemetry.instrumentation.utils import is_http_instrumentation_enabled

from airflow_provider_loanauth.exceptions import UnavailableError
from airflow_provider_loanauth.service import transport
from airflow_provider_loanauth.service.log_filter import not_traced, secrets_hidden
from tests.support.leaks import leaks
from tests.support.loopback import json_response
from tests.support.secret_accounts import SECRETS
from tests.support.sentry import sentry  # noqa: F401 - a fixture
from tests.support.wire_requests import secret_request, token_request

LOGGER = logging.getLogger("urllib3.connectionpool")


def send(request):
    return transport.send(request, timeout=5.0, verify=True)


@pytest.mark.parametrize("make", [token_request, secret_request])
def test_urllib3_logs_no_secret_at_debug(make, loopback, logs):
    loopback.responses = [json_response(b"{}")]
    send(make(loopback.url))
    # The rest of the record is as before.
    line = '"POST /oauth/token HTTP/1.1" 200' if make is token_request else '"GET /encodeAES128/***/'
    assert line in logs.text
    assert leaks(logs.text, SECRETS.values()) == []


def test_the_message_about_malformed_headers_is_replaced(loopback, caplog):
    """It contains all headers, which may contain an issued credential, and a traceback."""
    loopback.responses = [b"HTTP/1.1 200 OK\r\nno colon here\r\nX-Token: CANARY-issued\r\nContent-Length: 2\r\n\r\n{}"]
    with caplog.at_level("DEBUG", logger="urllib3"):
        send(token_request(loopback.url))
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert (record.exc_info, record.exc_text) == (None, None)
    assert record.getMessage() == (
        "The response of the service has malformed headers. They are hidden, because they may contain a secret."
    )
    assert "CANARY" not in caplog.text


def test_a_secret_that_contains_another_is_redacted_whole(logs):
    with secrets_hidden(("middle", "CANARY-middle-end")):
        LOGGER.debug("GET /CANARY-middle-end/%s", "middle")
    assert "GET /***/***" in logs.text


def test_only_records_of_the_request_are_redacted(logs):
    """Another thread sends another request at the same time, and one ends before the other."""
    inside, ended = threading.Event(), threading.Event()

    def other_request():
        with secrets_hidden(("CANARY-other",)):
            inside.set()
            ended.wait(30)
            LOGGER.debug("of the other: made-up, CANARY-other")

    thread = threading.Thread(target=other_request)
    with secrets_hidden(("made-up",)):
        thread.start()
        inside.wait(30)
        LOGGER.debug("of the one: made-up")
    LOGGER.debug("of none: made-up")
    ended.set()
    thread.join(30)
    for line in ("of the one: ***", "of none: made-up", "of the other: made-up, ***"):
        assert line in logs.text


def test_each_request_uses_the_same_filter(loopback):
    loopback.responses = [json_response(b"{}"), None]
    send(secret_request(loopback.url))
    before = [*LOGGER.filters]
    with pytest.raises(UnavailableError):
        send(secret_request(loopback.url))
    assert LOGGER.filters == before


# --- tracing


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
