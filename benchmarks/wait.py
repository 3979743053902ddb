"""The cost of waiting: 1,000 triggers in one event loop, compared with that of the HTTP provider.

Each measurement runs in a process of its own, whose event loop runs only triggers, and which does not log.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import math
import os
import resource
import statistics
import subprocess
import sys
import threading
import time

from benchmarks.measurement import Sandbox, control, table
from scripts.update_docs import ROOT

TRIGGERS = 1_000
INTERVAL = 5.0  # seconds between two probes
TIMEOUT = 60.0  # seconds after recovery, for all triggers to fire
TICK = 0.005  # seconds of each sleep that measures the lag of the event loop
#: What the service does, for how many seconds, and the fault of the sandbox. No multiples of the interval, so that no
#: probe is due at the moment of recovery.
SCENARIOS = {
    "503": ("responds with 503 for 31 s", 31.0, {"kind": "status", "status": 503}),
    "hang": ("accepts requests and does not respond for 61 s", 61.0, {"kind": "latency", "seconds": 61.0}),
}
SUBJECTS = {"own": "LoanAuthSensorTrigger", "peer": "HttpSensorTrigger"}


def trigger_factory(subject, url):
    if subject == "own":
        from airflow_provider_loanauth.triggers.loanauth import LoanAuthSensorTrigger

        return lambda: LoanAuthSensorTrigger(url, poke_interval=INTERVAL)
    from airflow.providers.http.triggers.http import HttpSensorTrigger

    os.environ["AIRFLOW_CONN_HTTP_DEFAULT"] = url
    return lambda: HttpSensorTrigger(endpoint="", poke_interval=INTERVAL)


async def first_event(trigger):
    """Run a trigger as a triggerer does, until its event."""
    return await anext(trigger.run())


async def in_a_thread(*arguments):
    """Send a request to the control address in a new thread: it would block the loop that is measured."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    threading.Thread(target=lambda: loop.call_soon_threadsafe(future.set_result, control(*arguments))).start()
    return await future


async def measure(factory, address, scenario):
    """Start the triggers while the service is down, let it recover, and wait until they have fired."""
    _, down, fault = SCENARIOS[scenario]
    # Run one trigger first, so that modules are loaded.
    await asyncio.wait_for(first_event(factory()), TIMEOUT)
    control(address, "PUT", "/fault", fault)
    control(address, "POST", "/reset")
    gc.collect()
    lags = []

    async def measure_lag():
        while True:
            started = time.perf_counter()
            await asyncio.sleep(TICK)
            lags.append((time.perf_counter() - started - TICK) * 1000)

    measuring = asyncio.create_task(measure_lag())
    started = time.perf_counter()
    waiting = [asyncio.create_task(first_event(factory())) for _ in range(TRIGGERS)]
    await asyncio.sleep(down)
    probes = (await in_a_thread(address, "GET", "/counters"))["probe"]
    intervals = math.floor((time.perf_counter() - started) / INTERVAL)
    await in_a_thread(address, "DELETE", "/fault")
    done, _ = await asyncio.wait(waiting, timeout=TIMEOUT)
    for task in [*waiting, measuring]:
        task.cancel()
    await asyncio.gather(*waiting, measuring, return_exceptions=True)
    fired = sum(task.exception() is None for task in done)
    if fired < TRIGGERS:
        raise SystemExit(f"{fired} triggers of {TRIGGERS} fired")
    lags.sort()
    return {
        "requests": probes / intervals,
        "lags": [statistics.median(lags), lags[int(len(lags) * 0.99)], lags[-1]],  # milliseconds
    }


def measure_in_a_process(subject, scenario):
    with Sandbox() as sandbox:
        arguments = [subject, scenario, sandbox.url, sandbox.ready["control_url"]]
        command = [sys.executable, "-m", "benchmarks.wait", *arguments]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=5 * TIMEOUT)
    return json.loads(done.stdout.splitlines()[-1])


def row_waiting(_):
    # The peer keeps 1,000 connections open, in the sandbox and in its process.
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    rows = []
    for scenario, (what, _, _) in SCENARIOS.items():
        for subject, name in SUBJECTS.items():
            result = measure_in_a_process(subject, scenario)
            lags = " / ".join(f"{lag:.1f}" for lag in result["lags"])
            rows.append((what, f"`{name}`", f"{result['requests']:,.1f}", f"{lags} ms"))
    head = ["the service", "trigger", "requests per interval, of all triggers", "loop lag, p50 / p99 / max"]
    return f"{TRIGGERS:,} triggers in one event loop wait with an interval of {INTERVAL:.0f} s", table(head, rows)


def main():
    subject, scenario, url, address = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    print(json.dumps(asyncio.run(measure(trigger_factory(subject, url), address, scenario))))


if __name__ == "__main__":
    main()
