"""
What waiting costs: 1,000 triggers in one event loop, beside the HTTP provider's ``HttpSensorTrigger`` in the same run.

The service is the sandbox, in a process of its own. It (i) answers 503, or (ii) accepts requests and answers none for a
minute; then it recovers. Each measurement is a process of its own too, whose event loop runs nothing but the triggers.

``make bench-wait``, or ``python benchmarks/wait.py``: prints a Markdown table and writes it to ``benchmarks/WAIT.md``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
REPORT = HERE / "WAIT.md"
COMMAND = "make bench-wait"

TRIGGERS = 1_000
INTERVAL = 5.0  # seconds between two looks
# Not whole intervals, so that recovery does not fall together with a question.
HUNG = 61.0  # seconds that the service hangs
DOWN = 31.0  # seconds that it answers 503
WEIGHING = 2.0  # seconds after which the memory of those who wait is traced
PATIENCE = 60.0  # seconds after recovery, at most
TICK = 0.005  # seconds between two looks at the loop's lag

SCENARIOS = {
    "503": (DOWN, {"kind": "status", "status": 503}),
    # The right answer, late: whoever waits long enough gets it. Patience is paid for, so that nobody is treated badly.
    "hang": (HUNG, {"kind": "latency", "seconds": HUNG}),
}
WHO = {"ours": "ServiceReadyTrigger", "peer": "HttpSensorTrigger"}

HOW = f"""
{TRIGGERS:,} triggers in one event loop wait for one service with an interval of {INTERVAL:.0f} s. The service, a
process of its own on loopback, is down as the first column says, and then recovers. Requests are what it counted while
it was down, for each whole interval. Lag is by how much a sleep of {TICK * 1000:.0f} ms came late, from the start to
the last event. Memory is first what Python has allocated for each trigger that waits (tracemalloc), then the growth of
the process's resident set, divided by the triggers. The peer is the HTTP provider's trigger; its log is switched off,
as ours is.
"""
PEER = """
The peer takes any error but 404 for a reason to ask again at once, after three attempts a second apart, so a service
that answers 503 is asked without its interval. While the service hangs, each of its triggers holds a connection open.
"""
COLUMNS = (
    "the service",
    "trigger",
    "requests an interval, all together",
    "loop lag, p50 / p99 / max",
    "memory a trigger, traced / resident",
    "fired",
    "last one after recovery",
)


@dataclass
class Result:
    """
    One measurement.

    :param requests_per_interval: that the sandbox counted while it was down
    :param lag_p50: of the event loop, in milliseconds
    :param traced: bytes that Python has allocated for a trigger that waits
    :param resident: growth of the process's resident memory for a trigger, in bytes, shortly before recovery
    :param fired: triggers that said that the service is there
    :param last_fired: seconds from recovery to the last of them
    """

    requests_per_interval: float
    lag_p50: float
    lag_p99: float
    lag_max: float
    traced: float
    resident: float
    fired: int
    last_fired: float


# --- the process that is measured ---


def ours(url: str) -> Callable[[], Any]:
    """Return what makes one of our triggers."""
    from airflow_provider_loanauth.triggers.loanauth import ServiceReadyTrigger  # noqa: PLC0415 - one process measures one

    return lambda: ServiceReadyTrigger(url, INTERVAL)


def peer(url: str) -> Callable[[], Any]:
    """Return what makes one of the HTTP provider's."""
    from airflow.providers.http.triggers.http import HttpSensorTrigger  # noqa: PLC0415 - see ours

    os.environ["AIRFLOW_CONN_HTTP_DEFAULT"] = url
    return lambda: HttpSensorTrigger(endpoint="", poke_interval=INTERVAL)


def resident() -> int:
    """Return the resident memory of this process, in bytes."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def call(url: str, method: str, body: Any = None) -> Any:
    """Ask the control address of the sandbox."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method)  # noqa: S310 - a loopback address
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - see above
        return json.load(answer)


async def first_event(trigger: Any) -> float:
    """Run a trigger as a triggerer does; return when it fired."""
    async for _ in trigger.run():
        break
    return time.perf_counter()


def all_waiting(make: Callable[[], Any]) -> list[asyncio.Task[float]]:
    """Start all triggers."""
    return [asyncio.create_task(first_event(make())) for _ in range(TRIGGERS)]


async def ended(tasks: list[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def weigh(make: Callable[[], Any]) -> float:
    """Return the bytes that are allocated for each trigger while all wait."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    waiting = all_waiting(make)
    await asyncio.sleep(WEIGHING)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    await ended(waiting)
    return grown / TRIGGERS


async def measure(make: Callable[[], Any], control: str, scenario: str) -> Result:
    """Let triggers wait, let the service recover, let them fire."""
    down, fault = SCENARIOS[scenario]
    # One for nothing: what is loaded and allocated once is not a trigger's.
    await asyncio.wait_for(anext(make().run()), PATIENCE)
    call(f"{control}/fault", "PUT", fault)
    call(f"{control}/reset", "POST")
    gc.collect()
    before, lags = resident(), []

    async def watch() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(TICK)
            lags.append(time.perf_counter() - began - TICK)

    watching = asyncio.create_task(watch())
    began = time.perf_counter()
    waiting = all_waiting(make)
    await asyncio.sleep(down - 1)
    grown = resident() - before
    await asyncio.sleep(max(0.0, began + down - time.perf_counter()))
    # The control address is asked in a thread: this loop is what is measured.
    asked = (await in_a_thread(lambda: call(f"{control}/counters", "GET")))["probe"]
    intervals = (time.perf_counter() - began) / INTERVAL
    recovered = time.perf_counter()
    await in_a_thread(lambda: call(f"{control}/fault", "DELETE"))
    done, _ = await asyncio.wait(waiting, timeout=PATIENCE)
    fired = [task.result() for task in done if task.exception() is None]
    await ended([*waiting, watching])
    # Last, because memory that was freed once does not grow again.
    call(f"{control}/fault", "PUT", fault)
    traced = await weigh(make)
    lags.sort()
    return Result(
        requests_per_interval=asked / math.floor(intervals),
        lag_p50=statistics.median(lags) * 1000,
        lag_p99=lags[int(len(lags) * 0.99)] * 1000,
        lag_max=lags[-1] * 1000,
        traced=traced,
        resident=grown / TRIGGERS,
        fired=len(fired),
        last_fired=max(fired) - recovered if fired else math.inf,
    )


async def in_a_thread(function: Callable[[], Any]) -> Any:
    """Call a function in a thread of its own."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    threading.Thread(target=lambda: loop.call_soon_threadsafe(future.set_result, function())).start()
    return await future


def measure_alone(who: str, scenario: str, url: str, control: str) -> None:
    """Measure in this process, and print the result as JSON."""
    # A triggerer logs; the peer logs each failure. Neither is charged for it here.
    logging.disable(logging.CRITICAL)
    make = {"ours": ours, "peer": peer}[who](url)
    result = asyncio.run(measure(make, control, scenario))
    print(f"result: {json.dumps(asdict(result))}")


# --- the process that starts the others ---


@contextlib.contextmanager
def sandbox() -> Iterator[dict[str, Any]]:
    """Run a sandbox as a process of its own."""
    with tempfile.TemporaryDirectory() as directory:
        ready = Path(directory) / "ready.json"
        command = [sys.executable, "-m", "loanauth_sandbox", "--ready-file", str(ready)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 - ours
        try:
            deadline = time.monotonic() + PATIENCE
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the sandbox did not start")
                time.sleep(0.05)
            yield json.loads(ready.read_text(encoding="utf-8"))
        finally:
            process.terminate()
            process.wait(PATIENCE)


def run(who: str, scenario: str) -> Result | None:
    """Measure in a process of its own; None where it did not end."""
    with sandbox() as service, tempfile.TemporaryDirectory() as home:
        command = [sys.executable, str(Path(__file__).resolve()), "--measure", who, scenario]
        environment = os.environ | {"AIRFLOW_HOME": home, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        try:
            done = subprocess.run(  # noqa: S603 - this file
                [*command, service["url"], service["control_url"]],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=HUNG + 4 * PATIENCE,
            )
        except subprocess.TimeoutExpired:
            return None
    for line in done.stdout.splitlines():
        if line.startswith("result: "):
            return Result(**json.loads(line.removeprefix("result: ")))
    sys.stderr.write(done.stderr[-2000:])
    return None


def reached(result: Result) -> str:
    """Tell which goals a measurement of ours has reached."""
    goals = {
        "one request an interval": result.requests_per_interval <= 1,
        "lag p99 under 20 ms": result.lag_p99 < 20,  # noqa: PLR2004 - the goal
        "under 8 KiB a trigger": max(result.traced, result.resident) < 8 * 1024,
        "all fired within an interval and a second": result.fired == TRIGGERS and result.last_fired <= INTERVAL + 1,
    }
    return "; ".join(f"{goal}: {'yes' if yes else 'NO'}" for goal, yes in goals.items())


def row(who: str, scenario: str, result: Result | None) -> str:
    """Return a line of the table."""
    words = {"503": f"answers 503 for {DOWN:.0f} s", "hang": f"accepts, answers nothing for {HUNG:.0f} s"}[scenario]
    if result is None:
        return f"| {words} | `{WHO[who]}` | did not end | | | | |"
    last = "-" if math.isinf(result.last_fired) else f"{result.last_fired:.1f} s"
    return (
        f"| {words} | `{WHO[who]}` | {result.requests_per_interval:,.1f} "
        f"| {result.lag_p50:.1f} / {result.lag_p99:.1f} / {result.lag_max:.1f} ms "
        f"| {result.traced / 1024:.1f} / {result.resident / 1024:.1f} KiB | {result.fired:,} of {TRIGGERS:,} | {last} |"
    )


def machine() -> str:
    """Say what this was measured on."""
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in ("apache-airflow", "apache-airflow-providers-http", "airflow-provider-loanauth")
    )
    return (
        f"{platform.system()} on {platform.machine()}, {os.cpu_count()} CPUs; Python {platform.python_version()}; "
        f"{versions}"
    )


def wrapped(text: str) -> str:
    """Return a paragraph in lines of the usual length."""
    return textwrap.fill(" ".join(text.split()), 118, break_long_words=False, break_on_hyphens=False)


def main() -> int:
    """Measure both triggers in both scenarios, print and write the report."""
    # 1,000 connections of the peer, in the sandbox and here.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65_536) if most > 0 else 65_536, most))
    results = {(scenario, who): run(who, scenario) for scenario in SCENARIOS for who in WHO}
    head = [
        "# What waiting costs",
        f"Measured by `{COMMAND}` on {datetime.now(timezone.utc):%Y-%m-%d}. {machine()}.",
        HOW,
    ]
    table = [
        f"| {' | '.join(COLUMNS)} |",
        "|---" * len(COLUMNS) + "|",
        *(row(who, scenario, result) for (scenario, who), result in results.items()),
    ]
    goals = [
        f"- {scenario}: {reached(result) if result else 'not measured'}"
        for (scenario, who), result in results.items()
        if who == "ours"
    ]
    parts = [*map(wrapped, head), "\n".join(table), "Goals, for ours:", "\n".join(goals), wrapped(PEER)]
    report = "\n\n".join(parts) + "\n"
    print(report, end="")
    REPORT.write_text(report, encoding="utf-8")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--measure", nargs=4, metavar=("WHO", "SCENARIO", "URL", "CONTROL"), help="in this process")
    arguments = parser.parse_args()
    if arguments.measure:
        measure_alone(*arguments.measure)
    else:
        sys.exit(main())
