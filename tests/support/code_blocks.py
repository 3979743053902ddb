"""The code blocks of the docs."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from markdown_it import MarkdownIt

from tests.support.paths import ROOT

FOLDERS = (".", "docs", "docs/dev", "constraints", "example_dags", "sandbox")
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for folder in FOLDERS
    for path in sorted((ROOT / folder).glob("*.md"))
}

KEY_LENGTH = 40


@dataclass(frozen=True)
class Block:
    page: str  # its path
    line: int  # that of its first row, counted from 1
    language: str  # empty if the page states none
    text: str

    def __str__(self):
        return f"{self.page}:{self.line}"

    @property
    def key(self):
        """The page and the beginning of the code, by which tables name a block."""
        return self.page, self.text.splitlines()[0][:KEY_LENGTH].strip()


def blocks_of(page, text):
    """Return the code blocks of a page, also those that are indented and not fenced."""
    return [
        Block(page, token.map[0] + 2, token.info.strip(), token.content)
        for token in MarkdownIt().parse(text)
        if token.type in ("fence", "code_block")
    ]


def airflow_names(text):
    """Import `dag` and `task` from where this Airflow has them."""
    return text if find_spec("airflow.sdk") else text.replace("airflow.sdk import", "airflow.decorators import")


BLOCKS = [block for page, text in PAGES.items() for block in blocks_of(page, text)]
