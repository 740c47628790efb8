"""``roofcast verify``: whether a planned fleet keeps its promise when it is replayed."""

from __future__ import annotations

from simulator.planner.verification.promise import PROMISED, Promise, PromiseCase, ReplayedCase
from simulator.planner.verification.simulation import ENOUGH
from simulator.records import dataclass
from simulator.reports.answer import SCHEMA_VERSION, Answer, Json, finite, picked
from simulator.reports.charts.chart import Chart, bars_chart
from simulator.reports.content.quantities import counted_text, percent_text, seconds_text
from simulator.reports.formats.text import text_table

_EXPLAINED = {
    PromiseCase.ALL_UP: "promised: at the planned rate",
    PromiseCase.SPARES_DOWN: "promised: the planned rate on what is left",
    PromiseCase.BURSTIER: "not promised: gaps between arrivals vary twice as much",
    PromiseCase.EMPTY_CACHE: "not promised: no prompt token is found in the prefix cache",
}


def _case_object(item: ReplayedCase) -> Json:
    found = item.found
    return {
        "case": item.case.value,
        "promised": item.case in PROMISED,
        "replicas": item.replicas,
        "prefill_replicas": item.prefill_replicas or None,
        **picked(
            item, "rate_per_replica_per_s=found.rate_per_s", "holds", "held_fraction=found.held_fraction", "margin"
        ),
        **picked(found, "seeds", "requests", "reason"),
        "objectives": [
            {
                **picked(entry, "objective=name", "bound_s", "simulated_s"),
                "interval_s": [finite(entry.low_s), finite(entry.high_s)],
            }
            for entry in found.objectives
        ],
    }


def verdict_text(promise: Promise) -> str:
    """One sentence."""
    fleet = promise.fleet
    both = f"{fleet.prefill_replicas} prefill + {fleet.replicas} decode replicas of"
    named = f"{both if fleet.prefill_replicas else f'{fleet.replicas} x'} {fleet.hardware} ({fleet.label})"
    if promise.reason:
        return f"Not simulated: {named}: {promise.reason}"
    if promise.kept:
        margins = (item.margin for item in promise.cases if item.case in PROMISED and item.margin is not None)
        worst = min(margins, default=0.0)
        return f"Kept: {named} meets every objective with {percent_text(worst)} of a bound to spare."
    missed = next(item for item in promise.cases if item.case in PROMISED and not item.holds)
    where = f"in {percent_text(missed.found.missed_fraction)} of replays"
    if missed.found.held_fraction >= ENOUGH:
        where = f"too near a bound for {percent_text(ENOUGH)} of replays"
    return f"Not kept: {named} misses with {missed.case.value}, {where}."


def _row(item: ReplayedCase) -> tuple[str, ...]:
    found = item.found
    up = f"{item.prefill_replicas:,}P, {item.replicas:,}D" if item.prefill_replicas else f"{item.replicas:,}"
    if found.reason:
        return (item.case.value, up, "", found.reason)
    values = (f"{seconds_text(entry.simulated_s)} of {seconds_text(entry.bound_s)}" for entry in found.objectives)
    return (
        item.case.value,
        up,
        f"{found.rate_per_s:.3g}",
        *values,
        percent_text(found.held_fraction),
        _EXPLAINED[item.case],
    )


def _least_text(promise: Promise) -> str:
    least, short = promise.least_replicas, promise.short_replicas
    share = percent_text(ENOUGH)
    if least is None or short is None:
        return f"No fleet up to twice as large holds in {share} of replays."
    counted = counted_text(least, "decode replica" if promise.fleet.prefill_replicas else "replica")
    if short > 0:
        return f"{counted} would hold in {share} of replays, {short:,} more than planned."
    spare = "as planned" if short == 0 else f"{-short:,} fewer than planned: its margin for slower steps"
    return f"The smallest fleet that holds in {share} of replays has {counted} with the spares down, {spare}."


@dataclass(frozen=True, slots=True)
class PromiseAnswer(Answer):
    """A planned fleet, replayed; ``changes`` are figures of its document that planning again gives otherwise."""

    LISTED = "cases"
    promise: Promise
    changes: tuple[tuple[str, object, object], ...]

    def to_dict(self) -> Json:
        """Verdict, fleet, cases, the smallest fleet that holds, and figures that planning again gives otherwise."""
        promise, fleet = self.promise, self.promise.fleet
        return {
            "schema_version": SCHEMA_VERSION,
            "answer": verdict_text(promise),
            **picked(promise, "kept", "reason"),
            **picked(fleet, "hardware", "setup=label", "replicas", "spare_replicas=spares"),
            "prefill_replicas": fleet.prefill_replicas or None,
            "least_replicas": promise.least_replicas,
            "cases": [_case_object(item) for item in promise.cases],
            "changes": [{"field": name, "stated": before, "now": now} for name, before, now in self.changes],
        }

    def to_text(self) -> str:
        """The verdict, a table of cases, and what else a reader should know."""
        promise = self.promise
        lines = [verdict_text(promise), ""]
        if not promise.reason:
            names = [entry.name for entry in promise.cases[0].found.objectives]
            each = "req/s of one D" if promise.fleet.prefill_replicas else "req/s each"
            columns = ("case", "replicas", each, *names, "replays held", "")
            lines += [text_table(columns, [_row(item) for item in promise.cases]), _least_text(promise)]
        for name, before, now in self.changes:
            lines.append(f"Changed since the plan: {name} was {before}, planning again gives {now}.")
        return "\n".join(lines) + "\n"

    def chart(self) -> Chart:
        """Replays that hold, by case."""
        cases = self.promise.cases
        held = {"held": [100 * item.found.held_fraction for item in cases]}
        names = [item.case.value for item in cases]
        return bars_chart("promise", "Replays that hold every objective", y="Replays [%]", names=names, of=held)
