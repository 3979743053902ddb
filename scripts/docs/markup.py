"""The reStructuredText of docstrings as Markdown, with links."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: Labels of Airflow's documentation, and the page here that they mean.
LABELS = {"howto/connection:loanauth": "connection.md"}


def anchor(heading: str) -> str:
    """Return the anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


class Links:
    """Where the names and clauses of docstrings lead."""

    def __init__(self, folder: Path) -> None:
        #: The headings of the sections of the page, by the names that lead to them.
        self.headings = {"Method": "Method"}
        text = (folder / "service-interface.md").read_text(encoding="utf-8")
        self._clauses = {
            number.rstrip("."): heading for heading, number in re.findall(r"^#+ (([\d.]+) .*)$", text, re.MULTILINE)
        }

    def link(self, heading: str) -> str:
        """Return a link to a section of the page."""
        return f"[`{heading}`](#{anchor(heading)})"

    def name(self, name: str, scope: str) -> str:
        """Return a name as code, with a link if the page has a section for it."""
        path = name.removeprefix("~")
        for candidate in (f"{scope}.{path}", path):
            if candidate in self.headings:
                return self.link(self.headings[candidate])
        return f"`{path.rpartition('.')[2] if name != path else path}`"

    def clause(self, found: re.Match[str]) -> str:
        """Return a link to an RFC, to one of its clauses, or to a clause of the interface of the service."""
        _, number, of_rfc, of_interface = found.groups()
        if of_interface:
            return f"[§{of_interface}](service-interface.md#{anchor(self._clauses[of_interface])})"
        place = f"#section-{of_rfc}" if of_rfc else ""
        return f"[{' '.join(found[0].split())}](https://www.rfc-editor.org/rfc/rfc{number}{place})"


def markdown(text: str, links: Links, scope: str = "") -> str:
    """Return text of a docstring as Markdown."""
    blocks = re.split(r"\.\. code-block:: (\w+)\n\n((?:(?: {4}.*)?\n)+(?: {4}.*)?|(?: {4}.*))", text)
    parts = []
    for index in range(0, len(blocks), 3):
        parts.append(_inline(blocks[index], links, scope))
        if index + 1 < len(blocks):
            parts.append(f"```{blocks[index + 1]}\n{textwrap.dedent(blocks[index + 2]).strip()}\n```\n\n")
    return "".join(parts).strip()


def _inline(text: str, links: Links, scope: str) -> str:
    text = re.sub(r":ref:`([^<`]+) <([^>`]+)>`", lambda found: f"[{found[1]}]({LABELS[found[2]]})", text)
    text = re.sub(r":\w+:`([^`]+)`", lambda found: links.name(found[1], scope), text)
    text = re.sub(r"``(?:docs/)?([a-z-]+\.md)``", r"[\1](\1)", text)
    text = re.sub(r"``(.+?)``", r"`\1`", text)
    return re.sub(r"(RFC (\d+))(?:\s+§([\d.]*\d))?|§([\d.]*\d)", links.clause, text)
