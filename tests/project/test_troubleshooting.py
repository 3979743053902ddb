"""Each message that the code raises has a row in ``docs/troubleshooting.md``."""

from __future__ import annotations

import ast
import re

from airflow_provider_loanauth import exceptions
from tests.support.paths import PACKAGE, ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
ERRORS = {*exceptions.__all__, "TypeError", "ValueError"}
#: Messages that the page describes in other words: a field of the response, and what follows another sentence.
DESCRIBED_OTHERWISE = (
    "The field ",
    "The service responded ",
    "The Connection cannot be used",
    "BODY_NOT_REPLAYABLE",
    ": ",
)
#: Errors of this package's own calls, which no user can cause.
INTERNAL = ("not an http or https address",)


def plain(text):
    return re.sub(r"[^a-z0-9]+", " ", text.replace("\\", "").lower())


def quoted():
    """Yield the quoted parts of messages in the first column of the tables, normalized."""
    for cell in re.findall(r"^\| (.*?) \|", PAGE, re.MULTILINE):
        for sentence in re.findall(r"(?<!\\)\*(.+?)(?<!\\)\*", cell):
            yield from (part for part in (plain(piece).strip() for piece in sentence.split("…")) if len(part) > 3)


def words(node):
    """Return the constant text of a message expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return " ".join(words(value) for value in node.values)
    if isinstance(node, ast.BinOp):
        return words(node.left) + words(node.right)
    if isinstance(node, ast.Name):
        return node.id
    return ""


def raised():
    """Yield each message that is raised, and each problem of a Connection."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = getattr(node.func, "id", "")
            problem = ast.unparse(node.func).endswith("problems.append")
            if name in ERRORS or problem:
                text = words(node.args[0]).strip()
                if len(text) > 12:
                    yield text


ROWS = list(quoted())


def test_each_message_has_a_row():
    messages = [text for text in raised() if not text.startswith(DESCRIBED_OTHERWISE + INTERNAL)]
    assert len(messages) > 20
    assert [text for text in messages if not any(row in plain(text) for row in ROWS)] == []
