"""
`triggers/probe.py`: one request per interval for all waiters, whichever of them join, leave or fail.

Requests are counted. Durations have generous bounds only, because the machine decides when a thread runs.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import math
import os
import threading
import time

import pytest

from airflow_provider_loanauth.service.exchange import Exchange
from airflow_provider_loanauth.triggers import probe
from airflow_provider_loanauth.triggers.probe import MIN_INTERVAL, is_reachable, wait_until_ready
from tests.support.loopback import Loopback

INTERVAL = 0.1
TIMEOUT = 15.0
UNKNOWN_HOST = "http://lender.invalid"


class RecordedRequests:
    """Replaces ``is_reachable``: records what each request is sent with, then returns or calls ``result``."""

    def __init__(self, result):
        self.result = result
        self.times, self.threads, self.timeouts, self.proxies = [], [], [], []

    def __call__(self, address, exchange, proxy=None):
        self.times.append(time.monotonic())
        self.threads.append(threading.current_thread())
        self.timeouts.append(exchange.timeout)
        self.proxies.append(proxy)
        return self.result(address, exchange, proxy) if callable(self.result) else self.result

    @property
    def number(self):
        return len(self.times)

    @property
    def span(self):
        """Seconds from the first to the last. Single gaps vary, because a thread may begin late."""
        return self.times[-1] - self.times[0]


@pytest.fixture
def fake_requests(monkeypatch):
    """Requests that are not sent: the service is unavailable, unless a test sets another result."""
    recorded = RecordedRequests(False)
    monkeypatch.setattr(probe, "is_reachable", recorded)
    return recorded


@pytest.fixture
def real_requests(monkeypatch):
    """Requests that are sent over real sockets, and recorded."""
    recorded = RecordedRequests(is_reachable)
    monkeypatch.setattr(probe, "is_reachable", recorded)
    return recorded


@pytest.fixture
def long_requests(real_requests, monkeypatch):
    """Requests whose deadline no test waits for, although the interval is short."""
    monkeypatch.setattr(probe, "Exchange", lambda *_, **__: Exchange(3600.0, total=3600.0))
    return real_requests


def send_octets(connection, stopped):
    """Send a response octet by octet, without end."""
    while not stopped.wait(0.02):
        connection.sendall(b"H")


@pytest.fixture
def drip():
    """A service that sends one response octet by octet, and then those of the test."""
    with Loopback() as server:
        server.responses.append(send_octets)
        yield server


@pytest.fixture(params=["head", "tunnel"])
def endless(request, monkeypatch):
    """A service that sends each response octet by octet; or a proxy that does, for an https address."""
    with Loopback() as server:
        server.responses += [send_octets] * 100
        if request.param == "tunnel":
            monkeypatch.setenv("https_proxy", server.url)
            server.url = "https://lender.invalid"
        yield server


def threads_of_requests():
    """The thread of each request, and the one that keeps all deadlines, which ends within a second after them."""
    return [thread for thread in threading.enumerate() if thread.name.startswith(("probe of ", "deadlines of "))]


def all_threads_end():
    """Wait until no thread of a request is left. One of another test may have been interrupted, and end later."""
    deadline = time.monotonic() + 6 * TIMEOUT
    while threads_of_requests():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def start_waiters(number, address, interval=INTERVAL, **options):
    """Start waiters on the running loop."""
    return [asyncio.ensure_future(wait_until_ready(address, interval, **options)) for _ in range(number)]


async def cancel(tasks):
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def all_released(tasks):
    """Wait until every waiter was released."""
    await asyncio.wait_for(asyncio.gather(*tasks), TIMEOUT)


async def all_probes_stopped():
    """Wait until no probe is left."""
    deadline = time.monotonic() + TIMEOUT
    while probe_tasks():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def count_reaches(recorded, number):
    """Wait until that many requests were sent."""
    deadline = time.monotonic() + TIMEOUT
    while recorded.number < number:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def probes_of(loop):
    return dict(probe._PROBES.get(loop, {}))


def probe_tasks():
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("probe of ")]


# --- sharing ---


@pytest.mark.parametrize("number", [1, 300])
def test_one_request_per_interval_however_many_wait(number, sandbox, real_requests):
    sandbox.set_fault("status", where="probe")

    async def main():
        began = time.monotonic()
        tasks = start_waiters(number, sandbox.url)
        await count_reaches(real_requests, 5)
        assert not any(task.done() for task in tasks)
        sandbox.clear_faults()
        await all_released(tasks)
        return time.monotonic() - began

    elapsed = asyncio.run(main())
    assert 5 <= real_requests.number <= elapsed / INTERVAL + 3
    # The sandbox may not have counted a request that was cut short.
    assert 1 <= sandbox.counters().probe <= real_requests.number
    assert real_requests.span > 0.5 * (real_requests.number - 1) * INTERVAL


def test_waiters_that_join_at_different_times_share_too(sandbox, real_requests):
    sandbox.set_fault("status", where="probe")

    async def main():
        began, tasks = time.monotonic(), []
        for _ in range(20):
            tasks += start_waiters(5, sandbox.url)
            await asyncio.sleep(INTERVAL / 4)
        elapsed = time.monotonic() - began
        number = real_requests.number
        sandbox.clear_faults()
        await all_released(tasks)
        return number, elapsed

    number, elapsed = asyncio.run(main())
    assert 2 <= number <= elapsed / INTERVAL + 1


def test_addresses_do_not_share(fake_requests):
    async def main():
        tasks = start_waiters(3, UNKNOWN_HOST) + start_waiters(3, f"{UNKNOWN_HOST}/tenant1")
        await count_reaches(fake_requests, 4)
        assert len(probes_of(asyncio.get_running_loop())) == 2
        await cancel(tasks)

    asyncio.run(main())


def test_proxies_do_not_share(fake_requests):
    async def main():
        proxies = (None, "http://one.invalid:3128", "http://other.invalid:3128", "http://one.invalid:3128")
        tasks = [task for proxy in proxies for task in start_waiters(1, UNKNOWN_HOST, proxy=proxy)]
        await count_reaches(fake_requests, 3)
        assert len(probes_of(asyncio.get_running_loop())) == 3
        await cancel(tasks)
        assert probes_of(asyncio.get_running_loop()) == {}

    asyncio.run(main())
    assert set(fake_requests.proxies) == {None, "http://one.invalid:3128", "http://other.invalid:3128"}


# --- start and stop ---


def test_the_first_waiter_starts_a_probe_and_the_last_one_stops_it(fake_requests):
    async def main():
        loop = asyncio.get_running_loop()
        assert probe_tasks() == []
        first, second = start_waiters(2, UNKNOWN_HOST)
        await count_reaches(fake_requests, 1)
        assert [task.get_name() for task in probe_tasks()] == [f"probe of {UNKNOWN_HOST}"]
        await cancel([first])
        number = fake_requests.number
        await count_reaches(fake_requests, number + 2)
        await cancel([second])
        await all_probes_stopped()
        assert probes_of(loop) == {}
        number = fake_requests.number
        await asyncio.sleep(4 * INTERVAL)
        assert fake_requests.number == number
        # The next waiter starts another one.
        third = start_waiters(1, UNKNOWN_HOST)
        await count_reaches(fake_requests, number + 1)
        await cancel(third)
        assert probes_of(loop) == {}

    asyncio.run(main())


def test_nothing_is_left_when_all_were_released(sandbox):
    async def main():
        # Long enough for one response on any machine.
        await all_released(start_waiters(20, sandbox.url, 10 * INTERVAL))
        await asyncio.sleep(0)
        assert probe_tasks() == []
        assert probes_of(asyncio.get_running_loop()) == {}
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert sandbox.counters().probe == 1


def test_a_late_waiter_is_not_released_before_its_own_interval(fake_requests):
    """The service was unavailable when it joined, so the response to an earlier request does not release it at once."""
    fake_requests.result = True

    async def main():
        early = start_waiters(1, UNKNOWN_HOST)
        await asyncio.sleep(INTERVAL / 2)
        began = time.monotonic()
        late = start_waiters(1, UNKNOWN_HOST)
        await all_released(early + late)
        return time.monotonic() - began

    assert asyncio.run(main()) >= 0.99 * INTERVAL


# --- cancelling ---


@pytest.mark.parametrize("which", ["first", "middle", "last"])
@pytest.mark.parametrize("when", ["before", "between", "during"])
def test_a_cancelled_waiter_does_not_affect_others(which, when, sandbox, real_requests):
    sandbox.set_fault("hang" if when == "during" else "status", where="probe")

    async def main():
        tasks = start_waiters(5, sandbox.url)
        await count_reaches(real_requests, {"before": 0, "between": 2, "during": 1}[when])
        cancelled = tasks.pop({"first": 0, "middle": 2, "last": -1}[which])
        await cancel([cancelled])
        number = real_requests.number
        await count_reaches(real_requests, number + 2)
        assert not any(task.done() for task in tasks)
        sandbox.clear_faults()
        await all_released(tasks)

    asyncio.run(main())


def test_nothing_is_left_when_all_are_cancelled_during_a_request(sandbox, real_requests):
    sandbox.set_fault("hang", where="probe")

    async def main():
        tasks = start_waiters(5, sandbox.url)
        await count_reaches(real_requests, 1)
        await cancel(tasks)
        await all_probes_stopped()
        # Later waiters get another probe, which does not wait for the abandoned request.
        sandbox.clear_faults()
        await all_released(start_waiters(5, sandbox.url))

    asyncio.run(main())
    assert real_requests.number >= 2


def test_closing_the_loop_during_a_request_is_no_error(sandbox, real_requests):
    """The thread delivers its result to a closed loop; pytest would report an exception there."""
    sandbox.set_fault("latency", where="probe", seconds=0.5)

    async def main():
        tasks = start_waiters(1, sandbox.url, interval=1.0)
        await count_reaches(real_requests, 1)
        await cancel(tasks)

    asyncio.run(main())
    real_requests.threads[0].join(TIMEOUT)
    assert not real_requests.threads[0].is_alive()


# --- intervals ---


def test_different_intervals_are_kept(fake_requests):
    """The shortest interval applies while its waiter is there; afterwards the longer one does."""
    long = 20 * INTERVAL

    async def main():
        slow = start_waiters(1, UNKNOWN_HOST, long)
        fast = start_waiters(1, UNKNOWN_HOST, INTERVAL)
        began = time.monotonic()
        await count_reaches(fake_requests, 5)
        fast_pace = (time.monotonic() - began) / 5
        await cancel(fast)
        number = fake_requests.number
        await count_reaches(fake_requests, number + 1)
        await cancel(slow)
        return fast_pace

    fast_pace = asyncio.run(main())
    assert fast_pace < long / 2
    assert fake_requests.times[-1] - fake_requests.times[-2] > long / 2


def test_a_short_interval_does_not_wait_for_a_long_one(fake_requests):
    fake_requests.result = True

    async def main():
        slow = start_waiters(1, UNKNOWN_HOST, 600)
        await asyncio.sleep(0)
        await all_released(start_waiters(1, UNKNOWN_HOST, INTERVAL))
        assert not slow[0].done()
        await cancel(slow)

    asyncio.run(main())


def test_a_waiter_with_a_long_interval_is_released_after_its_interval(fake_requests):
    """A response to a request that another waiter needed counts, but the release waits for its own interval."""
    fake_requests.result = True

    async def main():
        began = time.monotonic()
        slow = start_waiters(1, UNKNOWN_HOST, 6 * INTERVAL)
        await all_released(start_waiters(1, UNKNOWN_HOST, INTERVAL))
        await all_released(slow)
        return time.monotonic() - began

    assert asyncio.run(main()) >= 5.9 * INTERVAL
    # The timeout is the shorter interval: no request was sent for the longer one.
    assert set(fake_requests.timeouts) == {INTERVAL}


@pytest.mark.parametrize("interval", [0, -1, 0.000001])
def test_a_tiny_interval_is_raised_to_the_minimum(interval, fake_requests):
    async def main():
        tasks = start_waiters(3, UNKNOWN_HOST, interval)
        await count_reaches(fake_requests, 6)
        await cancel(tasks)

    asyncio.run(main())
    assert fake_requests.span > 2.5 * MIN_INTERVAL


def interval_after(recorded, number, max_interval):
    """Return the interval of a probe after that many requests, or after one more."""

    async def main():
        tasks = start_waiters(4, UNKNOWN_HOST, INTERVAL, max_interval=max_interval)
        await count_reaches(recorded, number)
        (shared,) = probes_of(asyncio.get_running_loop()).values()
        interval = shared._interval
        await cancel(tasks)
        return interval

    return asyncio.run(main())


def test_the_interval_doubles_up_to_max_interval(fake_requests):
    assert interval_after(fake_requests, 5, 4 * INTERVAL) == 4 * INTERVAL
    # Four gaps: 2, 4, 4 and 4 intervals. Without back-off they would be 1 each.
    assert fake_requests.span > 10 * INTERVAL


def test_the_interval_doubles_each_time(fake_requests):
    assert interval_after(fake_requests, 3, 1000 * INTERVAL) in {4 * INTERVAL, 8 * INTERVAL}


def test_requests_for_a_shorter_interval_do_not_count_as_back_off(fake_requests):
    """A waiter that backs off keeps its first interval while another one needs more requests."""

    async def main():
        backing_off = start_waiters(1, UNKNOWN_HOST, 100, max_interval=600)
        fast = start_waiters(1, UNKNOWN_HOST, INTERVAL)
        await count_reaches(fake_requests, 12)
        (shared,) = probes_of(asyncio.get_running_loop()).values()
        intervals = [shared._interval]
        # The waiter that needed the short interval leaves; then the other one's applies.
        await cancel(fast)
        deadline = time.monotonic() + TIMEOUT
        while shared._interval == INTERVAL:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        intervals.append(shared._interval)
        await cancel(backing_off)
        return intervals

    assert asyncio.run(main()) == [INTERVAL, 100]


def test_a_new_waiter_shortens_the_interval_of_a_probe_that_backed_off(fake_requests):
    """It gets its first request in time, and the back-off starts again from its interval."""

    async def main():
        early = start_waiters(1, UNKNOWN_HOST, INTERVAL, max_interval=600)
        await count_reaches(fake_requests, 4)
        (shared,) = probes_of(asyncio.get_running_loop()).values()
        backed_off = shared._interval
        await asyncio.sleep(2 * INTERVAL)
        began = time.monotonic()
        late = start_waiters(1, UNKNOWN_HOST, INTERVAL, max_interval=600)
        await asyncio.sleep(0)
        reset = shared._interval
        number = fake_requests.number
        await count_reaches(fake_requests, number + 1)
        waited = fake_requests.times[number] - began
        await cancel(early + late)
        return backed_off, reset, waited

    backed_off, reset, waited = asyncio.run(main())
    assert backed_off >= 8 * INTERVAL
    assert reset == INTERVAL
    # At its own interval, and not at the end of the longer one.
    assert 0.99 * INTERVAL <= waited < 5 * INTERVAL


def test_a_waiter_that_joined_a_moment_ago_does_not_back_off_yet(fake_requests):
    """Its next request comes after its own interval, although the probe has just sent one for another waiter."""

    async def main():
        early = start_waiters(1, UNKNOWN_HOST, INTERVAL, max_interval=600)
        await asyncio.sleep(INTERVAL / 2)
        late = start_waiters(1, UNKNOWN_HOST, INTERVAL, max_interval=600)
        await count_reaches(fake_requests, 2)
        await cancel(early + late)

    asyncio.run(main())
    # The timeout is the interval of that moment; backed off, it would be two intervals.
    assert fake_requests.timeouts[:2] == [INTERVAL, INTERVAL]


@pytest.mark.parametrize(("seconds_left", "expected"), [(0.1, 10.0), (0.0, 20.0), (-1.0, 20.0)])
def test_a_waiter_backs_off_after_its_first_interval(seconds_left, expected):
    async def main():
        loop = asyncio.get_running_loop()
        waiting = probe.Probe(UNKNOWN_HOST, loop)
        not_before = waiting._requested_at + seconds_left
        waiter = probe._Waiter(10.0, 600.0, not_before, math.inf, loop.create_future())
        waiting._waiters[waiter] = None
        waiting._interval = 10.0
        waiting._back_off()
        return waiting._interval

    assert asyncio.run(main()) == expected


def test_a_max_interval_below_the_interval_does_not_shorten_it(fake_requests):
    async def main():
        tasks = start_waiters(1, UNKNOWN_HOST, 2 * INTERVAL, max_interval=INTERVAL)
        await count_reaches(fake_requests, 3)
        await cancel(tasks)

    asyncio.run(main())
    assert fake_requests.span > 3 * INTERVAL


# --- failures ---


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "refuse"},
        {"kind": "stall"},
        {"kind": "hang"},
        {"kind": "status", "status": 429},
        {"kind": "status", "status": 429, "retry_after": 0},
        {"kind": "status", "status": 500},
        {"kind": "status", "status": 502, "shape": "html"},
        {"kind": "status", "status": 503},
        {"kind": "status", "status": 504, "shape": "empty"},
    ],
    ids=lambda fault: "-".join(map(str, fault.values())),
)
def test_every_failure_is_followed_by_an_interval(fault, sandbox, real_requests):
    fault = dict(fault)
    sandbox.set_fault(fault.pop("kind"), **fault)

    async def main():
        tasks = start_waiters(20, sandbox.url)
        await count_reaches(real_requests, 4)
        assert not any(task.done() for task in tasks)
        sandbox.clear_faults()
        await all_released(tasks)

    asyncio.run(main())
    assert real_requests.span > 0.5 * (real_requests.number - 1) * INTERVAL


def test_the_interval_counts_from_a_request_that_began_late(monkeypatch, fake_requests):
    """On a busy machine a thread begins later than it was started."""
    interval, really, delays = 0.5, probe.run_in_thread, iter([0.4])

    async def run_late(function, **kwargs):
        await asyncio.sleep(next(delays, 0.0))
        return await really(function, **kwargs)

    monkeypatch.setattr(probe, "run_in_thread", run_late)

    async def main():
        tasks = start_waiters(1, "http://127.0.0.1:1", interval)
        await count_reaches(fake_requests, 2)
        await cancel(tasks)

    asyncio.run(main())
    assert fake_requests.span > 0.5 * interval


def test_a_hung_service_blocks_nothing(sandbox, real_requests):
    """Neither the event loop nor the next request; and the number of hung requests is bounded."""
    sandbox.set_fault("hang", where="probe")
    ticks = []

    async def tick():
        while True:
            ticks.append(time.monotonic())
            await asyncio.sleep(0.01)

    async def main():
        ticking = asyncio.ensure_future(tick())
        tasks = start_waiters(50, sandbox.url)
        await count_reaches(real_requests, 6)
        # A thread that has returned its result may not have ended yet.
        deadline = time.monotonic() + TIMEOUT
        while sum(thread.is_alive() for thread in real_requests.threads) > 1:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        await cancel([*tasks, ticking])

    asyncio.run(main())
    # A blocked event loop would not tick at all while six requests hang.
    assert len(ticks) > 8
    for thread in real_requests.threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()


def test_a_request_takes_at_most_one_interval(fake_requests):
    async def main():
        tasks = start_waiters(1, UNKNOWN_HOST, INTERVAL) + start_waiters(1, UNKNOWN_HOST, 600)
        await count_reaches(fake_requests, 1)
        await cancel(tasks)

    asyncio.run(main())
    assert set(fake_requests.timeouts) == {INTERVAL}


def test_the_connection_and_the_head_together_take_at_most_one_interval(fake_requests):
    seconds = []

    def connect_and_receive(_, exchange, __):
        with exchange:
            began = time.monotonic()
            exchange.connected()
            seconds.append(exchange.deadline - began)
            exchange.head_received()
            seconds.append(exchange.deadline - began)
        return True

    fake_requests.result = connect_and_receive
    asyncio.run(wait_until_ready(UNKNOWN_HOST, INTERVAL))
    assert all(0 < left < 1.01 * INTERVAL for left in seconds), seconds


def test_the_timeout_of_a_request_is_at_most_ten_seconds(fake_requests, monkeypatch):
    monkeypatch.setattr(probe, "REQUEST_TIMEOUT", 2 * INTERVAL)

    async def main():
        tasks = start_waiters(1, UNKNOWN_HOST, 4 * INTERVAL)
        await count_reaches(fake_requests, 1)
        await cancel(tasks)

    asyncio.run(main())
    assert set(fake_requests.timeouts) == {2 * INTERVAL}


def test_an_endless_response_does_not_hold_up_the_waiters(drip, real_requests):
    """It ends after an interval, and the response to the next request releases them."""
    drip.responses.append(b"HTTP/1.1 404 made up\r\n\r\n")
    asyncio.run(asyncio.wait_for(wait_until_ready(drip.url, INTERVAL), TIMEOUT))
    assert real_requests.number == 2


def test_a_request_that_does_not_end_allows_no_other(fake_requests):
    """
    Nothing interrupts the lookup of a host name. However many sensors wait one after the other, on however many event
    loops, there is one request for each address and proxy.
    """
    ended = threading.Event()
    fake_requests.result = lambda *_: ended.wait(60) and False

    async def one_after_the_other(number, **options):
        for _ in range(number):
            tasks = start_waiters(1, UNKNOWN_HOST, MIN_INTERVAL, **options)
            await asyncio.sleep(3 * MIN_INTERVAL)
            await cancel(tasks)

    async def next_request(number):
        tasks = start_waiters(1, UNKNOWN_HOST)
        await count_reaches(fake_requests, number)
        await cancel(tasks)

    try:
        asyncio.run(one_after_the_other(5))
        asyncio.run(one_after_the_other(5))
        assert fake_requests.number == 1
        asyncio.run(one_after_the_other(5, proxy="http://proxy.invalid:3128"))
        assert fake_requests.number == 2
    finally:
        ended.set()
    # It continues when they have ended.
    asyncio.run(next_request(3))


def test_while_a_request_does_not_end_the_waiters_wait(fake_requests):
    """A probe that sends no request does not take that for a response, and sends one later."""
    ended = threading.Event()
    fake_requests.result = lambda *_: fake_requests.number > 1 or ended.wait(60)

    async def main():
        await cancel_after_a_request()
        tasks = start_waiters(3, UNKNOWN_HOST, MIN_INTERVAL)
        await asyncio.sleep(4 * MIN_INTERVAL)
        assert not any(task.done() for task in tasks)
        ended.set()
        await all_released(tasks)

    async def cancel_after_a_request():
        tasks = start_waiters(1, UNKNOWN_HOST, MIN_INTERVAL)
        await count_reaches(fake_requests, 1)
        await cancel(tasks)

    asyncio.run(main())
    assert fake_requests.number == 2


def test_when_the_last_waiter_leaves_the_request_ends(endless, long_requests):
    """Long before its deadline, and after each of many sensors that wait one after the other."""

    async def main():
        for number in range(1, 6):
            first, *others = start_waiters(3, endless.url, MIN_INTERVAL)
            await count_reaches(long_requests, number)
            await cancel(others)
            assert long_requests.threads[-1].is_alive()
            assert len(threads_of_requests()) <= 2
            await cancel([first])
            await asyncio.to_thread(long_requests.threads[-1].join, TIMEOUT)
            assert not long_requests.threads[-1].is_alive()

    asyncio.run(main())
    all_threads_end()


def test_a_request_on_a_loop_that_stopped_ends_at_its_deadline(endless, real_requests):
    loop = asyncio.new_event_loop()
    left = loop.create_task(wait_until_ready(endless.url, INTERVAL))
    loop.run_until_complete(count_reaches(real_requests, 1))
    all_threads_end()
    left.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        loop.run_until_complete(left)
    loop.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_that_was_forked_during_a_request_sends_its_own(fake_requests):
    ended = threading.Event()
    fake_requests.result = lambda *_: fake_requests.number > 1 or ended.wait(60)

    async def request():
        tasks = start_waiters(1, UNKNOWN_HOST, MIN_INTERVAL)
        await count_reaches(fake_requests, 1)
        await cancel(tasks)

    try:
        asyncio.run(request())
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(asyncio.wait_for(wait_until_ready(UNKNOWN_HOST, MIN_INTERVAL), TIMEOUT))
            finally:
                os._exit(fake_requests.number)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    finally:
        ended.set()


@pytest.mark.parametrize("where", ["request", "start of the thread"])
def test_an_error_of_the_probe_reaches_every_waiter(where, fake_requests, monkeypatch):
    """An address that cannot be requested, or no thread left: nobody waits for ever."""

    def fail(*_):
        raise UnicodeError("made up")

    if where == "request":
        fake_requests.result = fail
    else:
        monkeypatch.setattr(threading.Thread, "start", fail)

    async def main():
        tasks = start_waiters(5, UNKNOWN_HOST)
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), TIMEOUT)
        assert [type(result) for result in results] == [UnicodeError] * 5
        await asyncio.sleep(0)
        assert probe_tasks() == []
        assert probes_of(asyncio.get_running_loop()) == {}

    asyncio.run(main())


def test_an_invalid_host_name_is_an_error():
    """Python rejects it before any request: the trigger fails, and the sensor with it."""

    async def main():
        with pytest.raises(UnicodeError):
            await asyncio.wait_for(wait_until_ready(f"http://{'x' * 80}.invalid", INTERVAL), TIMEOUT)

    asyncio.run(main())


# --- threads and loops ---


def test_the_request_runs_neither_on_the_loop_nor_in_its_default_pool(sandbox, real_requests):
    class Forbidden(concurrent.futures.ThreadPoolExecutor):
        def submit(self, *_, **__):
            raise AssertionError("the default pool was used")

    async def main():
        asyncio.get_running_loop().set_default_executor(Forbidden())
        with pytest.raises(AssertionError, match="the default pool was used"):
            await asyncio.to_thread(print)
        await all_released(start_waiters(3, sandbox.url))
        return threading.current_thread()

    loops_thread = asyncio.run(main())
    thread = real_requests.threads[0]
    assert thread is not loops_thread
    assert thread.name == f"probe of {sandbox.url}"
    assert thread.daemon


def test_the_default_pool_stays_free_while_many_wait(sandbox, real_requests):
    sandbox.set_fault("hang", where="probe")

    async def main():
        tasks = start_waiters(300, sandbox.url)
        await count_reaches(real_requests, 2)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "done"), TIMEOUT) == "done"
        await cancel(tasks)

    asyncio.run(main())


def test_two_event_loops_have_a_probe_each(sandbox, real_requests):
    sandbox.set_fault("status", where="probe")
    results, errors = [], []

    def run():
        async def main():
            tasks = start_waiters(10, sandbox.url)
            await count_reaches(real_requests, 8)
            await asyncio.to_thread(sandbox.clear_faults)
            await all_released(tasks)
            results.append(len(probes_of(asyncio.get_running_loop())))

        try:
            asyncio.run(main())
        except BaseException as error:  # noqa: BLE001 - asserted below
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert errors == []
    assert results == [0, 0]


def test_an_abandoned_loop_does_not_affect_the_next(fake_requests):
    """A loop that stops without cancelling its tasks leaves its probe behind; the next loop has its own."""
    loop = asyncio.new_event_loop()
    left = loop.create_task(wait_until_ready(UNKNOWN_HOST, INTERVAL))
    loop.run_until_complete(asyncio.sleep(0))
    assert probes_of(loop)
    fake_requests.result = True
    asyncio.run(wait_until_ready(UNKNOWN_HOST, INTERVAL))
    left.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        loop.run_until_complete(left)
    loop.close()
