"""The report of a check: its status, its text and its JSON document."""

import json
from datetime import datetime, timezone

import pytest

from airflow_provider_loanauth.check.report import FORMAT, Report, Step

WITHOUT_LOGIN = "Usable, as far as it can be checked without a login."
NOT_USABLE = "Not usable: correct what the lines with ✗ say, and check again."
UNKNOWN = "Cannot tell: see the lines with ✗ and ?, and check again later or in another place."
OK, FAILED, NOT_CHECKED = ({"outcome": outcome} for outcome in ("ok", "failed", "not_checked"))
LATER = FAILED | {"temporary": True}


def report(*steps, method="jwt"):
    return Report(
        conn_id="made-up",
        method=method,
        machine="worker-1",
        versions={"provider": "0.1.0", "Python": "3.12.1"},
        checked_at=datetime(2026, 11, 22, 9, 0, 1, tzinfo=timezone.utc),
        steps=tuple(Step(**{"name": "tcp", "message": "A sentence."} | step) for step in steps),
    )


@pytest.mark.parametrize(
    ("steps", "status", "exit_code", "summary"),
    [
        ([OK], "usable", 0, WITHOUT_LOGIN),
        ([OK, NOT_CHECKED | {"name": "login"}], "usable", 0, WITHOUT_LOGIN),
        ([OK, OK | {"name": "login"}], "usable", 0, "Usable."),
        ([OK, {"outcome": "unknown"}], "unknown", 3, UNKNOWN),
        ([LATER, NOT_CHECKED], "unknown", 3, UNKNOWN),
        ([FAILED, {"outcome": "unknown"}], "not_usable", 1, NOT_USABLE),
        ([LATER, FAILED], "not_usable", 1, NOT_USABLE),
    ],
)
def test_the_status(steps, status, exit_code, summary):
    found = report(*steps)
    assert (found.status, found.exit_code) == (status, exit_code)
    assert str(found).endswith(f"\n\n{summary}")


def test_the_text():
    shown = str(report(OK | {"warnings": ("Risky.",)}, FAILED, {"outcome": "unknown"}, NOT_CHECKED))
    assert shown.splitlines()[:9] == [
        "Connection 'made-up', method 'jwt'",
        "Checked on worker-1 at 2026-11-22 09:00:01 UTC",
        "provider 0.1.0, Python 3.12.1",
        "",
        "✓ TCP          A sentence.",
        "               Warning: Risky.",
        "✗ TCP          A sentence.",
        "? TCP          A sentence.",
        "– TCP          A sentence.",  # noqa: RUF001 - a dash
    ]
    assert str(report(method=None)).splitlines()[0] == "Connection 'made-up'"


def test_long_lines_are_wrapped_between_words():
    address = "https://" + "a-long-name." * 9 + "example"
    *lines, last = str(report(OK | {"message": f"{'w ' * 129}{address}"})).splitlines()[4:-2]
    assert last.strip() == address
    assert [len(line) for line in lines] == [100] * 3
    assert all(line.startswith(" " * 15) for line in lines[1:])


def test_the_json_document():
    text = report(LATER | {"warnings": ("Risky.",), "details": {"port": 443}}).to_json()
    assert text.startswith('{\n  "format": ')
    assert json.loads(text) == {
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
        "status": "unknown",
    }
