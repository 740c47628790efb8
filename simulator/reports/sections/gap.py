"""What closes a gap: the bounds that an idle replica misses, the changes step by step, and each change alone."""

from __future__ import annotations

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.gap.records import Gap, GapLimit, GapOption, GapStep, MissedBound
from simulator.reports.content import document as doc
from simulator.reports.content.quantities import counted_text, percent_text
from simulator.reports.words.fields import assumption_texts, flag_of, flag_texts, note_text, plan_command

_QUALITY = "Price in quality::"
_OWN_COLUMNS = ("max_gpus", "max_cost_per_hour")


def _amount(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.3g}"


def _counted(value: float | None, unit: str) -> str:
    """``1 rack``, ``3 racks``, ``4.4 kW nameplate``."""
    return f"{_amount(value)} {unit.removesuffix('s') if value == 1 else unit}"


def _more_limits(gap: Gap) -> list[tuple[int, GapLimit]]:
    """Limits that need a column of their own: devices and money have one anyway."""
    return [(place, item) for place, item in enumerate(gap.limits) if item.field not in _OWN_COLUMNS]


def _units(more: list[tuple[int, GapLimit]]) -> str:
    return "".join(f"{limit.unit} | " for _, limit in more)


def _remains(gap: Gap) -> str:
    over = [
        f"{_counted(limit.remaining, limit.unit)} above the {_amount(limit.allowed)} allowed"
        for limit in gap.limits
        if limit.remaining
    ]
    unknown = [f"{flag_of(limit.field)} cannot be checked" for limit in gap.limits if limit.remaining is None]
    prefix, cache = gap.needed_prefix_hit, gap.needed_cache_hit
    cached = (
        []
        if prefix is None
        else [f"{percent_text(prefix)} of prompt tokens in the prefix cache ({flag_of('prefix_hit')})"]
    )
    cached += (
        [] if cache is None else [f"{percent_text(cache)} of requests answered from a cache ({flag_of('cache_hit')})"]
    )
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
        f"{_counted(limit.excess, limit.unit)} above {flag_of(limit.field)} {_amount(limit.allowed)}"
        for limit in gap.limits
        if limit.excess
    ]
    fleet = f"as asked: {gap.start_devices:,} x {gap.start_hardware} {gap.start_label}"
    return f"{fleet}, {' and '.join(over)}" if over else fleet


def _in_answers(gap: Gap) -> tuple[str, ...]:
    """The price of all steps in the quality of answers."""
    if not gap.steps:
        return ()
    if gap.quality_loss == 0:
        return ("price in quality: none, answers stay as published",)
    known = "" if gap.quality_loss is None else f"{percent_text(gap.quality_loss)}, "
    return (f"price in quality, all together: {known}{note_text(gap.quality)}",)


def _note(gap: Gap) -> str:
    said = ["In this order, each on top of those before: first what leaves answers as they are, then what may not."]
    if gap.budget_devices is None:
        said.append(f"All together they need {gap.end_devices} accelerators.")
    elif gap.closed:
        said.append(f"That closes the gap to the {gap.budget_devices} that are allowed.")
    elif gap.remaining_devices is not None:
        remaining = counted_text(gap.remaining_devices, "accelerator")
        verb = "remains" if gap.remaining_devices == 1 else "remain"
        said.append(f"{remaining} above the {gap.budget_devices} allowed {verb}.")
    said += [
        f"{step.name.capitalize()} takes for granted: {item}."
        for step in gap.steps
        for item in assumption_texts(step.assumes)
    ]
    return " ".join(said)


def _steps(gap: Gap, currency: str) -> doc.Table:
    more = _more_limits(gap)

    def after(step: GapStep) -> doc.Row:
        return doc.row(
            f"{step.name} ({flag_texts(step.given)})",
            f"{step.hardware} {step.label}",
            doc.count(step.devices),
            doc.count(step.saved_devices),
            doc.count(step.alone_devices),
            doc.price(step.cost_per_hour),
            *(doc.number(step.taken[place]) for place, _ in more),
            note_text(step.quality),
        )

    start = f"{gap.start_hardware} {gap.start_label}" if gap.start_devices is not None else "nothing serves"
    taken = [doc.number(limit.start) for _, limit in more]
    hourly = "" if gap.start_devices is None else doc.price(gap.start_cost_per_hour)
    first = doc.row(
        "as asked", start, doc.count(gap.start_devices), "", "", hourly, *taken, note_text(gap.start_quality)
    )
    return doc.table(
        "gap",
        "What would close the gap step by step, and what it costs in answers",
        f"Change: | Fleet after it: | Devices | Saved | Alone | {currency}/h | {_units(more)}{_QUALITY}",
        [first, *map(after, gap.steps)],
        note=_note(gap),
    )


def _limits(gap: Gap) -> doc.Table:
    def of(limit: GapLimit) -> tuple[doc.Cell | str, ...]:
        after = (doc.number(limit.end),) if gap.steps else ()
        return (f"{flag_of(limit.field)} ({limit.unit})", doc.number(limit.allowed), doc.number(limit.start), *after)

    heads = f"Limit: | Allowed | As asked{' | After all changes' if gap.steps else ''}"
    return doc.table("gap_limits", "Limits of the fleet and what it takes of them", heads, map(of, gap.limits))


def reasons_against(gap: Gap) -> list[str]:
    """``nothing serves with it alone: nvfp4 weights``: one line a reason, with the changes that it rules out."""
    reasons = dict.fromkeys(option.reason for option in gap.options if option.reason)
    return [
        f"{note_text(reason)}: {', '.join(option.name for option in gap.options if option.reason == reason)}"
        for reason in reasons
    ]


def _options(gap: Gap, currency: str) -> doc.Table:
    more = _more_limits(gap)

    def alone(option: GapOption) -> doc.Row:
        return doc.row(
            f"{option.name} ({flag_texts(option.given)})",
            f"{option.hardware} {option.label}",
            doc.count(option.devices),
            doc.price(option.cost_per_hour),
            *(doc.number(None if option.devices is None else option.taken[place]) for place, _ in more),
            *(("yes" if option.closes else "no",) if gap.limits else ()),
            note_text(option.quality),
        )

    enough = "Enough: | " if gap.limits else ""
    against = "; ".join(reasons_against(gap))
    return doc.table(
        "gap_options",
        "Each change alone, everything else as asked",
        f"Change: | Fleet: | Devices | {currency}/h | {_units(more)}{enough}{_QUALITY}",
        [alone(option) for option in gap.options if not option.reason],
        note=f"{against[:1].upper()}{against[1:]}." if against else "",
    )


def gap_blocks(plan: CapacityPlan) -> tuple[doc.Block, ...]:
    """Limits, steps and single changes of a gap beside which a plan exists: no objective is missed there."""
    gap, currency = plan.study(Gap), plan.best.cost.currency
    if gap is None:
        return ()
    found: list[doc.Block] = [_limits(gap)] if gap.limits else []
    if gap.steps:
        found.append(_steps(gap, currency))
    else:
        within = "the fleet is within the limits that were given, and " if gap.fits_as_asked else ""
        found.append(doc.Paragraph(text=f"Gap: {within}no technique that is known here needs fewer accelerators."))
    if any(not option.reason for option in gap.options):
        found.append(_options(gap, currency))
    return tuple(found)


def _missed(gap: Gap) -> tuple[doc.Block, ...]:
    """Objectives beside an idle replica of the set-up that comes nearest."""
    nearest = gap.bounds[0]
    made_of = note_text(nearest.made_of)
    said = f"nearest is an idle {nearest.hardware} {nearest.label}: {made_of}; more replicas are not faster"

    def of(bound: MissedBound) -> doc.Row:
        holds = "holds" if bound.factor <= 1 else f"{bound.factor:,.2f} times the bound"
        return doc.row(bound.objective, doc.seconds(bound.bound_s), doc.seconds(bound.idle_s), holds)

    heads = "Objective: | Bound | Idle replica | That is::"
    return doc.Bullets(items=(said,)), doc.table("gap_bounds", "", heads, map(of, gap.bounds))


def gap_sections(gap: Gap, *, currency: str) -> tuple[doc.Section, ...]:
    """What misses, what closes the gap, and each change alone, each with what follows from it."""
    verdict = (_verdict(gap),) if gap.steps else (*_without_steps(gap), _verdict(gap))
    command = (f"to plan it: {plan_command(gap.spec)}",) if gap.steps and gap.spec else ()
    said = (_asked(gap), *verdict, *_in_answers(gap), *command)
    closing: tuple[doc.Block, ...] = (doc.Bullets(items=said), *([_steps(gap, currency)] if gap.steps else []))
    found = [doc.Section(key="what_misses", title="What misses", blocks=_missed(gap))] if gap.bounds else []
    found.append(doc.Section(key="what_closes_the_gap", title="What closes the gap", blocks=closing))
    if gap.options:
        is_enough = not gap.limits and gap.start_devices is None
        ways = [option for option in gap.options if option.closes or (is_enough and option.spec)]
        best = ways[0] if ways and not gap.fits_as_asked else None
        way = (f"to plan the first that is enough: {plan_command(best.spec)}",) if best and best.spec else ()
        alone: tuple[doc.Block, ...] = (*([doc.Bullets(items=way)] if way else []), _options(gap, currency))
        found.append(doc.Section(key="each_change_alone", title="Each change alone", blocks=alone))
    return tuple(found)
