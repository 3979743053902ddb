"""Shared parts of the benchmark: the sandbox in a separate process, measuring in turn, and tables."""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HOME = Path(tempfile.mkdtemp(prefix="loanauth-bench-"))
os.environ |= {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__FERNET_KEY": "bWFkZS11cC1mZXJuZXQta2V5LWZvci10aGUtdGVzdHM=",
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
    "AIRFLOW__CORE__DAGS_FOLDER": str(HOME / "dags"),
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME}/airflow.db",
    "NETRC": os.devnull,
}
# A CA bundle in the environment would override the session's.
for _name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
    os.environ.pop(_name, None)
PACKAGE = "airflow_provider_loanauth"
LOAN = {"loan_id": "L-1", "amount": 300_000, "fico": 740, "ltv": 80, "term_months": 360}


def bundle_with(ca):
    """Return a CA bundle with the public authorities and this one, as on a lender's machine.

    Most of the cost of a new TLS session is reading this bundle. The sandbox's authority alone would cost almost
    nothing.
    """
    import certifi

    bundle = HOME / "bundle.pem"
    bundle.write_text(Path(certifi.where()).read_text() + Path(ca).read_text())
    return str(bundle)


class Sandbox:
    """A sandbox in a separate process."""

    def __init__(self, *arguments):
        ready = HOME / f"ready-{time.monotonic_ns()}.json"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "loanauth_sandbox", "--ready-file", str(ready), *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not ready.exists():
            time.sleep(0.05)
        self.ready = json.loads(ready.read_text())
        self.url, self.ca = self.ready["url"], self.ready["ca_path"] and bundle_with(self.ready["ca_path"])
        self.price = f"{self.url}/sandbox/price"

    def __enter__(self):
        for name, value in self.ready["connections"].items():
            # Logins are shared only within this process, which does not open the database.
            value["extra"]["share_logins"] = False
            if self.ca:
                value["extra"]["verify"] = self.ca
            os.environ[name] = json.dumps(value)
        jwt = self.ready["connections"]["AIRFLOW_CONN_LOANAUTH_JWT"]
        self.extra, self.login, self.password = jwt["extra"], jwt["login"], jwt["password"]
        http = {"conn_type": "http", "host": self.url, "extra": {"verify": self.ca} if self.ca else {}}
        os.environ["AIRFLOW_CONN_PRICING"] = json.dumps(http)
        login = {"login": self.extra["client_id"], "password": self.extra["client_secret"]}
        os.environ["AIRFLOW_CONN_AUTHENTICATION"] = json.dumps(http | login)
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(10)


def control(address, http_method, path, body=None):
    """Send a request to the control address of a sandbox; return the response."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data=data, method=http_method)
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def interleaved(rounds, functions):
    """Call each function once per round, in turn; return the medians of wall and CPU time in milliseconds, by name."""
    for function in functions.values():
        function()
    # Airflow's heap is large. The time of a full collection would count for the function that happens to trigger it.
    gc.collect()
    gc.freeze()
    samples = {name: [] for name in functions}
    for number in range(rounds):
        names = [*functions]
        # Rotate, so that no function always runs first.
        for name in names[number % len(names) :] + names[: number % len(names)]:
            wall, cpu = time.perf_counter(), time.process_time()
            functions[name]()
            samples[name].append(((time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3))
    return {name: [statistics.median(column) for column in zip(*taken, strict=True)] for name, taken in samples.items()}


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def timed(medians, base):
    """Return rows of wall and CPU time, each with its ratio to the base."""
    wall, cpu = medians[base]
    return [
        (name, f"{w:.2f} ms", f"{w / wall:.2f}", f"{c:.2f} ms", f"{c / cpu:.2f}") for name, (w, c) in medians.items()
    ]
