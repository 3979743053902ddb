"""The cost of metrics and spans: for one authentication and for many loans, with each backend."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.measurement import LOAN, Sandbox, table, timed

AUTHENTICATIONS = 75
#: Each runs in processes of its own, because Airflow reads its configuration when a process starts.
CODE = """
import json, os, statistics, sys, time
from airflow import settings
settings.initialize()
from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.service import telemetry
from airflow_provider_loanauth.service.telemetry import Labels

def authenticate():
    return LoanAuthHook("loanauth_jwt").get_credential(reuse=False)

token = authenticate()

def price():
    pulled = AccessToken.deserialize(token.serialize(), AccessToken.__version__)
    with LoanAuthHook("loanauth_jwt").get_conn(pulled) as session:
        for _ in range({loans}):
            session.post({url!r}, json={loan!r}).json()

labels = Labels("loanauth_jwt", "jwt")

def record():
    for _ in range(1000):
        with telemetry.login(labels, "https://auth.example"):
            pass
        telemetry.set_expiry(labels, 3600.0)

def measured(function, times):
    samples = []
    for _ in range(times + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        function()
        samples.append(((time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3))
    return [statistics.median(column) for column in zip(*samples[1:])]

print("RESULT", json.dumps([measured(authenticate, {authentications}), measured(price, 1), measured(record, 5)]))
"""


class _Collector(BaseHTTPRequestHandler):
    """Accepts everything, as an OpenTelemetry collector."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.exports += 1
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@contextmanager
def backends():
    """Return the environment of each alternative, and a function that returns how much its backend has received."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind(("127.0.0.1", 0))
    received = {"datagrams": 0}

    def listen():
        while listener.recv(65536) != b"end":
            received["datagrams"] += 1

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    collector = ThreadingHTTPServer(("127.0.0.1", 0), _Collector)
    collector.exports = 0
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    statsd = {
        "AIRFLOW__METRICS__STATSD_ON": "True",
        "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
        "AIRFLOW__METRICS__STATSD_PORT": str(listener.getsockname()[1]),
        "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
    }
    opentelemetry = {
        "AIRFLOW__METRICS__OTEL_ON": "True",
        "AIRFLOW__TRACES__OTEL_ON": "True",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_TRACES_EXPORTER": "otlp_proto_http",
    }
    try:
        yield {
            "off": ({}, lambda: 0),
            "StatsD, with tags": (statsd, lambda: received["datagrams"]),
            "OpenTelemetry, metrics and spans": (opentelemetry, lambda: collector.exports),
        }
    finally:
        listener.sendto(b"end", listener.getsockname())
        thread.join(10)
        listener.close()
        collector.shutdown()
        collector.server_close()


def row_monitoring(options):
    with Sandbox() as sandbox, backends() as alternatives:
        code = CODE.format(url=sandbox.price, loan=LOAN, loans=options.loans, authentications=AUTHENTICATIONS)
        samples = {name: [] for name in alternatives}
        for _ in range(options.rounds):
            for name, (environment, _) in alternatives.items():
                done = subprocess.run(
                    [sys.executable, "-W", "ignore", "-c", code],
                    env=os.environ | environment,
                    capture_output=True,
                    text=True,
                    check=True,
                )
                line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))
                samples[name].append(json.loads(line.removeprefix("RESULT")))
        for name, (environment, number) in alternatives.items():
            if environment and not number():
                raise SystemExit(f"{name}: the backend received nothing")
    texts = []
    parts = {
        "One authentication": "ms",
        f"{options.loans:,} loans from one task": "ms",
        # A thousand of them were measured together, in milliseconds.
        "The metrics and the span of one authentication, without the authentication": "µs",
    }
    for part, (title, unit) in enumerate(parts.items()):
        medians = {
            name: [statistics.median(column) for column in zip(*(taken[part] for taken in rounds), strict=True)]
            for name, rounds in samples.items()
        }
        texts.append(f"{title}:\n\n" + table(["metrics", "wall", "ratio", "CPU", "ratio"], timed(medians, "off", unit)))
    note = (
        "Each alternative runs in processes of its own, with the backend on loopback. Metrics and spans are sent for "
        "an authentication, a refresh and an opened credential, and not for each loan."
    )
    return "Metrics and spans, plain HTTP, in a warm process", "\n\n".join([*texts, note])
