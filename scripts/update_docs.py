"""The option ``--update-docs`` of programs with results that are part of the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent


def add_update_docs(parser: argparse.ArgumentParser, *, ignored: str, tracked: str) -> None:
    """Add the option. The attribute ``output`` of the parsed arguments is the path to write to."""
    parser.add_argument(
        "--update-docs",
        dest="output",
        action="store_const",
        const=ROOT / tracked,
        default=ROOT / ignored,
        help=f"write to {tracked}, which is tracked by git (default: write to {ignored})",
    )


def replace_section(page: Path, heading: str, text: str) -> None:
    """Replace the text between a heading of the second level and the next one."""
    before, found, after = page.read_text(encoding="utf-8").partition(f"## {heading}\n")
    if not found:
        raise ValueError(f"{page} has no section {heading}")
    rest = re.search(r"^## .*", after, re.MULTILINE | re.DOTALL)
    page.write_text(before + found + f"\n{text.strip()}\n" + (f"\n{rest[0]}" if rest else ""), encoding="utf-8")


def columns_of(text: str, columns: Sequence[int]) -> str:
    """Return the tables of a text with some of their columns, and the captions before them, which end in a colon."""
    lines = []
    for line in text.splitlines():
        if line.startswith("|"):
            cells = line.strip("|").split("|")
            lines.append("|".join(["", *(cells[column] for column in columns), ""]))
        elif line.endswith(":"):
            lines += ["", line, ""]
    return "\n".join(lines).strip()
