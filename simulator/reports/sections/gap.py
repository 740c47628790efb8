"""The gap study in the report: the limits, what would need fewer accelerators step by step, and each change alone."""

from __future__ import annotations

from simulator.planner.gap.records import Gap, GapLimit, GapOption
from simulator.reports.content.cells import columns, count, money, number, text
from simulator.reports.content.document import Cell, Paragraph, Row, Table
from simulator.reports.tables.gap import reasons_against

_WORDS = ("Limit", "Change", "Fleet", "Fleet after it", "Enough", "Price in quality")


def _note(gap: Gap) -> str:
    said = ["In this order, each on top of those before: first what leaves answers as published, then what may not."]
    if gap.budget_devices is None:
        said.append(f"All together they need {gap.end_devices} accelerators.")
    elif gap.closed:
        said.append(f"That closes the gap to the {gap.budget_devices} that are allowed.")
    else:
        said.append(f"{gap.remaining_devices} accelerators above the {gap.budget_devices} allowed remain.")
    said += [f"{step.name.capitalize()} takes for granted: {item}." for step in gap.steps for item in step.assumes]
    return " ".join(said)


def _steps(gap: Gap, currency: str) -> Table:
    start = f"{gap.start_hardware} {gap.start_label}" if gap.start_devices is not None else "nothing serves"
    first = Row(
        cells=(text("as asked"), text(start), count(gap.start_devices), *(text(""),) * 3, text("as published")),
    )
    rows = tuple(
        Row(
            cells=(
                text(f"{step.name} ({step.flags})"),
                text(f"{step.hardware} {step.label}"),
                count(step.devices),
                count(step.saved_devices),
                count(step.alone_devices),
                money(step.cost_per_hour, digits=0),
                text(step.quality),
            )
        )
        for step in gap.steps
    )
    names = ("Change", "Fleet after it", "Devices", "Saved", "Alone", f"{currency}/h", "Price in quality")
    return Table(
        key="gap",
        title="What would need fewer accelerators, and what it costs in answers",
        columns=columns(*names, words=_WORDS, wide="Price in quality"),
        rows=(first, *rows),
        note=_note(gap),
    )


def _no_steps(gap: Gap) -> Paragraph:
    within = "the fleet is within the limits that were given, and " if gap.fits_as_asked else ""
    return Paragraph(text=f"Gap: {within}no technique that is known here needs fewer accelerators.")


def _limits(gap: Gap) -> Table:
    def row(limit: GapLimit) -> Row:
        after = (number(limit.end),) if gap.steps else ()
        cells = (text(f"{limit.flag} ({limit.unit})"), number(limit.allowed), number(limit.start), *after)
        return Row(cells=cells)

    names = ("Limit", "Allowed", "As asked", *(("After all changes",) if gap.steps else ()))
    return Table(
        key="gap_limits",
        title="Limits of the fleet and what it takes of them",
        columns=columns(*names, words=_WORDS),
        rows=tuple(map(row, gap.limits)),
    )


def _options(gap: Gap, currency: str) -> Table:
    def row(option: GapOption) -> Row:
        enough: tuple[Cell, ...] = (text("yes" if option.closes else "no"),) if gap.limits else ()
        return Row(
            cells=(
                text(f"{option.name} ({option.flags})"),
                text(f"{option.hardware} {option.label}"),
                count(option.devices),
                money(option.cost_per_hour, digits=0),
                *enough,
                text(option.quality),
            )
        )

    enough = ("Enough",) if gap.limits else ()
    names = ("Change", "Fleet", "Devices", f"{currency}/h", *enough, "Price in quality")
    against = "; ".join(reasons_against(gap))
    return Table(
        key="gap_options",
        title="Each change alone, everything else as asked",
        columns=columns(*names, words=_WORDS, wide="Price in quality"),
        rows=tuple(row(option) for option in gap.options if not option.reason),
        note=f"{against[:1].upper()}{against[1:]}." if against else "",
    )


def gap_blocks(gap: Gap, *, currency: str) -> list[Paragraph | Table]:
    """Limits, steps and single changes of a gap beside which a plan exists: no objective is missed there."""
    found: list[Paragraph | Table] = [_limits(gap)] if gap.limits else []
    found.append(_steps(gap, currency) if gap.steps else _no_steps(gap))
    if any(not option.reason for option in gap.options):
        found.append(_options(gap, currency))
    return found
