"""`e2e/batch.py` counts the logins of a batch. What it counts too much shows itself in the end-to-end tests."""

from __future__ import annotations

import pytest

from e2e.batch import count
from loanauth_sandbox.log import LogEntry


def login(at, sent="password", reason=None):
    issued = None if reason else f"token {at}"
    return LogEntry(at=at, method="POST", path="/token", endpoint="token", sent=sent, issued=issued, rejected=reason)


def rejected(at, sent="password"):
    return login(at, sent, "wrong password")


@pytest.mark.parametrize(
    ("requests", "shares", "expected", "problem"),
    [
        ([login(101), login(125)], 1, {}, None),
        ([login(101), login(115)], 1, {}, "1 extra logins instead of 0 at most"),
        ([login(101), login(102), login(103), login(140)], 2, {}, "1 extra logins"),
        ([login(101), login(102, "new password")], 1, {}, None),
        ([login(101)], 1, {}, "the token did not expire"),
        ([rejected(101), rejected(160)], 1, {"logins": 0, "rejected": 2}, "2 logins were rejected, 1 again"),
        ([rejected(101), login(120), rejected(160)], 1, {"logins": 1, "rejected": 2}, None),
        ([rejected(101), rejected(102, "other")], 1, {"logins": 0, "rejected": 1}, "instead of 1 and 0"),
    ],
)
def test_wrong_numbers_of_logins_are_problems(requests, shares, expected, problem):
    problems = count(requests, 40, shares=shares).problems(**expected)
    assert (problem or "") in "".join(problems)
    assert bool(problems) == bool(problem)
