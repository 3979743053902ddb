"""Measure the cost of waiting: 1,000 triggers in one event loop, compared with that of the HTTP provider.

The service is the sandbox, in a separate process. Either it responds with 503, or it accepts requests and does not
respond for a minute. Then it recovers. Each measurement runs in a separate process, and its event loop runs only
triggers. In the scenario ``recovery``, each trigger is followed by a login, as in a sensor.

``python -m benchmarks.wait`` prints a Markdown report and writes it to a file.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.metadata
import json
import logging
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
from datetime import datetime, timezone

from benchmarks.measurement import Sandbox, control, resident, table
from scripts.update_docs import ROOT, add_update_docs, columns_of, replace_section

TRACKED, SECTION = "docs/dev/benchmarks.md", "Waiting"
#: Of the first table, in the docs.
IN_DOCS = range(4)
TRIGGERS = 1_000
INTERVAL = 5.0  # seconds between two probes
# No multiples of the interval, so that no probe is due at the moment of recovery.
HANG_SECONDS = 61.0  # how long the service does not respond
DOWN_SECONDS = 31.0  # how long it responds with 503
TRACE_SECONDS = 2.0  # of waiting, before memory is traced
TIMEOUT = 60.0  # seconds after recovery, for all triggers to fire
TICK = 0.005  # seconds of each sleep that measures the lag of the event loop
#: What the service does, for how long, and the fault of the sandbox.
SCENARIOS = {
    "503": (f"responds with 503 for {DOWN_SECONDS:.0f} s", DOWN_SECONDS, {"kind": "status", "status": 503}),
    # The right response, but late: a trigger that waits long enough gets it.
    "hang": (
        f"accepts requests and does not respond for {HANG_SECONDS:.0f} s",
        HANG_SECONDS,
        {"kind": "latency", "seconds": HANG_SECONDS},
    ),
}
SUBJECTS = {"own": "LoanAuthSensorTrigger", "peer": "HttpSensorTrigger"}

RECOVERY = "recovery"
RECOVERY_INTERVAL = 60.0  # seconds between two probes, the default of Airflow's sensors
# The service recovers soon after a probe, so that the next probe comes as late as possible.
RECOVERY_DOWN_SECONDS = RECOVERY_INTERVAL + 1.0

HOW = f"""
{TRIGGERS:,} triggers in one event loop wait for one service with an interval of {INTERVAL:.0f} s. The service is a
separate process on loopback. It fails as the first column states, and then recovers. The service counts the requests
while it is down; the table divides them by the number of whole intervals. Lag is the delay of the end of a sleep of
{TICK * 1000:.0f} ms, measured from the start to the last event. The first memory number is the memory that Python has
allocated per waiting trigger (tracemalloc). The second number is the growth of the process's resident set per
trigger. "Max events in a second" is the highest number of events within any one second. The peer is the trigger of the
HTTP provider. Logging is disabled for both triggers.
"""
HOW_RECOVERY = f"""
{TRIGGERS:,} triggers of this provider in one event loop wait with an interval of {RECOVERY_INTERVAL:.0f} s for a
service that responds with 503 for {RECOVERY_DOWN_SECONDS:.0f} s. It recovers one second after a probe, so the next
probe comes almost one interval later. After each event, a thread of the same process logs in with
`LoanAuthHook.get_credential`. Each sensor has a Connection of its own; otherwise, the first login serves all sensors
of a Connection. A login begins with the event of its trigger, without the time that a
scheduler needs to start the task. The service counts the logins.
"""
PEER = """
The peer makes three attempts, one second apart. After any error other than 404 it starts again immediately, so it
ignores its interval while the service responds with 503. While the service hangs, each of the peer's triggers keeps a
connection open.
"""
DOCS_HOW = f"{TRIGGERS:,} triggers in one event loop wait with an interval of {INTERVAL:.0f} s:"
COLUMNS = (
    "the service",
    "trigger",
    "requests per interval, of all triggers",
    "loop lag, p50 / p99 / max",
    "memory per trigger, traced / resident",
    "fired",
    "max events in a second",
    "last event after recovery",
)
RECOVERY_COLUMNS = (
    "logins",
    "max logins in a second",
    "first login after recovery",
    "last login after recovery",
)

# --- the process that is measured


def trigger_factory(subject, url):
    if subject == "own":
        from airflow_provider_loanauth.triggers.loanauth import LoanAuthSensorTrigger

        return lambda: LoanAuthSensorTrigger(url, poke_interval=INTERVAL)
    from airflow.providers.http.triggers.http import HttpSensorTrigger

    os.environ["AIRFLOW_CONN_HTTP_DEFAULT"] = url
    return lambda: HttpSensorTrigger(endpoint="", poke_interval=INTERVAL)


async def first_event(trigger):
    """Run a trigger as a triggerer does; return the time of its event."""
    async for _ in trigger.run():
        break
    return time.perf_counter()


def start_all(factory):
    return [asyncio.create_task(first_event(factory())) for _ in range(TRIGGERS)]


def max_per_second(times):
    """Return the highest number of these times, in seconds, within any one second."""
    return max((sum(moment <= other < moment + 1 for other in times) for moment in times), default=0)


async def cancel(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def trace_memory(factory):
    """Return the bytes that Python allocates per trigger while all wait."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    waiting = start_all(factory)
    await asyncio.sleep(TRACE_SECONDS)
    gc.collect()
    growth = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    await cancel(waiting)
    return growth / TRIGGERS


async def in_a_thread(*arguments):
    """Send a request to the control address in a new thread: it would block the loop that is measured."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    threading.Thread(target=lambda: loop.call_soon_threadsafe(future.set_result, control(*arguments))).start()
    return await future


async def measure(factory, address, scenario):
    """Start the triggers while the service is down, let it recover, and wait until they have fired."""
    _, down, fault = SCENARIOS[scenario]
    # Run one trigger first, so that modules and memory that are loaded only once are not counted.
    await asyncio.wait_for(anext(factory().run()), TIMEOUT)
    control(address, "PUT", "/fault", fault)
    control(address, "POST", "/reset")
    gc.collect()
    before, lags = resident(), []

    async def measure_lag():
        while True:
            started = time.perf_counter()
            await asyncio.sleep(TICK)
            lags.append((time.perf_counter() - started - TICK) * 1000)

    measuring = asyncio.create_task(measure_lag())
    started = time.perf_counter()
    waiting = start_all(factory)
    await asyncio.sleep(down - 1)
    growth = resident() - before
    await asyncio.sleep(max(0.0, started + down - time.perf_counter()))
    requests = (await in_a_thread(address, "GET", "/counters"))["probe"]
    intervals = math.floor((time.perf_counter() - started) / INTERVAL)
    recovered = time.perf_counter()
    await in_a_thread(address, "DELETE", "/fault")
    done, _ = await asyncio.wait(waiting, timeout=TIMEOUT)
    fired = [task.result() for task in done if task.exception() is None]
    await cancel([*waiting, measuring])
    # Trace last, because memory that was freed before would hide the growth of the resident set.
    control(address, "PUT", "/fault", fault)
    traced = await trace_memory(factory)
    lags.sort()
    return {
        "requests": requests / intervals,
        "lags": [statistics.median(lags), lags[int(len(lags) * 0.99)], lags[-1]],  # milliseconds
        "memory": [traced / 1024, growth / TRIGGERS],  # KiB
        "fired": len(fired),
        "peak": max_per_second(fired),
        "last": max(fired, default=math.inf) - recovered,
    }


async def measure_recovery(url, address):
    """Start the triggers while the service is down, let it recover, and log in after each event."""
    from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook
    from airflow_provider_loanauth.triggers.loanauth import LoanAuthSensorTrigger

    async def log_in(conn_id):
        os.environ[f"AIRFLOW_CONN_{conn_id.upper()}"] = os.environ["AIRFLOW_CONN_LOANAUTH_JWT"]
        await asyncio.to_thread(LoanAuthHook(conn_id).get_credential)

    async def wait_and_log_in(conn_id):
        fired = await first_event(LoanAuthSensorTrigger(url, poke_interval=RECOVERY_INTERVAL))
        await log_in(conn_id)
        return fired

    # Log in once first, so that modules are loaded.
    await log_in("loanauth_jwt")
    control(address, "PUT", "/fault", {"kind": "status", "status": 503})
    control(address, "POST", "/reset")
    sensors = [asyncio.create_task(wait_and_log_in(f"sensor_{number}")) for number in range(TRIGGERS)]
    await asyncio.sleep(RECOVERY_DOWN_SECONDS)
    await in_a_thread(address, "DELETE", "/fault")
    recovered = time.perf_counter()
    done, _ = await asyncio.wait(sensors, timeout=3 * RECOVERY_INTERVAL)
    began = [sensor.result() for sensor in done if sensor.exception() is None]
    await cancel(sensors)
    return {
        "logins": (await in_a_thread(address, "GET", "/counters"))["authentications"]["succeeded"],
        "peak": max_per_second(began),
        "first": min(began, default=math.inf) - recovered,
        "last": max(began, default=math.inf) - recovered,
    }


def measure_here(subject, scenario, url, address):
    """Measure in this process, and print the result as JSON."""
    # The peer logs each failure. Logging is not part of the comparison.
    logging.disable(logging.CRITICAL)
    if scenario == RECOVERY:
        measuring = measure_recovery(url, address)
    else:
        measuring = measure(trigger_factory(subject, url), address, scenario)
    print(f"result: {json.dumps(asyncio.run(measuring))}")


# --- the process that starts the others


def run(subject, scenario):
    """Measure in a new process; return the result, or None if it fails or takes too long."""
    with Sandbox() as sandbox:
        command = [sys.executable, "-m", "benchmarks.wait", "--measure", subject, scenario]
        try:
            done = subprocess.run(
                [*command, sandbox.url, sandbox.ready["control_url"]],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
                timeout=HANG_SECONDS + 4 * TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            return None
    for line in done.stdout.splitlines():
        if line.startswith("result: "):
            return json.loads(line.removeprefix("result: "))
    sys.stderr.write(done.stderr[-2000:])
    return None


def reached(goals):
    return "; ".join(f"{goal}: {'yes' if holds else 'NO'}" for goal, holds in goals.items())


def report_waiting(scenarios):
    """Measure both triggers in each scenario; return the paragraphs of the report."""
    rows, goals = [], []
    for scenario in scenarios:
        for subject, name in SUBJECTS.items():
            result = run(subject, scenario)
            row = [SCENARIOS[scenario][0], f"`{name}`"]
            if result is None:
                rows.append([*row, "did not end", *[""] * 5])
                continue
            lags, memory = ([f"{value:.1f}" for value in result[kind]] for kind in ("lags", "memory"))
            row += [f"{result['requests']:,.1f}", f"{' / '.join(lags)} ms", f"{' / '.join(memory)} KiB"]
            rows.append(
                [*row, f"{result['fired']:,} of {TRIGGERS:,}", f"{result['peak']:,}", f"{result['last']:.1f} s"]
            )
            if subject == "own":
                met = {
                    "one request per interval": result["requests"] <= 1,
                    "lag p99 under 20 ms": result["lags"][1] < 20,
                    "under 8 KiB per trigger": max(result["memory"]) < 8,
                    "all fired within two intervals": result["fired"] == TRIGGERS and result["last"] <= 2 * INTERVAL,
                }
                goals.append(f"- {scenario}: {reached(met)}")
    return [
        wrapped(HOW),
        table(COLUMNS, rows),
        "Goals of `LoanAuthSensorTrigger`:",
        "\n".join(goals) or "not measured",
        wrapped(PEER),
    ]


def report_recovery():
    """Measure the logins after a recovery; return the paragraphs of the report."""
    result = run("own", RECOVERY)
    row, goals = ["did not end", "", "", ""], "not measured"
    if result:
        times = [f"{result[name]:.1f} s" for name in ("first", "last")]
        row = [f"{result['logins']:,} of {TRIGGERS:,}", f"{result['peak']:,}", *times]
        goals = reached(
            {
                "one login per trigger": result["logins"] == TRIGGERS,
                "under 50 logins in any second": result["peak"] < 50,
                "the last login within two intervals": result["last"] <= 2 * RECOVERY_INTERVAL,
            }
        )
    return ["## Logins after a recovery", wrapped(HOW_RECOVERY), table(RECOVERY_COLUMNS, [row]), f"Goals: {goals}"]


def machine():
    names = ("apache-airflow", "apache-airflow-providers-http", "airflow-provider-loanauth")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    system = f"{platform.system()} on {platform.machine()}, {os.cpu_count()} CPUs"
    return f"{system}; Python {platform.python_version()}; {versions}"


def wrapped(text):
    return textwrap.fill(" ".join(text.split()), 118, break_long_words=False, break_on_hyphens=False)


def parse_arguments():
    names = [*SCENARIOS, RECOVERY]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(names)} (default: all)")
    add_update_docs(parser, ignored="build/bench/WAIT.md", tracked=TRACKED)
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := {*options.scenarios} - {*names}:
        parser.error(f"unknown scenarios: {', '.join(sorted(unknown))}")
    if options.scenarios and options.output == ROOT / TRACKED:
        parser.error("--update-docs needs all scenarios")
    return options


def main():
    options = parse_arguments()
    if options.measure:
        measure_here(*options.measure)
        return
    # The peer keeps 1,000 connections open, in the sandbox and here.
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard_limit, 65_536) if hard_limit > 0 else 65_536, hard_limit))
    scenarios = options.scenarios or [*SCENARIOS, RECOVERY]
    measured = f"Measured with `python -m benchmarks.wait` on {datetime.now(timezone.utc):%Y-%m-%d}. {machine()}."
    parts = ["# What waiting costs", wrapped(measured)]
    if waiting := [scenario for scenario in scenarios if scenario != RECOVERY]:
        parts += report_waiting(waiting)
    if RECOVERY in scenarios:
        parts += report_recovery()
    report = "\n\n".join(parts) + "\n"
    print(report, end="")
    if options.output == ROOT / TRACKED:
        _, measured, _, first_table, *_ = parts
        replace_section(options.output, SECTION, f"{measured}\n\n{DOCS_HOW}\n\n{columns_of(first_table, IN_DOCS)}")
    else:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(report, encoding="utf-8")
    print(f"\nWritten to {options.output.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
