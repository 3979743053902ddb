"""``docs/checking.md`` describes each step, member and exit code of the command ``check``, and all options."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone

from airflow_provider_loanauth.check.report import FORMAT, MARKS, STATUSES, TITLES, Report, Step
from airflow_provider_loanauth.cli import COMMANDS
from tests.support.paths import ROOT

NOW = datetime.now(timezone.utc)
PAGE = (ROOT / "docs" / "checking.md").read_text(encoding="utf-8")


def rows(heading):
    """Return the rows of all tables under a heading, as lists of cells without code marks."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]
    return [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in re.findall(r"^\|.*\|$", section, re.MULTILINE)
    ]


def test_each_line_is_described():
    described = [(title, name) for title, name, *_ in rows("The lines")[2:]]
    assert described == [(title, name) for name, title in TITLES.items()]


def test_each_exit_code_is_described():
    described = {name: int(code) for code, name, _ in rows("Exit codes")[2:]}
    assert described == {status: exit_code for status, (exit_code, _) in STATUSES.items()}


def test_each_member_of_the_document_is_described():
    report = Report(
        conn_id="any",
        method=None,
        machine="any",
        versions={},
        checked_at=NOW,
        steps=(Step("tcp", "ok", "any"),),
    )
    document = json.loads(report.to_json())
    members = [cells[0] for cells in rows("The JSON document") if cells[0] not in {"Member", "Step", "---"}]
    expected = [*document, *document["steps"][0]]
    assert members[: len(expected)] == expected
    assert {*members[len(expected) :]} <= {*TITLES}
    assert f"| `format` | integer | {FORMAT};" in PAGE
    for value in [*MARKS, *STATUSES]:
        assert f"`{value}`" in PAGE


def test_each_option_is_described():
    flags = {flag for command in COMMANDS.values() for names in command.arguments for flag in names}
    assert {flag for flag in flags if flag.startswith("-") and f"`{flag}" not in PAGE} == set()
