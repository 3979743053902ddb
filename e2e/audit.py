"""
The leak audit: every secret, in every form, in everything that a run has left behind. Knows neither Airflow's API nor
the browser.

What Airflow itself gives away is expected by name: should it not be found, Airflow has become better, and the docs are
out of date.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support.secret_search import forms_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class Known:
    """
    Something that Airflow gives away, whatever a provider does.

    :param secret: beginning of the secret's name
    :param place: beginning of the place's name
    :param why: what Airflow does there
    """

    secret: str
    place: str
    why: str
    met: bool = False


@dataclass
class Audit:
    """One search of everything for everything."""

    secrets: dict[str, str]
    known: list[Known] = field(default_factory=list)
    places: Counter[str] = field(default_factory=Counter)
    octets: int = 0
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._forms = {name: tuple(forms_of(secret)) for name, secret in self.secrets.items()}

    @property
    def forms(self) -> int:
        """How many octet strings are searched for."""
        return sum(map(len, self._forms.values()))

    def search(self, kind: str, place: str, content: str | bytes) -> None:
        """Search one place."""
        octets = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        self.places[kind] += 1
        self.octets += len(octets)
        for name, forms in self._forms.items():
            if any(form in octets for form in forms):
                self._found(name, f"{kind}: {place}")

    def _found(self, secret: str, place: str) -> None:
        met = [one for one in self.known if secret.startswith(one.secret) and place.startswith(one.place)]
        for one in met:
            one.met = True
        if not met:
            self.problems.append(f"{secret} stands in {place}")

    def search_database(self, path: Path) -> None:
        """Search each value of each row, and the file with what was deleted from it."""
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

    def close(self) -> list[str]:
        """Return what is wrong: secrets that were found, and known leaks that were not."""
        gone = [f"{one.place} no longer gives away {one.secret}: {one.why}" for one in self.known if not one.met]
        return sorted(set(self.problems)) + gone


def _values(database: sqlite3.Connection) -> Iterator[tuple[str, str, bytes]]:
    """Yield table, column and value of whatever the database holds."""
    tables = [name.decode() for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        cursor = database.execute(f'SELECT * FROM "{table}"')  # noqa: S608 - the name is the database's own
        columns = [column[0] for column in cursor.description]
        for row in cursor:
            for column, value in zip(columns, row, strict=True):
                if isinstance(value, bytes):
                    yield table, column, value
