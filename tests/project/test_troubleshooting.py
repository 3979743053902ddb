"""Each message that is raised, or logged as a warning, is found in ``docs/troubleshooting.md`` by its first words."""

from __future__ import annotations

import ast
import re

import pytest

from airflow_provider_loanauth import exceptions
from tests.support.paths import PACKAGE, ROOT

pytestmark = pytest.mark.once

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
ERRORS = {*exceptions.__all__, "TypeError", "ValueError"}
#: Modules that have messages in tables and variables: each text in them of at least this many words is one.
TABLES = {"credentials.py", "service/protocol.py", "service/transport_errors.py"}
MIN_WORDS = 4
#: As many words as someone may paste into a search.
FIRST_WORDS = 6
#: Texts in the middle of a message.
NOT_A_BEGINNING = (
    "(connection id",
    "Tunnel",
    "check ",
    "if a ",
    "not an http",
    "the proxies",
    "to replace",
    "who runs",
)


def text_of(node, names):
    """Return the text of an expression, with a line break for each part that is not literal."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"\{\w*\}", "\n", node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(value, names) for value in node.values)
    if isinstance(node, ast.FormattedValue):
        return text_of(node.value, names)
    if isinstance(node, ast.BinOp):
        return text_of(node.left, names) + text_of(node.right, names)
    if isinstance(node, ast.Name) and node.id in names:
        return text_of(names[node.id], names)
    return "\n"


def beginning(text):
    """Return the first words: those before the first part that is not literal, or else those after it."""
    parts = [part.split()[:FIRST_WORDS] for part in text.split("\n")]
    return next((" ".join(words).rstrip(".:;,(") for words in parts if len(words) > 1), "")


def strings(node):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Constant, ast.JoinedStr)):
            if not isinstance(node, ast.Expr):
                yield child
        else:
            yield from strings(child)


def beginnings():
    """Yield the first words of each message that is raised, or logged as a warning."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    names = {}
    for tree in trees.values():
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                names[node.targets[0].id] = node.value
    for path, tree in trees.items():
        if path.relative_to(PACKAGE).as_posix() in TABLES:
            found = (text_of(node, names) for node in strings(tree))
            yield from (beginning(text) for text in found if len(text.split()) >= MIN_WORDS)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args:
                if ast.unparse(node.func).endswith(".warning"):
                    yield beginning(re.sub(r"%[.\d]*[a-z]", "\n", text_of(node.args[0], names)))
                is_warning = ast.unparse(node.func).endswith("warnings.append")
                if is_warning or getattr(node.func, "id", "") in ERRORS:
                    yield beginning(text_of(node.args[0], names))


def plain(text):
    return " ".join(text.replace("\\", "").replace("`", "").split())


QUOTED = [plain(text) for text in re.findall(r"(?<!\\)\*(.+?)(?<!\\)\*", PAGE)]


#: Beginnings of messages that are put together elsewhere.
BUILT = (
    "The Connection cannot be used",
    "Airflow cannot read the connection with",
    "Airflow could not read the connection with",
    "Attempt 1 of 3 failed",
    "Gave up after 3 attempts",
    "Logins cannot be shared with other",
    "The same values are not sent again before",
    "The service asked to wait",
    "The service was not available within",
)


def test_each_message_is_found_by_its_first_words():
    found = {*BUILT} | {text for text in beginnings() if text and not text.startswith(NOT_A_BEGINNING)}
    assert len(found) > 50
    assert sorted(text for text in found if not any(plain(text) in quote for quote in QUOTED)) == []
