"""What Airflow sends to StatsD during a run, collected."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import contextmanager
from socketserver import BaseServer, DatagramRequestHandler, UDPServer
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "airflow.loanauth."
ServerT = TypeVar("ServerT", bound=BaseServer)


class Metric(NamedTuple):
    """A metric of this package."""

    seconds: float
    name: str
    value: float


class MetricsServer(UDPServer):
    """A StatsD server on a loopback port, which keeps everything that it receives."""

    max_packet_size = 65536

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Datagram)
        self.received: list[tuple[float, str]] = []
        #: The environment variables by which Airflow sends its metrics to this server, with tags.
        self.environment = {
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
            "AIRFLOW__METRICS__STATSD_PORT": str(self.server_address[1]),
            "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
        }

    @property
    def text(self) -> str:
        """All datagrams, one per line."""
        return "\n".join(datagram for _, datagram in self.received)

    @property
    def metrics(self) -> list[Metric]:
        """The metrics of this package."""
        found = []
        for seconds, datagram in self.received:
            labelled, _, measured = datagram.rpartition(":")
            if labelled.startswith(PREFIX):
                name = labelled.removeprefix(PREFIX).partition(",")[0]
                found.append(Metric(seconds, name, float(measured.partition("|")[0])))
        return found

    @property
    def counts(self) -> Counter[str]:
        """How often each metric of this package was sent."""
        return Counter(metric.name for metric in self.metrics)


@contextmanager
def serving(server: ServerT) -> Iterator[ServerT]:
    """Let a server receive."""
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


class _Datagram(DatagramRequestHandler):
    server: MetricsServer

    def handle(self) -> None:
        self.server.received.append((time.monotonic(), self.packet.decode("utf-8", "replace")))
