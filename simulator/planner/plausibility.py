"""Answers that are right for the question and make one doubt the question."""

from __future__ import annotations

from simulator.planner.fleet.records import Fleet
from simulator.planner.gap.single_changes import single_changes, trial_of
from simulator.planner.search.question import Question
from simulator.units import KILO, percent_text

# A fleet of this many accelerators is worth a second look at hardware and formats.
MANY_DEVICES = KILO
_HALF = 1 / 2
_RISKY_UTILIZATION = 0.9


def _fewer(question: Question, best: Fleet) -> list[str]:
    """Single changes that need at most half the accelerators, each one tried."""
    found = []
    for change in single_changes(question):
        sized = trial_of(question, change.spec).sized
        if not sized:
            continue
        smallest = min(sized, key=lambda item: (item.devices, item.rank))
        if smallest.devices <= best.devices * _HALF:
            name = smallest.evaluated.candidate.platform.hardware.name
            flags = f"--hardware {name}" if change.flags == "--hardware" else change.flags
            found.append(f"{flags} needs {smallest.devices}")
    return found


def warnings_for(question: Question, best: Fleet, fleets: list[Fleet]) -> tuple[str, ...]:
    """What to check before the plan is used."""
    found = []
    if best.devices >= MANY_DEVICES:
        smaller = [fleet for fleet in fleets if fleet.devices <= best.devices * _HALF]
        hints = [f"{fleet.hardware} needs {fleet.devices}" for fleet in smaller[:1]] + _fewer(question, best)
        advice = "; ".join(dict.fromkeys(hints)) or "no single change of format or hardware halves that"
        found.append(f"{best.devices} GPUs is implausibly many for one model on {best.hardware}: {advice}")
    if best.quality:
        found.append(
            f"answers may differ from {question.model.name} as published ({best.quality}): measure them, or set "
            "--max-quality-loss"
        )
    if best.provenance == "assumed" and best.replica.deployment.speculation is not None:
        found.append("how many guesses of speculation are accepted is assumed: measure it on your own requests")
    if best.spares == 0:
        found.append("no spare replica: losing one puts the rest above their planned load")
    if question.policy.utilization > _RISKY_UTILIZATION:
        found.append(
            f"replicas planned at {percent_text(question.policy.utilization)} of saturation: a small error overloads "
            "them"
        )
    if best.cost.per_hour is None:
        found.append(f"no price is known for {best.hardware}: add one to your price list (--prices)")
    unpriced = sorted(
        {fleet.hardware for fleet in fleets if fleet.cost.per_hour is None and fleet.devices < best.devices}
    )
    if best.cost.per_hour is not None and unpriced:
        found.append(f"ranked last for want of a price, though smaller: {', '.join(unpriced)}")
    if not best.replica.deployment.engine.chunked_prefill:
        found.append("this engine does not chunk prompts: the plan's mixed steps are optimistic about TPOT percentiles")
    return tuple(found)
