"""The diagram of the README, drawn from ``docs/images/architecture.yaml``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import drawsvg
import yaml

from scripts.update_docs import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

SOURCE = ROOT / "docs" / "images" / "architecture.yaml"
IMAGE = SOURCE.with_suffix(".svg")
TITLE = "Who talks to whom, and what is sealed where"

#: Colours of both modes. The background is part of the image, so it can be read on a page of either.
STYLE = """
text { font-family: system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif; font-size: 12px; }
text { fill: #1f2328; }
.title { font-size: 13px; font-weight: 600; }
.panel-title, .line, .label { fill: #57606a; }
.background { fill: #ffffff; }
.panel { fill: #f6f8fa; stroke: #d0d7de; }
.box { fill: #ffffff; stroke: #8c959f; }
.none { stroke: #57606a; fill: #57606a; }
.sealed { stroke: #1a7f37; fill: #1a7f37; }
.plain, .opened { stroke: #bc4c00; fill: #bc4c00; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .panel-title, .line, .label { fill: #9aa4af; }
  .background { fill: #0d1117; }
  .panel { fill: #161b22; stroke: #30363d; }
  .box { fill: #0d1117; stroke: #6e7681; }
  .none { stroke: #9aa4af; fill: #9aa4af; }
  .sealed { stroke: #3fb950; fill: #3fb950; }
  .plain, .opened { stroke: #f0883e; fill: #f0883e; }
}
.shackle { fill: none; }
"""
LINE_HEIGHT = 16
HEAD = 7


def document() -> str:
    """Return the image as SVG."""
    source = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    width, height = source["size"]
    image = drawsvg.Drawing(width, height, id_prefix="a")
    image.append_title(TITLE)
    image.append_css(STYLE)
    image.append(drawsvg.Rectangle(0, 0, width, height, rx=8, class_="background"))
    for panel in source["panels"]:
        _draw_panel(image, **panel)
    for box in source["boxes"]:
        _draw_box(image, **box)
    for arrow in source["arrows"]:
        _draw_arrow(image, arrow.pop("from"), arrow.pop("to"), **arrow)
    for entry in source["legend"]:
        _draw_legend(image, **entry)
    return str(image.as_svg()) + "\n"


def _text(image: Any, lines: Iterable[str], x: float, y: float, style: str) -> None:
    """Draw centred lines of text, the first one with its base line at y."""
    for number, line in enumerate(lines):
        image.append(drawsvg.Text(line, None, x, y + number * LINE_HEIGHT, text_anchor="middle", class_=style))


def _draw_panel(image: Any, at: list[float], size: list[float], title: str) -> None:
    image.append(drawsvg.Rectangle(*at, *size, rx=8, class_="panel"))
    _text(image, [title], at[0] + size[0] / 2, at[1] + 22, "panel-title")


def _draw_box(
    image: Any,
    *,
    at: list[float],
    size: list[float],
    title: list[str],
    lines: list[str],
    kind: str = "",
    copies: int = 0,
) -> None:
    for number in range(copies, -1, -1):
        image.append(drawsvg.Rectangle(at[0] + 4 * number, at[1] - 4 * number, *size, rx=6, class_="box"))
    centre = at[0] + size[0] / 2
    first = at[1] + 23
    _text(image, title, centre, first, "title")
    _text(image, lines, centre, first + LINE_HEIGHT * len(title) + 3, "line")
    if kind:
        _draw_padlock(image, at[0] + 15, at[1] + 14, kind)


def _draw_padlock(image: Any, x: float, y: float, kind: str) -> None:
    """Draw a padlock around a point: closed, or with its shackle on one side only."""
    image.append(drawsvg.Rectangle(x - 5, y, 10, 8, rx=1.5, class_=kind))
    end = "v 3" if kind == "sealed" else "v 0"
    image.append(drawsvg.Path(f"M {x - 3} {y} v -3 a 3 3 0 0 1 6 0 {end}", class_=f"{kind} shackle", stroke_width=1.6))


def _draw_arrow(
    image: Any, start: list[float], end: list[float], *, label: list[str], kind: str = "none", both: bool = False
) -> None:
    """Draw a horizontal arrow: the first line of its label above it, the others below."""
    (x, y), (tip, _) = start, end
    step = HEAD if tip > x else -HEAD
    image.append(drawsvg.Line(x + step * both, y, tip - step, y, class_=kind, stroke_width=1.6))
    _draw_head(image, tip, y, -step, kind)
    if both:
        _draw_head(image, x, y, step, kind)
    centre = (x + tip) / 2
    _text(image, label[:1], centre, y - 7, "label")
    _text(image, label[1:], centre, y + 17, "label")


def _draw_head(image: Any, tip: float, y: float, back: float, kind: str) -> None:
    image.append(drawsvg.Lines(tip, y, tip + back, y - 4, tip + back, y + 4, close=True, class_=kind))


def _draw_legend(image: Any, at: list[float], kind: str, text: str) -> None:
    x, y = at
    _draw_arrow(image, [x, y - 4], [x + 24, y - 4], label=[], kind=kind)
    if kind != "none":
        _draw_padlock(image, x + 40, y - 6, "opened" if kind == "plain" else kind)
    image.append(drawsvg.Text(text, None, x + (52 if kind != "none" else 34), y, class_="line"))


def main() -> None:
    """Write the image."""
    IMAGE.write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main()
