"""`e2e/checker.py`: a history that keeps every rule, and one that breaks it, for each rule."""

from __future__ import annotations

import pytest

from e2e.checker import check
from e2e.history import History
from loanauth_sandbox.log import LogEntry

TASK = "late_batch_0.price[1]"
KEYS = ["loanauth.jwt.a", "loanauth.jwt.a.5b0c.login", "loanauth.jwt.a.5b0c.claim"]


def login(at, sent="password", **changed):
    return {"event": "login", "at": at, "sent": sent, "issued": f"token {at}", "expires_at": at + 40, **changed}


def rejected(at, sent="old password"):
    return {"event": "rejected", "at": at, "sent": sent, "reason": "wrong password"}


def price(at, sent, reason=None):
    return {"event": "price", "at": at, "sent": sent, "reason": reason}


def kill(at, *, between=False, seconds=0, tasks=(), event="kill"):
    return {"event": event, "at": at, "what": "a task", "seconds": seconds, "tasks": tasks, "between": between}


def outage(at, seconds=20, alone=True):
    return {"event": "outage", "at": at, "what": "api-server", "seconds": seconds, "alone": alone}


def task(state="success", number=1, started=110):
    times = {"started": started, "ended": started and started + 5}
    return {"event": "task", "at": 200, "run": "a1", "task": TASK, "try": number, "state": state, **times}


def batch(*events, shares=1, keys=KEYS):
    ends = [{"event": "variables", "at": 300, "keys": keys}]
    return [{"event": "batch", "at": 100, "run": "a1", "shares": shares}, *events, *ends]


PAIRS = [*KEYS, "loanauth.jwt.a.77aa.login", "loanauth.jwt.a.77aa.claim"]
LOGINS = (login(101), login(141))
TRIES = [f"a1 {TASK} {number}" for number in (1, 2)]


@pytest.mark.parametrize(
    "events",
    [
        batch(*LOGINS, price(102, "token 101"), price(142, "token 101", "expired"), price(143, "token 141"), task()),
        batch(rejected(110), login(120), keys=PAIRS),
        batch(rejected(110, "password"), login(120), rejected(160, "password")),
        # One more for each process between claim and result, whether it is killed, or goes on after a pause.
        batch(login(101), kill(101.5, between=True), login(118)),
        batch(login(120), kill(101, between=True, seconds=40, event="pause"), login(121)),
        batch(rejected(101), kill(102, between=True), rejected(121), keys=KEYS),
        batch(login(101), {"event": "deleted", "at": 102}, login(103)),
        batch(login(101), {"event": "revoked", "at": 102}, login(103), login(130)),
        batch(login(101), outage(100), login(103), login(104), task(), task() | {"task": "another"}),
        batch(login(101), login(102), login(130), login(131), shares=2, keys=PAIRS),
        # All tries were killed, or in an outage.
        batch(login(101), task("failed"), task("failed", 2), kill(111, tasks=TRIES[:1]), kill(112, tasks=TRIES[1:])),
        batch(login(101), task("failed"), outage(90)),
        # All were killed, so there is no result to store.
        batch(login(101), task("failed"), kill(111, between=True, tasks=TRIES[:1]), keys=KEYS[2:]),
    ],
)
def test_a_good_history(events):
    assert check(events).problems == []


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
        (batch(login(101), task(), kill(105, between=True), keys=KEYS[2:]), "1 Variables at the end"),
        (batch(login(101), keys=KEYS[:2]), "2 Variables at the end"),
        (batch(login(101), keys=PAIRS), "5 Variables at the end"),
        (batch(login(101), {"event": "audit", "at": 300, "leaks": ["password was found in logs"]}), "found in logs"),
    ],
)
def test_a_history_that_breaks_a_rule(events, problem):
    (found,) = check(events).problems
    assert problem in found


def test_requests_of_the_sandbox(tmp_path):
    history = History(tmp_path / "history")
    history.begin("a1", shares=1)
    entries = [
        LogEntry(101.5, "POST", "/oauth/token", "token", 200, sent="digest", issued="another"),
        LogEntry(102.5, "POST", "/oauth/token", "token", 400, sent="digest", rejected="wrong password"),
        LogEntry(103.5, "POST", "/oauth/token", "token", 500, fault="status"),
        LogEntry(104.5, "POST", "/sandbox/price", "price", 200, sent="another"),
    ]
    history.record_requests(entries, 40)
    assert history.batch[1:] == [
        {"event": "login", "at": 101.5, "sent": "digest", "issued": "another", "expires_at": 141},
        {"event": "rejected", "at": 102.5, "sent": "digest", "reason": "wrong password"},
        {"event": "price", "at": 104.5, "sent": "another", "reason": None},
    ]
