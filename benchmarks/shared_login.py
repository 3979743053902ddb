"""One login for many processes: simulated in virtual time against Airflow's Variables behind a busy API server.

``python -m benchmarks.shared_login`` prints tables, some of which are in ``docs/dev/benchmarks.md``; with numbers of
processes as arguments, only those. The code is that of the package; the store and the service are those of the tests.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
from collections import Counter
from itertools import count
from random import Random

from benchmarks.measurement import table
from tests.support.simulation import MIN_TTL, Process, Simulation

#: Requests a second that the store serves, each in 20 ms.
CAPACITY = 300
#: Seconds within which all processes start. Airflow starts tasks through the same API server, so that 10,000 of them
#: cannot start at once: three requests each take 100 seconds.
STARTS = {10: (0, 1), 100: (0, 1), 1_000: (0, 10), 10_000: (0, 100)}
#: Batches of 32 processes, and the fraction of their steps that stall.
BATCHES, STALLING = 100, 0.05


def load(number: int, within: float) -> list[str]:
    source = Random(number)
    processes = [Process(start=source.uniform(0, within)) for _ in range(number)]
    simulation = Simulation(processes, capacity=CAPACITY, max_steps=10**8, login_seconds=[1.0]).run()
    waits, requests = sorted(process.waited for process in processes), [process.requests for process in processes]
    assert all(hasattr(result, "value") for process in processes for result in process.results)
    return [
        f"{number:,}",
        "at once" if not within else f"within {within:.0f} s",
        str(sum(simulation.service.posts.values())),
        f"{sum(requests) / number:.1f}",
        f"{waits[number // 2]:.1f} s",
        f"{waits[-1]:.1f} s",
    ]


def extra_logins(delay: float, stall: float) -> int:
    """Return how many logins were too many in 100 batches of 32 processes, 5 % of whose steps stall."""
    from airflow_provider_loanauth.login import lease

    usual = lease.MIN_DELAY
    lease.MIN_DELAY = delay
    logins = 0
    for seed in range(BATCHES):
        source = Random(seed)
        steps = [source.lognormvariate(math.log(0.01), 0.5) for _ in range(2003)]
        delays = [step + (source.uniform(0, stall) if source.random() < STALLING else 0) for step in steps]
        processes = [Process(start=source.uniform(0, 1)) for _ in range(32)]
        simulation = Simulation(processes, delays=delays, conflicts=seed % 2 == 0, login_seconds=[3.0], seed=seed)
        logins += sum(simulation.run().service.posts.values())
    lease.MIN_DELAY = usual
    return logins - BATCHES


def seconds_of_claiming() -> str:
    """Return how much longer a process takes that finds nothing and logs in, if a login takes no time."""
    process = Process()
    Simulation([process], login_seconds=[0.0]).run()
    return f"{process.waited:.2f} s"


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
    return f"{sum(simulation.service.posts.values())} logins in {simulation.time.now:.0f} s"


def expiry(number: int, objects: int) -> list[str]:
    """Return what an expiry costs processes that send a request each second, with so many ``LoanAuth`` in turn."""
    source, held, moments = Random(number), [], Counter()
    processes = [Process(start=source.uniform(0, 1)) for _ in range(number)]
    simulation = Simulation(processes, capacity=CAPACITY, max_steps=10**8, login_seconds=[1.0])
    read = simulation.store.read

    def counted(key: str) -> str | None:
        moments[int(simulation.time.now)] += 1
        return read(key)

    simulation.store.read = counted

    def work(process: Process) -> None:
        simulation.time.sleep(process.start)
        has = [simulation.active(130.0) for _ in range(objects)]
        for second in range(135):
            simulation.time.sleep(1)
            before, one = simulation.time.now, second % objects
            if not has[one].is_fresh(MIN_TTL):
                has[one] = simulation.log_in(process, "valid", has[one])
            held.append(simulation.time.now - before)
        process.results.append(has[0])

    simulation.run(work=work)
    requests = sum(process.requests for process in processes) / number
    logins = sum(simulation.service.posts.values())
    slow = sorted(held)[int(len(held) * 0.99)]
    return [f"{number:,}", str(objects), str(logins), f"{requests:.1f}", str(max(moments.values())), f"{slow:.2f} s"]


def healthy_failures(outcome: str) -> str:
    """Return how many of 600 tasks on a good host fail, beside as many on a host that cannot log in."""
    processes = [Process(start=number * 40.0, needs="rejected", host=f"host {number % 2}") for number in range(1200)]
    outcomes = lambda host, _: outcome if host == "host 1" else "ok"  # noqa: E731 - one expression
    Simulation(processes, outcomes=outcomes, max_steps=10**7).run()
    failed = [isinstance(one.results[0], Exception) for one in processes if one.host == "host 0"]
    return f"{sum(failed)} of {len(failed)} fail"


def killed(kills: int) -> str:
    """Return what 60 tasks do if so many processes are killed during their request."""
    processes = [Process(start=number / 20) for number in range(60 + kills)]
    simulation = Simulation(processes, max_steps=10**7)
    simulation.service.kills = kills
    simulation.run()
    failed = sum(isinstance(process.results[0], Exception) for process in simulation.alive)
    slowest = max(process.waited for process in simulation.alive)
    return f"{failed} fail, {sum(simulation.service.posts.values())} logins, slowest wait {slowest:.0f} s"


def outage(takes: float) -> str:
    """Return how many requests 300 pods that start within a minute send in an outage."""
    processes = [Process(start=number / 5, host=f"pod {number}") for number in range(300)]
    simulation = Simulation(processes, outcomes=["unavailable"], login_seconds=[takes], max_steps=10**7).run()
    slowest = max(process.waited for process in processes)
    return f"{sum(simulation.service.posts.values())} requests, slowest wait {slowest:.0f} s"


def slow_variables(seconds: float) -> str:
    """Return what 20 tasks without a credential meet, if each Variable takes so long and the password is wrong."""
    processes = [Process(start=number / 20) for number in range(20)]
    options = {"outcomes": ["rejected"], "login_seconds": [1.0], "delays": [seconds, 0.0]}
    simulation = Simulation(processes, **options).run()
    posts = sum(simulation.service.posts.values())
    return f"{posts} rejected, slowest wait {max(process.waited for process in processes):.0f} s"


def main() -> None:
    logging.disable(logging.CRITICAL)
    # Ten thousand threads.
    threading.stack_size(512 * 1024)
    numbers = [int(one) for one in sys.argv[1:]] or [*STARTS]
    rows = [load(number, within) for number in numbers for within in STARTS[number]]
    header = ["processes without a credential", "start", "logins", "requests of each", "median wait", "slowest wait"]
    print(table(header, rows))
    rows = [expiry(number, objects) for number in numbers for objects in (1, 64)]
    header = [
        "processes",
        "`LoanAuth` in each",
        "logins",
        "requests of each",
        "most reads in a second",
        "p99 held",
    ]
    print(table(header, rows))
    if not sys.argv[1:]:
        rows = [
            ["an authenticating task alone: time that claiming adds", seconds_of_claiming()],
            ["every other response is a 401: 1,000 loans in 50 tasks", logins_with_a_bad_node()],
            *([f"one host of two: {name}", healthy_failures(name)] for name in ("unavailable", "forbidden")),
            *([f"processes that are killed during their request: {kills}", killed(kills)] for kills in (1, 2, 3)),
            ["an outage, 300 pods within a minute, each request fails at once", outage(0.05)],
            ["the same, each request hangs for 30 s", outage(30.0)],
            *(
                [f"a wrong password, each Variable takes {seconds} s", slow_variables(seconds)]
                for seconds in (0.1, 0.3, 0.6, 0.9, 1.2)
            ),
        ]
        print(table(["what happens", "figure"], rows))
        delays = [0.1, 0.2, 0.3, 0.5]
        rows = [[f"{stall} s", *(str(extra_logins(delay, stall)) for delay in delays)] for stall in (0.3, 0.6)]
        print(table(["a step stalls for up to", *(f"delay {delay} s" for delay in delays)], rows))


if __name__ == "__main__":
    main()
