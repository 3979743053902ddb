"""
`triggers/probe.py`: one question per interval for all who wait, whoever comes, goes or fails.

Questions are counted; time is only ever bounded generously: when a thread gets its turn is the machine's affair.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time

import pytest

from airflow_provider_loanauth.triggers import probe
from airflow_provider_loanauth.triggers.probe import MIN_INTERVAL, wait_until_ready
from airflow_provider_loanauth.triggers.question import ask

INTERVAL = 0.1
PATIENCE = 15.0
NOWHERE = "http://lender.invalid"


class Questions:
    """Stands where the question is asked: keeps when, in which thread and for how long, then answers or really asks."""

    def __init__(self, answer):
        self.answer = answer
        self.times, self.threads, self.seconds = [], [], []

    def __call__(self, address, seconds):
        self.times.append(time.monotonic())
        self.threads.append(threading.current_thread())
        self.seconds.append(seconds)
        return self.answer(address, seconds) if callable(self.answer) else self.answer

    @property
    def number(self):
        return len(self.times)

    @property
    def span(self):
        """Seconds from the first to the last. Single gaps say little: a thread may begin late."""
        return self.times[-1] - self.times[0]


@pytest.fixture
def questions(monkeypatch):
    asked = Questions(False)
    monkeypatch.setattr(probe, "ask", asked)
    return asked


@pytest.fixture
def real_questions(monkeypatch):
    """Real questions over real sockets, watched."""
    asked = Questions(ask)
    monkeypatch.setattr(probe, "ask", asked)
    return asked


def waiting(number, address, interval=INTERVAL, **rest):
    """Start waiters on the running loop."""
    return [asyncio.ensure_future(wait_until_ready(address, interval, **rest)) for _ in range(number)]


async def gone(tasks):
    """Cancel tasks, and wait for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def all_go(tasks):
    await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)


async def probes_have_ended():
    """Wait until no probe is left."""
    deadline = time.monotonic() + PATIENCE
    while tasks_of_probes():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def number_of(questions, number):
    """Wait until so many questions were asked."""
    deadline = time.monotonic() + PATIENCE
    while questions.number < number:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def probes_of(loop):
    return dict(probe._PROBES.get(loop, {}))


def tasks_of_probes():
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("probe of ")]


# --- sharing ---


@pytest.mark.parametrize("number", [1, 300])
def test_one_question_an_interval_however_many_wait(number, sandbox, real_questions):
    sandbox.set_fault("status", where="probe")

    async def main():
        began = time.monotonic()
        tasks = waiting(number, sandbox.url)
        await number_of(real_questions, 5)
        assert not any(task.done() for task in tasks)
        sandbox.clear_faults()
        await all_go(tasks)
        return time.monotonic() - began

    elapsed = asyncio.run(main())
    assert 5 <= real_questions.number <= elapsed / INTERVAL + 3
    # Of a question that is cut short the sandbox may not have heard.
    assert 1 <= sandbox.counters().probe <= real_questions.number
    assert real_questions.span > 0.5 * (real_questions.number - 1) * INTERVAL


def test_waiters_that_come_at_different_times_share_too(sandbox, real_questions):
    sandbox.set_fault("status", where="probe")

    async def main():
        began, tasks = time.monotonic(), []
        for _ in range(20):
            tasks += waiting(5, sandbox.url)
            await asyncio.sleep(INTERVAL / 4)
        elapsed = time.monotonic() - began
        number = real_questions.number
        sandbox.clear_faults()
        await all_go(tasks)
        return number, elapsed

    number, elapsed = asyncio.run(main())
    assert 2 <= number <= elapsed / INTERVAL + 1


def test_addresses_do_not_share(questions):
    async def main():
        tasks = waiting(3, NOWHERE) + waiting(3, f"{NOWHERE}/tenant1")
        await number_of(questions, 4)
        assert len(probes_of(asyncio.get_running_loop())) == 2
        await gone(tasks)

    asyncio.run(main())


# --- beginning and end ---


def test_a_probe_begins_with_the_first_and_ends_with_the_last(questions):
    async def main():
        loop = asyncio.get_running_loop()
        assert tasks_of_probes() == []
        first, second = waiting(2, NOWHERE)
        await number_of(questions, 1)
        assert [task.get_name() for task in tasks_of_probes()] == [f"probe of {NOWHERE}"]
        await gone([first])
        number = questions.number
        await number_of(questions, number + 2)
        await gone([second])
        await probes_have_ended()
        assert probes_of(loop) == {}
        number = questions.number
        await asyncio.sleep(4 * INTERVAL)
        assert questions.number == number
        # And it begins again.
        third = waiting(1, NOWHERE)
        await number_of(questions, number + 1)
        await gone(third)
        assert probes_of(loop) == {}

    asyncio.run(main())


def test_nothing_is_left_when_all_have_gone(sandbox):
    async def main():
        # Long enough for one answer on any machine.
        await all_go(waiting(20, sandbox.url, 10 * INTERVAL))
        await asyncio.sleep(0)
        assert tasks_of_probes() == []
        assert probes_of(asyncio.get_running_loop()) == {}
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert sandbox.counters().probe == 1


def test_who_comes_after_the_answer_is_not_let_go_by_it(questions):
    """A waiter was just turned away, so an answer to an older question says nothing to it."""
    questions.answer = True

    async def main():
        early = waiting(1, NOWHERE)
        await asyncio.sleep(INTERVAL / 2)
        began = time.monotonic()
        late = waiting(1, NOWHERE)
        await all_go(early + late)
        return time.monotonic() - began

    assert asyncio.run(main()) >= 0.99 * INTERVAL


# --- cancelling ---


@pytest.mark.parametrize("which", ["first", "middle", "last"])
@pytest.mark.parametrize("when", ["before", "between", "during"])
def test_one_that_is_cancelled_harms_no_other(which, when, sandbox, real_questions):
    sandbox.set_fault("hang" if when == "during" else "status", where="probe")

    async def main():
        tasks = waiting(5, sandbox.url)
        await number_of(real_questions, {"before": 0, "between": 2, "during": 1}[when])
        victim = tasks.pop({"first": 0, "middle": 2, "last": -1}[which])
        await gone([victim])
        number = real_questions.number
        await number_of(real_questions, number + 2)
        assert not any(task.done() for task in tasks)
        sandbox.clear_faults()
        await all_go(tasks)

    asyncio.run(main())


def test_all_that_are_cancelled_during_a_question_leave_nothing(sandbox, real_questions):
    sandbox.set_fault("hang", where="probe")

    async def main():
        tasks = waiting(5, sandbox.url)
        await number_of(real_questions, 1)
        await gone(tasks)
        await probes_have_ended()
        # Who comes now gets a probe of its own, which the abandoned question does not hold up.
        sandbox.clear_faults()
        await all_go(waiting(5, sandbox.url))

    asyncio.run(main())
    assert real_questions.number >= 2


def test_a_loop_that_is_closed_during_a_question_is_no_error(sandbox, real_questions):
    """The thread comes back to a loop that is gone; pytest would report its exception."""
    sandbox.set_fault("latency", where="probe", seconds=0.5)

    async def main():
        tasks = waiting(1, sandbox.url, interval=1.0)
        await number_of(real_questions, 1)
        await gone(tasks)

    asyncio.run(main())
    real_questions.threads[0].join(PATIENCE)
    assert not real_questions.threads[0].is_alive()


# --- intervals ---


def test_different_intervals_are_kept(questions):
    """The short one sets the pace while it is there; the long one does not slow it, and is not asked for more often."""
    long = 20 * INTERVAL

    async def main():
        slow = waiting(1, NOWHERE, long)
        fast = waiting(1, NOWHERE, INTERVAL)
        began = time.monotonic()
        await number_of(questions, 5)
        fast_pace = (time.monotonic() - began) / 5
        await gone(fast)
        number = questions.number
        await number_of(questions, number + 1)
        await gone(slow)
        return fast_pace

    fast_pace = asyncio.run(main())
    assert fast_pace < long / 2
    assert questions.times[-1] - questions.times[-2] > long / 2


def test_one_with_a_short_interval_does_not_wait_for_a_long_one(questions):
    questions.answer = True

    async def main():
        slow = waiting(1, NOWHERE, 600)
        await asyncio.sleep(0)
        await all_go(waiting(1, NOWHERE, INTERVAL))
        assert not slow[0].done()
        await gone(slow)

    asyncio.run(main())


def test_one_with_a_long_interval_goes_when_its_interval_has_passed(questions):
    """An answer to another's question is as good, but no look comes before its own interval."""
    questions.answer = True

    async def main():
        began = time.monotonic()
        slow = waiting(1, NOWHERE, 6 * INTERVAL)
        await all_go(waiting(1, NOWHERE, INTERVAL))
        await all_go(slow)
        return time.monotonic() - began

    assert asyncio.run(main()) >= 5.9 * INTERVAL
    # As long as the one may take who needs it sooner: none was asked for the other.
    assert set(questions.seconds) == {INTERVAL}


@pytest.mark.parametrize("interval", [0, -1, 0.000001])
def test_no_interval_runs_hot(interval, questions):
    async def main():
        tasks = waiting(3, NOWHERE, interval)
        await number_of(questions, 6)
        await gone(tasks)

    asyncio.run(main())
    assert questions.span > 2.5 * MIN_INTERVAL


def test_with_a_ceiling_the_interval_doubles_up_to_it(questions):
    async def main():
        tasks = waiting(4, NOWHERE, INTERVAL, ceiling=4 * INTERVAL)
        await number_of(questions, 5)
        (shared,) = probes_of(asyncio.get_running_loop()).values()
        intervals = [waiter.interval for waiter in shared._waiters]
        await gone(tasks)
        return intervals

    assert asyncio.run(main()) == [4 * INTERVAL] * 4
    # 2, 4, 4 and 4 intervals; undoubled, it would be 4.
    assert questions.span > 10 * INTERVAL


def test_who_backs_off_is_not_slowed_by_others_questions(questions):
    """A question that another needed does not count as one of the doubled ones."""

    async def main():
        backing_off = waiting(1, NOWHERE, 100, ceiling=600)
        fast = waiting(1, NOWHERE, INTERVAL)
        await number_of(questions, 12)
        (shared,) = probes_of(asyncio.get_running_loop()).values()
        intervals = sorted(waiter.interval for waiter in shared._waiters)
        await gone(backing_off + fast)
        return intervals

    assert asyncio.run(main()) == [INTERVAL, 100]


def test_a_ceiling_below_the_interval_does_not_shorten_it(questions):
    async def main():
        tasks = waiting(1, NOWHERE, 2 * INTERVAL, ceiling=INTERVAL)
        await number_of(questions, 3)
        await gone(tasks)

    asyncio.run(main())
    assert questions.span > 3 * INTERVAL


# --- failures ---


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "refuse"},
        {"kind": "stall"},
        {"kind": "hang"},
        {"kind": "endless-headers"},
        {"kind": "status", "status": 429},
        {"kind": "status", "status": 429, "retry_after": 0},
        {"kind": "status", "status": 500},
        {"kind": "status", "status": 502, "shape": "html"},
        {"kind": "status", "status": 503},
        {"kind": "status", "status": 504, "shape": "empty"},
    ],
    ids=lambda fault: "-".join(map(str, fault.values())),
)
def test_whatever_fails_an_interval_is_slept(fault, sandbox, real_questions):
    fault = dict(fault)
    sandbox.set_fault(fault.pop("kind"), **fault)

    async def main():
        tasks = waiting(20, sandbox.url)
        await number_of(real_questions, 4)
        assert not any(task.done() for task in tasks)
        sandbox.clear_faults()
        await all_go(tasks)

    asyncio.run(main())
    assert real_questions.span > 0.5 * (real_questions.number - 1) * INTERVAL


def test_a_service_that_hangs_holds_up_nobody(sandbox, real_questions):
    """Neither the loop nor the next question; and what hangs is bounded."""
    sandbox.set_fault("hang", where="probe")
    ticks = []

    async def tick():
        while True:
            ticks.append(time.monotonic())
            await asyncio.sleep(0.01)

    async def main():
        ticking = asyncio.ensure_future(tick())
        tasks = waiting(50, sandbox.url)
        await number_of(real_questions, 6)
        await gone([*tasks, ticking])
        return sum(thread.is_alive() for thread in real_questions.threads)

    alive = asyncio.run(main())
    assert alive <= probe.MAX_THREADS
    # A loop that waits for an answer would not tick at all while six questions hang.
    assert len(ticks) > 8
    for thread in real_questions.threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_question_takes_no_longer_than_the_shortest_interval(questions):
    async def main():
        tasks = waiting(1, NOWHERE, INTERVAL) + waiting(1, NOWHERE, 600)
        await number_of(questions, 1)
        await gone(tasks)

    asyncio.run(main())
    assert set(questions.seconds) == {INTERVAL}


def test_a_question_takes_no_longer_than_ten_seconds(questions, monkeypatch):
    monkeypatch.setattr(probe, "REQUEST_TIMEOUT", 2 * INTERVAL)

    async def main():
        tasks = waiting(1, NOWHERE, 4 * INTERVAL)
        await number_of(questions, 1)
        await gone(tasks)

    asyncio.run(main())
    assert set(questions.seconds) == {2 * INTERVAL}


def test_a_question_that_comes_back_too_late_is_not_waited_for(questions):
    """A service that drips octets keeps its thread, but not those who wait."""
    released = threading.Event()
    questions.answer = lambda *_: questions.number > 2 or released.wait(PATIENCE)

    async def main():
        await all_go(waiting(3, NOWHERE))

    asyncio.run(main())
    released.set()
    assert questions.number >= 3


def test_answers_that_never_end_hold_no_more_threads_than_allowed(questions):
    released = threading.Event()
    questions.answer = lambda *_: released.wait(60) and False

    async def main():
        tasks = waiting(3, NOWHERE)
        await number_of(questions, probe.MAX_THREADS)
        await asyncio.sleep(4 * INTERVAL)
        number = questions.number
        # It goes on when they end.
        released.set()
        await number_of(questions, number + 1)
        await gone(tasks)
        return number

    assert asyncio.run(main()) == probe.MAX_THREADS


@pytest.mark.parametrize("where", ["asking", "starting"])
def test_an_error_of_the_probe_reaches_all_who_wait(where, questions, monkeypatch):
    """An address that cannot be asked, or no thread left: not silence for ever."""

    def fail(*_):
        raise UnicodeError("made up")

    if where == "asking":
        questions.answer = fail
    else:
        monkeypatch.setattr(threading.Thread, "start", fail)

    async def main():
        tasks = waiting(5, NOWHERE)
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), PATIENCE)
        assert [type(result) for result in results] == [UnicodeError] * 5
        await asyncio.sleep(0)
        assert tasks_of_probes() == []
        assert probes_of(asyncio.get_running_loop()) == {}

    asyncio.run(main())


def test_a_host_name_that_cannot_be_looked_up_is_told():
    """Python refuses it before any request: the trigger fails, the sensor with it."""

    async def main():
        with pytest.raises(UnicodeError):
            await asyncio.wait_for(wait_until_ready(f"http://{'x' * 80}.invalid", INTERVAL), PATIENCE)

    asyncio.run(main())


# --- threads and loops ---


def test_the_question_runs_neither_on_the_loop_nor_in_its_default_pool(sandbox, real_questions):
    class Forbidden(concurrent.futures.ThreadPoolExecutor):
        def submit(self, *_, **__):
            raise AssertionError("the default pool was used")

    async def main():
        asyncio.get_running_loop().set_default_executor(Forbidden())
        with pytest.raises(AssertionError, match="the default pool was used"):
            await asyncio.to_thread(print)
        await all_go(waiting(3, sandbox.url))
        return threading.current_thread()

    loops_thread = asyncio.run(main())
    thread = real_questions.threads[0]
    assert thread is not loops_thread
    assert thread.name == f"probe of {sandbox.url}"
    assert thread.daemon


def test_the_default_pool_stays_free_while_many_wait(sandbox, real_questions):
    sandbox.set_fault("hang", where="probe")

    async def main():
        tasks = waiting(300, sandbox.url)
        await number_of(real_questions, 2)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "done"), PATIENCE) == "done"
        await gone(tasks)

    asyncio.run(main())


def test_two_event_loops_have_a_probe_each(sandbox, real_questions):
    sandbox.set_fault("status", where="probe")
    results, errors = [], []

    def run():
        async def main():
            tasks = waiting(10, sandbox.url)
            await number_of(real_questions, 8)
            await asyncio.to_thread(sandbox.clear_faults)
            await all_go(tasks)
            results.append(len(probes_of(asyncio.get_running_loop())))

        try:
            asyncio.run(main())
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert errors == []
    assert results == [0, 0]


def test_a_loop_that_ended_badly_does_not_disturb_the_next(questions):
    """A loop that stops without cancelling leaves its probe behind; the next loop has its own."""
    loop = asyncio.new_event_loop()
    left = loop.create_task(wait_until_ready(NOWHERE, INTERVAL))
    loop.run_until_complete(asyncio.sleep(0))
    assert probes_of(loop)
    questions.answer = True
    asyncio.run(wait_until_ready(NOWHERE, INTERVAL))
    left.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        loop.run_until_complete(left)
    loop.close()
