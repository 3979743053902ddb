"""
Measure the cost of waiting: 1,000 triggers in one event loop, compared with ``HttpSensorTrigger`` of the HTTP provider.

The service is the sandbox, in a separate process. Either it responds with 503, or it accepts requests and does not
respond for a minute. Then it recovers. Each measurement runs in a separate process, and its event loop runs only
triggers. In the scenario ``recovery``, each trigger is followed by a login, as in a sensor.

``python -m benchmarks.wait`` prints a Markdown report and writes it to a file.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import importlib.metadata
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import tracemalloc
import urllib.request
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.update_docs import ROOT, add_update_docs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TRACKED = "benchmarks/WAIT.md"

TRIGGERS = 1_000
INTERVAL = 5.0  # seconds between two probes
# No multiples of the interval, so that no probe is due at the moment of recovery.
HANG_SECONDS = 61.0  # how long the service does not respond
DOWN_SECONDS = 31.0  # how long it responds with 503
TRACE_SECONDS = 2.0  # of waiting, before memory is traced
TIMEOUT = 60.0  # seconds after recovery, for all triggers to fire
TICK = 0.005  # seconds of each sleep that measures the lag of the event loop

SCENARIOS = {
    "503": (DOWN_SECONDS, {"kind": "status", "status": 503}),
    # The right response, but late: a trigger that waits long enough gets it.
    "hang": (HANG_SECONDS, {"kind": "latency", "seconds": HANG_SECONDS}),
}
SUBJECTS = {"own": "LoanAuthSensorTrigger", "peer": "HttpSensorTrigger"}

# The scenario "recovery".
RECOVERY_INTERVAL = 60.0  # seconds between two probes, the default of Airflow's sensors
# The service recovers soon after a probe, so that the next probe comes as late as possible.
RECOVERY_DOWN_SECONDS = RECOVERY_INTERVAL + 1.0
RECOVERY_TIMEOUT = 3 * RECOVERY_INTERVAL  # after recovery, for all logins
RECOVERY = "recovery"

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
of a Connection (`docs/using-credentials.md`). A login begins with the event of its trigger, without the time that a
scheduler needs to start the task. The service counts the logins.
"""
PEER = """
The peer makes three attempts, one second apart. After any error other than 404 it starts again immediately, so it
ignores its interval while the service responds with 503. While the service hangs, each of the peer's triggers keeps a
connection open.
"""
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


@dataclass
class Result:
    """
    One measurement.

    :param requests_per_interval: counted by the sandbox while it was down
    :param lag_p50: median lag of the event loop, in milliseconds
    :param lag_p99: 99th percentile of the lag, in milliseconds
    :param lag_max: maximum lag, in milliseconds
    :param traced: bytes that Python has allocated per waiting trigger
    :param resident: growth of the process's resident memory per trigger, in bytes, shortly before recovery
    :param fired: number of triggers that reported that the service is ready
    :param peak: highest number of events within any one second
    :param last_fired: seconds from recovery to the last event
    """

    requests_per_interval: float
    lag_p50: float
    lag_p99: float
    lag_max: float
    traced: float
    resident: float
    fired: int
    peak: int
    last_fired: float


@dataclass
class Recovery:
    """
    The measurement of the scenario "recovery".

    :param logins: successful logins, counted by the sandbox
    :param peak: highest number of logins that began within any one second
    :param first: seconds from recovery to the first login
    :param last: seconds from recovery to the last login
    """

    logins: int
    peak: int
    first: float
    last: float


# --- the process that is measured ---


def own_trigger(url: str) -> Callable[[], Any]:
    """Return a factory of this provider's trigger."""
    from airflow_provider_loanauth.triggers.loanauth import LoanAuthSensorTrigger  # noqa: PLC0415 - load one trigger only

    return lambda: LoanAuthSensorTrigger(url, poke_interval=INTERVAL)


def peer_trigger(url: str) -> Callable[[], Any]:
    """Return a factory of the HTTP provider's trigger."""
    from airflow.providers.http.triggers.http import HttpSensorTrigger  # noqa: PLC0415 - load one trigger only

    os.environ["AIRFLOW_CONN_HTTP_DEFAULT"] = url
    return lambda: HttpSensorTrigger(endpoint="", poke_interval=INTERVAL)


def resident() -> int:
    """Return the resident memory of this process, in bytes."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def call(url: str, method: str, body: Any = None) -> Any:
    """Send a request to the control address of the sandbox; return the response."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method)  # noqa: S310 - a loopback address
    with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310 - a loopback address
        return json.load(response)


async def first_event(trigger: Any) -> float:
    """Run a trigger as a triggerer does; return the time of its event."""
    async for _ in trigger.run():
        break
    return time.perf_counter()


def start_all(factory: Callable[[], Any]) -> list[asyncio.Task[float]]:
    """Start all triggers."""
    return [asyncio.create_task(first_event(factory())) for _ in range(TRIGGERS)]


def max_per_second(times: Sequence[float]) -> int:
    """Return the highest number of these times, in seconds, within any one second."""
    ordered, first, highest = sorted(times), 0, 0
    for number, moment in enumerate(ordered, 1):
        while ordered[first] <= moment - 1:
            first += 1
        highest = max(highest, number - first)
    return highest


async def cancel(tasks: list[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def trace_memory(factory: Callable[[], Any]) -> float:
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


async def measure(factory: Callable[[], Any], control: str, scenario: str) -> Result:
    """Start the triggers while the service is down, let it recover, and wait until they have fired."""
    down, fault = SCENARIOS[scenario]
    # Run one trigger first, so that modules and memory that are loaded only once are not counted.
    await asyncio.wait_for(anext(factory().run()), TIMEOUT)
    call(f"{control}/fault", "PUT", fault)
    call(f"{control}/reset", "POST")
    gc.collect()
    before, lags = resident(), []

    async def measure_lag() -> None:
        while True:
            started = time.perf_counter()
            await asyncio.sleep(TICK)
            lags.append(time.perf_counter() - started - TICK)

    measuring = asyncio.create_task(measure_lag())
    started = time.perf_counter()
    waiting = start_all(factory)
    await asyncio.sleep(down - 1)
    growth = resident() - before
    await asyncio.sleep(max(0.0, started + down - time.perf_counter()))
    # Requests to the control address run in a thread, because they would block the loop that is measured.
    requests = (await in_a_thread(lambda: call(f"{control}/counters", "GET")))["probe"]
    intervals = (time.perf_counter() - started) / INTERVAL
    recovered = time.perf_counter()
    await in_a_thread(lambda: call(f"{control}/fault", "DELETE"))
    done, _ = await asyncio.wait(waiting, timeout=TIMEOUT)
    fired = [task.result() for task in done if task.exception() is None]
    await cancel([*waiting, measuring])
    # Trace last, because memory that was freed before would hide the growth of the resident set.
    call(f"{control}/fault", "PUT", fault)
    traced = await trace_memory(factory)
    lags.sort()
    return Result(
        requests_per_interval=requests / math.floor(intervals),
        lag_p50=statistics.median(lags) * 1000,
        lag_p99=lags[int(len(lags) * 0.99)] * 1000,
        lag_max=lags[-1] * 1000,
        traced=traced,
        resident=growth / TRIGGERS,
        fired=len(fired),
        peak=max_per_second(fired),
        last_fired=max(fired) - recovered if fired else math.inf,
    )


async def measure_recovery(url: str, control: str) -> Recovery:
    """Start the triggers while the service is down, let it recover, and log in after each event."""
    from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook  # noqa: PLC0415 - not in the other scenarios
    from airflow_provider_loanauth.triggers.loanauth import LoanAuthSensorTrigger  # noqa: PLC0415 - as above

    async def log_in(conn_id: str) -> None:
        os.environ[f"AIRFLOW_CONN_{conn_id.upper()}"] = os.environ["AIRFLOW_CONN_LOANAUTH_JWT"]
        await asyncio.to_thread(LoanAuthHook(conn_id).get_credential)

    async def wait_and_log_in(conn_id: str) -> float:
        fired = await first_event(LoanAuthSensorTrigger(url, poke_interval=RECOVERY_INTERVAL))
        await log_in(conn_id)
        return fired

    # Log in once first, so that modules are loaded.
    await log_in("loanauth_jwt")
    call(f"{control}/fault", "PUT", {"kind": "status", "status": 503})
    call(f"{control}/reset", "POST")
    sensors = [asyncio.create_task(wait_and_log_in(f"sensor_{number}")) for number in range(TRIGGERS)]
    await asyncio.sleep(RECOVERY_DOWN_SECONDS)
    await in_a_thread(lambda: call(f"{control}/fault", "DELETE"))
    recovered = time.perf_counter()
    done, _ = await asyncio.wait(sensors, timeout=RECOVERY_TIMEOUT)
    began = [sensor.result() for sensor in done if sensor.exception() is None]
    await cancel(sensors)
    counters = await in_a_thread(lambda: call(f"{control}/counters", "GET"))
    return Recovery(
        logins=counters["authentications"]["succeeded"],
        peak=max_per_second(began),
        first=min(began, default=math.inf) - recovered,
        last=max(began, default=math.inf) - recovered,
    )


async def in_a_thread(function: Callable[[], Any]) -> Any:
    """Call a function in a new thread."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    threading.Thread(target=lambda: loop.call_soon_threadsafe(future.set_result, function())).start()
    return await future


def measure_here(subject: str, scenario: str, url: str, control: str) -> None:
    """Measure in this process, and print the result as JSON."""
    result: Result | Recovery
    if scenario == RECOVERY:
        result = asyncio.run(measure_recovery(url, control))
    else:
        factory = {"own": own_trigger, "peer": peer_trigger}[subject](url)
        result = asyncio.run(measure(factory, control, scenario))
    print(f"result: {json.dumps(asdict(result))}")


# --- the process that starts the others ---


@contextlib.contextmanager
def sandbox() -> Iterator[dict[str, Any]]:
    """Run the sandbox in a separate process; yield the content of its ready file."""
    with tempfile.TemporaryDirectory() as directory:
        ready = Path(directory) / "ready.json"
        command = [sys.executable, "-m", "loanauth_sandbox", "--ready-file", str(ready)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 - the sandbox
        try:
            deadline = time.monotonic() + TIMEOUT
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the sandbox did not start")
                time.sleep(0.05)
            yield json.loads(ready.read_text(encoding="utf-8"))
        finally:
            process.terminate()
            process.wait(TIMEOUT)


def run(subject: str, scenario: str) -> dict[str, Any] | None:
    """Measure in a new process; return the fields of the result, or None if it fails or takes too long."""
    with sandbox() as service, tempfile.TemporaryDirectory() as home:
        connection = service["connections"]["AIRFLOW_CONN_LOANAUTH_JWT"]
        command = [sys.executable, "-m", "benchmarks.wait", "--measure", subject, scenario]
        environment = os.environ | {
            "AIRFLOW_HOME": home,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__FERNET_KEY": "bWFkZS11cC1mZXJuZXQta2V5LWZvci10aGUtdGVzdHM=",
            "AIRFLOW_CONN_LOANAUTH_JWT": json.dumps(connection),
            # The peer logs each failure. Logging is not part of the comparison.
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "CRITICAL",
        }
        try:
            done = subprocess.run(  # noqa: S603 - this module
                [*command, service["url"], service["control_url"]],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=HANG_SECONDS + 4 * TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            return None
    for line in done.stdout.splitlines():
        if line.startswith("result: "):
            fields: dict[str, Any] = json.loads(line.removeprefix("result: "))
            return fields
    sys.stderr.write(done.stderr[-2000:])
    return None


def reached(result: Result) -> str:
    """Return a line that says which goals this provider's trigger has reached."""
    goals = {
        "one request per interval": result.requests_per_interval <= 1,
        "lag p99 under 20 ms": result.lag_p99 < 20,  # noqa: PLR2004 - the goal
        "under 8 KiB per trigger": max(result.traced, result.resident) < 8 * 1024,
        "all fired within two intervals": result.fired == TRIGGERS and result.last_fired <= 2 * INTERVAL,
    }
    return listed(goals)


def recovered(result: Recovery) -> str:
    """Return a line that says which goals of the scenario "recovery" have been reached."""
    goals = {
        "one login per trigger": result.logins == TRIGGERS,
        "under 50 logins in any second": result.peak < 50,  # noqa: PLR2004 - the goal
        "the last login within two intervals": result.last <= 2 * RECOVERY_INTERVAL,
    }
    return listed(goals)


def listed(goals: dict[str, bool]) -> str:
    """Return goals and whether they have been reached."""
    return "; ".join(f"{goal}: {'yes' if holds else 'NO'}" for goal, holds in goals.items())


def row(subject: str, scenario: str, result: Result | None) -> str:
    """Return a line of the table."""
    description = {
        "503": f"responds with 503 for {DOWN_SECONDS:.0f} s",
        "hang": f"accepts requests and does not respond for {HANG_SECONDS:.0f} s",
    }[scenario]
    if result is None:
        return f"| {description} | `{SUBJECTS[subject]}` | did not end | | | | | |"
    last = "-" if math.isinf(result.last_fired) else f"{result.last_fired:.1f} s"
    return (
        f"| {description} | `{SUBJECTS[subject]}` | {result.requests_per_interval:,.1f} "
        f"| {result.lag_p50:.1f} / {result.lag_p99:.1f} / {result.lag_max:.1f} ms "
        f"| {result.traced / 1024:.1f} / {result.resident / 1024:.1f} KiB | {result.fired:,} of {TRIGGERS:,} "
        f"| {result.peak:,} | {last} |"
    )


def recovery_row(result: Recovery | None) -> str:
    """Return the line of the table of the scenario "recovery"."""
    if result is None:
        return "| did not end | | | |"
    return f"| {result.logins:,} of {TRIGGERS:,} | {result.peak:,} | {result.first:.1f} s | {result.last:.1f} s |"


def machine() -> str:
    """Return a line about the machine and the versions."""
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in ("apache-airflow", "apache-airflow-providers-http", "airflow-provider-loanauth")
    )
    return (
        f"{platform.system()} on {platform.machine()}, {os.cpu_count()} CPUs; Python {platform.python_version()}; "
        f"{versions}"
    )


def wrapped(text: str) -> str:
    """Return a paragraph, wrapped at 118 characters."""
    return textwrap.fill(" ".join(text.split()), 118, break_long_words=False, break_on_hyphens=False)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument(
        "scenarios", nargs="*", metavar="SCENARIO", help=f"one of {', '.join((*SCENARIOS, RECOVERY))} (default: all)"
    )
    add_update_docs(parser, ignored="build/bench/WAIT.md", tracked=TRACKED)
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if unknown := set(options.scenarios) - {*SCENARIOS, RECOVERY}:
        parser.error(f"unknown scenarios: {', '.join(sorted(unknown))}")
    if options.scenarios and options.output == ROOT / TRACKED:
        parser.error("--update-docs needs all scenarios")
    return options


def report_waiting(scenarios: Sequence[str]) -> list[str]:
    """Measure both triggers in each scenario; return the paragraphs of the report."""
    results = {
        (scenario, subject): Result(**fields) if (fields := run(subject, scenario)) else None
        for scenario in scenarios
        for subject in SUBJECTS
    }
    goals = [
        f"- {scenario}: {reached(result) if result else 'not measured'}"
        for (scenario, subject), result in results.items()
        if subject == "own"
    ]
    rows = [row(subject, scenario, result) for (scenario, subject), result in results.items()]
    return [
        wrapped(HOW),
        table(COLUMNS, rows),
        "Goals of `LoanAuthSensorTrigger`:",
        "\n".join(goals),
        wrapped(PEER),
    ]


def report_recovery() -> list[str]:
    """Measure the logins after a recovery; return the paragraphs of the report."""
    fields = run("own", RECOVERY)
    result = Recovery(**fields) if fields else None
    return [
        "## Logins after a recovery",
        wrapped(HOW_RECOVERY),
        table(RECOVERY_COLUMNS, [recovery_row(result)]),
        f"Goals: {recovered(result) if result else 'not measured'}",
    ]


def table(columns: Sequence[str], rows: Sequence[str]) -> str:
    """Return a table of rows that are lines of Markdown."""
    return "\n".join([f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *rows])


def main() -> int:
    """Measure the scenarios, print and write the report; return the exit status."""
    options = parse_arguments()
    if options.measure:
        measure_here(*options.measure)
        return 0
    # The peer keeps 1,000 connections open, in the sandbox and here.
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard_limit, 65_536) if hard_limit > 0 else 65_536, hard_limit))
    scenarios = options.scenarios or [*SCENARIOS, RECOVERY]
    parts = [
        "# What waiting costs",
        wrapped(f"Measured with `python -m benchmarks.wait` on {datetime.now(timezone.utc):%Y-%m-%d}. {machine()}."),
    ]
    if waiting := [scenario for scenario in scenarios if scenario != RECOVERY]:
        parts += report_waiting(waiting)
    if RECOVERY in scenarios:
        parts += report_recovery()
    report = "\n\n".join(parts) + "\n"
    print(report, end="")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(report, encoding="utf-8")
    print(f"\nWritten to {options.output.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
