"""The capacity plan: try every candidate, size a fleet for each that can serve, rank, and say what was refused.

Limits of the fleet that contradict what was fixed, whatever a search finds: refused before it starts.

Every study that a report carries, whether or not the question asked for it. They change no figure of the plan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from simulator.assumptions import Assumption
from simulator.errors import Option, RoofcastError
from simulator.planner.capacity_plan import CapacityPlan, PlanBasis
from simulator.planner.demand import replays_trace
from simulator.planner.fleet.fleet import Sized, complete_all
from simulator.planner.fleet.records import Fleet
from simulator.planner.money.price_ranking import price_ranking
from simulator.planner.plausibility import warnings_for
from simulator.planner.reasons import Rejection
from simulator.planner.search.candidates import platforms
from simulator.planner.search.default_format import format_assumptions
from simulator.planner.search.question import Question, price_assumptions, resolve
from simulator.planner.search.search import try_platforms
from simulator.planner.studies.registry import KINDS, has_studies, with_report_studies, with_studies
from simulator.specs.question.plan import PlanSpec

if TYPE_CHECKING:
    from simulator.planner.verification.finalists import Outcome


def _refused(option: str, message: str, *, hint: str) -> RoofcastError:
    return RoofcastError(message, field=Option(option), code="contradiction", hint=hint)


def check_contradictions(spec: PlanSpec) -> None:
    """Refuse limits that no fleet of the fixed degrees, spares and rounding can hold.

    Raises
    ------
    RoofcastError
        Both options are named.
    """
    if spec.max_racks is not None and spec.round_to == "device":
        raise _refused(
            "max_racks",
            "contradicts `round_to` device: only whole servers have a place in a rack",
            hint="leave `round_to` at server, or limit power with `max_power_kw`",
        )
    if spec.max_gpus is None or spec.stock:
        return
    tp, pp, dp = (min(values, default=1) for values in (spec.tp_size, spec.pp_size, spec.dp_size))
    spares = spec.spares or 0
    needed = tp * pp * dp * (1 + spares)
    if needed > spec.max_gpus:
        degrees = {name: value for name, value in (("tp_size", tp), ("pp_size", pp), ("dp_size", dp)) if value > 1}
        fixed = degrees | ({"spares": spares} if spares else {})
        raise _refused(
            "max_gpus",
            f"{spec.max_gpus} contradicts {' and '.join(f'`{name}` {value}' for name, value in fixed.items())}: "
            f"that is {needed} GPUs at least",
            hint=f"allow `max_gpus` {needed} or lower `{next(iter(fixed))}`",
        )


def best_of_each(ranked: list[Sized]) -> list[Sized]:
    """The best of every accelerator, as one kind of replica and as two pools; where only one was tried, all of them."""
    if len({item.evaluated.candidate.platform.hardware.name for item in ranked}) == 1:
        return ranked
    best: dict[tuple[str, int], Sized] = {}
    for item in ranked:
        candidate = item.evaluated.candidate
        best.setdefault((candidate.platform.hardware.name, len(candidate.parts)), item)
    return list(best.values())


def _allowed(question: Question, ranked: list[Sized]) -> tuple[list[Sized], tuple[Rejection, ...]]:
    """Fleets within every limit that was given, and the others with what they exceed; a refusal where none is within.

    Stock limits what is obtained beside it, not a fleet without it (see ``stock_plan``).
    """
    if question.spec.stock or not question.has_limits:
        return ranked, ()
    from simulator.planner.fleet.constraints import beyond, fleet_limits, within

    limits = fleet_limits(question)
    allowed = within(limits, ranked)
    if not allowed:
        from simulator.planner.gap.infeasible import refuse_limits

        raise refuse_limits(question, ranked, limits)
    return allowed, beyond(limits, ranked)


def _of_choice(question: Question, best: Fleet) -> tuple[Assumption, ...]:
    """What was assumed of the chosen fleet alone: its checkpoint and its prices."""
    hardware = best.replica.deployment.hardware
    return (*format_assumptions(question.spec, question.model, hardware=hardware), *price_assumptions(best))


def _simulated(question: Question, ranked: list[Sized]) -> Outcome | None:
    """The finalists in the event simulation, where that was asked for or the demand is a trace as it was recorded."""
    if not question.spec.verify and not replays_trace(question.spec):
        return None
    from simulator.planner.verification.finalists import checked_finalists

    return checked_finalists(question, ranked)


def plan_capacity(spec: PlanSpec) -> CapacityPlan:
    """The cheapest fleet that carries the demand within its objectives, and everything it was compared with.

    Raises
    ------
    InfeasibleError
        No candidate can serve, or none within the limits of the fleet; says which bound, by how much and what would
        be enough.
    RoofcastError, ProfileError, FileError
        The question itself is invalid.
    """
    check_contradictions(spec)
    question = resolve(spec)
    tried = try_platforms(question, platforms(spec))
    trial = tried.trial
    if not trial.sized:
        from simulator.planner.gap.infeasible import refuse_nothing

        raise refuse_nothing(question, trial)
    ranked = sorted(trial.sized, key=lambda item: item.rank)
    simulated = _simulated(question, ranked)
    if simulated is not None:
        question, ranked = simulated.question, simulated.ranked
    allowed, excluded = _allowed(question, ranked)
    shown = best_of_each(allowed)
    fleets = complete_all(shown, demand=question.demand, objectives=question.objectives, spec=spec)
    best = fleets[0]
    plan = CapacityPlan(
        spec=spec,
        demand=question.demand,
        objectives=question.objectives,
        best=best,
        alternatives=tuple(fleets[1:]),
        rejections=(*trial.rejections, *excluded),
        candidates=tried.summary.candidates if tried.summary else len(trial.sized) + len(trial.rejections) + trial.more,
        assumptions=(*question.assumptions, *_of_choice(question, best), *best.replica.deployment.assumptions),
        warnings=(*question.demand.warnings, *warnings_for(question, best, fleets)),
        basis=PlanBasis(question=question, shown=tuple(shown)),
        price_ranking=price_ranking(fleets, prices=question.prices, spec=spec),
        search=tried.summary,
        families=tried.families,
    )
    if simulated is not None:
        from simulator.planner.verification.finalists import with_finalists

        plan = with_finalists(plan, simulated)
    return with_studies(plan, question, allowed=allowed, shown=shown) if has_studies(spec) else plan


ILLUSTRATED_GROWTH_PER_MONTH = 0.05
"""Where no growth was given: an assumption to show what growth would ask for, no forecast. Enters no total."""


def full_question(spec: PlanSpec) -> PlanSpec:
    """``spec`` with failure, growth, rental and uncertainty asked for too."""
    wanted: dict[str, object] = {"resilience": True, "rental": True, "uncertainty": True}
    if spec.growth is None:
        wanted["growth"] = ILLUSTRATED_GROWTH_PER_MONTH
    return spec.model_copy(update=wanted)


def is_complete(plan: CapacityPlan) -> bool:
    """Whether every study of a report was made; a rental that the price list cannot answer stays None."""
    made = {item.key for item in plan.studies} | {"rental"}
    return all(kind.key in made for kind in KINDS if kind.in_reports)


def answered_in_full(spec: PlanSpec) -> CapacityPlan:
    """The plan of ``spec`` with every study of a report; its question stays ``spec``."""

    return replace(plan_capacity(full_question(spec)), spec=spec)


def completed(plan: CapacityPlan) -> CapacityPlan:
    """``plan`` with the studies of a report that it lacks, without a second search; its warnings stay as they are."""
    if is_complete(plan):
        return plan
    asked = plan.basis.question
    found = with_report_studies(plan, replace(asked, spec=full_question(asked.spec)), shown=plan.basis.shown)
    return replace(found, warnings=plan.warnings)
