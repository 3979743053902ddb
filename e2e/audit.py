"""The leak audit: search everything that a run has stored for every secret, in every encoded form.

Leaks of Airflow itself are listed. If a listed leak is no longer found, the audit fails: Airflow has improved, and the
documentation is out of date.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support import leaks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class KnownLeak:
    """A leak of Airflow itself, which no provider can prevent."""

    secret: str
    place: str
    reason: str
    found: bool = False


@dataclass
class Audit:
    """One search of many places for all secrets."""

    secrets: dict[str, str]
    known: list[KnownLeak] = field(default_factory=list)
    places: Counter[str] = field(default_factory=Counter)
    searched_bytes: int = 0
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._forms = {
            name: tuple(form.encode() for form in leaks.forms(secret)) for name, secret in self.secrets.items()
        }

    def search(self, kind: str, place: str, content: str | bytes) -> None:
        """Search one place."""
        raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        self.places[kind] += 1
        self.searched_bytes += len(raw)
        for name, forms in self._forms.items():
            if any(form in raw for form in forms):
                self._record(name, f"{kind}: {place}")

    def _record(self, secret: str, place: str) -> None:
        known = [one for one in self.known if secret.startswith(one.secret) and place.startswith(one.place)]
        for one in known:
            one.found = True
        if not known:
            self.problems.append(f"{secret} was found in {place}")

    def search_database(self, path: Path) -> None:
        """Search each value of each row, and the database files, which still contain deleted rows."""
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            database.text_factory = bytes
            for table, column, value in _values(database):
                self.search("database", f"{table}.{column}", value)
        for file in path.parent.glob(f"{path.name}*"):
            self.search("database file", file.name, file.read_bytes())

    def search_files(self, kind: str, directory: Path, *, but: tuple[str, ...] = ()) -> None:
        """Search every file below a directory."""
        for file in sorted(directory.rglob("*")):
            if file.is_file() and not file.is_symlink() and not file.name.startswith(but or ("\0",)):
                self.search(kind, str(file.relative_to(directory)), file.read_bytes())

    def __str__(self) -> str:
        places = ", ".join(f"{count} {kind}" for kind, count in self.places.items())
        return (
            f"searched {places}, {self.searched_bytes / 1e6:.1f} MB, for {len(self.secrets)} secrets in "
            f"{sum(map(len, self._forms.values()))} forms, with {len(self.known)} known leaks and controls"
        )

    def close(self) -> list[str]:
        """Return a sentence for each leak, and for each known leak that was not found."""
        gone = [f"{one.place} no longer leaks {one.secret}: {one.reason}" for one in self.known if not one.found]
        return sorted(set(self.problems)) + gone


def _values(database: sqlite3.Connection) -> Iterator[tuple[str, str, bytes]]:
    """Yield table, column and value of everything in the database."""
    tables = [name.decode() for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        cursor = database.execute(f'SELECT * FROM "{table}"')  # noqa: S608 - the name is read from the database itself
        columns = [column[0] for column in cursor.description]
        for row in cursor:
            for column, value in zip(columns, row, strict=True):
                if isinstance(value, bytes):
                    yield table, column, value
