"""`triggers/loanauth.py`: arguments, their stored form and representation, event, deadline."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time

import pytest

from airflow_provider_loanauth.triggers import loanauth
from airflow_provider_loanauth.triggers.loanauth import READY, ServiceReadyTrigger
from tests.support.proxy import TunnelProxy
from tests.support.waiting import fire, restored

INTERVAL = 0.1
TIMEOUT = 15.0
ADDRESS = "https://lender.example/tenant1"
PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    "address",
    [
        "https://user:made-up-password@lender.example",
        "https://user@lender.example",
        "http://:made-up@127.0.0.1:1",
        "https://@lender.example",
        "ftp://lender.example",
        "file:///etc/hosts",
        "lender.example",
        "https://",
        "",
        "//lender.example",
    ],
)
def test_an_invalid_address_or_one_with_user_information_is_rejected(address):
    message = "^The address of a ServiceReadyTrigger must be an http or https address without user information"
    with pytest.raises(ValueError, match=message) as raised:
        ServiceReadyTrigger(address)
    assert not address or address not in str(raised.value)


def test_it_is_restored_from_what_airflow_stores():
    trigger = ServiceReadyTrigger(ADDRESS, 7.5, deadline=1_790_000_000.25, max_interval=600.0)
    path, arguments = trigger.serialize()
    assert arguments == {
        "address": ADDRESS,
        "poke_interval": 7.5,
        "deadline": 1_790_000_000.25,
        "max_interval": 600.0,
    }
    assert json.loads(json.dumps(arguments)) == arguments
    assert restored(trigger).serialize() == (path, arguments)


@pytest.mark.parametrize(
    "proxy",
    ["http://user:made-up-password@proxy.example:1", "http://user@proxy.example", "socks5://a", "proxy.example:1", ""],
)
def test_an_invalid_proxy_or_one_with_user_information_is_rejected(proxy):
    message = "The proxy of a ServiceReadyTrigger must be an http or https address without user information"
    with pytest.raises(ValueError, match=message) as raised:
        ServiceReadyTrigger(ADDRESS, proxy=proxy)
    assert not proxy or proxy not in str(raised.value)


def test_the_proxy_is_stored_only_if_there_is_one():
    """A triggerer with an older release of this provider does not know the argument."""
    path, arguments = ServiceReadyTrigger(ADDRESS, proxy=PROXY).serialize()
    assert arguments == {
        "address": ADDRESS,
        "poke_interval": 60.0,
        "deadline": None,
        "max_interval": None,
        "proxy": PROXY,
    }
    assert restored(ServiceReadyTrigger(ADDRESS, proxy=PROXY)).serialize() == (path, arguments)
    assert "proxy" not in ServiceReadyTrigger(ADDRESS).serialize()[1]


@pytest.mark.parametrize("proxy", [None, PROXY])
def test_it_is_restored_from_airflows_own_row(proxy):
    """As the scheduler writes it and the triggerer reads it; encrypted on 2.11."""
    from airflow.models.trigger import Trigger

    trigger = ServiceReadyTrigger(ADDRESS, 7.5, deadline=1_790_000_000.25, proxy=proxy)
    row = Trigger.from_object(trigger)
    assert ServiceReadyTrigger(**row.kwargs).serialize() == trigger.serialize()


def test_the_representation_shows_the_address_and_seconds():
    trigger = ServiceReadyTrigger(ADDRESS, 7.5)
    assert repr(trigger) == (
        "<airflow_provider_loanauth.triggers.loanauth.ServiceReadyTrigger address=https://lender.example/tenant1, "
        "poke_interval=7.5, deadline=None, max_interval=None>"
    )


def test_the_event_is_a_word(sandbox):
    # Long enough for one response on any machine.
    event = fire(ServiceReadyTrigger(sandbox.url, 10 * INTERVAL), TIMEOUT)
    assert event.payload == READY == "ready"
    assert repr(event) == "TriggerEvent<'ready'>"
    assert sandbox.counters().probe == 1


def test_it_waits_through_its_proxy():
    with TunnelProxy("made-up:made-up") as proxy:
        # The proxy rejects the request, which counts as a response.
        event = fire(ServiceReadyTrigger("https://lender.example", INTERVAL, proxy=proxy.url()), TIMEOUT)
        assert event.payload == READY
        assert proxy.requests[0].startswith(b"CONNECT lender.example:443 ")


def test_there_is_one_event(sandbox):
    async def all_events():
        return [event async for event in ServiceReadyTrigger(sandbox.url, INTERVAL).run()]

    assert [event.payload for event in asyncio.run(all_events())] == ["ready"]


def test_nothing_is_requested_before_an_interval_has_passed(sandbox):
    assert fire(ServiceReadyTrigger(sandbox.url, 60), 3 * INTERVAL) is None
    assert sandbox.counters().probe == 0
    assert sandbox.counters().connections_accepted == 0


def test_it_ends_at_the_deadline(sandbox):
    sandbox.set_fault("status")
    began = time.monotonic()
    event = fire(ServiceReadyTrigger(sandbox.url, INTERVAL, deadline=time.time() + 10.5 * INTERVAL), TIMEOUT)
    assert event.payload == loanauth.TIMEOUT == "timeout"
    assert time.monotonic() - began > 10 * INTERVAL
    assert 1 <= sandbox.counters().probe <= 11


@pytest.mark.parametrize("ago", [0, 3600])
def test_it_ends_at_once_when_the_deadline_has_passed(ago, sandbox):
    event = fire(ServiceReadyTrigger(sandbox.url, 60, deadline=time.time() - ago), TIMEOUT)
    assert event.payload == loanauth.TIMEOUT
    assert sandbox.counters().probe == 0


def test_each_trigger_has_its_own_deadline(sandbox):
    sandbox.set_fault("status")

    async def main():
        now = time.time()
        deadlines = {"soon": now + 2 * INTERVAL, "later": now + 5 * INTERVAL, "never": None}
        ended = []

        async def run_trigger(name, deadline):
            trigger = ServiceReadyTrigger(sandbox.url, INTERVAL, deadline=deadline)
            ended.extend([(name, event.payload) async for event in trigger.run()])

        tasks = [asyncio.ensure_future(run_trigger(*item)) for item in deadlines.items()]
        await asyncio.wait_for(asyncio.gather(*tasks[:2]), TIMEOUT)
        sandbox.clear_faults()
        await asyncio.wait_for(tasks[2], TIMEOUT)
        return ended

    assert asyncio.run(main()) == [("soon", "timeout"), ("later", "timeout"), ("never", "ready")]


def test_a_cancelled_trigger_sends_no_event_and_leaves_nothing(sandbox):
    sandbox.set_fault("status")
    events = []

    async def main():
        async def run_trigger():
            events.extend([event async for event in ServiceReadyTrigger(sandbox.url, INTERVAL).run()])

        task = asyncio.ensure_future(run_trigger())
        await asyncio.sleep(1.5 * INTERVAL)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        # Python 3.10 needs a few iterations of the loop.
        for _ in range(1000):
            if asyncio.all_tasks() == {asyncio.current_task()}:
                return True
            await asyncio.sleep(0.01)
        return False

    assert asyncio.run(main())
    assert events == []
