"""The capacity plan: try every candidate, size a fleet for each that can serve, rank, say what was refused, and warn of
what to check before the plan is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from math import prod
from typing import TYPE_CHECKING

from simulator.errors import Option, RoofcastError, contradiction
from simulator.files import keeps_nothing, machine_code
from simulator.phases.deployment import assumed_of_pools
from simulator.planner.capacity_plan import KINDS, CapacityPlan, PlanBasis, PriceRanking, has_studies, price_ranking
from simulator.planner.demand import replays_trace, whole_tokens
from simulator.planner.fleet.fleet import Sized, Trial, complete_all, with_doubt
from simulator.planner.fleet.records import Fleet
from simulator.planner.money.market import MarketPrice
from simulator.planner.records import NO_TECHNIQUES, FieldValue, Platform, Rejection
from simulator.planner.search.candidates import format_assumptions, leaves_format_open, left_out, platforms
from simulator.planner.search.question import Question, hand_over_assumption, price_assumptions, resolve
from simulator.planner.search.search import best_of_each, search
from simulator.specs.base import Assumption, Note
from simulator.specs.money.prices import PriceProfile
from simulator.specs.profiles import profiles_at_once
from simulator.specs.question.plan import PlanSpec
from simulator.units import KILO

if TYPE_CHECKING:
    from simulator.planner.gap.changes import Change
    from simulator.planner.verification.finalists import CheckedSearch


def _refused(option: str, message: str, *, hint: str) -> RoofcastError:
    return contradiction(message, field=Option(option), hint=hint)


def check_contradictions(spec: PlanSpec) -> None:
    """Refuse limits that no fleet of the fixed degrees, spares and rounding can hold.

    Raises RoofcastError: both options are named.
    """
    if spec.max_racks is not None and spec.round_to == "device":
        raise _refused(
            "max_racks",
            "contradicts `round_to` device: only whole servers have a place in a rack",
            hint="leave `round_to` at server, or limit power with `max_power_kw`",
        )
    if spec.max_gpus is None or spec.stock:
        return
    degrees = {name: min(getattr(spec, name), default=1) for name in ("tp_size", "pp_size", "dp_size", "cp_size")}
    spares = spec.spares or 0
    needed = prod(degrees.values()) * (1 + spares)
    if needed > spec.max_gpus:
        fixed = {name: value for name, value in degrees.items() if value > 1} | ({"spares": spares} if spares else {})
        raise _refused(
            "max_gpus",
            f"{spec.max_gpus} contradicts {' and '.join(f'`{name}` {value}' for name, value in fixed.items())}: "
            f"that is {needed} GPUs at least",
            hint=f"allow `max_gpus` {needed} or lower `{next(iter(fixed))}`",
        ).offering({"max_gpus": needed})


def _allowed(question: Question, ranked: list[Sized]) -> tuple[list[Sized], tuple[Rejection, ...]]:
    """Fleets within every limit that was given, and the others with what they exceed; a refusal where none is within.
    Stock limits what is obtained beside it, not a fleet without it (see ``stock_plan``)."""
    if question.spec.stock or not question.has_limits:
        return ranked, ()
    from simulator.planner.gap.limits import beyond, fleet_limits, within

    limits = fleet_limits(question)
    allowed = within(limits, ranked)
    if not allowed:
        from simulator.planner.gap.closing import refuse_limits

        refusal = refuse_limits(question, ranked, limits)
        if question.spec.encoder_hardware:
            from simulator.planner.studies.encoder_pool import closing_encoders

            refusal.hint = "; ".join(filter(None, (closing_encoders(question, ranked), refusal.hint)))
        raise refusal
    return allowed, beyond(limits, ranked)


def _of_choice(question: Question, best: Fleet) -> tuple[Assumption, ...]:
    """What was assumed of the chosen fleet alone: its checkpoint and its prices."""
    hardware = best.replica.deployment.hardware
    formats = format_assumptions(question.spec, question.model, hardware=hardware)
    return (*formats, *price_assumptions(best), *hand_over_assumption(best))


def _of_replicas(best: Fleet) -> tuple[Assumption, ...]:
    """What was filled in of its replicas, of both pools where it has two."""
    last = best.replica.deployment
    return last.assumptions if best.prefill is None else assumed_of_pools(best.prefill.replica.deployment, last)


def _simulated(question: Question, ranked: list[Sized]) -> CheckedSearch:
    from simulator.planner.verification.finalists import checked_finalists

    return checked_finalists(question, ranked)


def _ranking(question: Question, fleets: Sequence[Fleet]) -> PriceRanking | None:
    """How the order of the fleets rests on prices, and what the cheapest costs that quotes allow to buy."""
    prices = question.prices
    found = price_ranking(fleets, prices=prices, spec=question.spec)
    if found is None or not any(offer.quote and offer.kind == "purchase" for offer in prices.offers):
        return found
    from simulator.planner.money.tco import bought_fleet

    demand, ownership = question.demand, question.ownership
    bought = bought_fleet(fleets, demand=demand, prices=prices, ownership=ownership, spec=question.spec)
    return replace(found, bought=bought)


@profiles_at_once()
def plan_capacity(spec: PlanSpec, *, resized: bool = False) -> CapacityPlan:
    """The cheapest fleet that carries the demand within its objectives, and everything it was compared with.

    resized : the best fleet is sized in the event simulation, as those of a recorded trace are, and as all finalists
        are where `verify` says so

    Raises InfeasibleError: no candidate can serve, or none within the limits of the fleet; says which bound, by how
    much and what would be enough.
    Raises RoofcastError, ProfileError, FileError: the question itself is invalid.
    """
    check_contradictions(spec)
    question = resolve(spec)
    if spec.kv_tiers or spec.encoder_hardware:
        from simulator.planner.search.beside_replicas import check_beside

        check_beside(question)
    tried = search(question)
    trial = tried.trial
    if not trial.sized:
        from simulator.planner.gap.closing import refuse_nothing

        raise refuse_nothing(question, trial)
    ranked = with_doubt(trial.sized)
    simulated = _simulated(question, ranked) if spec.verify or resized or replays_trace(spec) else None
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
        assumptions=(*question.assumptions, *_of_choice(question, best), *_of_replicas(best)),
        warnings=(*question.demand.warnings, *unlike_pools_refused(spec, trial), *warnings_for(question, best, fleets)),
        basis=PlanBasis(question=question, shown=tuple(shown)),
        price_ranking=_ranking(question, fleets),
        search=tried.summary,
        families=tried.families,
        searched=tried.searched,
    )
    if simulated is not None:
        from simulator.planner.verification.finalists import with_finalists

        plan = with_finalists(plan, simulated)
    if not has_studies(spec):
        return plan
    from simulator.planner.studies.asked_for import with_studies

    return with_studies(plan, question, allowed=allowed, shown=shown)


def checked(plan: CapacityPlan) -> CapacityPlan:
    """``plan`` as command, library and page answer it: its fleet is simulated unless ``verify`` said yes or no. A fleet
    that misses there is sized until it holds. As it was where answers are not kept, as each would be simulated again,
    and where the event simulation is not compiled: its modules are not even loaded."""
    if plan.spec.verify is not None or plan.verification is not None or keeps_nothing() or not machine_code():
        return plan
    from simulator.engine.events.compilation import is_on_disk

    if not is_on_disk():
        return plan
    from simulator.planner.verification.finalists import surely_holds, with_check

    if plan.spec.stock:
        from simulator.planner.studies.stock import with_simulated
        from simulator.planner.studies.stock_fleets import StockPlan

        tried = [with_check(part).verification for part in plan.serving]
        studies = (with_simulated(item, tried) if isinstance(item, StockPlan) else item for item in plan.studies)
        found = replace(plan, studies=tuple(studies))
    else:
        found = with_check(plan)
        tried = [found.verification]
    checks = [item for item in tried if item is not None]
    if not checks:
        return found
    if not all(map(surely_holds, checks)):
        again = plan_capacity(plan.spec, resized=True)
        found = completed(again) if is_complete(plan) else again
    if not plan.spec.pools:
        return found
    from simulator.planner.studies.length_split import with_held_fleets

    return with_held_fleets(found)


ILLUSTRATED_GROWTH_PER_MONTH = 0.05
"""Where no growth was given: an assumption to show what growth would ask for, no forecast. Enters no total."""


def full_question(spec: PlanSpec) -> PlanSpec:
    """``spec`` with every study of a report asked for too."""
    wanted: dict[str, object] = {kind.key: True for kind in KINDS if kind.in_reports}
    growth = ILLUSTRATED_GROWTH_PER_MONTH if spec.growth is None else spec.growth
    return spec.model_copy(update={**wanted, "growth": growth})


def is_complete(plan: CapacityPlan) -> bool:
    """Whether every study of a report was made; a rental that the price list cannot answer stays None."""
    made = {item.key for part in (plan, *plan.serving) for item in part.studies} | {"rental"}
    return all(kind.key in made for kind in KINDS if kind.in_reports)


def answered_in_full(spec: PlanSpec) -> CapacityPlan:
    """The plan of ``spec`` with every study of a report; its question stays ``spec``."""
    return replace(plan_capacity(full_question(spec)), spec=spec)


def completed(plan: CapacityPlan) -> CapacityPlan:
    """``plan`` with the studies of a report that it lacks, without a second search; its warnings stay as they are."""
    if is_complete(plan):
        return plan
    from simulator.planner.studies.asked_for import with_studies

    asked = plan.basis.question
    found = with_studies(plan, replace(asked, spec=full_question(asked.spec)), shown=plan.basis.shown)
    return replace(found, warnings=plan.warnings)


# A fleet of this many accelerators is worth a second look at hardware and formats.
MANY_DEVICES = KILO
_HALF = 1 / 2
# Accelerators that are tried in place of one that was asked for by name.
_FASTEST = 3
_RISKY_UTILIZATION = 0.9


def _worth_trying(change: Change, best: Fleet) -> list[Platform]:
    """What a change is tried on: the accelerator itself, or instead of it those with the fastest memory. A warning must
    not cost another plan: what stands beside the fleet was compared already."""
    offered = platforms(change.spec)
    if change.field != "hardware":
        return [platform for platform in offered if platform.hardware.name == best.hardware]
    return sorted(offered, key=lambda platform: platform.hardware.memory_bytes_per_s)[-_FASTEST:]


def _fewer(question: Question, best: Fleet) -> list[Note]:
    """Single changes that need at most half the accelerators, each one tried."""
    from simulator.planner.gap.changes import single_changes
    from simulator.planner.search.usual_search import usual_search

    found = []
    for change in single_changes(question):
        sized = usual_search(replace(question, spec=change.spec), _worth_trying(change, best)).sized
        if not sized:
            continue
        smallest = min(sized, key=lambda item: (item.devices, item.rank))
        if smallest.devices <= best.devices * _HALF:
            found.append(_way_out(change.given(smallest.evaluated.candidate), smallest.devices))
    return found


def _way_out(way: FieldValue | str, devices: int) -> Note:
    """Other hardware that was compared, or a change of the question, and how few accelerators it needs."""
    return Note("way_out", {"way": way, "devices": devices})


def _many(question: Question, best: Fleet, fleets: list[Fleet]) -> Note:
    smaller = [fleet for fleet in fleets if fleet.devices <= best.devices * _HALF]
    ways = (*(_way_out(fleet.hardware, fleet.devices) for fleet in smaller[:1]), *_fewer(question, best))
    known = {"hardware": best.hardware, "any": bool(ways), "ways": tuple(dict.fromkeys(ways))}
    return Note("many_devices", {"devices": best.devices, **known})


def stale_prices(prices: PriceProfile, taken: Sequence[MarketPrice], *, today: date) -> list[Note]:
    """Prices whose newest offer is older on the day ``today`` than the list says that a price may be."""
    if prices.stale_after_days is None:
        return []
    aged = [(price, (today - date.fromisoformat(price.date)).days) for price in taken]
    return [
        Note("stale_price", {"price": price, "days": days, "listed": prices})
        for price, days in aged
        if days > prices.stale_after_days
    ]


def unlike_pools_refused(spec: PlanSpec, trial: Trial) -> tuple[Note, ...]:
    """A warning where pools on two kinds of accelerator were asked for and none serve: the nearest refusal."""
    if not spec.prefill_hardware or any(item.evaluated.candidate.prefill_hardware for item in trial.sized):
        return ()
    asked = [item for item in trial.rejections if item.candidate.prefill_hardware] or trial.rejections
    nearest = min(asked, key=lambda item: item.distance, default=None)
    if nearest is None:
        return ()
    return (Note("no_unlike_pools", {"nearest": nearest}),)


def warnings_for(question: Question, best: Fleet, fleets: list[Fleet]) -> tuple[Note, ...]:
    """What to check before the plan is used."""
    found = [Note("not_compared", {"reason": reason}) for reason in left_out(question.spec)]
    deployment = best.replica.deployment
    if best.devices >= MANY_DEVICES:
        found.append(_many(question, best, fleets))
    # What a default checkpoint is known to lose stands under the assumptions.
    plain = deployment.techniques.spec == NO_TECHNIQUES and not question.spec.kv_cache
    taken_by_default = leaves_format_open(question.spec) and plain
    if best.quality and not taken_by_default:
        found.append(Note("answers_may_differ", {"model": question.model, "quality": best.quality}))
    if best.provenance == "assumed" and deployment.speculation is not None:
        found.append(Note("acceptance_assumed"))
    if best.spares == 0:
        found.append(Note("no_spare_replica"))
    if question.policy.utilization > _RISKY_UTILIZATION:
        found.append(Note("high_utilization", {"utilization": question.policy.utilization}))
    if best.cost.per_hour is None:
        provider = question.spec.provider
        known = {"hardware": best.hardware, "provider": provider}
        found.append(Note("price_unlisted" if provider else "price_unknown", known))
    unpriced = {fleet.hardware for fleet in fleets if fleet.cost.per_hour is None and fleet.devices < best.devices}
    if best.cost.per_hour is not None and unpriced:
        found.append(Note("smaller_unpriced", {"hardware": sorted(unpriced)}))
    found.extend(stale_prices(question.prices, best.cost.prices, today=date.today()))
    engine = best.pools[0].replica.deployment.engine
    whole = whole_tokens(question.demand.mix, reserves_full_length=engine.reserves_full_length)
    if not engine.chunked_prefill and (refused := float((whole > engine.max_num_batched_tokens).mean())):
        found.append(Note("prompts_not_chunked", {"engine": engine, "refused": refused}))
    return tuple(found)
