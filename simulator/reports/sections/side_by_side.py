"""What is said of each fleet that serves, where several do side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.studies.stock_fleets import StockPlan
from simulator.reports.content.document import Block, Figure, Paragraph, Table, Tone
from simulator.reports.content.quantities import count_text, rate_text


def of_each(plan: CapacityPlan, blocks: Callable[[CapacityPlan], Sequence[Block]]) -> tuple[Block, ...]:
    """``blocks`` of what serves: where something exists those of each fleet side by side, under its name."""
    found: list[Block] = []
    for place, (name, part) in enumerate(named_parts(plan), start=1):
        said = blocks(part)
        if name and said:
            whole = part.basis.question.spec.round_to == "server"
            counted = f" ({count_text(part.best.devices)} in whole servers)" if whole else ""
            said = (Paragraph(text=f"{name}{counted}", tone=Tone.HEAD), *(_of_part(block, place) for block in said))
        found += said
    return tuple(found)


def _of_part(block: Block, place: int) -> Block:
    """A block whose key is its own in a document that has it for several fleets."""
    if isinstance(block, Table):
        return replace(block, key=f"{block.key}_{place}")
    if isinstance(block, Figure):
        return replace(block, chart=replace(block.chart, key=f"{block.chart.key}_{place}"))
    return block


def named_parts(plan: CapacityPlan) -> tuple[tuple[str, CapacityPlan], ...]:
    """What serves; of several fleets side by side each with its name, ``32 x l40s TP1 fp8, 134 requests/s``."""
    stock = plan.study(StockPlan)
    if stock is None:
        return (("", plan),)
    rates = [rate_text(share.rate_per_s, "requests") for share in stock.shares]
    names = (
        f"{count_text(share.devices)} x {share.hardware} {share.label}, {rate}"
        for share, rate in zip(stock.shares, rates, strict=True)
    )
    return tuple(zip(names, plan.parts, strict=True))
