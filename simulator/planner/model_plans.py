"""Plans of several models: a fleet for each, what each step down saves and loses, or the sum of a mix."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product

from simulator.errors import InfeasibleError, Option, RoofcastError, contradiction, no_effect
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.records import Fleet, Housing, housing_of
from simulator.planner.records import Platform
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.question.plan import FLEET_LIMITS, PlanSpec
from simulator.specs.question.plan_values import SUM_TOLERANCE, model_share, watched
from simulator.techniques.quality import UNCHANGED, joined, other_model_note

Planner = Callable[[PlanSpec], CapacityPlan]
_LIMITS = (*FLEET_LIMITS, "stock")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedModel:
    """One model in one format with its plan.

    weights : the format that was asked for, empty where none was; share : of the requests, 1 where models compete
    refusal : why there is no plan, empty where there is one
    alone : the accelerator that it would take without the others of a mix, empty where it takes that
    """

    model: str
    weights: str
    share: float
    plan: CapacityPlan | None
    refusal: str = ""
    alone: str = ""

    @property
    def name(self) -> str:
        """``llama-3.1-8b fp8``."""
        return f"{self.model} {self.weights}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDown:
    """A step from one model or format to the next: both fleets, and what is published about the answers of both."""

    before: PlannedModel
    after: PlannedModel
    fleets: tuple[Fleet, Fleet]
    quality: Note

    @property
    def changes(self) -> dict[str, tuple[float | None, float | None]]:
        """Cost, power and latencies before and after, by name."""
        high, low = self.fleets
        objectives = () if self.before.plan is None else self.before.plan.objectives
        before, after = (watched(fleet.degraded, objectives) for fleet in self.fleets)
        return {
            "cost": (high.cost.per_hour, low.cost.per_hour),
            "power": (high.typical_w, low.typical_w),
            **{name: (value_s, after[name]) for name, value_s in before.items()},
        }

    @property
    def change_fractions(self) -> dict[str, float | None]:
        """Each change as a share of the value before; None where a value is not known."""
        return {
            name: now / then - 1 if now is not None and then else None for name, (then, now) in self.changes.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlans:
    """Plans in the order in which the models were given; ``mixed``: they share the requests."""

    spec: PlanSpec
    members: tuple[PlannedModel, ...]
    mixed: bool

    @property
    def planned(self) -> tuple[tuple[PlannedModel, CapacityPlan], ...]:
        """The models that have a plan, with it."""
        return tuple((item, item.plan) for item in self.members if item.plan is not None)

    @property
    def housing(self) -> tuple[Housing, ...]:
        """What all fleets stand in together: those on one kind of accelerator share its servers."""
        fleets = [plan.best for _, plan in self.planned]
        found = []
        for hardware, server in {kind[0].name: kind for fleet in fleets for kind in fleet.kinds}.values():
            pools = [pool for fleet in fleets for pool in fleet.pools if pool.hardware == hardware.name]
            counts, sizes = zip(*((pool.replicas + pool.spares, pool.replica.devices) for pool in pools), strict=True)
            platform = Platform(hardware=hardware, server=server)
            found.append(housing_of(platform, counts, devices=sizes, round_to=self.spec.round_to))
        return tuple(found)

    @property
    def devices(self) -> int:
        """Accelerators of all fleets together."""
        return sum(item.devices for item in self.housing)

    @property
    def idle_devices(self) -> int:
        """Those of them that only fill up servers."""
        return sum(item.idle_devices for item in self.housing)

    @property
    def shared_devices(self) -> int:
        """Idle ones that each fleet in servers of its own would have beside."""
        return sum(plan.best.idle_devices for _, plan in self.planned) - self.idle_devices

    @property
    def planned_rate_per_s(self) -> float:
        """Requests/s that all fleets carry together."""
        return sum(plan.demand.planned_rate_per_s for _, plan in self.planned)

    @property
    def cost_per_hour(self) -> float | None:
        """Cost of all fleets together; None where a price is unknown."""
        prices = {price.hardware: price.per_hour for _, plan in self.planned for price in plan.best.cost.prices}
        known = all(plan.best.cost.per_hour is not None for _, plan in self.planned)
        return sum(item.devices * prices[item.hardware] for item in self.housing) if known else None

    @property
    def counted_per_hour(self) -> float:
        """The cost by which mixes are compared, with the doubt about each fleet by its cost; infinite without one."""
        costs = [plan.best.cost.per_hour for _, plan in self.planned]
        if None in costs or self.cost_per_hour is None:
            return math.inf
        counted = sum(plan.best.counted_per_hour or 0.0 for _, plan in self.planned)
        return self.cost_per_hour * counted / sum(cost or 0.0 for cost in costs)

    @property
    def steps(self) -> tuple[StepDown, ...]:
        """From each model that has a plan to the next cheaper one, of equal cost to the smaller; none in a mix."""
        fleets = [] if self.mixed else [(item, plan.best) for item, plan in self.planned]
        fleets.sort(key=lambda pair: _expense(pair[1]), reverse=True)
        return tuple(
            StepDown(before=before, after=after, fleets=(high, low), quality=_quality(high, low))
            for (before, high), (after, low) in pairwise(fleets)
        )


def _expense(fleet: Fleet) -> tuple[float, float]:
    """Cost per hour, unknown ones first, and the bytes of a copy of the model."""
    replica, hourly = fleet.replica, fleet.cost.per_hour
    return (math.inf if hourly is None else hourly, replica.memory.weights_bytes * replica.devices)


def _quality(before: Fleet, after: Fleet) -> Note:
    """What one source prints of both models, and of the formats that each is served in."""
    high, low = (fleet.replica.deployment.model.profile for fleet in (before, after))
    if high == low:
        return Note("quality_step", {"before": before.quality or UNCHANGED, "after": after.quality or UNCHANGED})
    other = other_model_note(low, base=high)
    return joined(other, Note("quality_as_served", {"quality": after.quality})) if after.quality else other


def _shares(models: Sequence[str]) -> list[tuple[str, float | None]]:
    try:
        found = [model_share(text) for text in models]
    except ValueError as error:
        raise RoofcastError(str(error), field=Option("model")) from None
    given = [share for _, share in found if share is not None]
    example = "such as `model` llama-3.1-8b=0.7 `model` llama-3.1-70b=0.3"
    if given and len(given) < len(found):
        raise RoofcastError("a share is given of some models and not of others", field=Option("model"), hint=example)
    if given and not math.isclose(sum(given), 1, abs_tol=SUM_TOLERANCE):
        raise RoofcastError(f"the shares sum to {sum(given):g}, not to 1", field=Option("model"), hint=example)
    return found


def _planned(spec: PlanSpec, *, name: str, share: float, mixed: bool, plan: Planner) -> PlannedModel:
    weights = spec.weights[0].value if len(spec.weights) == 1 and not mixed else ""
    try:
        return PlannedModel(model=name, weights=weights, share=share, plan=plan(spec))
    except InfeasibleError as error:
        if mixed:
            raise
        return PlannedModel(model=name, weights=weights, share=share, plan=None, refusal=str(error))


def _questions(spec: PlanSpec, models: Sequence[tuple[str, float | None]]) -> Iterator[tuple[str, float, PlanSpec]]:
    """One for each model, and where models compete for each format that is compared."""
    for name, share in models:
        if share is not None:
            rate = None if spec.rate_per_s is None else spec.rate_per_s * share
            yield name, share, spec.model_copy(update={"model": name, "rate_per_s": rate})
            continue
        for weights in spec.weights or (None,):
            formats = {} if weights is None else {"weights": (weights,)}
            yield name, 1.0, spec.model_copy(update={"model": name, **formats})


def _on_kinds(mix: ModelPlans) -> Iterator[tuple[str | None, ...]]:
    """For every kind of accelerator that two models can take: which of them move there from what they take alone."""
    kinds = [{fleet.hardware for fleet in (plan.best, *plan.alternatives)} for _, plan in mix.planned]
    for kind in sorted(set.union(*kinds)):
        for moved in product(*((None, kind) if kind in own else (None,) for own in kinds)):
            if any(moved):
                yield moved


def _moved(mix: ModelPlans, kinds: Sequence[str | None]) -> ModelPlans:
    """``mix`` with the best known fleet of each model on its kind, None for the one that it has."""
    members = []
    for item, kind in zip(mix.members, kinds, strict=True):
        if item.plan is not None and kind is not None:
            best = next(fleet for fleet in (item.plan.best, *item.plan.alternatives) if fleet.hardware == kind)
            item = replace(item, plan=replace(item.plan, best=best))
        members.append(item)
    return replace(mix, members=tuple(members))


def _together(mix: ModelPlans, questions: Sequence[PlanSpec], *, plan: Planner) -> ModelPlans:
    """The mix on the accelerators that cost least with shared servers: moved models are planned again on theirs."""
    kinds = min(_on_kinds(mix), key=lambda kinds: _moved(mix, kinds).counted_per_hour, default=())
    if not kinds or _moved(mix, kinds).counted_per_hour >= mix.counted_per_hour:
        return mix
    members = []
    for item, kind, question in zip(mix.members, kinds, questions, strict=True):
        own = "" if item.plan is None else item.plan.best.hardware
        if kind is not None and kind != own:
            found = plan(question.model_copy(update={"hardware": (kind,)}))
            item = replace(item, plan=found, alone=own)
        members.append(item)
    moved = replace(mix, members=tuple(members))
    return moved if moved.counted_per_hour < mix.counted_per_hour else mix


def plan_models(spec: PlanSpec, models: Sequence[str], *, plan: Planner) -> ModelPlans:
    """``spec`` planned for each of ``models``, written NAME, or NAME=SHARE of the requests for a mix of all of them.

    In a mix the router knows which model a request is for, and each fleet takes its share at the same burstiness, with
    spares of its own; fleets on one kind of accelerator share its servers, which decides on what they are.

    Raises RoofcastError: shares do not sum to one, or a limit of one fleet is given for several.
    Raises InfeasibleError: no model, or one of a mix, has a fleet.
    """
    chosen = _shares(models)
    mixed = chosen[0][1] is not None
    if spec.measured_rps_per_gpu is not None and len(chosen) > 1:
        raise contradiction(
            "was measured with one model: plan each model with its own rate", field=Option("measured_rps_per_gpu")
        )
    limit = next((name for name in _LIMITS if mixed and getattr(spec, name)), None)
    if limit is not None:
        raise no_effect("limits one fleet, and a mix of models has several", field=Option(limit), hint="")
    if mixed and spec.rate_per_s is None:
        raise RoofcastError("the rate that the models share is needed", field=Option("rate_per_s"))
    questions = list(_questions(spec, chosen))
    members = tuple(
        _planned(question, name=name, share=share, mixed=mixed, plan=plan) for name, share, question in questions
    )
    if all(item.plan is None for item in members):
        raise InfeasibleError("; ".join(f"{item.name}: {item.refusal}" for item in members), field=Option("model"))
    found = ModelPlans(spec=spec, members=members, mixed=mixed)
    return _together(found, [question for *_, question in questions], plan=plan) if mixed else found
