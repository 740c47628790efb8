"""The one list of sections: what the report, the terminal and the dashboard show of a plan are the same blocks."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest

from simulator.api.planning import plan_markdown, plan_sections, plan_text
from simulator.planner.capacity_plan import KEYS
from simulator.planner.plan import plan_capacity
from simulator.planner.studies.growth import Growth
from simulator.planner.studies.pareto import cheapest_or_fastest
from simulator.planner.studies.uncertainty import Uncertainty
from simulator.reports.charts.load import batch_over_time_chart
from simulator.reports.charts.marks import FONT, svg_line, svg_text, text_width
from simulator.reports.content.document import (
    Bullets,
    Cell,
    Facts,
    Figure,
    Paragraph,
    Section,
    Table,
    Tone,
    count,
    money,
    price,
    row,
    seconds,
    table,
    text,
)
from simulator.reports.formats.json_document import report_json
from simulator.reports.formats.markdown import report_markdown, sections_markdown
from simulator.reports.formats.text import sections_text, table_cells, text_table
from simulator.reports.report import SECTIONS, STUDIES, build_report, charts_of, numbered, study_sections
from simulator.reports.sections.answer import fleets_table, plan_figures
from simulator.reports.sections.appendix import reproduce_table
from simulator.reports.sections.cost import break_even_chart, tco_waterfall_chart
from simulator.reports.sections.growth import capacity_demand_chart
from simulator.reports.sections.inputs import workload_content
from simulator.reports.sections.options import pareto_blocks
from simulator.reports.sections.performance import performance_content
from simulator.reports.sections.resilience import cases_blocks
from simulator.reports.sections.sites import energy_content, facilities_content
from simulator.reports.sections.sizing import sizing_content
from simulator.reports.sections.uncertainty import tornado_chart
from simulator.reports.studies import gather
from simulator.reports.tables.plan_document import plan_csv
from simulator.reports.words.fields import plan_command
from simulator.specs.question.plan import plan_spec
from simulator.specs.question.plan_values import watched
from tests.reports.report_cases import CREATED, studied


def blocks(kind: type, sections: tuple[Section, ...]) -> list[object]:
    return [block for section in sections for block in section.blocks if isinstance(block, kind)]


def test_sections_are_numbered_by_their_place_in_the_list() -> None:
    report = build_report(studied())
    assert [section.number for section in report.sections] == list(range(1, len(SECTIONS) + 1))
    assert len({section.key for section in report.sections}) == len(SECTIONS)
    first, second = numbered((replace(report.sections[4], number=0), report.sections[0]))
    assert (first.number, second.number) == (1, 2)


def test_every_study_of_the_terminal_is_part_of_the_report() -> None:
    plan = studied().plan
    report = build_report(studied())
    in_report = {block.key: block for block in blocks(Table, report.sections) if isinstance(block, Table)}
    shown = [block for block in blocks(Table, study_sections(plan)) if isinstance(block, Table)]
    assert len(shown) > 5
    for block in shown:
        assert in_report[block.key] == block


def test_the_dashboard_finds_the_charts_of_a_study_by_its_key() -> None:
    plan = studied().plan
    growth, uncertainty = plan.study(Growth), plan.study(Uncertainty)
    assert growth is not None
    assert uncertainty is not None
    assert charts_of(*study_sections(plan, "growth")) == (capacity_demand_chart(growth, devices_now=plan.best.devices),)
    keys = [chart.key for chart in charts_of(*study_sections(plan, "uncertainty"))]
    moves = any(bar.devices_low != bar.devices_high for bar in uncertainty.tornado)
    key = tornado_chart(uncertainty, base_devices=plan.best.devices).key
    assert keys == [*([key] if moves else []), "cost_tornado"]
    assert {entry.key for entry in STUDIES} == {*KEYS, "search", "verification", "finalists"}


def test_a_chart_is_declared_once() -> None:
    charts = charts_of(*build_report(studied()).sections)
    assert len({chart.key for chart in charts}) == len(charts) > 8


def test_text_leaves_charts_out_and_says_everything_else() -> None:
    plan = studied().plan
    shown = plan_text(plan, explain=True)
    sections = plan_sections(plan, explain=True)
    assert not blocks(Figure, sections)
    for section in sections:
        assert section.title in shown
    for block in blocks(Bullets, sections):
        assert isinstance(block, Bullets)
        assert all(f"- {item}" in shown for item in block.items)
    assert shown.splitlines()[0] in plan_markdown(plan, explain=False).splitlines()[0]


def test_a_table_as_text_by_hand() -> None:
    made = table(
        "t",
        "Title of it",
        "Name: | Many | Cost | Wait",
        [row("a", count(12), price(1416.4), seconds(float("inf"))), ("bb", count(3), money(None), Cell(value=None))],
        note="Said below.",
    )
    section = Section(key="s", title="Head", blocks=(Paragraph(text="One."), made))
    assert sections_text((section,), currency="USD") == (
        "Head\nOne.\n\nTitle of it\nName  Many     Cost        Wait\na       12   $1,416  overloaded\n"
        "bb       3  unknown           –\n(Said below.)\n"
    )
    heads, rows = table_cells(made, currency="CHF")
    assert heads == ("Name", "Many", "Cost", "Wait")
    assert rows[0][2] == "1,416 CHF"


def test_a_title_is_not_said_twice_and_a_head_stands_apart() -> None:
    made = table("t", "Growth of it", "A:", [("x",)])
    head = Paragraph(text="What breaks first", tone=Tone.HEAD)
    shown = sections_text((Section(key="s", title="Growth", blocks=(made, head)),), currency="USD")
    assert shown == "Growth\nA\nx\n\nWhat breaks first\n"


def test_columns_of_numbers_are_found_where_nobody_says_so() -> None:
    assert text_table(("name", "n"), [("a", "1"), ("b", "10")]) == "name   n\na      1\nb     10"


def test_markdown_has_headings_and_escapes_bars() -> None:
    made = table("t", "", "A:", [("x|y",)])
    shown = sections_markdown((Section(key="s", title="Head", blocks=(made,)),), currency="USD")
    assert shown == "## Head\n\n| A |\n| --- |\n| x\\|y |\n"
    assert report_markdown(build_report(studied())).count("\n## ") == len(SECTIONS)


def test_json_totals_are_the_facts() -> None:
    import json

    report = build_report(studied())
    document = json.loads(report_json(report, studied()))
    facts = {item.key for block in blocks(Facts, report.sections) if isinstance(block, Facts) for item in block.facts}
    assert set(document["totals"]) == facts


@pytest.mark.parametrize(
    ("make", "keys"),
    [
        (workload_content, ["demand", "lengths", "objectives", "assumptions"]),
        (sizing_content, ["sizing", "resilience"]),
        (facilities_content, ["facilities"]),
        (energy_content, ["energy"]),
        (performance_content, ["at_peak", "degraded", "degraded_cases"]),
    ],
)
def test_sections_have_their_tables(make, keys: list[str]) -> None:  # type: ignore[no-untyped-def]
    found = [block.key for block in make(studied()) if isinstance(block, Table)]
    assert found[: len(keys)] == keys


def test_what_it_takes_to_reproduce_is_one_table() -> None:
    made = reproduce_table(("more", "said"), command="c", created="2026-01-01", version="1", question="abc")
    assert [item.cells[1].value for item in made.rows] == ["c", "1", "2026-01-01", "abc", "said"]


def test_the_waterfall_ends_in_the_total_and_break_even_is_where_lines_cross() -> None:
    cost = studied().cost
    assert cost.owning is not None
    series = tco_waterfall_chart(cost.owning, currency=cost.currency).series[0]
    changes = [value for place, value in enumerate(series.y) if place not in series.totals]
    assert sum(changes) == pytest.approx(cost.owning.total)
    assert series.y[-1] == cost.owning.total
    for item in cost.renting:
        assert item.by_share_of_hours[-1] == item.year_at(1.0) == item.annual
        if item.by_the_hour and item.break_even is not None:
            assert item.year_at(item.break_even) == pytest.approx(cost.owning.annual)
    assert break_even_chart(cost).key == "break_even"


def test_a_figure_of_the_fleet_goes_with_its_devices() -> None:
    fleet = studied().plan.best
    low, high = fleet.ends_of(float(fleet.devices))
    assert (low, high) == (pytest.approx(fleet.devices_low), pytest.approx(fleet.devices_high))
    assert fleet.spread == pytest.approx((high - low) / fleet.devices)


def test_cheapest_or_fastest_fleets_are_beaten_by_none() -> None:
    plan = studied().plan
    front = cheapest_or_fastest([fleet for fleet in plan.fleets if fleet.cost.per_hour is not None])
    assert front
    costs = [fleet.cost.per_hour or 0.0 for fleet in front]
    waits = [fleet.degraded.ttft_p95_s for fleet in front]
    assert costs == sorted(costs)
    assert waits == sorted(waits, reverse=True)


def test_fleets_stand_one_a_row_as_asked() -> None:
    plan = studied().plan
    made = fleets_table(plan.fleets, objectives=plan.objectives)
    assert [item.cells[2].value for item in made.rows] == [fleet.devices for fleet in plan.fleets]


def test_tables_figures_and_charts_show_the_percentiles_that_are_asked_for() -> None:
    asked = {"rps": 3.0, "model": "llama-3.1-8b", "hardware": ("h100",), "ttft_p99": "1s", "latency_p90": "9s"}
    plan = plan_capacity(plan_spec({**asked, "resilience": True, "pareto": True, "verify": False}))
    fleet, objectives = plan.best, plan.objectives
    assert list(watched(fleet.degraded, objectives)) == ["TTFT p99", "TPOT p95", "E2E p90"]
    assert fleet.degraded.objectives_s[0] > fleet.degraded.ttft_p95_s
    shown = fleets_table(plan.fleets, objectives=objectives, brief=True)
    assert [item.title for item in shown.columns[-4:-1]] == ["TTFT p99", "TPOT p95", "E2E p90"]
    assert [cell.value for cell in shown.rows[0].cells[-4:-1]] == list(watched(fleet.degraded, objectives).values())
    assert [item.label for item in plan_figures(plan)][2:5] == ["TTFT p99", "TPOT p95", "E2E p90"]
    studies = gather(plan, command="", complete=False)
    (chart,) = (item.chart for item in performance_content(studies) if isinstance(item, Figure))
    assert [series.name for series in chart.series] == ["TTFT p99", "TTFT p50"]
    assert "TTFT p95" not in plan_text(plan, explain=True)
    (first, *_) = csv.DictReader(plan_csv(plan).splitlines())
    assert float(first["ttft_p99_s"]) == fleet.degraded.objectives_s[0] > float(first["ttft_p95_s"])
    (pareto,) = pareto_blocks(plan)
    assert [item.title for item in pareto.columns[5:8]] == ["TTFT p99", "TPOT p95", "E2E p90"]
    (cases,) = cases_blocks(plan)
    assert [item.title for item in cases.columns[3:6]] == ["TTFT p99", "TPOT p95", "E2E p90"]


def test_marks_are_plain_svg() -> None:
    assert (
        svg_text(1.0, 2.0, "a<b", fill="#000") == '<text x="1.0" y="2.0" fill="#000" text-anchor="middle">a&lt;b</text>'
    )
    assert svg_line(0, 0, 1, 1, stroke="red", dash="4 3").endswith('stroke-dasharray="4 3"/>')
    assert text_width("mm", size=FONT) > text_width("ii", size=FONT)


def test_no_step_is_an_error_and_not_an_empty_chart() -> None:
    import numpy as np

    from simulator.errors import RoofcastError

    with pytest.raises(RoofcastError, match="no step"):
        batch_over_time_chart(np.zeros((0, 8)))
    assert text("a").value == "a"


def test_every_accelerator_that_was_named_has_a_row() -> None:
    named = ("h100", "h200", "a100-sxm-80gb", "l40s", "b200", "mi300x", "mi355x", "l4")
    plan = plan_capacity(plan_spec({"rps": 20, "model": "llama-3.1-8b", "hardware": named}))
    shown = next(block for block in plan_sections(plan, explain=False)[0].blocks if isinstance(block, Table))
    assert {line.cells[0].value for line in shown.rows} == {fleet.hardware for fleet in plan.fleets}


def test_the_cache_of_latent_attention_has_its_own_formula_and_a_rank_of_attention_its_own_room() -> None:
    plan = plan_capacity(
        plan_spec({"rps": 5, "model": "deepseek-r1", "hardware": "h200", "tp": 1, "dp": 8, "ep": 8, "verify": False})
    )
    software = next(
        item for item in build_report(gather(plan, command="", created=CREATED)).sections if item.key == "software"
    )
    note = next(block.text for block in software.blocks if isinstance(block, Paragraph))
    # kv_lora_rank 512 and 64 rotary numbers of two bytes in each of 61 layers.
    assert note.startswith("KV cache of a token on one device: 61 layers x 1,152 bytes = 70,272 bytes;")
    assert "in each of 8 attention ranks" in note
    chart = next(block.chart for block in software.blocks if isinstance(block, Figure))
    assert chart.title.endswith("cached tokens in each of 8 attention ranks")


def test_a_plan_is_asked_again_in_the_words_of_its_question() -> None:
    spec = plan_spec({"rps": 5, "growth": "60%/year"})
    command = plan_command(spec)
    assert "--growth 3.99441076905%/month" in command
    again = plan_spec({"rps": 5, "growth": command.rsplit(" ", 1)[1]})
    assert again.growth == pytest.approx(spec.growth, rel=1e-9)
