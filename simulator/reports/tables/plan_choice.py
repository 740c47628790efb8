"""Search, Pareto set, gap, stock and pools of a plan as sections of text. Formatting only."""

from __future__ import annotations

from simulator.planner.records import CapacityPlan
from simulator.planner.studies.choice_records import ParetoSet, PoolPlan, PoolSplit, SearchSummary, StockPlan
from simulator.reports.content.quantities import kilowatts_text, percent_text, price_text, seconds_text
from simulator.reports.content.text import StudySection
from simulator.reports.tables.gap import gap_sections
from simulator.units import plain_text


def search_section(search: SearchSummary) -> StudySection:
    """How wide the search was."""
    return StudySection(
        title="Search",
        lines=(
            f"{search.candidates:,} set-ups = {' x '.join(search.axes)}; {search.feasible:,} can serve, the best "
            f"{search.finalists} were priced again exactly",
        ),
    )


def pareto_section(pareto: ParetoSet, *, currency: str) -> StudySection:
    """Fleets that no other beats."""
    columns = ("hardware", "setup", "GPUs", "cost/h", "kW", "J per token", "TTFT p95", "TPOT p95", "E2E p95", "quality")
    rows = tuple(
        (
            point.hardware,
            point.label,
            str(point.devices),
            price_text(point.cost_per_hour, currency),
            kilowatts_text(point.typical_w),
            f"{point.energy_per_output_token_j:.3g}",
            seconds_text(point.ttft_p95_s),
            seconds_text(point.tpot_p95_s),
            seconds_text(point.e2e_p95_s),
            point.quality,
        )
        for point in pareto.points
    )
    line = f"{len(rows)} of {pareto.considered} fleets are beaten by no other in {', '.join(pareto.axes)} at once"
    return StudySection(title="Pareto set", lines=(line,), columns=columns, rows=rows)


def stock_section(stock: StockPlan, *, currency: str) -> StudySection:
    """Fleets side by side."""
    columns = ("hardware", "setup", "replicas", "GPUs", "from stock", "bought", "requests/s", "cost/h", "kW")
    rows = tuple(
        (
            share.hardware,
            share.label,
            f"{share.replicas} + {share.spares}",
            str(share.devices),
            str(share.from_stock),
            str(share.bought),
            plain_text(share.rate_per_s),
            price_text(share.cost_per_hour, currency),
            kilowatts_text(share.typical_w),
        )
        for share in stock.shares
    )
    line = f"{stock.devices} GPUs, {stock.devices - stock.bought} of them from stock and {stock.bought} to obtain"
    if len(stock.shares) > 1:
        load = stock.shares[0].rate_per_s / stock.shares[0].capacity_per_s
        line += "; requests go to each in proportion to what it carries, "
        line += f"{percent_text(load)} of it at the planned peak"
    unused = tuple(f"unused: {text}" for text in stock.unused)
    new = "the table above and the other sections are of a new fleet, as if nothing existed"
    return StudySection(title="With what exists", lines=(line, *unused, new), columns=columns, rows=rows)


def _split_text(split: PoolSplit, currency: str) -> str:
    cost = "price unknown" if split.cost_per_hour is None else f"{price_text(split.cost_per_hour, currency)}/h"
    return f"{split.devices} GPUs, {cost}"


def _pools_verdict(pools: PoolPlan, currency: str) -> str:
    """Money decides where it is known, devices otherwise."""
    devices, money = pools.saved_devices, pools.saved_per_hour
    count = f"{abs(devices)} GPUs {'fewer' if devices > 0 else 'more'}" if devices else "as many GPUs"
    if money is None:
        verdict = f"{count} than one pool, prices unknown"
    elif money:
        word = "less" if money > 0 else "more"
        verdict = f"{price_text(abs(money), currency)}/h {word} than one pool, {count}"
    else:
        verdict = f"costs what one pool costs, {count}"
    advice = "two pools are better" if pools.better else "one pool is better"
    return f"split at {pools.threshold_tokens:.0f} prompt tokens: {verdict}: {advice}"


def pools_section(pools: PoolPlan, *, currency: str) -> StudySection:
    """Two pools by prompt length."""
    columns = ("prompts", "requests/s", "hardware", "setup", "replicas", "GPUs", "cost/h")
    rows = tuple(
        (
            f"{pool.from_tokens:.0f} to {pool.to_tokens:.0f}" if pool.to_tokens else f"from {pool.from_tokens:.0f}",
            plain_text(pool.rate_per_s),
            pool.hardware,
            pool.label,
            f"{pool.replicas} + {pool.spares}",
            str(pool.devices),
            price_text(pool.cost_per_hour, currency),
        )
        for pool in pools.pools
    )
    tried = "; ".join(
        f"at {split.threshold_tokens:.0f}: "
        + ("cannot be served" if split.devices is None else _split_text(split, currency))
        for split in pools.splits
    )
    lines = (_pools_verdict(pools, currency), *([f"splits that were tried: {tried}"] if tried else []))
    return StudySection(title="Two pools", lines=lines, columns=columns, rows=rows)


def choice_sections(plan: CapacityPlan) -> list[StudySection]:
    """Those that were asked for."""
    currency, found = plan.best.cost.currency, []
    if plan.search is not None:
        found.append(search_section(plan.search))
    if plan.pareto is not None:
        found.append(pareto_section(plan.pareto, currency=currency))
    if plan.gap is not None:
        found += gap_sections(plan.gap, currency=currency)
    if plan.stock is not None:
        found.append(stock_section(plan.stock, currency=currency))
    if plan.pools is not None:
        found.append(pools_section(plan.pools, currency=currency))
    return found
