"""What a plan chose from, in the report: width of the search, Pareto set, gap, existing stock, two pools."""

from __future__ import annotations

from simulator.planner.records import CapacityPlan
from simulator.planner.studies.choice_records import ParetoSet, PoolPlan, SearchSummary, StockPlan
from simulator.reports.content.cells import columns, count, money, number, seconds, text
from simulator.reports.content.document import Cell, Paragraph, Row, Table
from simulator.reports.content.quantities import price_text
from simulator.reports.sections.gap import gap_blocks
from simulator.units import KILO


def _kilowatts(power_w: float) -> Cell:
    return number(power_w / KILO, digits=0)


def _search(search: SearchSummary) -> Paragraph:
    return Paragraph(
        text=f"The search priced {search.candidates:,} set-ups ({', '.join(search.axes)}); {search.feasible:,} can "
        f"serve, and the best {search.finalists} were priced again exactly."
    )


def _pareto(pareto: ParetoSet, currency: str) -> Table:
    rows = tuple(
        Row(
            cells=(
                text(f"{point.hardware} {point.label}"),
                count(point.devices),
                money(point.cost_per_hour, digits=0),
                _kilowatts(point.typical_w),
                seconds(point.ttft_p95_s),
                seconds(point.tpot_p95_s),
                seconds(point.e2e_p95_s),
                text(point.quality),
            )
        )
        for point in pareto.points
    )
    names = ("Fleet", "Devices", f"{currency}/h", "kW", "TTFT p95", "TPOT p95", "E2E p95", "Answers")
    return Table(
        key="pareto",
        title=f"{len(rows)} of {pareto.considered} fleets that no other beats",
        columns=columns(*names, words=("Fleet", "Answers"), wide="Answers"),
        rows=rows,
        note=f"No other fleet is at least as good in {', '.join(pareto.axes)} at once. By rising cost; fleets without "
        "a known price stand at the end.",
    )


def _stock(stock: StockPlan, currency: str) -> Table:
    rows = tuple(
        Row(
            cells=(
                text(f"{share.hardware} {share.label}"),
                text(f"{share.replicas} + {share.spares}"),
                count(share.devices),
                count(share.from_stock),
                count(share.bought),
                number(share.rate_per_s),
                money(share.cost_per_hour, digits=0),
                _kilowatts(share.typical_w),
            )
        )
        for share in stock.shares
    )
    names = ("Fleet", "Replicas", "Devices", "Existing", "To obtain", "Requests/s", f"{currency}/h", "kW")
    unused = f" Left over: {'; '.join(stock.unused)}." if stock.unused else ""
    return Table(
        key="stock",
        title=f"With what exists: {stock.devices} accelerators, {stock.bought} of them to obtain",
        columns=columns(*names, words=("Fleet", "Replicas")),
        rows=rows,
        note="Existing accelerators serve first and cost nothing an hour here: they are paid for. From section 5 "
        f"on this report is about a fleet without them.{unused}",
    )


def _pools(pools: PoolPlan, currency: str) -> Table:
    rows = tuple(
        Row(
            cells=(
                text(
                    f"{pool.from_tokens:,.0f} to {pool.to_tokens:,.0f}"
                    if pool.to_tokens is not None
                    else f"from {pool.from_tokens:,.0f}"
                ),
                number(pool.rate_per_s),
                text(f"{pool.hardware} {pool.label}"),
                text(f"{pool.replicas} + {pool.spares}"),
                count(pool.devices),
                money(pool.cost_per_hour, digits=0),
            )
        )
        for pool in pools.pools
    )
    names = ("Prompt tokens", "Requests/s", "Fleet", "Replicas", "Devices", f"{currency}/h")
    verdict = f"saves {pools.saved_devices}" if pools.saved_devices > 0 else f"takes {-pools.saved_devices} more"
    if pools.saved_per_hour is not None:
        word = "less" if pools.saved_per_hour > 0 else "more"
        verdict = f"costs {price_text(abs(pools.saved_per_hour), currency)}/h {word} and {verdict}"
    return Table(
        key="pools",
        title="Short and long prompts on fleets of their own",
        columns=columns(*names, words=("Prompt tokens", "Fleet", "Replicas")),
        rows=rows,
        note=f"The best split that was tried; it {verdict} accelerators against one fleet for all.",
    )


def choice_blocks(plan: CapacityPlan) -> tuple[Paragraph | Table, ...]:
    """Blocks of the studies that were asked for, in the order in which a reader decides."""
    currency = plan.best.cost.currency
    found: list[Paragraph | Table] = []
    if plan.search is not None:
        found.append(_search(plan.search))
    if plan.pareto is not None:
        found.append(_pareto(plan.pareto, currency))
    if plan.gap is not None:
        found += gap_blocks(plan.gap, currency=currency)
    if plan.stock is not None:
        found.append(_stock(plan.stock, currency))
    if plan.pools is not None:
        found.append(_pools(plan.pools, currency))
    return tuple(found)
