"""The images of the docs that are drawn: the diagram of the README, and the plots of the benchmarks."""

from __future__ import annotations

import re

import pytest

from scripts.docs import diagram
from scripts.docs.plots import PLOTS, Plot, digest, drawn_digest, with_images
from scripts.docs.tables import number, tables
from tests.support.paths import ROOT

BENCHMARKS = ROOT / "benchmarks"
PAGE = """\
# Times

About the tables.

## One login of 2

plain:

| what | wall | ratio |
|---|---|---|
| `own` | 1.5 ms | 1 |
| other | 1,200 ms | 800 |

TLS:

| what | wall | ratio |
|---|---|---|
| `own` | 2 s | 1 |
| other | did not end | |

## Waiting

| service | trigger | lag, p50 / p99 |
|---|---|---|
| down | one | 0.1 / 57.7 ms |
"""
LOGIN = Plot("login", "PAGE.md", "One login", "Two tables", columns=(("wall time", "wall", 0),), unit="ms")


def test_the_diagram_is_that_of_its_source():
    """If this test fails, run `make docs`."""
    assert diagram.document() == diagram.IMAGE.read_text(encoding="utf-8")


def test_the_readme_shows_the_diagram():
    assert re.search(
        r"^!\[[^\]]+\]\(docs/images/architecture\.svg\)$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE
    )


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.name)
def test_a_plot_shows_the_numbers_of_its_page(plot):
    """If this test fails, run `make docs`."""
    text = (BENCHMARKS / plot.page).read_text(encoding="utf-8")
    assert drawn_digest(plot.image) == digest(plot.panels(text))
    assert f"\n{plot.embedded}\n" in text


def test_every_image_of_the_benchmarks_is_drawn():
    assert {path.stem for path in (BENCHMARKS / "images").iterdir()} == {plot.name for plot in PLOTS}


def test_the_tables_of_a_page():
    plain, tls, waiting = tables(PAGE)
    assert [plain.heading, plain.label, plain.columns] == ["One login of 2", "plain", ("what", "wall", "ratio")]
    assert plain.column("wall") == ("1.5 ms", "1,200 ms")
    assert [tls.label, waiting.label, waiting.heading] == ["TLS", "", "Waiting"]
    assert PAGE[waiting.start :].startswith("| service")
    with pytest.raises(KeyError, match="no column 'cpu'"):
        plain.column("cpu")


def test_the_numbers_of_a_plot():
    plain, tls = LOGIN.panels(PAGE)
    assert (plain.title, plain.categories, plain.series) == ("plain", ("own", "other"), (("wall time", (1.5, 1200.0)),))
    assert tls.series == (("wall time", (2000.0, None)),)
    with pytest.raises(KeyError, match="no table below 'Nothing'"):
        Plot("nothing", "PAGE.md", "Nothing", "Nothing", columns=(), unit="").panels(PAGE)


def test_a_panel_for_each_column():
    plot = Plot(
        "lag", "PAGE.md", "Waiting", "Lag", (("p99", "lag, p50", 1),), "ms", category_columns=2, panel_of="column"
    )
    (panel,) = plot.panels(PAGE)
    assert (panel.title, panel.categories, panel.series) == ("p99", ("one, down",), (("p99", (57.7,)),))


def test_another_number_gives_another_digest():
    other = PAGE.replace("1,200 ms", "1,201 ms")
    assert digest(LOGIN.panels(PAGE)) == digest(LOGIN.panels(PAGE.replace("800", "801")))
    assert digest(LOGIN.panels(PAGE)) != digest(LOGIN.panels(other))


def test_an_image_is_shown_once_above_its_tables():
    shown = with_images(PAGE, [LOGIN])
    assert shown == PAGE.replace("plain:", "![Two tables](images/login.svg)\n\nplain:")
    assert with_images(shown, [LOGIN]) == shown
    assert digest(LOGIN.panels(shown)) == digest(LOGIN.panels(PAGE))


@pytest.mark.parametrize(
    ("cell", "position", "expected"),
    [
        ("36 s", 0, 36_000.0),
        ("19.60 µs", 0, 0.0196),
        ("6,536.5", 0, 6536.5),
        ("0.1 / 57.7 / 311.6 ms", 1, 57.7),
        ("26.8 / 42.2 KiB", 1, 42.2),
        ("did not end", 0, None),
        ("", 0, None),
    ],
)
def test_the_number_of_a_cell(cell, position, expected):
    assert number(cell, position) == (None if expected is None else pytest.approx(expected))
