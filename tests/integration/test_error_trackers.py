"""
What error trackers and tracing record: the real Sentry SDK with the settings of Airflow's integration, and
OpenTelemetry's instrumentation of requests. No secret may be in an event, a breadcrumb or a span.
"""

from __future__ import annotations

import pytest
import requests
import sentry_sdk
from opentelemetry.instrumentation.requests import RequestsInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.auth.refresh import _PROCESS_CACHE
from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.exceptions import (
    RejectedError,
    ResponseError,
    SealError,
    SettingsError,
    UnavailableError,
)
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from tests.support.airflow_names import AirflowTaskTimeout
from tests.support.fernet_keys import FERNET_KEY, OTHER_FERNET_KEY
from tests.support.leaks import leaks
from tests.support.secret_accounts import COMPANY, SECRETS, secret_connections, without
from tests.support.sentry import sentry  # noqa: F401 - a fixture

each_method = pytest.mark.parametrize("method", ["jwt", "los", "ppe"])


@pytest.fixture
def marked(sandbox, define):
    sandbox.set_accounts([COMPANY])
    for name, connection in secret_connections(sandbox.url).items():
        define(f"marked_{name}", connection)
    # No rejection of an earlier test.
    _PROCESS_CACHE.clear()
    yield sandbox
    _PROCESS_CACHE.clear()


def captured(sentry, action):  # noqa: F811
    """Run an action as Airflow runs a task, and return what Sentry has recorded, and the exception."""
    error = None
    with sentry_sdk.start_transaction(name="task"), sentry_sdk.new_scope():
        try:
            action()
        except (Exception, AirflowTaskTimeout) as raised:  # noqa: BLE001 - reported, as Airflow does
            error = raised
            sentry_sdk.capture_exception(raised)
    assert sentry.sent
    return sentry.text, error


def callers(method):
    conn_id = f"marked_{method}"
    return {
        "hook": lambda: LoanAuthHook(conn_id, max_attempts=1).get_credential(),
        "operator": lambda: LoanAuthOperator(task_id="login", loanauth_conn_id=conn_id).execute({}),
        "sensor": lambda: LoanAuthSensor(task_id="wait", loanauth_conn_id=conn_id, timeout=0).execute({}),
        "LoanAuth": lambda: requests.get("http://127.0.0.1:9/price", auth=LoanAuth.from_connection(conn_id), timeout=9),
        "get_conn": lambda: LoanAuthHook(conn_id, max_attempts=1).get_conn().get("http://127.0.0.1:9/price"),
    }


FAULTS = {
    RejectedError: ("status", {"status": 403}),
    UnavailableError: ("reset", {}),
    ResponseError: ("html-200", {}),
}


@each_method
@pytest.mark.parametrize("caller", callers("jwt"))
@pytest.mark.parametrize("expected", FAULTS)
def test_an_error_of_the_service(expected, caller, method, marked, sentry):  # noqa: F811
    kind, params = FAULTS[expected]
    marked.set_fault(kind, **params)
    text, error = captured(sentry, callers(method)[caller])
    assert isinstance(error, expected) or caller == "sensor"
    assert type(error).__name__ in text
    assert leaks(text, SECRETS.values()) == []


@each_method
@pytest.mark.parametrize("caller", callers("jwt"))
def test_an_incomplete_connection(caller, method, marked, define, sentry):  # noqa: F811
    field = "user_id" if method == "ppe" else "origin"
    define(f"marked_{method}", without(secret_connections(marked.url)[method], field))
    text, error = captured(sentry, callers(method)[caller])
    assert type(error) is SettingsError
    assert leaks(text, SECRETS.values()) == []


def test_a_credential_that_does_not_open(marked, fernet, sentry):  # noqa: F811
    credential = LoanAuthHook("marked_jwt").get_credential()
    value = credential.value
    sealed = credential.serialize()
    fernet(OTHER_FERNET_KEY)
    other = AccessToken.deserialize(sealed, 1)
    text, error = captured(sentry, lambda: other.value)
    assert type(error) is SealError
    assert leaks(text, [*SECRETS.values(), value]) == []
    fernet(FERNET_KEY)
    moved = AccessToken.deserialize({**sealed, "conn_id": "another"}, 1)
    text, error = captured(sentry, lambda: moved.value)
    assert type(error) is SealError
    assert leaks(text, [*SECRETS.values(), value]) == []


@each_method
@pytest.mark.parametrize("caller", callers("jwt"))
def test_a_time_out_while_the_service_hangs(caller, method, marked, sentry, monkeypatch):  # noqa: F811
    """The deepest frames of a login: http.client has the whole request in a variable."""
    monkeypatch.setattr("http.client.HTTPConnection.send", time_out)
    text, error = captured(sentry, callers(method)[caller])
    assert type(error) is AirflowTaskTimeout
    assert leaks(text, SECRETS.values()) == []


def time_out(*_):
    raise AirflowTaskTimeout("Timeout, PID: 42")


def test_a_pricing_request_that_fails(marked, sentry):  # noqa: F811
    credential = LoanAuthHook("marked_jwt").get_credential()
    session = LoanAuthHook("marked_jwt").get_conn(credential)
    text, error = captured(sentry, lambda: session.get("http://127.0.0.1:9/price"))
    assert type(error) is requests.ConnectionError
    # The causes help, and contain no secret.
    assert "NewConnectionError" in text
    assert leaks(text, [*SECRETS.values(), credential.value]) == []


@each_method
def test_breadcrumbs_and_spans_of_sentry(method, marked, pricing, sentry):  # noqa: F811
    def action():
        LoanAuthHook(f"marked_{method}").get_credential()
        requests.get(f"{pricing.url}/recorded", timeout=9)
        raise KeyError("made up")

    text, _ = captured(sentry, action)
    assert leaks(text, SECRETS.values()) == []
    # Other requests are recorded: as a breadcrumb of the error, and as a span.
    breadcrumbs = [crumb for event in sentry.sent for crumb in event.get("breadcrumbs", {}).get("values", ())]
    spans = [span for event in sentry.sent for span in event.get("spans", ())]
    for recorded in ([one for one in breadcrumbs if one["category"] == "httplib"], spans):
        assert [one["data"]["url"] for one in recorded] == [f"{pricing.url}/recorded"]


@each_method
def test_spans_of_opentelemetry(method, marked, pricing):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = RequestsInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    try:
        LoanAuthHook(f"marked_{method}").get_credential()
        assert exporter.get_finished_spans() == ()
        requests.get(f"{pricing.url}/recorded", timeout=9)
    finally:
        instrumentor.uninstrument()
    assert "/recorded" in exporter.get_finished_spans()[0].to_json()
