"""What closes a gap, each change alone and the bounds that even an idle replica misses, as sections of text."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.planner.gap.records import Gap, GapOption, GapStep, MissedBound
from simulator.reports.content.quantities import percent_text, price_text, seconds_text
from simulator.reports.content.text import StudySection

_SAVES = 4
"""Place of the column that says what a step saves."""
_SHOWN_ANYWAY = ("GPUs",)
"""Units of limits that have a column of their own; money is one too."""


def _extra(gap: Gap, currency: str) -> list[int]:
    """Places of the limits that need a column."""
    known = (*_SHOWN_ANYWAY, f"{currency}/h")
    return [place for place, limit in enumerate(gap.limits) if limit.unit not in known]


def _amount(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.3g}"


def _counted(value: float | None, unit: str) -> str:
    """``1 rack``, ``3 racks``, ``4.4 kW nameplate``."""
    return f"{_amount(value)} {unit.removesuffix('s') if value == 1 else unit}"


def _saved(saved: int | None) -> str:
    return "-" if saved is None else f"{saved:,}"


def _step_row(step: GapStep, currency: str, extra: Sequence[int]) -> tuple[str, ...]:
    taken = (_amount(step.taken[place]) for place in extra)
    fleet = f"{step.hardware} {step.label}"
    cost = price_text(step.cost_per_hour, currency)
    return (step.name, step.flags, fleet, f"{step.devices:,}", _saved(step.saved_devices), cost, *taken, step.quality)


def _steps_rows(gap: Gap, currency: str, extra: Sequence[int]) -> list[tuple[str, ...]]:
    """Rows of the steps; where another limit than GPUs counts, what they save of it stands beside the GPUs."""
    rows, before = [], [limit.start for limit in gap.limits]
    for step in gap.steps:
        row = list(_step_row(step, currency, extra))
        for place in extra:
            was, now = before[place], step.taken[place]
            if was is not None and now is not None:
                row[_SAVES] += f", {_counted(was - now, gap.limits[place].unit.split()[0])}"
        rows.append(tuple(row))
        before = list(step.taken)
    return rows


def _start_row(gap: Gap, currency: str, extra: Sequence[int]) -> tuple[str, ...]:
    taken = (_amount(gap.limits[place].start) for place in extra)
    money = price_text(gap.start_cost_per_hour, currency)
    if gap.start_devices is None:
        return ("as asked", "", "nothing serves", "-", "", "", *("-" for _ in extra), "")
    fleet = f"{gap.start_hardware} {gap.start_label}"
    return ("as asked", "", fleet, f"{gap.start_devices:,}", "", money, *taken, "")


def _together_row(gap: Gap, extra: Sequence[int]) -> tuple[str, ...]:
    last = gap.steps[-1]
    saved = _saved(None if gap.start_devices is None else gap.start_devices - last.devices)
    return ("all together", "", "", f"{last.devices:,}", saved, "", *("" for _ in extra), "")


def _remains(gap: Gap) -> str:
    over = [
        f"{_counted(limit.remaining, limit.unit)} above the {_amount(limit.allowed)} allowed"
        for limit in gap.limits
        if limit.remaining
    ]
    unknown = [f"{limit.flag} cannot be checked" for limit in gap.limits if limit.remaining is None]
    prefix, cache = gap.needed_prefix_hit, gap.needed_cache_hit
    cached = [] if prefix is None else [f"{percent_text(prefix)} of prompt tokens in the prefix cache (--prefix-hit)"]
    cached += [] if cache is None else [f"{percent_text(cache)} of requests answered from a cache (--cache-hit)"]
    closing = f"{' or '.join(cached)} would close it" if cached else "no cache closes it"
    rate = gap.carried_rate_per_s
    carried = f"; within the limits it carries {rate:.4g} requests/s" if rate else ""
    return f"what remains: {' and '.join([*over, *unknown])}; {closing}{carried}"


def _verdict(gap: Gap) -> str:
    if gap.end_devices is None:
        serving = any(option.devices is not None for option in gap.options)
        return "see below for what would serve" if serving else "nothing that was tried serves"
    if not gap.limits:
        return f"together they need {gap.end_devices:,} GPUs" if gap.steps else "nothing smaller was found"
    if not gap.closed:
        return _remains(gap)
    held = " and ".join(f"{_counted(item.end, item.unit)} of {_amount(item.allowed)} allowed" for item in gap.limits)
    return f"{'within the limits' if gap.fits_as_asked else 'that closes the gap'}: {held}"


def _without_steps(gap: Gap) -> tuple[str, ...]:
    if gap.fits_as_asked:
        return ("nothing needs to change",)
    if any(option.closes for option in gap.options):
        return ("no technique closes it, but single changes below do",)
    return ("no technique that was tried needs fewer",) if gap.start_devices is not None else ()


def _asked(gap: Gap) -> str:
    if gap.start_devices is None:
        return "as asked: nothing serves"
    over = [
        f"{_counted(limit.start - limit.allowed, limit.unit)} above {limit.flag} {_amount(limit.allowed)}"
        for limit in gap.limits
        if limit.start is not None and limit.start > limit.allowed
    ]
    fleet = f"as asked: {gap.start_devices:,} x {gap.start_hardware} {gap.start_label}"
    return f"{fleet}, {' and '.join(over)}" if over else fleet


def _in_answers(gap: Gap) -> list[str]:
    """The price of all steps in the quality of answers."""
    if not gap.steps:
        return []
    if gap.quality_loss == 0:
        return ["price in quality: none, answers stay as published"]
    known = "" if gap.quality_loss is None else f"{percent_text(gap.quality_loss)}, "
    return [f"price in quality, all together: {known}{gap.quality}"]


def gap_section(gap: Gap, *, currency: str) -> StudySection:
    """The waterfall from what is needed to what is allowed."""
    extra = _extra(gap, currency)
    more = tuple(gap.limits[place].unit for place in extra)
    columns = ("change", "flags", "fleet", "GPUs", "saves", "cost/h", *more, "quality")
    verdict = (_verdict(gap),) if gap.steps else (*_without_steps(gap), _verdict(gap))
    taken = tuple(f"{step.name} takes for granted: {text}" for step in gap.steps for text in step.assumes)
    command = (f"to plan it: {gap.command}",) if gap.steps and gap.command else ()
    rows = (
        (
            _start_row(gap, currency, extra),
            *_steps_rows(gap, currency, extra),
            _together_row(gap, extra),
        )
        if gap.steps
        else ()
    )
    return StudySection(
        title="What closes the gap",
        lines=(_asked(gap), *verdict, *_in_answers(gap), *command, *taken),
        columns=columns,
        rows=rows,
    )


def _enough(option: GapOption, gap: Gap) -> str:
    if not gap.limits:
        return "yes" if gap.start_devices is None else ""
    return "yes" if option.closes else "not enough"


def _option_row(option: GapOption, gap: Gap, currency: str, extra: Sequence[int]) -> tuple[str, ...]:
    taken = ("-" if option.devices is None else _amount(option.taken[place]) for place in extra)
    devices = "-" if option.devices is None else f"{option.devices:,}"
    cost = "-" if option.devices is None else price_text(option.cost_per_hour, currency)
    fleet = f"{option.hardware} {option.label}".strip() or "-"
    return (option.name, option.flags, fleet, devices, cost, *taken, _enough(option, gap), option.quality)


def reasons_against(gap: Gap) -> list[str]:
    """``nothing serves with it alone: nvfp4 weights``: one line a reason, with the changes that it rules out."""
    reasons = dict.fromkeys(option.reason for option in gap.options if option.reason)
    return [
        f"{reason}: {', '.join(option.name for option in gap.options if option.reason == reason)}" for reason in reasons
    ]


def options_section(gap: Gap, *, currency: str) -> StudySection:
    """Every change alone."""
    extra = _extra(gap, currency)
    more = tuple(gap.limits[place].unit for place in extra)
    is_enough = not gap.limits and gap.start_devices is None
    ways = [option for option in gap.options if option.closes or (is_enough and option.command)]
    best = ways[0] if ways and not gap.fits_as_asked else None
    useful = [option for option in gap.options if not option.reason]
    way = (f"to plan the first that is enough: {best.command}",) if best is not None and best.command else ()
    return StudySection(
        title="Each change alone",
        lines=(*way, *reasons_against(gap)),
        columns=("change", "flags", "fleet", "GPUs", "cost/h", *more, "enough", "quality"),
        rows=tuple(_option_row(option, gap, currency, extra) for option in useful),
    )


def _bound_row(bound: MissedBound) -> tuple[str, ...]:
    holds = "holds" if bound.factor <= 1 else f"{bound.factor:.2f} times the bound"
    return (bound.objective, seconds_text(bound.bound_s), seconds_text(bound.idle_s), holds)


def bounds_section(gap: Gap) -> StudySection:
    """Objectives beside an idle replica of the set-up that comes nearest."""
    nearest = gap.bounds[0]
    return StudySection(
        title="What misses",
        lines=(
            f"nearest is an idle {nearest.hardware} {nearest.label}: {nearest.made_of}; more replicas are not faster",
        ),
        columns=("objective", "bound", "idle replica", "that is"),
        rows=tuple(_bound_row(bound) for bound in gap.bounds),
    )


def gap_sections(gap: Gap, *, currency: str) -> list[StudySection]:
    """What misses, what closes the gap, and each change alone."""
    found = [bounds_section(gap)] if gap.bounds else []
    found.append(gap_section(gap, currency=currency))
    return [*found, options_section(gap, currency=currency)] if gap.options else found
