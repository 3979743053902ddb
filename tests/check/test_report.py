"""The report of a check: its status, its text and its JSON document."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest

from airflow_provider_loanauth.check.report import FORMAT, TITLES, Report, Step

CHECKED_AT = datetime(2026, 11, 22, 9, 0, 1, tzinfo=timezone.utc)


def step(outcome, name="tcp", **values):
    return Step(name, outcome, "A sentence.", **values)


def report(*steps, method="jwt"):
    return Report(
        conn_id="made-up",
        method=method,
        machine="worker-1",
        versions={"provider": "0.1.0", "Python": "3.12.1"},
        checked_at=CHECKED_AT,
        steps=steps,
    )


@pytest.mark.parametrize(
    ("steps", "status", "exit_code"),
    [
        pytest.param([step("ok")], "usable", 0, id="ok"),
        pytest.param([step("ok"), step("not_checked")], "usable", 0, id="not checked"),
        pytest.param([step("ok"), step("unknown")], "unknown", 2, id="unknown"),
        pytest.param([step("failed", temporary=True), step("not_checked")], "unknown", 2, id="temporary"),
        pytest.param([step("failed"), step("unknown")], "not_usable", 1, id="failed"),
        pytest.param([step("failed", temporary=True), step("failed")], "not_usable", 1, id="both"),
    ],
)
def test_the_status(steps, status, exit_code):
    found = report(*steps)
    assert (found.status, found.exit_code) == (status, exit_code)


@pytest.mark.parametrize(
    ("steps", "summary"),
    [
        ([step("ok")], "Usable, as far as it can be checked without a login."),
        ([step("ok"), step("ok", "login")], "Usable."),
        ([step("ok"), step("not_checked", "login")], "Usable, as far as it can be checked without a login."),
        ([step("failed")], "Not usable: correct what the lines with ✗ say, and check again."),
        ([step("unknown")], "Cannot tell: see the lines with ✗ and ?, and check again later or in another place."),
    ],
)
def test_the_last_line(steps, summary):
    assert str(report(*steps)).endswith(f"\n\n{summary}")


def test_a_space_follows_each_title():
    text = str(report(*(step("ok", name) for name in TITLES)))
    assert text.count(" A sentence.") == len(TITLES)


def test_the_text():
    shown = str(report(step("ok", warnings=("Risky.",)), step("failed"), step("unknown"), step("not_checked")))
    assert shown.splitlines()[:9] == [
        "Connection 'made-up', method 'jwt'",
        "Checked on worker-1 at 2026-11-22 09:00:01 UTC",
        "provider 0.1.0, Python 3.12.1",
        "",
        "✓ TCP         A sentence.",
        "              Warning: Risky.",
        "✗ TCP         A sentence.",
        "? TCP         A sentence.",
        "– TCP         A sentence.",  # noqa: RUF001 - a dash
    ]


def test_long_lines_are_wrapped_between_words():
    address = "https://" + "a-long-name." * 9 + "example"
    long = Step("tcp", "ok", f"{'word ' * 30}{address}")
    lines = str(report(long)).splitlines()[4:-2]
    assert len(lines) > 2
    assert lines[-1].strip() == address
    assert all(line.startswith(" " * 14) and len(line) <= 100 for line in lines[1:-1])


def test_without_a_method():
    assert str(report(method=None)).splitlines()[0] == "Connection 'made-up'"


def test_the_json_document():
    made = report(step("failed", temporary=True, warnings=("Risky.",), details={"port": 443}))
    assert json.loads(made.to_json()) == {
        "format": FORMAT,
        "conn_id": "made-up",
        "method": "jwt",
        "machine": "worker-1",
        "versions": {"provider": "0.1.0", "Python": "3.12.1"},
        "checked_at": "2026-11-22T09:00:01+00:00",
        "steps": [
            {
                "name": "tcp",
                "outcome": "failed",
                "message": "A sentence.",
                "details": {"port": 443},
                "temporary": True,
                "warnings": ["Risky."],
            }
        ],
        "response": None,
        "status": "unknown",
    }
