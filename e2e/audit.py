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
    problems: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._forms = {name: [form.encode() for form in leaks.forms(secret)] for name, secret in self.secrets.items()}

    def search(self, kind: str, place: str, content: str | bytes) -> None:
        """Search one place."""
        raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        self.places[kind] += 1
        for secret, forms in self._forms.items():
            if any(form in raw for form in forms):
                found = f"{kind}: {place}"
                known = [one for one in self.known if secret.startswith(one.secret) and found.startswith(one.place)]
                for one in known:
                    one.found = True
                if not known:
                    self.problems.add(f"{secret} was found in {found}")

    def search_database(self, path: Path) -> None:
        """Search each value of each row."""
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            database.text_factory = bytes
            tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for table in (name.decode() for (name,) in tables):
                rows = database.execute(f'SELECT * FROM "{table}"')  # noqa: S608 - the database itself has this name
                for row in rows:
                    for (column, *_), value in zip(rows.description, row, strict=True):
                        if isinstance(value, bytes):
                            self.search("database", f"{table}.{column}", value)

    def search_files(self, kind: str, directory: Path) -> None:
        """Search every file below a directory."""
        for file in sorted(directory.rglob("*")):
            if file.is_file() and not file.is_symlink():
                self.search(kind, str(file.relative_to(directory)), file.read_bytes())

    def __str__(self) -> str:
        places = ", ".join(f"{count} {kind}" for kind, count in self.places.items())
        forms = sum(map(len, self._forms.values()))
        known = f"{len(self.known)} known leaks and controls"
        return f"searched {places} for {len(self.secrets)} secrets in {forms} forms, with {known}"

    def close(self) -> list[str]:
        """Return a sentence for each leak, and for each known leak that was not found."""
        gone = [f"{one.place} no longer leaks {one.secret}: {one.reason}" for one in self.known if not one.found]
        return sorted(self.problems) + gone
