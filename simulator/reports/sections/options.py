"""Section 4: what else was considered: the best of every accelerator, the search, the Pareto set, and two pools."""

from __future__ import annotations

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.explain import nearest_rejections
from simulator.planner.fleet.records import Fleet
from simulator.planner.studies.choice_records import ParetoSet, PoolPlan, PoolSplit, SearchSummary
from simulator.reports.charts.options import pareto_chart
from simulator.reports.content.document import (
    Block,
    Figure,
    Paragraph,
    Row,
    Section,
    Table,
    columns,
    count,
    kilowatts,
    money,
    number,
    row,
    seconds,
    table,
)
from simulator.reports.content.quantities import change_text, counted_text, price_text
from simulator.reports.sections.gap import gap_blocks
from simulator.reports.sections.stock import stock_blocks, stock_money_blocks
from simulator.reports.studies import Studies

_SHOWN = 14


def _why_not(fleet: Fleet, best: Fleet) -> str:
    if fleet is best:
        return "recommended"
    if fleet.cost.per_hour is None or best.cost.per_hour is None:
        return "no price known"
    ratio = fleet.cost.per_hour / best.cost.per_hour
    if ratio >= 2:
        return f"costs {ratio:.1f} times as much"
    change = change_text(fleet.cost.per_hour, best.cost.per_hour)
    return f"costs {change}" if change else "costs the same"


def _option(fleet: Fleet, best: Fleet) -> Row:
    return row(
        f"{fleet.hardware} {fleet.label}",
        count(fleet.devices),
        f"{fleet.devices_low:,}–{fleet.devices_high:,}",
        money(fleet.cost.per_hour, digits=0),
        kilowatts(fleet.typical_w),
        seconds(fleet.degraded.ttft_p95_s),
        seconds(fleet.degraded.tpot_p95_s),
        fleet.provenance,
        _why_not(fleet, best),
        total=fleet is best,
    )


def options_section(studies: Studies) -> Section:
    """Every accelerator with the best that it can do, those that cannot serve, and the studies of the choice."""
    plan = studies.plan
    fleets, cost = (plan.best, *plan.alternatives), f"{studies.currency}/h"
    names = ("Option", "Devices", "80 %", cost, "kW", "TTFT p95", "TPOT p95", "Known", "Verdict")
    options = table(
        "options",
        f"{len(fleets)} options from {plan.candidates:,} candidates, cheapest first",
        columns(*names, words=("Option", "Known", "Verdict")),
        [_option(fleet, plan.best) for fleet in fleets[:_SHOWN]],
        note="Each sized for the whole demand with the same spares; latencies at the peak with the spares down."
        + (f" {len(fleets) - _SHOWN} dearer ones are left out." if len(fleets) > _SHOWN else ""),
    )
    refused = table(
        "refused",
        "Cannot serve",
        columns("Option", "Why", words=("Option",), wide="Why"),
        [(f"{item.hardware} {item.label}", item.message) for item in nearest_rejections(plan)],
    )
    blocks: list[Block] = [options, Figure(chart=pareto_chart(plan)), *([refused] if refused.rows else [])]
    blocks += [*choice_blocks(plan), *stock_money_blocks(studies)]
    return Section(key="options", title="Options considered", blocks=tuple(blocks))


def choice_blocks(plan: CapacityPlan) -> tuple[Block, ...]:
    """The studies of the choice that were asked for, in the order in which a reader decides."""
    gap = gap_blocks(plan.gap, currency=plan.best.cost.currency) if plan.gap is not None else []
    pareto = pareto_blocks(plan, energy=False)
    return (*search_blocks(plan), *pareto, *gap, *stock_blocks(plan), *pools_blocks(plan))


def search_blocks(plan: CapacityPlan) -> tuple[Paragraph, ...]:
    """How wide the search was."""
    return () if plan.search is None else (_searched(plan.search),)


def _searched(search: SearchSummary) -> Paragraph:
    return Paragraph(
        text=f"The search priced {search.candidates:,} set-ups ({', '.join(search.axes)}); {search.feasible:,} can "
        f"serve, and the best {search.finalists} were priced again exactly."
    )


def pareto_blocks(plan: CapacityPlan, *, energy: bool = True) -> tuple[Table, ...]:
    """Fleets that no other beats; ``energy``: with that of an output token."""
    return () if plan.pareto is None else (_pareto(plan.pareto, plan.best.cost.currency, energy=energy),)


def _pareto(pareto: ParetoSet, currency: str, *, energy: bool) -> Table:
    joules = ("J/token",) if energy else ()
    names = ("Fleet", "Devices", f"{currency}/h", "kW", *joules, "TTFT p95", "TPOT p95", "E2E p95", "Answers")
    return table(
        "pareto",
        f"{len(pareto.points)} of {pareto.considered} fleets that no other beats",
        columns(*names, words=("Fleet",), wide="Answers"),
        [
            (
                f"{point.hardware} {point.label}",
                count(point.devices),
                money(point.cost_per_hour, digits=0),
                kilowatts(point.typical_w),
                *((number(point.energy_per_output_token_j),) if energy else ()),
                seconds(point.ttft_p95_s),
                seconds(point.tpot_p95_s),
                seconds(point.e2e_p95_s),
                point.quality,
            )
            for point in pareto.points
        ],
        note=f"No other fleet is at least as good in {', '.join(pareto.axes)} at once. By rising cost; fleets without "
        "a known price stand at the end.",
    )


def pools_blocks(plan: CapacityPlan) -> tuple[Table, ...]:
    """Two pools by prompt length."""
    return () if plan.pools is None else (_pools(plan.pools, plan.best.cost.currency),)


def _split_text(split: PoolSplit, currency: str) -> str:
    if split.devices is None:
        found = "cannot be served"
    else:
        cost = "price unknown" if split.cost_per_hour is None else f"{price_text(split.cost_per_hour, currency)}/h"
        found = f"{counted_text(split.devices, 'device')}, {cost}"
    return f"at {split.threshold_tokens:,.0f} tokens {found}"


def _pools_verdict(pools: PoolPlan, currency: str) -> str:
    """Money decides where it is known, devices otherwise."""
    verdict = f"saves {pools.saved_devices}" if pools.saved_devices > 0 else f"takes {-pools.saved_devices} more"
    if pools.saved_per_hour is not None:
        word = "less" if pools.saved_per_hour > 0 else "more"
        verdict = f"costs {price_text(abs(pools.saved_per_hour), currency)}/h {word} and {verdict}"
    advice = "two pools are better" if pools.better else "one pool is better"
    return f"The best split that was tried; it {verdict} accelerators against one fleet for all: {advice}."


def _pools(pools: PoolPlan, currency: str) -> Table:
    tried = "; ".join(_split_text(split, currency) for split in pools.splits)
    names = ("Prompt tokens", "Requests/s", "Fleet", "Replicas", "Devices", f"{currency}/h")
    return table(
        "pools",
        "Short and long prompts on fleets of their own",
        columns(*names, words=("Prompt tokens", "Fleet", "Replicas")),
        [
            (
                f"{pool.from_tokens:,.0f} to {pool.to_tokens:,.0f}"
                if pool.to_tokens is not None
                else f"from {pool.from_tokens:,.0f}",
                number(pool.rate_per_s),
                f"{pool.hardware} {pool.label}",
                f"{pool.replicas} + {pool.spares}",
                count(pool.devices),
                money(pool.cost_per_hour, digits=0),
            )
            for pool in pools.pools
        ],
        note=_pools_verdict(pools, currency) + (f" Splits that were tried: {tried}." if tried else ""),
    )
