"""``service/telemetry.py``: tags, and what a backend that is broken, off or not installed changes."""

from __future__ import annotations

import logging
import time
from unittest.mock import Mock

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from airflow_provider_loanauth.exceptions import RejectedError, SettingsError, UnavailableError
from airflow_provider_loanauth.service import telemetry
from airflow_provider_loanauth.system import system
from tests.support.airflow_names import AirflowTaskTimeout
from tests.support.backends import PREFIX, Labels

LABELS = Labels("made-up", "jwt")


def record_everything(labels):
    with telemetry.login(labels):
        pass
    telemetry.count_refresh(labels, shared=False)
    telemetry.count_refresh(labels, shared=True)
    telemetry.count_not_sent(labels, RejectedError("made up"))
    telemetry.set_expiry(labels, 3600.0)
    telemetry.record_wait(labels, time.time())
    # The time-out of a task is counted by Airflow.
    for kind in (RejectedError, UnavailableError, SettingsError, AirflowTaskTimeout):
        error = kind("made up")
        with pytest.raises(type(error)), telemetry.login(labels):
            raise error


COUNTERS = ["logins", "refreshes", "shared_refreshes", "rejected", "unavailable", "failed", "not_sent"]
NAMES = dict.fromkeys(COUNTERS, "c") | {"login_duration": "ms", "wait_duration": "ms", "seconds_to_expiry": "g"}


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
    more = {"failed": {"error_type": "SettingsError"}, "not_sent": {"error_type": "RejectedError"}}
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


@pytest.mark.parametrize(("seconds", "sent"), [(3600.0, [3600.0]), (0.25, [0.25]), (-5.0, [0.0]), (None, [])])
def test_the_seconds_to_expiry(seconds, sent, statsd):
    telemetry.set_expiry(LABELS, seconds)
    assert [metric.value for metric in statsd.metrics] == sent


def test_the_duration_of_a_login(statsd, monkeypatch):
    monkeypatch.setattr(system, "monotonic", iter([100.0, 100.25]).__next__)
    with telemetry.login(LABELS):
        pass
    assert [metric.value for metric in statsd.metrics if metric.name == "login_duration"] == [250.0]


def test_a_wait(statsd, clock):
    now = system.time()
    # The clock may have been set back in the meantime.
    for started in (now - 90.5, now + 5):
        telemetry.record_wait(Labels("made-up", None), started)
    assert [(metric.value, metric.tags) for metric in statsd.metrics] == [
        (90_500.0, {"conn_id": "made-up"}),
        (0.0, {"conn_id": "made-up"}),
    ]


def test_a_broken_backend_is_logged_once_and_changes_nothing(statsd, monkeypatch, caplog):
    error = OSError("CANARY http://user:password@metrics.example")
    monkeypatch.setattr(telemetry, "get_stats", Mock(side_effect=error))
    for _ in range(3):
        record_everything(LABELS)
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == ["Metrics of loanauth cannot be recorded (OSError). The task continues."]
    assert "CANARY" not in caplog.text
