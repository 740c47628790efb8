"""Search, Pareto set, gap, stock and pools of a plan as sections of text. Formatting only."""

from __future__ import annotations

from simulator.planner.choice_records import Gap, GapStep, ParetoSet, PoolPlan, SearchSummary, StockPlan
from simulator.planner.records import CapacityPlan
from simulator.reports.quantities import kilowatts_text, price_text, seconds_text
from simulator.reports.study_section import StudySection


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
    columns = ("hardware", "setup", "GPUs", "cost/h", "kW", "TTFT p95", "TPOT p95", "E2E p95", "quality")
    rows = tuple(
        (
            point.hardware,
            point.label,
            str(point.devices),
            price_text(point.cost_per_hour, currency),
            kilowatts_text(point.typical_w),
            seconds_text(point.ttft_p95_s),
            seconds_text(point.tpot_p95_s),
            seconds_text(point.e2e_p95_s),
            point.quality,
        )
        for point in pareto.points
    )
    line = f"{len(rows)} of {pareto.considered} fleets are beaten by no other in {', '.join(pareto.axes)} at once"
    return StudySection(title="Pareto set", lines=(line,), columns=columns, rows=rows)


def _gap_row(step: GapStep, currency: str) -> tuple[str, ...]:
    saved = "-" if step.saved_devices is None else str(step.saved_devices)
    alone = "-" if step.alone_devices is None else str(step.alone_devices)
    fleet = f"{step.hardware} {step.label}"
    cost = price_text(step.cost_per_hour, currency)
    return (step.name, step.flags, fleet, str(step.devices), saved, alone, cost, step.quality)


def _gap_verdict(gap: Gap) -> str:
    if gap.end_devices is None:
        return "nothing that was tried makes the objectives possible: relax them first"
    if gap.budget_devices is None:
        return f"together they need {gap.end_devices} GPUs"
    if gap.closed:
        return f"that closes the gap: {gap.end_devices} GPUs of {gap.budget_devices} allowed"
    prefix, cache = gap.needed_prefix_hit, gap.needed_cache_hit
    cached = [] if prefix is None else [f"{prefix:.0%} of prompt tokens in the prefix cache (--prefix-hit)"]
    cached += [] if cache is None else [f"{cache:.0%} of requests answered from a cache (--cache-hit)"]
    closing = f"{' or '.join(cached)} would close it" if cached else "no cache closes it"
    return f"what remains: {gap.remaining_devices} GPUs above the {gap.budget_devices} allowed; {closing}"


def gap_section(gap: Gap, *, currency: str) -> StudySection:
    """The waterfall from what is needed to what is allowed."""
    start = (
        "as asked: nothing serves"
        if gap.start_devices is None
        else f"as asked: {gap.start_devices} x {gap.start_hardware} {gap.start_label}"
    )
    columns = ("change", "flags", "fleet", "GPUs", "saves", "alone", "cost/h", "quality")
    lines = (
        (start, _gap_verdict(gap)) if gap.steps else (start, "no change that was tried needs fewer", _gap_verdict(gap))
    )
    taken = tuple(f"{step.name} takes for granted: {text}" for step in gap.steps for text in step.assumes)
    rows = tuple(_gap_row(step, currency) for step in gap.steps)
    return StudySection(title="What closes the gap", lines=(*lines, *taken), columns=columns, rows=rows)


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
            f"{share.rate_per_s:.4g}",
            price_text(share.cost_per_hour, currency),
            kilowatts_text(share.typical_w),
        )
        for share in stock.shares
    )
    line = f"{stock.devices} GPUs, {stock.devices - stock.bought} of them from stock and {stock.bought} to obtain"
    unused = tuple(f"unused: {text}" for text in stock.unused)
    return StudySection(title="With what exists", lines=(line, *unused), columns=columns, rows=rows)


def pools_section(pools: PoolPlan, *, currency: str) -> StudySection:
    """Two pools by prompt length."""
    columns = ("prompts", "requests/s", "hardware", "setup", "replicas", "GPUs", "cost/h")
    rows = tuple(
        (
            f"{pool.from_tokens:.0f} to {pool.to_tokens:.0f}" if pool.to_tokens else f"from {pool.from_tokens:.0f}",
            f"{pool.rate_per_s:.4g}",
            pool.hardware,
            pool.label,
            f"{pool.replicas} + {pool.spares}",
            str(pool.devices),
            price_text(pool.cost_per_hour, currency),
        )
        for pool in pools.pools
    )
    saved = pools.saved_devices
    verdict = f"saves {saved} GPUs" if saved > 0 else f"takes {-saved} more GPUs" if saved < 0 else "changes nothing"
    line = f"split at {pools.threshold_tokens:.0f} prompt tokens: {verdict} against one pool"
    return StudySection(title="Two pools", lines=(line,), columns=columns, rows=rows)


def choice_sections(plan: CapacityPlan) -> list[StudySection]:
    """Those that were asked for."""
    currency, found = plan.best.cost.currency, []
    if plan.search is not None:
        found.append(search_section(plan.search))
    if plan.pareto is not None:
        found.append(pareto_section(plan.pareto, currency=currency))
    if plan.gap is not None:
        found.append(gap_section(plan.gap, currency=currency))
    if plan.stock is not None:
        found.append(stock_section(plan.stock, currency=currency))
    if plan.pools is not None:
        found.append(pools_section(plan.pools, currency=currency))
    return found
