"""What a plan chose from, in its report: every study that was asked for has a table that agrees with it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from simulator.planner.choice_records import Gap, GapStep
from simulator.planner.plan import plan_capacity
from simulator.planner.records import CapacityPlan
from simulator.reports.building import build_report
from simulator.reports.content import Paragraph, Table, Tone
from simulator.reports.sections.choice_studies import choice_blocks
from simulator.reports.studies import gather
from simulator.specs.plan import plan_spec

STEP = GapStep(
    name="eagle speculation",
    flags="--speculation eagle",
    hardware="h100-sxm-80gb",
    label="TP1 eagle",
    devices=8,
    saved_devices=8,
    alone_devices=8,
    quality="as published",
    quality_loss=0.0,
    cost_per_hour=24.0,
    assumes=("speculation.k = 5",),
)
GAP = Gap(
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
    fields = {"model": "llama-3.1-8b", "hardware": "h100", "rps": 200, "stock": "a100=8"}
    found = plan_capacity(plan_spec({**fields, "pareto": True, "pools": True}))
    return replace(found, gap=GAP)


def table(key: str) -> Table:
    return next(block for block in choice_blocks(plan()) if isinstance(block, Table) and block.key == key)


def test_every_study_that_was_asked_for_has_its_table() -> None:
    keys = [block.key for block in choice_blocks(plan()) if isinstance(block, Table)]
    assert keys == ["pareto", "gap", "stock", "pools"]
    for key in keys:
        assert all(len(row.cells) == len(table(key).columns) for row in table(key).rows)


def test_devices_of_the_stock_table_add_up_to_the_plan() -> None:
    stock = plan().stock
    assert stock is not None
    assert sum(int(row.cells[2].value or 0) for row in table("stock").rows) == stock.devices
    assert sum(int(row.cells[4].value or 0) for row in table("stock").rows) == stock.bought


def test_the_gap_table_starts_as_asked_and_says_what_each_step_costs_in_answers() -> None:
    gap = plan().gap
    assert gap is not None
    assert table("gap").rows[0].cells[2].value == gap.start_devices
    assert [row.cells[6].value for row in table("gap").rows[1:]] == [step.quality for step in gap.steps]
    assert "4 accelerators above the 4 allowed remain" in table("gap").note
    assert "takes for granted: speculation.k = 5" in table("gap").note


def test_the_decision_warns_that_its_money_leaves_the_stock_out() -> None:
    decision = build_report(gather(plan(), command="plan-capacity", created="2026-11-21")).sections[0]
    warned = [block for block in decision.blocks if isinstance(block, Paragraph) and block.tone is Tone.WARNING]
    assert [str(plan().best.devices) in block.text for block in warned] == [True]
