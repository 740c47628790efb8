"""What a plan chose from, in its report: every study that was asked for has a table that agrees with it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from simulator.api.planning import plan_text
from simulator.planner.capacity_plan import KINDS, CapacityPlan
from simulator.planner.gap.records import Gap, GapLimit, GapOption, GapStep
from simulator.planner.plan import plan_capacity
from simulator.planner.records import FieldValue
from simulator.planner.studies.stock_fleets import StockPlan
from simulator.reports.content.document import Paragraph, Table, Tone
from simulator.reports.decide.decision import decision_content, lead_text
from simulator.reports.decide.summary import summary_section
from simulator.reports.report import STUDIES, build_report, choice_blocks
from simulator.reports.sections.options import pareto_chart, plan_options_chart
from simulator.reports.sections.resilience import cases_blocks
from simulator.reports.sections.stock import stock_money_blocks
from simulator.reports.studies import gather, named_parts, of_each
from simulator.reports.words.fields import note_text
from simulator.specs.base import Assumption, Note, ValueOrigin
from simulator.specs.question.plan import plan_spec
from simulator.techniques.quality import UNCHANGED

STEP = GapStep(
    name="eagle speculation",
    given=(FieldValue(field="speculation", value="eagle"),),
    hardware="h100-sxm-80gb",
    label="TP1 eagle",
    devices=8,
    saved_devices=8,
    alone_devices=8,
    quality=UNCHANGED,
    quality_loss=0.0,
    cost_per_hour=24.0,
    assumes=(Assumption(key="speculation.k", value=5, origin=ValueOrigin.RULE, detail="as measured"),),
)
OPTION = GapOption(
    name="eagle speculation",
    given=(FieldValue(field="speculation", value="eagle"),),
    hardware="h100-sxm-80gb",
    label="TP1 eagle",
    devices=8,
    taken=(8.0,),
    closes=False,
    reason="",
    quality=UNCHANGED,
    quality_loss=0.0,
    cost_per_hour=24.0,
    spec=plan_spec({"speculation": "eagle"}),
)
USELESS = replace(
    OPTION, name="nvfp4 weights", given=(FieldValue(field="scheme", value="nvfp4"),), reason=Note("serves_not_alone")
)
GAP = Gap(
    limits=(GapLimit(field="max_gpus", unit="GPUs", allowed=4.0, start=16.0, end=8.0),),
    options=(OPTION, USELESS),
    budget_devices=4,
    start_hardware="h100-sxm-80gb",
    start_label="TP1",
    start_devices=16,
    steps=(STEP,),
    end_devices=8,
    remaining_devices=4,
    needed_prefix_hit=None,
)


@cache
def plan() -> CapacityPlan:
    fields = {"model": "llama-3.1-8b", "hardware": "h100", "rps": 200, "stock": "a100=8", "serving": "aggregated"}
    fields |= {"weights": "bf16", "ttft_p95": "2s", "tpot_p95": "200ms"}
    found = plan_capacity(plan_spec({**fields, "pareto": True, "pools": True}))
    return replace(found, studies=(*found.studies, GAP))


def table(key: str) -> Table:
    return next(block for block in choice_blocks(plan()) if isinstance(block, Table) and block.key == key)


def test_every_study_that_was_asked_for_has_its_table() -> None:
    keys = [block.key for block in choice_blocks(plan()) if isinstance(block, Table)]
    assert keys == ["pareto", "gap_limits", "gap", "gap_options", "stock", "pools"]
    for key in keys:
        assert all(len(row.cells) == len(table(key).columns) for row in table(key).rows)


def test_a_study_is_in_a_report_without_a_place_of_its_own() -> None:
    assert {kind.key for kind in KINDS} <= {entry.key for entry in STUDIES}
    asked = {"model": "llama-3.1-8b", "hardware": "h100", "rps": 20, "measured_rps_per_gpu": 5.0}
    report = build_report(gather(plan_capacity(plan_spec(asked)), command="plan-capacity", complete=False))
    titles = [block.title for section in report.sections for block in section.blocks if isinstance(block, Table)]
    assert titles.count("By the measured rate") == 1


def test_what_follows_the_answer_of_a_plan_with_stock_is_said_of_a_new_fleet() -> None:
    lines = plan_text(plan(), explain=False).splitlines()
    assert "of them to obtain" in lines[0]
    assert " nameplate), limited by" in lines[1]
    # What is compared with the next has to be named first.
    assert lines[1].startswith(f"A new fleet alone, as if nothing existed: {plan().best.devices} GPUs")
    without = plan_capacity(plan().spec.model_copy(update={"stock": ()}))
    assert "as if nothing existed" not in plan_text(without, explain=False)
    for asked, is_said in ((plan(), True), (without, False)):
        studies = gather(asked, command="plan-capacity", complete=False)
        said = [block.text for block in summary_section(studies).blocks if isinstance(block, Paragraph)]
        # Before what is about it, so that a board does not rent what it has.
        assert said[0] == lead_text(studies)
        assert ("as if nothing existed" in said[1]) is is_said


@pytest.mark.parametrize("existing", ["a100=16", "h100=800"])
def test_what_is_signed_is_what_has_to_be_obtained(existing: str) -> None:
    found = plan_capacity(plan().spec.model_copy(update={"stock": (existing,), "pools": False, "pareto": False}))
    stock = found.study(StockPlan)
    assert stock is not None
    kept = f"{stock.devices - stock.bought} {stock.shares[0].hardware} in stock"
    bought = f"Rent {stock.bought} h100-sxm-80gb beside {kept} to serve 200 requests/s"
    studies = gather(found, command="plan-capacity", complete=False)
    lead = lead_text(studies)
    assert lead.startswith(bought if stock.bought else "Obtain nothing to serve 200 requests/s")
    assert kept in lead
    # Who is asked sells what has to be obtained, not what a fleet without stock would be of.
    decided = next(item for item in decision_content(studies) if isinstance(item, Table) and item.key == "decisions")
    said = {str(row.cells[0].value): f"{row.cells[1].value} {row.cells[2].value}" for row in decided.rows}
    assert all(share.label in said["What"] for share in stock.shares)
    assert ("an hour" in said["Of whom"]) is bool(stock.bought)
    assert "new h100-sxm-80gb" in said["Alternative"]


def test_devices_of_the_stock_table_add_up_to_the_plan() -> None:
    stock = plan().study(StockPlan)
    assert stock is not None
    assert sum(int(row.cells[2].value or 0) for row in table("stock").rows) == stock.devices
    assert sum(int(row.cells[4].value or 0) for row in table("stock").rows) == stock.bought


def test_the_money_with_what_exists_stands_beside_that_of_a_new_fleet() -> None:
    found = gather(plan(), command="plan-capacity", created="2026-11-21")
    (money,) = stock_money_blocks(found)
    stock, best, prices = plan().study(StockPlan), plan().best, found.prices
    assert stock is not None
    rows = {str(row.cells[0].value): [cell.value for cell in row.cells[1:3]] for row in money.rows}
    assert rows["accelerators to obtain"] == [stock.bought, best.devices]
    hourly = sum(share.cost_per_hour or 0.0 for share in stock.shares)
    assert rows["rent, an hour"] == [pytest.approx(hourly), best.cost.per_hour]
    assert rows["rent, a year"][0] == pytest.approx(hourly * 8760)
    watts = sum(share.typical_w for share in stock.shares)
    assert rows["energy of a year, at the meter"][0] == pytest.approx(watts / 1000 * 8760 * prices.pue)
    assert rows["location-based emissions, a year"][1] == pytest.approx(found.energy.location_t)
    # The whole of the new fleet is bought there and part of it here, of the same accelerator at the same price.
    whole = rows["capital, if bought instead"]
    assert {share.hardware for share in stock.shares if share.bought} <= {best.hardware}
    assert whole[0] == pytest.approx(float(str(whole[1])) * stock.bought / best.devices)


def test_without_stock_there_is_no_such_table() -> None:
    found = gather(replace(plan(), studies=()), command="plan-capacity", created="2026-11-21", complete=False)
    assert stock_money_blocks(found) == ()


def test_the_gap_table_starts_as_asked_and_says_what_each_step_costs_in_answers() -> None:
    gap = plan().study(Gap)
    assert gap is not None
    assert table("gap").rows[0].cells[2].value == gap.start_devices
    assert [row.cells[6].value for row in table("gap").rows[1:]] == [note_text(step.quality) for step in gap.steps]
    assert "4 accelerators above the 4 allowed remain" in table("gap").note
    assert "takes for granted: speculation.k = 5 (as measured)" in table("gap").note


def test_limits_and_single_changes_stand_beside_the_steps() -> None:
    (limit,) = table("gap_limits").rows
    assert [cell.value for cell in limit.cells] == ["--max-gpus (GPUs)", 4.0, 16.0, 8.0]
    (option,) = table("gap_options").rows
    assert (option.cells[2].value, option.cells[4].value) == (8, "no")
    assert table("gap_options").note == "No fleet serves with this change alone: nvfp4 weights."


@pytest.mark.parametrize("limit", ["max_gpus", "max_cost_per_hour"])
@pytest.mark.usefixtures("few_accelerators")
def test_a_fleet_within_its_limits_is_offered_only_what_is_cheaper_or_smaller(limit: str) -> None:
    fixed = {"serving": "aggregated", "max_num_seqs": 256, "max_num_batched_tokens": 8192}
    fields = {"model": "llama-3.1-8b", "hardware": "h100", "rps": 20, "explain_gap": True, limit: 64, **fixed}
    found = plan_capacity(plan_spec(fields))
    assert found.study(Gap) is not None
    assert found.study(Gap).fits_as_asked
    said = [block.text for block in choice_blocks(found) if isinstance(block, Paragraph)]
    assert said == [
        "Gap: the fleet is within the limits that were given, and no technique that is known here needs fewer "
        "accelerators."
    ]
    best = found.best
    for option in found.study(Gap).options:
        if not option.reason:
            assert (option.cost_per_hour, option.devices) < (best.cost.per_hour, best.devices)


def test_the_decision_warns_that_its_money_leaves_the_stock_out() -> None:
    decision = build_report(gather(plan(), command="plan-capacity", created="2026-11-21")).sections[0]
    warned = [block for block in decision.blocks if isinstance(block, Paragraph) and block.tone is Tone.WARNING]
    assert [str(plan().best.devices) in block.text for block in warned] == [True]


def test_what_several_fleets_say_stands_under_their_names_with_keys_of_its_own() -> None:
    fields = {"model": "llama-3.1-8b", "hardware": "l40s", "rps": 200, "stock": "h100=4", "resilience": True}
    found = plan_capacity(plan_spec(fields))
    (kept, _), (new, _) = named_parts(found)
    assert kept.startswith("4 x h100-sxm-80gb TP1 fp8, ")
    blocks = of_each(found, cases_blocks)
    heads = [block.text for block in blocks if isinstance(block, Paragraph) and block.tone is Tone.HEAD]
    assert heads[0] == kept, "a part of a server"
    assert heads[1].startswith(f"{new} (")
    assert [block.key for block in blocks if isinstance(block, Table)] == ["degraded_cases_1", "degraded_cases_2"]


def test_the_chosen_fleet_is_called_the_cheapest_only_where_it_is() -> None:
    found = plan()
    for factor, said in (
        (1.5, "the cheapest of"),
        (1.0, "one of the cheapest of"),
        (0.9, "chosen before cheaper ones"),
    ):
        cost = replace(found.best.cost, per_hour=factor * found.best.cost.per_hour)
        beside = replace(found, alternatives=(replace(found.best, cost=cost),))
        for chart in (pareto_chart(beside), plan_options_chart(beside)):
            assert f"{found.best.hardware} is {said}" in chart.title
            assert "2 priced options" in chart.title
