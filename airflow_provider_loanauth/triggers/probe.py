"""
One probe for all who wait for an address. Knows an address and seconds: no credential, no Connection, nothing of
Airflow.

An event loop asks an address at most once per interval, however many wait for it. The question is a plain ``GET``
without credentials, asked in a thread of its own: neither on the event loop nor in its default thread pool, where
others would starve behind a service that hangs.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from airflow_provider_loanauth.triggers.question import ask

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future, Task

#: Seconds that one question may take; never more than the shortest interval of those who wait.
REQUEST_TIMEOUT = 10.0
#: Questions of one address that may be unanswered at a time.
MAX_THREADS = 4
#: A shorter interval, in seconds, is taken as this: no loop may run hot.
MIN_INTERVAL = 0.05


@dataclass(eq=False)
class Waiter:
    """
    Somebody who waits.

    :param interval: seconds between two questions that this waiter needs
    :param ceiling: the interval doubles with each question up to this many seconds; None: it stays as it is
    :param not_before: loop time before which this waiter does not go: it was just turned away
    :param due: loop time of the next question that this waiter needs
    :param answered: done when this waiter may go
    """

    interval: float
    ceiling: float | None
    not_before: float
    due: float
    answered: Future[None]

    def reschedule(self, asked_at: float) -> None:
        """Count a question, whoever it was asked for, as this waiter's."""
        if self.ceiling is not None and asked_at >= self.due:
            self.interval = max(self.interval, min(self.interval * 2, self.ceiling))
        self.due = asked_at + self.interval

    def go(self) -> None:
        """Let this waiter go, unless it has gone."""
        if not self.answered.done():
            self.answered.set_result(None)


class Probe:
    """
    Asks one address for all who wait for it on one event loop; started with the first of them, ended with the last.

    :param address: what to ask
    :param loop: the running event loop
    """

    def __init__(self, address: str, loop: AbstractEventLoop) -> None:
        self._address = address
        self._loop = loop
        self._waiters: set[Waiter] = set()
        self._task: Task[None] | None = None
        self._threads: list[threading.Thread] = []
        self._asked_at = 0.0
        self._sooner = asyncio.Event()
        self._wakes_at = 0.0

    async def wait(self, interval: float, ceiling: float | None) -> None:
        """
        Wait until the address answers, and one interval at least.

        :param interval: seconds
        :param ceiling: see :class:`Waiter`
        """
        interval = max(interval, MIN_INTERVAL)
        due = self._loop.time() + interval
        waiter = Waiter(interval, ceiling, due, due, self._loop.create_future())
        self._waiters.add(waiter)
        if self._task is None:
            self._task = self._loop.create_task(self._run(), name=f"probe of {self._address}")
        elif due < self._wakes_at:
            self._sooner.set()
        try:
            await waiter.answered
        finally:
            # Also when cancelled: the others go on, and the last one turns out the light.
            self._waiters.discard(waiter)
            if not self._waiters:
                self._end()
                self._task.cancel()

    def _end(self) -> None:
        """Who comes from now on gets another probe."""
        probes = _PROBES.get(self._loop, {})
        if probes.get(self._address) is self:
            del probes[self._address]

    async def _run(self) -> None:
        try:
            while True:
                await self._sleep_until_due()
                if await self._ask():
                    break
                for waiter in self._waiters:
                    waiter.reschedule(self._asked_at)
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            self._end()
            for waiter in self._waiters:
                if not waiter.answered.done():
                    waiter.answered.set_exception(error)
        else:
            self._end()
            for waiter in self._waiters:
                self._loop.call_at(waiter.not_before, waiter.go)

    async def _sleep_until_due(self) -> None:
        """Sleep until the first waiter needs a question; one that comes and needs it sooner makes this look again."""
        while True:
            self._wakes_at = min(waiter.due for waiter in self._waiters)
            seconds = self._wakes_at - self._loop.time()
            if seconds <= 0:
                return
            self._sooner.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._sooner.wait(), seconds)

    async def _ask(self) -> bool:
        """Ask once, in a thread of its own; not while earlier ones are still held by answers that never end."""
        self._asked_at = self._loop.time()
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) >= MAX_THREADS:
            return False
        seconds = min(REQUEST_TIMEOUT, *(waiter.interval for waiter in self._waiters))
        answer: Future[bool] = self._loop.create_future()

        def deliver(ready: bool, error: Exception | None) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(ready)
            else:
                answer.set_exception(error)

        def work() -> None:
            ready, failure = False, None
            # The interval counts from here: on a busy machine a thread begins later than it was started.
            self._asked_at = self._loop.time()
            try:
                ready = ask(self._address, seconds)
            except Exception as error:  # noqa: BLE001 - an address that cannot be asked: those who wait must hear of it
                failure = error
            # A closed loop: nobody waits any more.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(deliver, ready, failure)

        thread = threading.Thread(target=work, name=f"probe of {self._address}", daemon=True)
        thread.start()
        self._threads.append(thread)
        # A service that drips its answer may keep the thread, but not those who wait.
        await asyncio.wait([answer], timeout=seconds)
        if not answer.done():
            answer.cancel()
            return False
        return answer.result()


_PROBES: WeakKeyDictionary[AbstractEventLoop, dict[str, Probe]] = WeakKeyDictionary()


async def wait_until_ready(address: str, interval: float, *, ceiling: float | None = None) -> None:
    """
    Wait until an address answers, sharing the question with all who wait for it on this event loop.

    :param address: ``http`` or ``https`` address
    :param interval: seconds between two questions; also the least time that this takes
    :param ceiling: let the interval double with each question up to this many seconds; None: it stays as it is
    """
    loop = asyncio.get_running_loop()
    probes = _PROBES.setdefault(loop, {})
    if address not in probes:
        probes[address] = Probe(address, loop)
    await probes[address].wait(interval, ceiling)
