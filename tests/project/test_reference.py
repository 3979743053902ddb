"""The API reference: generated from the docstrings, and complete."""

from __future__ import annotations

import re

import pytest

from scripts.docs import reference
from scripts.docs.markup import Links, headline, markdown
from tests.project.test_architecture import PUBLIC
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
#: Modules that only Airflow imports, and a second path of a class.
NOT_IN_THE_REFERENCE = {"get_provider_info", "plugin", "auth.requests"}


def test_the_page_is_that_of_the_docstrings():
    """If this test fails, run `make docs`."""
    assert reference.document() == PAGE


def test_every_public_name_can_be_imported_as_the_page_states():
    stated = set(re.findall(r"^from airflow_provider_loanauth\.([\w.]+) import (\w+)$", PAGE, re.MULTILINE))
    public = {(module, name) for module, names in PUBLIC.items() for name in names.split()}
    assert {one for one in public if one[0] not in NOT_IN_THE_REFERENCE} == stated


def test_no_markup_of_docstrings_remains():
    assert (
        re.findall(r"``|:\w+:`|^\s*:\w+|\.\. \w", re.sub(r"^```.*$", "", PAGE, flags=re.MULTILINE), re.MULTILINE) == []
    )


@pytest.fixture
def links():
    found = Links(ROOT / "docs")
    found.add("package.Thing", "Thing")
    found.add("Thing.run", "Thing.run")
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("``None`` is :class:`~package.Thing`.", "`None` is [`Thing`](#thing)."),
        (":meth:`run` calls :meth:`~other.Class.go`", "[`Thing.run`](#thingrun) calls `go`"),
        ("(RFC 9110 §10.2.3)", "([RFC 9110 §10.2.3](https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3))"),
        ("§4.2.", "[§4.2](service-interface.md#42-authen-los)."),
        (":ref:`the form <howto/connection:loanauth>`", "[the form](connection.md)"),
        ("Like this:\n\n.. code-block:: python\n\n    a = [\n        1,\n    ]\n\nDone.",
         "Like this:\n\n```python\na = [\n    1,\n]\n```\n\nDone."),
    ],
)  # fmt: skip
def test_the_markup_of_docstrings(links, text, expected):
    assert markdown(text, links, "Thing") == expected


def test_the_headline_is_the_first_sentence():
    assert headline("\n    Wait for 1.5 s\n    at most. Then stop.\n") == "Wait for 1.5 s at most."
