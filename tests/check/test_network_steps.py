"""Steps of a check on the way to the service: errors of sockets, proxies, clocks, the allow-list."""

from __future__ import annotations

import errno
from datetime import datetime, timedelta, timezone

import pytest

from airflow_provider_loanauth.check import network_steps
from airflow_provider_loanauth.check.route import Observation, ObservedExchange, ProxyInUse
from airflow_provider_loanauth.exceptions import RejectedError, ResponseError, UnavailableError
from airflow_provider_loanauth.service.protocol import WireResponse

SENT_AT = datetime(2026, 11, 22, 9, 0, tzinfo=timezone.utc)
PROXY = ProxyInUse(url="http://proxy.example:3128", source="Proxy in the Connection", scheme="http")


def seen(*, status=200, headers=None, error=None, seconds=0.2, verified=True, **facts):
    exchange = ObservedExchange(5)
    vars(exchange).update({"host": "lender.example", "port": 443} | facts)
    return Observation(
        exchange=exchange,
        result=error or WireResponse(status=status, headers=headers or {}, body=b""),
        sent_at=SENT_AT,
        received_at=SENT_AT + timedelta(seconds=seconds),
        verified=verified,
    )


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "refused the connection"),
        (TimeoutError("timed out"), "did not accept a connection within 5 s"),
        (OSError(errno.ENETUNREACH, "made up"), "cannot be reached (Network is unreachable)"),
        (OSError("made up"), "cannot be reached (OSError)"),
    ],
)
def test_tcp_errors(error, words):
    step = network_steps.tcp(
        seen(addresses=["192.0.2.1"], connect_error=error, error=UnavailableError("made up")), None
    )
    assert (step.outcome.value, step.temporary) == ("failed", True)
    assert words in step.message
    assert "made up" not in step.message


@pytest.mark.parametrize(
    ("facts", "outcome", "words"),
    [
        pytest.param({"is_connected": True}, "ok", "opened a tunnel", id="connected"),
        pytest.param({"proxy_status": 200, "error": UnavailableError("x")}, "ok", "opened a tunnel", id="tunnel"),
        pytest.param(
            {"proxy_status": 403, "peer": "192.0.2.1", "error": UnavailableError("blocked")},
            "failed",
            "It responded with 403. blocked.",
            id="blocked",
        ),
        pytest.param({"error": UnavailableError("x")}, "not_checked", "Not checked: http://proxy", id="no connection"),
    ],
)
def test_a_proxy(facts, outcome, words):
    step = network_steps.proxy(seen(**facts), PROXY)
    assert step.outcome.value == outcome
    assert words in step.message
    assert step.details["url"] == PROXY.url


@pytest.mark.parametrize(
    ("served", "difference", "outcome"),
    [
        (0, 0, "ok"),
        (-1, 0, "ok"),
        (-2, 1, "ok"),
        (1, -1, "ok"),
        (60, -60, "ok"),
        (-61, 60, "ok"),
        (61, -61, "failed"),
        (-62, 61, "failed"),
    ],
)
def test_a_clock(served, difference, outcome):
    moment = SENT_AT + timedelta(seconds=served)
    step = network_steps.clock(seen(headers={"date": f"{moment:%a, %d %b %Y %H:%M:%S} GMT"}))
    assert (step.details["difference"], step.outcome.value) == (difference, outcome)


def test_the_response_may_take_a_while():
    moment = SENT_AT + timedelta(seconds=4)
    step = network_steps.clock(seen(headers={"date": f"{moment:%a, %d %b %Y %H:%M:%S} GMT"}, seconds=5))
    assert step.details == {"difference": 0}


@pytest.mark.parametrize("date", ["", "Sun, 06 Nov 1994", "Sun, 06 Nov 999999 08:49:37 GMT"])
def test_a_date_that_is_not_one(date):
    assert network_steps.clock(seen(headers={"date": date})).outcome.value == "not_checked"


def test_a_date_without_a_zone_is_utc():
    step = network_steps.clock(seen(headers={"date": f"{SENT_AT:%a, %d %b %Y %H:%M:%S} -0000"}))
    assert step.details == {"difference": 0}


def rejected(status):
    return RejectedError("made up", status=status)


@pytest.mark.parametrize(
    ("status", "login", "outcome"),
    [
        (200, None, "ok"),
        (404, None, "ok"),
        (403, None, "unknown"),
        (403, object(), "ok"),
        (403, rejected(403), "failed"),
        (403, rejected(400), "ok"),
        (403, UnavailableError("made up"), "unknown"),
        (403, ResponseError("made up"), "unknown"),
    ],
)
def test_the_allow_list(status, login, outcome):
    assert network_steps.allow_list(seen(status=status), login).outcome.value == outcome
