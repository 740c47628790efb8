"""A report as PDF, typeset by Typst from its own embedded fonts: no browser, no network, the same on every machine."""

from __future__ import annotations

from datetime import date

from simulator.reports.content import Figure, Report
from simulator.reports.figures.chart import Chart
from simulator.reports.figures.static_svg import LIGHT, static_svg
from simulator.reports.typesetting import typst_source


def _svg(chart: Chart) -> str:
    height = 90.0 + 30.0 * len(chart.y.categories) if chart.horizontal else 300.0
    return static_svg(chart, theme=LIGHT, width=720.0, height=height)


def report_pdf(report: Report) -> bytes:
    """The whole report as a PDF; equal reports give equal bytes.

    Raises
    ------
    ImportError
        typst is not installed (extra ``report``).
    """
    import typst

    charts = [block.chart for section in report.sections for block in section.blocks if isinstance(block, Figure)]
    inputs = {f"chart-{place}": _svg(chart) for place, chart in enumerate(charts, start=1)}
    days = date.fromisoformat(report.created) - date.fromisoformat("1970-01-01")
    made: bytes = typst.compile(
        typst_source(report).encode("utf-8"),
        sys_inputs=inputs,
        ignore_system_fonts=True,
        timestamp=int(days.total_seconds()),
    )
    return made
