"""The links of the docs lead to files and headings that exist."""

from __future__ import annotations

import re

from tests.support.code_blocks import PAGES as TEXTS
from tests.support.paths import ROOT

PAGES = [ROOT / page for page in TEXTS]


def anchors(page):
    """Return the anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page):
    found = []
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


def test_every_link_leads_somewhere():
    assert {page.name: found for page in PAGES if (found := broken_links(page))} == {}


def test_the_index_links_to_every_page():
    index = ROOT / "docs" / "README.md"
    links = {(index.parent / link).resolve() for link in re.findall(r"\]\(([^)#]+)", index.read_text(encoding="utf-8"))}
    assert set(PAGES) - {index} - links == set()
