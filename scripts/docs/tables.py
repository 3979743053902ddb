"""The numbers in the tables of the benchmark pages."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Units of time in milliseconds. Other units stay as they are.
MILLISECONDS = {"µs": 0.001, "ms": 1.0, "s": 1000.0}


@dataclass(frozen=True)
class Table:
    """
    A table of a page.

    :param heading: the heading above it
    :param label: the line that introduces it, without its colon; empty if there is none
    :param start: offset of that line, or of the table, in the page
    :param columns: names of the columns
    :param rows: the cells of each row
    """

    heading: str
    label: str
    start: int
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def column(self, name: str) -> tuple[str, ...]:
        """
        Return the cells of the first column whose name begins with a text.

        :raises KeyError: the table has no such column
        """
        for index, column in enumerate(self.columns):
            if column.startswith(name):
                return tuple(row[index] for row in self.rows)
        raise KeyError(f"The table below {self.heading!r} has no column {name!r}.")


def tables(page: str) -> list[Table]:
    """
    Return the tables of a page.

    :param page: text in Markdown
    """
    found = []
    pattern = r"(?:^(?P<label>[^|#\n]+):\n\n)?^(?P<table>\|.*\n\|[-|]+\n(?:\|.*\n?)*)"
    for match in re.finditer(pattern, page, re.MULTILINE):
        head, _, *rows = match["table"].strip().splitlines()
        headings = re.findall(r"^#+ (.*)$", page[: match.start()], re.MULTILINE)
        found.append(
            Table(
                heading=headings[-1],
                label=match["label"] or "",
                start=match.start(),
                columns=_cells(head),
                rows=tuple(map(_cells, rows)),
            )
        )
    return found


def _cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))


def number(cell: str, position: int = 0) -> float | None:
    """
    Return a number of a cell; a time in milliseconds.

    :param cell: numbers, separated by slashes, and their unit: ``0.1 / 57.7 ms``
    :param position: which of the numbers
    :return: the number; None if the cell has none
    """
    found = re.findall(r"\d[\d,]*(?:\.\d+)?", cell)
    if not found:
        return None
    unit = re.search(r"(\S+)$", cell)
    return float(found[position].replace(",", "")) * MILLISECONDS.get(unit[1] if unit else "", 1.0)
