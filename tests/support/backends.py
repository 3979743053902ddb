"""A StatsD listener to which Airflow sends its metrics."""

from __future__ import annotations

import contextlib
import importlib
import socket
from collections import Counter
from typing import NamedTuple

import pytest
from statsd import StatsClient

from airflow_provider_loanauth._compat import get_stats
from airflow_provider_loanauth.service import telemetry

PREFIX = "airflow.loanauth."
#: How often each metric is sent: for a login that succeeded, and by a process that opens a credential of another task.
LOGIN = {"logins": 1, "login_duration": 1, "seconds_to_expiry": 1}
OPENED = {"seconds_to_expiry": 1}


class Labels(NamedTuple):
    """What a metric is about, as settings and credentials have it."""

    conn_id: str
    method: str | None


class Metric(NamedTuple):
    """One datagram of StatsD, with tags in InfluxDB's form."""

    name: str
    value: float
    kind: str
    tags: dict

    @classmethod
    def of(cls, datagram):
        labelled, value, kind = datagram.rpartition(":")[0], *datagram.rpartition(":")[2].split("|")
        name, *tags = labelled.split(",")
        return cls(name.removeprefix(PREFIX), float(value), kind, dict(tag.split("=") for tag in tags))


class StatsD:
    def __init__(self):
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # A burst of datagrams must not be dropped before a test reads them.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 2**20)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.port = self._socket.getsockname()[1]
        self._received = []

    def close(self):
        self._socket.close()

    @property
    def datagrams(self):
        """All datagrams until now. On loopback, a datagram has arrived when it was sent."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._received.append(self._socket.recv(65536).decode())
        return self._received

    @property
    def metrics(self):
        """The metrics of this package."""
        return [Metric.of(datagram) for datagram in self.datagrams if datagram.startswith(PREFIX)]

    @property
    def counts(self):
        """How often each metric of this package was sent. A counter counts its values."""
        return total(*({metric.name: metric.value if metric.kind == "c" else 1} for metric in self.metrics))

    def environment(self, **settings):
        """Return the environment variables by which Airflow sends its metrics here."""
        values = {"statsd_on": True, "statsd_host": "127.0.0.1", "statsd_port": self.port, "statsd_prefix": "airflow"}
        # Airflow 2.11 warns without the last two. Later versions do not have them.
        values |= {"statsd_influxdb_enabled": True, "metrics_use_pattern_match": True, "timer_unit_consistency": True}
        values |= settings
        return {f"AIRFLOW__METRICS__{name.upper()}": str(value) for name, value in values.items()}


def configure_stats():
    """Make Airflow read the section [metrics] again, as a new task process does."""
    try:
        stats_utils = importlib.import_module("airflow.sdk.observability.metrics.stats_utils")
    except ImportError:  # 2.11 to 3.1
        meta = type(get_stats())
        if hasattr(meta, "factory"):
            del meta.factory
        meta.__init__(get_stats())
        get_stats().instance = None
        return
    try:  # 3.3
        get_stats().initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)
    except TypeError:  # 3.2
        get_stats().initialize(factory=stats_utils.get_stats_factory(get_stats()))


@pytest.fixture
def statsd(monkeypatch):
    """Receive what Airflow sends to StatsD, with tags. Afterwards metrics are off."""
    telemetry._logged.clear()
    clients = []
    really = StatsClient.__init__

    def remember(self, *args, **names):
        clients.append(self)
        really(self, *args, **names)

    monkeypatch.setattr(StatsClient, "__init__", remember)
    with contextlib.closing(StatsD()) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        configure_stats()
        server.datagrams.clear()
        yield server
    monkeypatch.undo()
    configure_stats()
    # Airflow never closes the socket of a client.
    for client in clients:
        if hasattr(client, "_sock"):
            client._sock.close()
    telemetry._logged.clear()


def total(*counts):
    """Return how often each metric is sent in all."""
    return dict(sum(map(Counter, counts), Counter()))
