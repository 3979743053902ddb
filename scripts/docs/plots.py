"""
Plots of the benchmark tables, drawn from the numbers that the pages contain.

How matplotlib writes an image differs between its releases and machines. Each image therefore contains a digest of
its numbers, by which a test finds out whether the image is current without drawing it.
"""

from __future__ import annotations

import hashlib
import json
import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scripts.docs.tables import Table, number, tables
from scripts.update_docs import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

IMAGES = ROOT / "benchmarks" / "images"
COLOURS = ("#0969da", "#54aeff")
LABEL_WIDTH = 32
INCHES_PER_BAR = 0.24
INCHES_PER_LINE = 0.18


@dataclass(frozen=True)
class Panel:
    """
    One pair of axes.

    :param title: title of the panel
    :param categories: label of each row
    :param series: name and numbers of each series; None where the table has no number
    """

    title: str
    categories: tuple[str, ...]
    series: tuple[tuple[str, tuple[float | None, ...]], ...]


@dataclass(frozen=True)
class Plot:
    """
    A plot of the tables below a heading.

    :param name: name of the image
    :param page: name of the page in ``benchmarks/``
    :param heading: how the heading begins
    :param alt: what the image shows, for readers who do not see it
    :param columns: what the plot shows: a name, how the name of a column begins, and which number of a cell
    :param unit: label of the axis of numbers
    :param category_columns: how many columns identify a row
    :param panel_of: whether a panel shows a table, or one column
    :param logarithmic: whether the axis of numbers is logarithmic
    :param lines: whether to draw lines over the first column, which has numbers, instead of bars
    """

    name: str
    page: str
    heading: str
    alt: str
    columns: tuple[tuple[str, str, int], ...]
    unit: str
    category_columns: int = 1
    panel_of: str = "table"
    logarithmic: bool = False
    lines: bool = False

    @property
    def image(self) -> Path:
        """The path of the image."""
        return IMAGES / f"{self.name}.svg"

    @property
    def embedded(self) -> str:
        """The line of the page that shows the image."""
        return f"![{self.alt}](images/{self.name}.svg)"

    def tables(self, text: str) -> list[Table]:
        """
        Return the tables of a page that the plot shows.

        :param text: text of the page
        :raises KeyError: there is none
        """
        found = [one for one in tables(text) if one.heading.startswith(self.heading)]
        if not found:
            raise KeyError(f"{self.page} has no table below {self.heading!r}.")
        return found

    def panels(self, text: str) -> list[Panel]:
        """
        Return the numbers that the plot shows.

        :param text: text of the page
        """
        found = []
        for table in self.tables(text)[: 1 if self.panel_of == "column" else None]:
            categories = tuple(", ".join(row[: self.category_columns][::-1]).replace("`", "") for row in table.rows)
            series = tuple(
                (name, tuple(number(cell, position) for cell in table.column(column)))
                for name, column, position in self.columns
            )
            if self.panel_of == "column":
                found += [Panel(name, categories, ((name, numbers),)) for name, numbers in series]
            else:
                found.append(Panel(table.label, categories, series))
        return found


RESULTS = "RESULTS.md"
PLOTS = (
    Plot(
        "dag-parsing",
        RESULTS,
        "Import at DAG parse",
        "CPU time of the imports at DAG parse, for this provider and for others",
        columns=(("CPU", "CPU", 0),),
        unit="ms",
    ),
    Plot(
        "authentication",
        RESULTS,
        "One authentication on loopback",
        "Latency and CPU time of one authentication in a warm process, for each alternative, plain and with TLS",
        columns=(("latency", "latency", 0), ("CPU", "CPU", 0)),
        unit="ms",
    ),
    Plot(
        "new-process",
        RESULTS,
        "One authentication over TLS in a new process",
        "Wall time and CPU time of one authentication in a new process, for each alternative",
        columns=(("wall", "wall", 0), ("CPU", "CPU", 0)),
        unit="ms",
    ),
    Plot(
        "loans",
        RESULTS,
        "1,000 priced loans",
        "Wall time and CPU time of 1,000 priced loans, for each alternative, plain and with TLS",
        columns=(("wall", "wall", 0), ("CPU", "CPU", 0)),
        unit="ms",
    ),
    Plot(
        "threads",
        RESULTS,
        "32 threads",
        "Number of logins when 32 threads find an expired credential, with LoanAuth and with others",
        columns=(("logins", "logins", 0),),
        unit="logins",
    ),
    Plot(
        "growth",
        RESULTS,
        "Growth",
        "Wall time and CPU time per loan, for 10 to 10,000 loans",
        columns=(("wall", "wall per loan", 0), ("CPU", "CPU per loan", 0)),
        unit="ms per loan",
        lines=True,
    ),
    Plot(
        "waiting",
        "WAIT.md",
        "What waiting costs",
        "Requests per interval, loop lag and memory of 1,000 waiting triggers, for both triggers and both faults",
        columns=(
            ("requests per interval", "requests per interval", 0),
            ("loop lag p99, ms", "loop lag, p50 / p99", 1),
            ("resident memory per trigger, KiB", "memory per trigger, traced / resident", 1),
        ),
        unit="logarithmic scale",
        category_columns=2,
        panel_of="column",
        logarithmic=True,
    ),
)


def digest(panels: Sequence[Panel]) -> str:
    """Return a digest of the numbers that a plot shows."""
    numbers = [(panel.title, panel.categories, panel.series) for panel in panels]
    return hashlib.sha256(json.dumps(numbers).encode()).hexdigest()


def drawn_digest(image: Path) -> str | None:
    """Return the digest of the numbers that an image shows; None if it contains none."""
    found = re.search(r"<dc:description>numbers ([0-9a-f]{64})</dc:description>", image.read_text(encoding="utf-8"))
    return found[1] if found else None


def with_images(text: str, plots: Sequence[Plot]) -> str:
    """
    Return a page with each image above the first of its tables.

    :param text: text of the page, with or without the images
    :param plots: the plots of the page
    """
    for plot in plots:
        text = re.sub(rf"^!\[.*\]\(images/{plot.name}\.svg\)\n\n", "", text, flags=re.MULTILINE)
        start = plot.tables(text)[0].start
        text = f"{text[:start]}{plot.embedded}\n\n{text[start:]}"
    return text


def _draw(plot: Plot, panels: Sequence[Panel]) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    side_by_side = plot.panel_of == "column"
    heights = [_inches(panel) for panel in panels]
    size = (8.4, 2.8 if plot.lines else max(heights) if side_by_side else sum(heights))
    settings: Any = {"svg.hashsalt": plot.name, "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    with mpl.rc_context(settings):
        figure = Figure(figsize=size, layout="constrained", facecolor="white")
        grid = (1, len(panels)) if side_by_side else (len(panels), 1)
        axes = figure.subplots(*grid, squeeze=False, sharey=side_by_side).flat
        for axis, panel in zip(axes, panels, strict=True):
            (_draw_lines if plot.lines else _draw_bars)(axis, plot, panel)
        plot.image.parent.mkdir(exist_ok=True)
        metadata = {"Date": None, "Creator": None, "Description": f"numbers {digest(panels)}"}
        figure.savefig(plot.image, metadata=metadata)
    # matplotlib ends some lines with a space.
    text = plot.image.read_text(encoding="utf-8")
    plot.image.write_text(re.sub(r" +$", "", text, flags=re.MULTILINE), encoding="utf-8")


def _labels(panel: Panel) -> list[str]:
    return ["\n".join(textwrap.wrap(category, LABEL_WIDTH)) for category in panel.categories]


def _inches(panel: Panel) -> float:
    """Return the height of a panel with bars."""
    lines = max(label.count("\n") + 1 for label in _labels(panel))
    row = max(INCHES_PER_BAR * len(panel.series), INCHES_PER_LINE * lines) + 0.08
    return 0.6 + row * len(panel.categories)


def _shown(value: float | None) -> str:
    if value is None:
        return "not measured"
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"  # noqa: PLR2004 - enough digits


def _draw_bars(axis: Any, plot: Plot, panel: Panel) -> None:
    height = 0.8 / len(panel.series)
    for index, (name, numbers) in enumerate(panel.series):
        places = [place + (index - (len(panel.series) - 1) / 2) * height for place in range(len(numbers))]
        bars = axis.barh(places, [value or 0 for value in numbers], height * 0.9, color=COLOURS[index], label=name)
        axis.bar_label(bars, [_shown(value) for value in numbers], padding=3, fontsize=8)
    axis.set_yticks(range(len(panel.categories)), _labels(panel))
    axis.margins(x=0.15)
    if plot.logarithmic:
        axis.set_xscale("log")
        axis.margins(x=0.3)
    axis.set_xlabel(plot.unit)
    axis.set_title(panel.title, fontsize=9)
    # The first row on top. Panels that share the axis are inverted together.
    axis.set_ylim(len(panel.categories) - 0.5, -0.5)
    if len(panel.series) > 1:
        axis.legend(frameon=False, fontsize=8)


def _draw_lines(axis: Any, plot: Plot, panel: Panel) -> None:
    loans = [number(category) for category in panel.categories]
    for (name, numbers), colour in zip(panel.series, COLOURS, strict=False):
        axis.plot(loans, numbers, marker="o", color=colour, label=name)
    axis.set_xscale("log")
    axis.set_ylim(bottom=0)
    axis.set_xticks(loans, panel.categories)
    axis.minorticks_off()
    axis.set_xlabel("loans")
    axis.set_ylabel(plot.unit)
    axis.legend(frameon=False)


def main() -> None:
    """Draw each plot, and show it in its page."""
    for page in dict.fromkeys(plot.page for plot in PLOTS):
        path = ROOT / "benchmarks" / page
        text = path.read_text(encoding="utf-8")
        plots = [plot for plot in PLOTS if plot.page == page]
        for plot in plots:
            _draw(plot, plot.panels(text))
        path.write_text(with_images(text, plots), encoding="utf-8")


if __name__ == "__main__":
    main()
