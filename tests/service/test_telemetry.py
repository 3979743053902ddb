"""``service/telemetry.py``: tags and attributes, and what a backend that is broken, off or not installed changes."""

from __future__ import annotations

import logging
import sys
import time

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.trace import SpanKind, StatusCode

from airflow_provider_loanauth.exceptions import RejectedError, SettingsError, UnavailableError
from airflow_provider_loanauth.service import telemetry
from airflow_provider_loanauth.service.telemetry import Labels
from airflow_provider_loanauth.system import system
from tests.support.airflow_names import AirflowTaskTimeout
from tests.support.backends import PREFIX, seconds_of
from tests.support.clock import Clock, replace_clock

LABELS = Labels("made-up", "jwt")
URL = "https://auth.example/prefix"


def record_everything(labels=LABELS):
    with telemetry.login(labels, URL):
        pass
    with telemetry.span("loanauth.refresh", labels.attributes):
        pass
    telemetry.count_refresh(labels, shared=False)
    telemetry.count_refresh(labels, shared=True)
    telemetry.count_not_sent(labels, RejectedError("made up"))
    telemetry.set_expiry(labels, 3600.0)
    telemetry.count_user_warnings(labels, ["resetPasswordRequired"])
    telemetry.record_wait(labels, time.time())
    # The time-out of a task is counted by Airflow.
    for kind in (RejectedError, UnavailableError, SettingsError, AirflowTaskTimeout):
        error = kind("made up")
        with pytest.raises(type(error)), telemetry.login(labels, URL):
            raise error


NAMES = {
    "logins": "c",
    "refreshes": "c",
    "shared_refreshes": "c",
    "rejected": "c",
    "unavailable": "c",
    "failed": "c",
    "user_warnings": "c",
    "not_sent": "c",
    "login_duration": "ms",
    "wait_duration": "ms",
    "seconds_to_expiry": "g",
}


@pytest.mark.parametrize(
    ("conn_id", "tag"),
    [
        ("loanauth.tenant-1_a", "loanauth.tenant-1_a"),
        ("tenant#1!(a):b/c\\d, two=three|ü銀", "tenant_1__a__b_c_d__two_three___"),
        ("x" * 250, "x" * telemetry.MAX_TAG_LENGTH),
    ],
)
def test_every_metric_has_tags_that_are_valid_for_every_backend(conn_id, tag, statsd, monkeypatch, caplog):
    """Airflow drops a metric of StatsD whose tag has any other character, and logs an error for each."""
    tags = {"method": "jwt", "conn_id": tag}
    record_everything(Labels(conn_id, "jwt"))
    assert {metric.name: metric.kind for metric in statsd.metrics} == NAMES
    assert statsd.counts == dict.fromkeys(NAMES, 1)
    more = {
        "failed": {"error_type": "SettingsError"},
        "not_sent": {"error_type": "RejectedError"},
        "user_warnings": {"field": "resetPasswordRequired"},
    }
    assert [metric.tags for metric in statsd.metrics] == [tags | more.get(metric.name, {}) for metric in statsd.metrics]
    try:  # 3.2
        from airflow.sdk._shared.observability.metrics import otel_logger
    except ImportError:
        from airflow.metrics import otel_logger
    reader = InMemoryMetricReader()
    stats = otel_logger.SafeOtelLogger(MeterProvider(metric_readers=[reader]), "airflow")
    monkeypatch.setattr(telemetry, "get_stats", lambda: stats)
    record_everything(Labels(conn_id, "jwt"))
    [scope] = reader.get_metrics_data().resource_metrics[0].scope_metrics
    points = {metric.name.removeprefix(PREFIX): metric.data.data_points for metric in scope.metrics}
    assert {*points} == {*NAMES}
    for name, [point] in points.items():
        assert dict(point.attributes) == tags | more.get(name, {})
        assert NAMES[name] != "c" or point.value == 1
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.fixture
def clock(monkeypatch):
    return replace_clock(monkeypatch, Clock(standing=190.5))


@pytest.mark.parametrize(("seconds", "sent"), [(3600.0, [3600.0]), (0.25, [0.25]), (-5.0, [0.0]), (None, [])])
def test_the_seconds_to_expiry(seconds, sent, statsd):
    telemetry.set_expiry(LABELS, seconds)
    assert [metric.value for metric in statsd.metrics] == sent


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [("https://auth.example:8443/CANARY", "auth.example", 8443), ("http://[::1]/CANARY", "::1", 80)],
)
def test_a_login_within_a_refresh(url, host, port, spans):
    with telemetry.span("loanauth.refresh", LABELS.attributes), telemetry.login(LABELS, url):
        time.sleep(0.01)
    login, refresh = spans.finished
    attributes = {"loanauth.conn_id": "made-up", "loanauth.method": "jwt"}
    assert (login.name, login.kind, login.status.status_code) == ("loanauth.login", SpanKind.CLIENT, StatusCode.UNSET)
    assert dict(login.attributes) == attributes | {"server.address": host, "server.port": port}
    assert seconds_of(login) >= 0.01
    assert (refresh.name, refresh.kind) == ("loanauth.refresh", SpanKind.INTERNAL)
    assert refresh.instrumentation_scope.name == "airflow_provider_loanauth"
    assert dict(refresh.attributes) == attributes
    assert login.parent.span_id == refresh.context.span_id
    assert trace.get_current_span().get_span_context().is_valid is False
    assert "CANARY" not in spans.text


def test_the_duration_of_a_login(statsd, monkeypatch):
    monkeypatch.setattr(system, "monotonic", iter([100.0, 100.25]).__next__)
    with telemetry.login(LABELS, URL):
        pass
    assert [metric.value for metric in statsd.metrics if metric.name == "login_duration"] == [250.0]


@pytest.mark.parametrize(
    ("error", "status"),
    [(RejectedError("CANARY", status=401), 401), (OSError("CANARY"), None), (AirflowTaskTimeout("CANARY"), None)],
)
def test_an_error_in_a_span(error, status, spans):
    """Its class, and no text: the texts of libraries contain URLs."""
    with pytest.raises(type(error)) as raised, telemetry.span("loanauth.refresh", LABELS.attributes):
        raise error
    assert raised.value is error
    [span] = spans.finished
    name = type(error).__name__
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, name)
    assert span.attributes["error.type"] == name
    assert span.attributes.get("http.response.status_code") == status
    assert "CANARY" not in spans.text


@pytest.mark.parametrize("error", [None, UnavailableError("CANARY", status=503)])
def test_a_wait(error, spans, statsd, clock):
    telemetry.record_wait(Labels("made-up", None), 100.0, error)
    [span] = spans.finished
    assert (span.name, span.start_time, span.end_time) == ("loanauth.wait", 100_000_000_000, 190_500_000_000)
    failed = {"error.type": "UnavailableError", "http.response.status_code": 503}
    assert dict(span.attributes) == {"loanauth.conn_id": "made-up"} | (failed if error else {})
    # The clock may have been set back in the meantime.
    telemetry.record_wait(Labels("made-up", None), 195.0, error)
    # Only a wait that ended with a credential is measured.
    measured = [(metric.value, metric.tags) for metric in statsd.metrics]
    assert measured == ([] if error else [(90_500.0, {"conn_id": "made-up"}), (0.0, {"conn_id": "made-up"})])


def broken(*_, **__):
    raise OSError("CANARY http://user:password@metrics.example")


@pytest.mark.parametrize(
    "name",
    [
        "airflow_provider_loanauth.service.telemetry.get_stats",
        "opentelemetry.trace.get_tracer",
        "opentelemetry.sdk.trace.Tracer.start_span",
        "opentelemetry.sdk.trace.Span.set_attribute",
        "opentelemetry.sdk.trace.Span.end",
    ],
)
def test_a_broken_backend_is_logged_once_and_changes_nothing(name, spans, statsd, monkeypatch, caplog):
    monkeypatch.setattr(name, broken)
    for _ in range(3):
        record_everything()
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == ["Metrics or spans of loanauth cannot be recorded (OSError). The task continues."]
    assert "CANARY" not in caplog.text


def test_opentelemetry_that_is_not_imported_is_no_error(statsd, monkeypatch, caplog):
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    record_everything()
    assert statsd.counts == dict.fromkeys(NAMES, 1)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_span_that_cannot_be_ended_has_no_text_of_an_error(spans, stats, monkeypatch):
    recorded = []
    monkeypatch.setattr("opentelemetry.sdk.trace.Span.set_attribute", broken)
    for name in ("record_exception", "set_status"):
        monkeypatch.setattr(f"opentelemetry.sdk.trace.Span.{name}", lambda _, *values, **names: recorded.append(values))
    with pytest.raises(OSError, match="CANARY"), telemetry.span("loanauth.refresh", LABELS.attributes):
        raise OSError("CANARY")
    assert recorded == []
