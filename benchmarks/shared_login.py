"""
One login for many processes: simulated in virtual time against Airflow's Variables behind a busy API server.

``python -m benchmarks.shared_login`` prints the tables of ``benchmarks/SHARED_LOGIN.md``; with numbers of processes as
arguments, only those. The code is that of the package; the store and the service are those of the tests.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
from random import Random

from benchmarks.measurement import table
from tests.support.simulation import Process, Simulation

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
    from airflow_provider_loanauth.auth import shared_login

    usual, shared_login.MIN_CLAIM_DELAY = shared_login.MIN_CLAIM_DELAY, delay
    logins = 0
    for seed in range(BATCHES):
        source = Random(seed)
        steps = [source.lognormvariate(math.log(0.01), 0.5) for _ in range(2003)]
        delays = [step + (source.uniform(0, stall) if source.random() < STALLING else 0) for step in steps]
        processes = [Process(start=source.uniform(0, 1)) for _ in range(32)]
        simulation = Simulation(processes, delays=delays, conflicts=seed % 2 == 0, login_seconds=[3.0], seed=seed)
        logins += sum(simulation.run().service.posts.values())
    shared_login.MIN_CLAIM_DELAY = usual
    return logins - BATCHES


def main() -> None:
    logging.disable(logging.CRITICAL)
    # Ten thousand threads.
    threading.stack_size(512 * 1024)
    numbers = [int(one) for one in sys.argv[1:]] or [*STARTS]
    rows = [load(number, within) for number in numbers for within in STARTS[number]]
    header = ["processes without a credential", "start", "logins", "requests of each", "median wait", "slowest wait"]
    print(table(header, rows))
    if not sys.argv[1:]:
        delays = [0.1, 0.2, 0.3, 0.5]
        rows = [[f"{stall} s", *(str(extra_logins(delay, stall)) for delay in delays)] for stall in (0.3, 0.6)]
        print(table(["a step stalls for up to", *(f"delay {delay} s" for delay in delays)], rows))


if __name__ == "__main__":
    main()
