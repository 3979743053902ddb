"""How often a credential is sent: the requests that one attempt, a retried task, a sensor and 30 loans send.

The service is the sandbox, in a separate process. Each try of a task runs in a new process, as in Airflow, so that
nothing is remembered from one try to the next. The waits between attempts are left out.

``python -m benchmarks.posts`` prints a Markdown table.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import resource
import sys
import time

# Sets the environment of Airflow, so it comes before everything that imports Airflow.
from benchmarks.measurement import LOAN, Sandbox, table

CONN_ID = "loanauth_jwt"
TIMEOUT = 0.3  # seconds, the Timeout of the Connection
MAX_SECONDS = 90.0  # of one process; a process that takes longer is ended
MAX_MEMORY = 4 * 2**30  # bytes of address space of one process
TRIES = 3  # of a task with retries=2
NO_END = "no end"
POKES = 5  # of the sensor
LOANS = 30

STATUSES = (400, 401, 403, 429, 503)
BODIES = {
    "whole": "",
    "cut": ", body cut off",
    "reset": ", body ends in a TCP reset",
    "slow": ", body slower than Timeout",
    "not-gzip": ", labelled gzip and plain",
}
HEADS = {
    "half-headers": ", then the head is cut off",
    "bad-header": ", then a header line without a colon",
}
PARTS = {
    "header-line": "a header line",
    "body": "body",
}
SLOW = 0.01  # seconds between two octets


def faults():
    """Return the faults of the sandbox, by description."""
    # A fault of another endpoint.
    found = {"the correct response": {"kind": "status", "where": "probe"}}
    for status in STATUSES:
        for body, words in BODIES.items():
            found[f"{status}{words}"] = {"kind": "status", "status": status, "body": body}
    for status in (401, 503):
        for head, words in HEADS.items():
            for end in ("close", "reset"):
                fault = {"kind": "broken-head", "head": head, "end": end, "status": status}
                found[f"{status}{words} ({end})"] = fault
    found |= {
        **{
            f"{status} with invalid_grant": {"kind": "status", "status": status, "shape": "oauth"}
            for status in (200, 302, 429, 503)
        },
        "429, Retry-After: 3600": {"kind": "status", "status": 429, "retry_after": 3600},
        "200 with a login page": {"kind": "html-200"},
        "302 to /login?error": {"kind": "redirect", "location": "/login?error"},
        "200, not JSON": {"kind": "invalid-json"},
        "200, body cut off": {"kind": "broken-body", "body": "cut"},
        "200, body slower than Timeout": {"kind": "broken-body", "body": "slow"},
        "200, labelled gzip and plain": {"kind": "broken-body", "body": "not-gzip"},
        "200, body shorter than Content-Length": {"kind": "wrong-content-length"},
        "200, a token of 700,000 characters": {"kind": "long-credential"},
        "200, a gzip bomb": {"kind": "gzip-bomb", "size": 16_777_216},
        "no response": {"kind": "hang"},
        "garbage instead of a status line": {"kind": "broken-head"},
        "garbage, then a TCP reset": {"kind": "broken-head", "end": "reset"},
    }
    endless = {"kind": "endless", "part": "status-line"}
    found |= {"a status line without end": endless, "a status line without end, slow": {**endless, "interval": SLOW}}
    for status in (None, 401, 503):
        for part, words in PARTS.items():
            fault = {"kind": "endless", "part": part, "status": status}
            found[f"{status or 200}, {words} without end"] = fault
            found[f"{status or 200}, {words} without end, slow"] = {**fault, "interval": SLOW}
    return found


def without_waits():
    """Leave out the waits between two attempts, and those for the end of a pause: the clock jumps to their end."""
    from airflow_provider_loanauth.system import system

    clock = Clock()
    system.time, system.monotonic, system.sleep = clock.time, clock.monotonic, clock.sleep


class Clock:
    """The clock of this process, without the waits."""

    passed = 0.0

    def time(self):
        """Return seconds since the epoch."""
        return time.time() + self.passed

    def monotonic(self):
        """Return seconds of the monotonic clock."""
        return time.monotonic() + self.passed

    def sleep(self, seconds):
        """Let seconds pass at once."""
        self.passed += seconds


def hook():
    """Run the hook once."""
    from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

    LoanAuthHook(CONN_ID).get_credential()


def operator():
    """Run one try of the operator."""
    from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator

    LoanAuthOperator(task_id="authenticate", loanauth_conn_id=CONN_ID).execute({})


def sensor():
    """Poke until the sensor is done, at most ``POKES`` times."""
    from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor

    task = LoanAuthSensor(task_id="wait", loanauth_conn_id=CONN_ID)
    for _ in range(POKES):
        if task.poke({}):
            return


def loans():
    """Price ``LOANS`` loans, each with a ``LoanAuth`` of its own, as mapped tasks of one process do."""
    import requests

    from airflow_provider_loanauth.auth import LoanAuth
    from airflow_provider_loanauth.exceptions import LoanAuthError

    for _ in range(LOANS):
        with contextlib.suppress(LoanAuthError):
            requests.post(os.environ["PRICE"], json=LOAN, auth=LoanAuth.from_connection(CONN_ID), timeout=5)


def outcome(function, sender):
    """Run a function in this process; send the name of its exception, whether a task is retried, and seconds."""
    from airflow_provider_loanauth._compat import airflow_errors

    without_waits()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    # Airflow's log of what the tasks do.
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    name, retried, start = "none", False, time.monotonic()
    try:
        function()
    except Exception as error:  # noqa: BLE001 - its name is the result
        name, retried = type(error).__name__, not isinstance(error, airflow_errors.AirflowFailException)
    sender.send((name, retried, time.monotonic() - start))


def in_new_process(function):
    """Return what :func:`outcome` sends from a new process, which is ended after ``MAX_SECONDS``."""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(target=outcome, args=(function, sender))
    process.start()
    sender.close()
    ended = receiver.poll(MAX_SECONDS)
    if not ended:
        process.kill()
    process.join()
    return receiver.recv() if ended else (NO_END, False, MAX_SECONDS)


def posts(sandbox, fault, function, tries=1):
    """Return the number of requests, and the name of the exception and the seconds of the last try."""
    sandbox.control("PUT", "/fault", fault)
    sandbox.control("POST", "/reset")
    for _ in range(tries):
        name, retried, seconds = in_new_process(function)
        if not retried:
            break
    counted = sandbox.control("GET", "/counters")["token"]
    sandbox.control("DELETE", "/fault")
    return f"{counted}, {NO_END}" if name == NO_END else str(counted), name, seconds


def main():
    """Print the table."""
    # Import once, before the first fork.
    import requests  # noqa: F401

    from airflow_provider_loanauth.auth import LoanAuth  # noqa: F401
    from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
    from airflow_provider_loanauth.operators.loanauth import LoanAuthOperator  # noqa: F401
    from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor  # noqa: F401

    rows = []
    wanted = sys.argv[1:]
    with Sandbox() as sandbox:
        connection = json.loads(os.environ["AIRFLOW_CONN_LOANAUTH_JWT"])
        connection["extra"]["timeout"] = TIMEOUT
        os.environ["AIRFLOW_CONN_LOANAUTH_JWT"] = json.dumps(connection)
        os.environ["PRICE"] = sandbox.price
        # The first Connection takes Airflow a while.
        LoanAuthHook(CONN_ID).read_settings()
        for description, fault in faults().items():
            if wanted and not any(text in description for text in wanted):
                continue
            by_hook, name, seconds = posts(sandbox, fault, hook)
            by_operator, _, _ = posts(sandbox, fault, operator, TRIES)
            by_sensor, _, _ = posts(sandbox, fault, sensor)
            by_loans, _, _ = posts(sandbox, {"where": "token", **fault}, loans)
            rows.append((description, name, f"{seconds:.1f} s", by_hook, by_operator, by_sensor, by_loans))
            print(*rows[-1], sep="; ", file=sys.stderr)
    head = ["what the service sends", "exception", "time", "one attempt", "`retries=2`", f"sensor, {POKES} pokes"]
    print(table([*head, f"{LOANS} loans"], rows))


if __name__ == "__main__":
    main()
