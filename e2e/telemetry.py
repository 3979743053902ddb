"""What Airflow sends to StatsD during a run, collected."""

from __future__ import annotations

import socket
import threading


class MetricsServer:
    """A StatsD server on a loopback port, which keeps everything that it receives until this process ends."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.received: list[str] = []
        #: The environment variables by which Airflow sends its metrics to this server, with tags.
        self.environment = {
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
            "AIRFLOW__METRICS__STATSD_PORT": str(self._socket.getsockname()[1]),
            "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
        }
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        while True:
            self.received.append(self._socket.recv(65536).decode("utf-8", "replace"))

    def values(self, name: str) -> list[float]:
        """Return each value of a metric of this package."""
        found = []
        for metric in self.received:
            labelled, _, measured = metric.rpartition(":")
            if labelled.partition(",")[0] == f"airflow.loanauth.{name}":
                found.append(float(measured.partition("|")[0]))
        return found
