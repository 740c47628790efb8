"""A report as one HTML file: no script, no font, no image from elsewhere; light, dark and print."""

from __future__ import annotations

from importlib.resources import files

from simulator.reports.charts.chart import Chart
from simulator.reports.charts.static_svg import CSS_THEME, static_svg
from simulator.reports.content.document import Report, cell_text, origin_mark

_TEMPLATES = "simulator.reports.templates"


def _svg(chart: Chart) -> str:
    height = 90.0 + 34.0 * len(chart.y.categories) if chart.horizontal else 340.0
    return static_svg(chart, theme=CSS_THEME, width=760.0, height=height)


def report_html(report: Report) -> str:
    """The report as one self-contained HTML document. Raises ImportError: no jinja2 (extra ``report``)."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["cell"] = lambda cell: cell_text(cell, currency=report.currency)
    environment.filters["mark"] = origin_mark
    environment.filters["svg"] = lambda chart: Markup(_svg(chart))
    environment.filters["kind"] = lambda block: type(block).__name__
    folder = files(_TEMPLATES)
    template = environment.from_string(folder.joinpath("report.html.j2").read_text("utf-8"))
    style = folder.joinpath("report.css").read_text("utf-8")
    return str(template.render(report=report, style=Markup(style)))
