"""Charts: every kind is drawn by both renderers, scales are right, nothing leaves its frame."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.reports.charts.chart import PALETTE, Annotation, Axis, Chart, Series, SeriesKind, ink_on, series_colors
from simulator.reports.charts.scales import Scale, chart_ranges, linear_ticks, log_ticks, number_text, waterfall_bars
from simulator.reports.charts.static_svg import CSS_THEME, LIGHT, static_svg
from simulator.reports.content.document import Figure
from tests.for_every import for_every
from tests.reports.report_cases import whole_report

WIDTH, HEIGHT = 720.0, 380.0


def charts() -> list[Chart]:
    """Those of a whole report."""
    blocks = [block for section in whole_report().sections for block in section.blocks]
    return [block.chart for block in blocks if isinstance(block, Figure)]


def line_chart(x: tuple[float, ...], y: tuple[float, ...], *, log: bool = False) -> Chart:
    return Chart(
        key="k",
        title="T <&> t",
        x=Axis(title="x", unit="s", log=log),
        y=Axis(title="y", log=log),
        series=(Series(name="s", kind=SeriesKind.LINE, x=x, y=y),),
    )


def points(svg: str) -> list[tuple[float, float]]:
    path = re.search(r'<path d="M([^"]*)" stroke', svg)
    assert path is not None
    return [tuple(map(float, pair.split())) for pair in path[1].split("L")]  # type: ignore[misc]


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_round_ordered_and_inside(low: float, span: float) -> None:
    ticks = linear_ticks(low, low + span)
    assert 1 <= len(ticks) <= 8
    assert list(ticks) == sorted(set(ticks))
    slack = span * 1e-5
    assert low - slack <= ticks[0] <= ticks[-1] <= low + span + slack


def test_log_ticks_are_powers_of_ten_over_many_decades_and_finer_over_few() -> None:
    assert log_ticks(1.0, 10_000.0) == (1.0, 10.0, 100.0, 1e3, 1e4)
    assert log_ticks(1.0, 10.0) == (1.0, 2.0, 5.0, 10.0)


def test_a_log_scale_puts_equal_ratios_at_equal_distances() -> None:
    scale = Scale(low=1.0, high=100.0, first=0.0, last=200.0, log=True)
    assert [scale.at(value) for value in (1.0, 10.0, 100.0)] == pytest.approx([0, 100, 200])


def test_number_text_uses_prefixes() -> None:
    assert [number_text(value) for value in (0, 0.25, 999.7, -12500, 1e5, 2.5e6, -3e9)] == [
        *("0", "0.25", "1,000", "-12,500", "100k", "2.5M", "-3G")
    ]


def test_waterfall_adds_up_and_totals_restart_from_zero() -> None:
    series = Series(name="", kind=SeriesKind.WATERFALL, x=(0, 1, 2, 3), y=(5.0, 3.0, 8.0, -2.0), totals=frozenset({2}))
    bars = waterfall_bars(series)
    assert [(bar.start, bar.end) for bar in bars] == [(0, 5), (5, 8), (0, 8), (8, 6)]


def test_a_rising_line_rises_on_paper_from_left_to_right() -> None:
    drawn = points(static_svg(line_chart((0.0, 1.0, 2.0), (1.0, 2.0, 4.0))))
    assert [x for x, _ in drawn] == sorted(x for x, _ in drawn)
    assert [y for _, y in drawn] == sorted((y for _, y in drawn), reverse=True)


def test_bars_start_at_zero_even_where_values_are_large() -> None:
    chart = Chart(
        key="k",
        title="t",
        x=Axis(title="", categories=("a", "b")),
        y=Axis(title="y"),
        series=(Series(name="s", kind=SeriesKind.BAR, x=(0, 1), y=(1000.0, 1001.0)),),
    )
    assert chart_ranges(chart)[1][0] == 0


def test_named_colours_stay_and_others_avoid_them() -> None:
    series = [Series(name=str(color), kind=SeriesKind.LINE, x=(0,), y=(1,), color=color) for color in (None, 0, None)]
    chart = Chart(key="k", title="t", x=Axis(title=""), y=Axis(title=""), series=tuple(series))
    assert series_colors(chart) == (1, 0, 2)


@for_every(charts)
@pytest.mark.parametrize("theme", [LIGHT, CSS_THEME], ids=["light", "css"])
def test_report_charts_are_well_formed_and_stay_on_the_paper(theme: object, chart: Chart) -> None:
    svg = static_svg(chart, theme=theme, width=WIDTH, height=HEIGHT)  # type: ignore[arg-type]
    root = ElementTree.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{space}title").text == chart.title  # type: ignore[union-attr]
    for element in root.iter():
        for name, limit in (("x", WIDTH), ("x1", WIDTH), ("cx", WIDTH), ("y", HEIGHT), ("y1", HEIGHT), ("cy", HEIGHT)):
            value = element.get(name)
            assert value is None or -1 <= float(value) <= limit + 1, (chart.key, element.tag, name, value)


@for_every(charts)
def test_plotly_draws_every_named_series(chart: Chart) -> None:
    plotly_figure = pytest.importorskip("simulator.reports.charts.plotly_figure").plotly_figure
    figure = plotly_figure(chart)
    drawn = {trace.name for trace in figure.data}
    for series in chart.series:
        if series.name:
            assert any(name and name.startswith(series.name) for name in drawn), series.name
    assert figure.layout.paper_bgcolor == "rgba(0,0,0,0)"


@pytest.mark.parametrize(("low", "high"), [(0.0, 10.0), (4.0, 10.0), (0.0, 6.0), (4.0, 6.0)])
def test_tornado_labels_stay_between_the_edges(low: float, high: float) -> None:
    bars = Series(
        name="",
        kind=SeriesKind.TORNADO,
        x=(0.0, 1.0),
        y=(5.0, 5.0),
        low=(low, 0.0),
        high=(high, 10.0),
        labels=("from here to there", "wide"),
    )
    axis = Axis(title="", categories=("an input", "another"))
    svg = static_svg(Chart(key="k", title="t", x=Axis(title="x"), y=axis, series=(bars,)), width=WIDTH)
    name = re.search(r'x="([\d.]+)"[^>]*text-anchor="end"[^>]*>an input<', svg)
    label = re.search(r'x="([\d.]+)"[^>]*text-anchor="(\w+)"[^>]*>from here to there<', svg)
    assert name is not None
    assert label is not None
    width = 110.0
    left = float(label[1]) - (width if label[2] == "end" else 0.0)
    assert float(name[1]) < left
    assert left + width < WIDTH


def test_text_is_escaped() -> None:
    svg = static_svg(line_chart((0.0, 1.0), (0.0, 1.0)))
    assert "T &lt;&amp;&gt; t" in svg
    ElementTree.fromstring(svg)


def test_annotations_at_points_lines_and_outside_of_the_range() -> None:
    chart = line_chart((0.0, 1.0), (0.0, 1.0))
    notes = (Annotation(text="at", x=0.5, y=0.5), Annotation(text="down", x=0.9), Annotation(text="across", y=0.2))
    noted = Chart(key="k", title="t", x=chart.x, y=chart.y, series=chart.series, annotations=notes)
    assert all(f">{note.text}<" in static_svg(noted) for note in notes)


@pytest.mark.parametrize(
    ("lines", "sides"), [((4.0, 9.0), "ll"), ((4.0, 7.0, 8.0), "lrl"), ((7.0, 7.5, 8.0), "rll"), ((0.5, 2.0), "ll")]
)
def test_the_name_of_an_upright_line_is_not_crossed_by_the_next(lines: tuple[float, ...], sides: str) -> None:
    plotly_spec = pytest.importorskip("simulator.reports.charts.plotly_figure").plotly_spec
    chart = line_chart((0.0, 10.0), (0.0, 1.0))
    notes = tuple(Annotation(text=f"{at}", x=at) for at in lines)
    noted = Chart(key="k", title="t", x=chart.x, y=chart.y, series=chart.series, annotations=notes)
    assert "".join(note["xanchor"][0] for note in plotly_spec(noted)["layout"]["annotations"]) == sides


@pytest.mark.parametrize("color", PALETTE)
def test_numbers_inside_bars_stand_out(color: str) -> None:
    def luminance(text: str) -> float:
        parts = (int(text[place : place + 2], 16) / 255 for place in (1, 3, 5))
        linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    dark, light = sorted((luminance(color), luminance(ink_on(color))))
    assert (light + 0.05) / (dark + 0.05) > 4


@pytest.mark.parametrize(("ends", "side"), [((0.4, 1.2), "left"), ((1.2, 0.4), "right")])
def test_the_name_of_a_line_across_stands_where_what_is_drawn_is_far_from_it(
    ends: tuple[float, float], side: str
) -> None:
    plotly_spec = pytest.importorskip("simulator.reports.charts.plotly_figure").plotly_spec
    chart = line_chart((0.0, 1.0), ends)
    noted = Chart(
        key="k", title="t", x=chart.x, y=chart.y, series=chart.series, annotations=(Annotation(text="a", y=1.0),)
    )
    (note,) = plotly_spec(noted)["layout"]["annotations"]
    assert note["xanchor"] == side


@pytest.mark.parametrize("kind", [SeriesKind.BAR, SeriesKind.SCATTER])
def test_whiskers_are_drawn_on_paper_too(kind: SeriesKind) -> None:
    x, y = Axis(title="x", low=0.0, high=5.0), Axis(title="y", low=0.0, high=5.0)
    plain = Series(name="n", kind=kind, x=(1.0,), y=(3.0,))
    drawn = [
        static_svg(Chart(key="k", title="t", x=x, y=y, series=(series,))).count("<line")
        for series in (plain, replace(plain, low=(2.0,), high=(4.0,)))
    ]
    assert drawn[1] == drawn[0] + 3
