"""The metrics that Airflow sends to StatsD during a run: collecting, checking, and drawing them for the docs."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

PREFIX = "airflow.loanauth."
COUNTERS = ("logins", "refreshes", "shared_refreshes", "rejected", "unavailable")
END = b"end"


class Metric(NamedTuple):
    """A metric of this package."""

    seconds: float
    name: str
    value: float


class MetricsServer:
    """A StatsD server on a loopback port, which keeps everything that it receives. Use it in a ``with`` statement."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._socket.getsockname()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._started = time.monotonic()
        self._received: list[tuple[float, str]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.send(END)
        self._thread.join(60)
        self._socket.close()

    def send(self, datagram: bytes) -> None:
        """Send a datagram to this server."""
        self._socket.sendto(datagram, self.address)

    def _listen(self) -> None:
        while (datagram := self._socket.recv(65536)) != END:
            self._received.append((time.monotonic() - self._started, datagram.decode("utf-8", "replace")))

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables by which Airflow sends its metrics to this server, with tags."""
        host, port = self.address
        return {
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": host,
            "AIRFLOW__METRICS__STATSD_PORT": str(port),
            "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
        }

    @property
    def text(self) -> str:
        """All datagrams, one per line."""
        return "\n".join(datagram for _, datagram in self._received)

    @property
    def metrics(self) -> list[Metric]:
        """The metrics of this package."""
        found = []
        for seconds, datagram in self._received:
            labelled, _, measured = datagram.rpartition(":")
            if labelled.startswith(PREFIX):
                name = labelled.removeprefix(PREFIX).partition(",")[0]
                found.append(Metric(seconds, name, float(measured.partition("|")[0])))
        return found

    @property
    def counts(self) -> Counter[str]:
        """How often each metric of this package was sent."""
        return Counter(metric.name for metric in self.metrics)


def draw(metrics: list[Metric], path: Path) -> None:
    """Draw the metrics of a run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 7.5), layout="constrained")
    counters, durations, expiry = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2, 2))
    start, end = (function(metric.seconds for metric in metrics) for function in (min, max))
    for name in COUNTERS:
        times = [metric.seconds - start for metric in metrics if metric.name == name]
        if times:
            steps = [0.0, *times, end - start]
            counters.step(steps, [*range(len(times) + 1), len(times)], where="post", label=f"loanauth.{name}")
    for axes, name, unit in (
        (durations, "login_duration", "ms"),
        (durations, "wait_duration", "ms"),
        (expiry, "seconds_to_expiry", "seconds"),
    ):
        points = [(metric.seconds - start, metric.value) for metric in metrics if metric.name == name]
        if points:
            axes.plot(*zip(*points, strict=True), ".", markersize=8, label=f"loanauth.{name}")
        axes.set_ylabel(unit)
    counters.set_ylabel("count since the start")
    durations.set_yscale("log")
    # Zero is the value of an expired credential.
    expiry.set_yscale("symlog")
    expiry.set_ylim(-0.5, 20_000)
    counters.yaxis.get_major_locator().set_params(integer=True)
    for axes in (counters, durations, expiry):
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
        axes.grid(alpha=0.3)
    expiry.set_xlabel("seconds since the first metric")
    path.parent.mkdir(parents=True, exist_ok=True)
    # No version of the library in the file, so that it only changes if the picture does.
    figure.savefig(path, dpi=110, metadata={"Software": None})
