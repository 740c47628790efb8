"""A chart as a file of its own: the question on top, what the chart shows, and below it where that comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from simulator.reports.charts.chart import Chart
from simulator.reports.charts.marks import FONT, svg_text
from simulator.reports.charts.static_svg import LIGHT, static_svg, wrapped

_WIDTH, _HEIGHT, _EDGE = 720.0, 380.0, 16.0
_LINE = FONT * 1.4
_POINTS_PER_INCH = 192.0
"""Twice what screens resolve by convention: sharp on slides."""
_PAGE = '#set page(width: auto, height: auto, margin: 0pt)\n#image(bytes(sys.inputs.at("chart")), format: "svg")'


def _lines(text: str, *, top: float, fill: str, weight: str = "normal") -> Iterator[str]:
    for place, line in enumerate(wrapped(text, width=_WIDTH - 2 * _EDGE)):
        drawn = svg_text(_EDGE, top + place * _LINE, line, fill=fill, anchor="start")
        yield f'<g font-weight="{weight}">{drawn}</g>'


def picture_svg(chart: Chart, *, question: str) -> str:
    """The chart on paper, with the question that it answers."""
    above = [*_lines(question, top=_EDGE + FONT, fill=LIGHT.faint)]
    above += _lines(chart.title, top=_EDGE + FONT + len(above) * _LINE, fill=LIGHT.ink, weight="bold")
    top = _EDGE + len(above) * _LINE
    below = [*_lines(chart.caption, top=top + _HEIGHT + FONT, fill=LIGHT.faint)]
    height = top + _HEIGHT + len(below) * _LINE + _EDGE
    drawn = static_svg(chart, theme=LIGHT, width=_WIDTH, height=_HEIGHT)
    place = f'<svg y="{top:g}" width="{_WIDTH:g}" height="{_HEIGHT:g}" '
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH:g}" height="{height:g}" '
            f'viewBox="0 0 {_WIDTH:g} {height:g}" font-family="Helvetica, Arial, Liberation Sans, sans-serif" '
            f'font-size="{FONT:g}">',
            f'<rect width="{_WIDTH:g}" height="{height:g}" fill="{LIGHT.paper}"/>',
            *above,
            drawn.replace("<svg ", place, 1),
            *below,
            "</svg>",
        )
    )


def picture(chart: Chart, *, question: str, form: Literal["svg", "png"]) -> bytes:
    """The same as a file."""
    drawn = picture_svg(chart, question=question)
    return drawn.encode("utf-8") if form == "svg" else png_of(drawn)


def png_of(svg: str) -> bytes:
    """A drawing as pixels. Raises ImportError: typst is not installed (extra ``report``)."""
    import typst

    made: bytes = typst.compile(
        _PAGE.encode("utf-8"), sys_inputs={"chart": svg}, format="png", ppi=_POINTS_PER_INCH, ignore_system_fonts=True
    )
    return made
