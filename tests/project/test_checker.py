"""`e2e/checker.py` finds each rule that a history breaks. A false alarm shows itself in the end-to-end tests."""

from __future__ import annotations

import pytest

from e2e.checker import check

TASK = "late_batch_0.price[1]"
KEYS = ["loanauth.jwt.a", "loanauth.jwt.a.5b0c.login", "loanauth.jwt.a.5b0c.claim"]


def login(at, sent="password", **changed):
    return {"event": "login", "at": at, "sent": sent, "issued": f"token {at}", "expires_at": at + 40, **changed}


def rejected(at, sent="old password"):
    return {"event": "rejected", "at": at, "sent": sent, "reason": "wrong password"}


def price(at, sent, reason=None):
    return {"event": "price", "at": at, "sent": sent, "reason": reason}


def kill(at, *, between=False, tasks=()):
    return {"event": "kill", "at": at, "what": "a task", "seconds": 0, "tasks": tasks, "between": between}


def outage(at, alone=True):
    return {"event": "outage", "at": at, "what": "api-server", "seconds": 20, "alone": alone}


def task(state="success", number=1, started=110):
    times = {"started": started, "ended": started and started + 5}
    return {"event": "task", "at": 200, "run": "a1", "task": TASK, "try": number, "state": state, **times}


def batch(*events, shares=1, keys=KEYS):
    ends = [{"event": "variables", "at": 300, "keys": keys}]
    return [{"event": "batch", "at": 100, "run": "a1", "shares": shares}, *events, *ends]


PAIRS = [*KEYS, "loanauth.jwt.a.77aa.login", "loanauth.jwt.a.77aa.claim"]
TRIES = [f"a1 {TASK} {number}" for number in (1, 2)]


def test_a_task_may_fail_if_a_password_is_wrong():
    events = batch(rejected(101), task("failed"))
    assert check(events, may_fail=True).problems == []
    assert check(events).problems != []


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        (batch(login(101), kill(102), login(115)), "a login 14.0 s after another one"),
        (batch(login(101), login(102), kill(103, between=True)), "a login 1.0 s after another one"),
        (batch(login(101), login(140), kill(101, between=True), login(142)), "a login 2.0 s after another one"),
        (batch(login(101), login(102), login(103), shares=2, keys=PAIRS), "a login 2.0 s after another one"),
        (batch(rejected(101), rejected(160)), "a rejected password was sent again after 59.0 s"),
        (batch(rejected(101), kill(102, between=True), rejected(103), rejected(104)), "sent again after 1.0 s"),
        (batch(login(101), outage(100), login(102), login(103), task()), "2 requests of 1 tasks that share nothing"),
        (batch(login(101), outage(50), login(280), login(281)), "a login 1.0 s after another one"),
        (batch(login(101), outage(100, alone=False), login(102)), "a login 1.0 s after another one"),
        (batch(login(101), price(141, "token 101")), "a token that had expired"),
        (batch(login(101), price(102, "token 9")), "a token that no login has issued"),
        (batch(login(101), task("failed"), task("failed", 2), kill(111, tasks=TRIES[:1])), "not all of its 2 tries"),
        (batch(login(101), task("failed", started=None), outage(90)), "not all of its 1 tries"),
        (batch(login(101), task("failed"), outage(116)), "not all of its 1 tries"),
        (batch(login(101), task("running")), "did not end: running"),
        (
            batch(login(101), task(), kill(105, between=True), keys=KEYS[2:]),
            "0 logins and 1 claims in Variables",
        ),
        (batch(login(101), keys=KEYS[:2]), "1 logins and 0 claims in Variables"),
        (batch(login(101), keys=PAIRS), "2 logins and 2 claims in Variables"),
        (batch(login(101), {"event": "audit", "at": 300, "leaks": ["password was found in logs"]}), "found in logs"),
    ],
)
def test_a_history_that_breaks_a_rule(events, problem):
    (found,) = check(events).problems
    assert problem in found
