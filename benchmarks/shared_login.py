"""One login for many processes: simulated in virtual time against Airflow's Variables behind a busy API server.

``python -m benchmarks.shared_login`` prints tables, some of which are in ``docs/dev/benchmarks.md``; with numbers of
processes as arguments, only those. The code is that of the package; the store and the service are those of the tests.
"""

from __future__ import annotations

import logging
import sys
from itertools import count
from random import Random
from typing import Any

from benchmarks.measurement import table
from tests.support.simulation import MIN_TTL, Process, Simulation

#: Requests a second that the store serves, each in 20 ms.
CAPACITY = 300
#: Seconds within which all processes start. Airflow starts tasks through the same API server, so that 10,000 of them
#: cannot start at once: three requests each take 100 seconds.
STARTS = {10: (0, 1), 100: (0, 1), 1_000: (0, 10), 10_000: (0, 100)}


def load(number: int, within: float) -> list[str]:
    source = Random(number)
    processes = [Process(start=source.uniform(0, within)) for _ in range(number)]
    simulation = Simulation(processes, capacity=CAPACITY, max_steps=10**8, login_seconds=[1.0]).run()
    waits, requests = sorted(process.waited for process in processes), [process.requests for process in processes]
    assert all(hasattr(result, "value") for process in processes for result in process.results)
    return [
        f"{number:,}",
        "at once" if not within else f"within {within:.0f} s",
        str(simulation.posts),
        f"{sum(requests) / number:.1f}",
        f"{waits[number // 2]:.1f} s",
        f"{waits[-1]:.1f} s",
    ]


def burst(number: int, outcome: str, *, kills: int = 0, within: float = 2.0, **options: Any) -> str:
    """Return what some processes do that need a credential within some seconds."""
    source = Random(number)
    processes = [Process(start=source.uniform(0, within)) for _ in range(number + kills)]
    usual: dict[str, Any] = {"outcomes": [outcome], "login_seconds": [1.0], "max_steps": 10**7}
    simulation = Simulation(processes, **(usual | options))
    simulation.service.kills = kills
    simulation.run()
    return f"{simulation.posts} posts, slowest wait {max(process.waited for process in simulation.alive):.1f} s"


def alone(needs: str, seconds: float) -> str:
    """Return how long a process is held by Variables alone, each call of which takes some seconds."""
    process = Process(needs=needs)
    Simulation([process], login_seconds=[0.0], delays=[seconds, 0.0]).run()
    return f"{process.waited:.2f} s"


def figures() -> list[list[str]]:
    """Return what happens, and what a person sees of it."""
    return [
        ["a login alone, calls of 20 ms: time that sharing adds", alone("first", 0.02)],
        ["the same, calls of 5 s", alone("first", 5.0)],
        ["a request with a valid token, calls of 5 s", alone("valid", 5.0)],
        *(
            [f"a wrong password, 300 processes, calls of {call} s", burst(300, "rejected", delays=[call / 2])]
            for call in (0.02, 0.3, 1.0)
        ),
        *(
            [f"the same, the store stalls for {stall} s", burst(300, "rejected", stall=(0.9, 0.9 + stall))]
            for stall in (1, 3, 8)
        ),
        *(
            [f"the same, 60 processes, {kills} more are killed while they log in", burst(60, "rejected", kills=kills)]
            for kills in (1, 2, 3)
        ),
        *(
            [f"the same, 60 processes, a login takes {takes:.0f} s", burst(60, "rejected", login_seconds=[takes])]
            for takes in (8.0, 14.0, 20.0)
        ),
        ["an outage, 300 pods within a minute", burst(300, "unavailable", within=60.0, login_seconds=[0.05])],
        ["the same, each request hangs for 30 s", burst(300, "unavailable", within=60.0, login_seconds=[30.0])],
        ["every other response is a 401: 1,000 loans in 50 tasks", logins_with_a_bad_node()],
    ]


def logins_with_a_bad_node() -> str:
    """Return how often 50 tasks with 20 loans each log in, if every other response is a 401."""
    source, nodes = Random(0), count()
    processes = [Process(start=source.uniform(0, 10)) for _ in range(50)]
    simulation = Simulation(processes, max_steps=10**7)

    def work(process: Process) -> None:
        simulation.time.sleep(max(0.0, process.start - simulation.time.now))
        credential = simulation.log_in(process, "first", None)
        for _ in range(20):
            simulation.time.sleep(source.uniform(2, 4))
            if next(nodes) % 2:
                credential = simulation.log_in(process, "rejected", credential)

    simulation.run(work=work)
    return f"{simulation.posts} logins in {simulation.time.now:.0f} s"


def expiry(number: int) -> list[str]:
    """Return what an expiry costs processes that send a request each second."""
    source, held = Random(number), []
    processes = [Process(start=source.uniform(0, 1)) for _ in range(number)]
    simulation = Simulation(processes, capacity=CAPACITY, max_steps=10**8, login_seconds=[1.0])

    def work(process: Process) -> None:
        simulation.time.sleep(process.start)
        has = simulation.active(130.0)
        for _ in range(135):
            simulation.time.sleep(1)
            before = simulation.time.now
            if not has.is_fresh(MIN_TTL):
                has = simulation.log_in(process, "valid", has)
            held.append(simulation.time.now - before)

    simulation.run(work=work)
    requests = sum(process.requests for process in processes) / number
    slow = sorted(held)[int(len(held) * 0.99)]
    return [f"{number:,}", str(simulation.posts), f"{requests:.1f}", f"{slow:.2f} s"]


def main() -> None:
    logging.disable(logging.CRITICAL)
    numbers = [int(one) for one in sys.argv[1:]] or [*STARTS]
    rows = [load(number, within) for number in numbers for within in STARTS[number]]
    header = ["processes without a credential", "start", "logins", "requests of each", "median wait", "slowest wait"]
    print(table(header, rows))
    rows = [expiry(number) for number in numbers]
    print(table(["processes with a token that expires", "logins", "requests of each", "p99 held"], rows))
    if not sys.argv[1:]:
        print(table(["what happens", "figure"], figures()))


if __name__ == "__main__":
    main()
