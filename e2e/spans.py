"""The spans that Airflow sends to OpenTelemetry during a run."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class SpanCollector(ThreadingHTTPServer):
    """A collector of OpenTelemetry on a loopback port, which keeps everything that it receives. Use it in a ``with``
    statement.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[bytes] = []
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.shutdown()
        self._thread.join(60)
        super().__exit__(*exc_info)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables by which Airflow 3.2 and later send their spans to this collector."""
        return {
            "AIRFLOW__TRACES__OTEL_ON": "True",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.server_port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_TRACES_EXPORTER": "otlp_proto_http",
        }

    @property
    def octets(self) -> bytes:
        """All requests, one after the other: names and attributes of spans are UTF-8 in them."""
        return b"\n".join(self.received)


class _Handler(BaseHTTPRequestHandler):
    server: SpanCollector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.received.append(f"{self.path}\n{self.headers}".encode() + body)
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""
