"""The cost of metrics: for one authentication and for many loans."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys

from benchmarks.measurement import LOAN, Sandbox, table, timed
from e2e.telemetry import MetricsServer, serving

AUTHENTICATIONS = 75
#: Each runs in processes of its own, because Airflow reads its configuration when a process starts.
CODE = """
import json, os, statistics, sys, time, types
from airflow import settings
settings.initialize()
from airflow_provider_loanauth.credentials import AccessToken
from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
from airflow_provider_loanauth.service import telemetry

def authenticate():
    return LoanAuthHook("loanauth_jwt").get_credential(reuse=False)

token = authenticate()

def price():
    pulled = AccessToken.deserialize(token.serialize(), AccessToken.__version__)
    with LoanAuthHook("loanauth_jwt").get_conn(pulled) as session:
        for _ in range({loans}):
            session.post({url!r}, json={loan!r}).json()

about = types.SimpleNamespace(conn_id="loanauth_jwt", method="jwt")

def record():
    for _ in range(1000):
        with telemetry.login(about):
            pass
        telemetry.set_expiry(about, 3600.0)

def measured(function, times):
    samples = []
    for _ in range(times + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        function()
        samples.append(((time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3))
    return [statistics.median(column) for column in zip(*samples[1:])]

print("RESULT", json.dumps([measured(authenticate, {authentications}), measured(price, 1), measured(record, 5)]))
"""


def row_monitoring(options):
    with Sandbox() as sandbox, serving(MetricsServer()) as statsd:
        alternatives = {"off": {}, "StatsD, with tags": statsd.environment}
        code = CODE.format(url=sandbox.price, loan=LOAN, loans=options.loans, authentications=AUTHENTICATIONS)
        samples = {name: [] for name in alternatives}
        for _ in range(options.rounds):
            for name, environment in alternatives.items():
                done = subprocess.run(
                    [sys.executable, "-W", "ignore", "-c", code],
                    env=os.environ | environment,
                    capture_output=True,
                    text=True,
                    check=True,
                )
                line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))
                samples[name].append(json.loads(line.removeprefix("RESULT")))
        if not statsd.received:
            raise SystemExit("StatsD received nothing")
    texts = []
    parts = {
        "One authentication": "ms",
        f"{options.loans:,} loans from one task": "ms",
        # A thousand of them were measured together, in milliseconds.
        "The metrics of one authentication, without the authentication": "µs",
    }
    for part, (title, unit) in enumerate(parts.items()):
        medians = {
            name: [statistics.median(column) for column in zip(*(taken[part] for taken in rounds), strict=True)]
            for name, rounds in samples.items()
        }
        texts.append(f"{title}:\n\n" + table(["metrics", "wall", "ratio", "CPU", "ratio"], timed(medians, "off", unit)))
    note = (
        "Each alternative runs in processes of its own, with the backend on loopback. Metrics are sent for "
        "an authentication, a refresh and an opened credential, and not for each loan."
    )
    return "Metrics, plain HTTP, in a warm process", "\n\n".join([*texts, note])
