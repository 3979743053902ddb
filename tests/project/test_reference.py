"""The API reference: generated from the docstrings, and complete."""

from __future__ import annotations

import re

from scripts.docs import reference
from tests.project.test_architecture import PUBLIC
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")


def test_the_page_is_that_of_the_docstrings():
    """If this test fails, run `make docs`."""
    assert reference.document() == PAGE


def test_every_public_name_can_be_imported_as_the_page_states():
    stated = set(re.findall(r"^from airflow_provider_loanauth\.([\w.]+) import (\w+)$", PAGE, re.MULTILINE))
    assert {(module, name) for module, names in PUBLIC.items() for name in names} == stated
