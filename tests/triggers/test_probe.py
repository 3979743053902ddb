"""
`triggers/probe.py`: one request per interval for all waiters, whichever of them join, leave or fail.

Requests are counted. Durations have generous bounds only, because the machine decides when a thread runs.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time

import pytest

from airflow_provider_loanauth.triggers import probe
from airflow_provider_loanauth.triggers.probe import MIN_INTERVAL, is_reachable, wait_until_ready

INTERVAL = 0.1
TIMEOUT = 15.0
UNKNOWN_HOST = "http://lender.invalid"


class RecordedRequests:
    """Replaces ``is_reachable``: records time, thread and timeout of each request, then returns or calls ``result``."""

    def __init__(self, result):
        self.result = result
        self.times, self.threads, self.timeouts = [], [], []

    def __call__(self, address, timeout):
        self.times.append(time.monotonic())
        self.threads.append(threading.current_thread())
        self.timeouts.append(timeout)
        return self.result(address, timeout) if callable(self.result) else self.result

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


def test_the_interval_doubles_up_to_max_interval(fake_requests):
    async def main():
        tasks = start_waiters(4, UNKNOWN_HOST, INTERVAL, max_interval=4 * INTERVAL)
        await count_reaches(fake_requests, 5)
        (shared,) = probes_of(asyncio.get_running_loop()).values()
        interval = shared._interval
        await cancel(tasks)
        return interval

    assert asyncio.run(main()) == 4 * INTERVAL
    # Four gaps: 2, 4, 4 and 4 intervals. Without back-off they would be 1 each.
    assert fake_requests.span > 10 * INTERVAL


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
        {"kind": "endless", "part": "headers"},
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
        await cancel([*tasks, ticking])
        return sum(thread.is_alive() for thread in real_requests.threads)

    alive = asyncio.run(main())
    assert alive <= probe.MAX_THREADS
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


def test_the_timeout_of_a_request_is_at_most_ten_seconds(fake_requests, monkeypatch):
    monkeypatch.setattr(probe, "REQUEST_TIMEOUT", 2 * INTERVAL)

    async def main():
        tasks = start_waiters(1, UNKNOWN_HOST, 4 * INTERVAL)
        await count_reaches(fake_requests, 1)
        await cancel(tasks)

    asyncio.run(main())
    assert set(fake_requests.timeouts) == {2 * INTERVAL}


def test_a_late_response_is_not_waited_for(fake_requests):
    """A service that sends octet by octet keeps its thread busy, but does not hold up the waiters."""
    released = threading.Event()
    fake_requests.result = lambda *_: fake_requests.number > 2 or released.wait(TIMEOUT)

    async def main():
        await all_released(start_waiters(3, UNKNOWN_HOST))

    asyncio.run(main())
    released.set()
    assert fake_requests.number >= 3


def test_responses_that_never_end_use_at_most_the_allowed_threads(fake_requests):
    released = threading.Event()
    fake_requests.result = lambda *_: released.wait(60) and False

    async def main():
        tasks = start_waiters(3, UNKNOWN_HOST)
        await count_reaches(fake_requests, probe.MAX_THREADS)
        await asyncio.sleep(4 * INTERVAL)
        number = fake_requests.number
        # It continues when they end.
        released.set()
        await count_reaches(fake_requests, number + 1)
        await cancel(tasks)
        return number

    assert asyncio.run(main()) == probe.MAX_THREADS


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
