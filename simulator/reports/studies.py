"""Everything a report rests on, gathered once, and what is said of each fleet where several serve side by side."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime

from simulator import __version__
from simulator.operators.model_counts import ParameterCounts, parameter_counts
from simulator.operators.transformer import is_encoder_only
from simulator.operators.work import decode_step, prefill_step
from simulator.phases.step import StepEstimate, estimate_step
from simulator.planner.capacity_plan import CapacityPlan, S
from simulator.planner.fleet.replica_load import LatencyRange, ReplicaLoad, latency_range, replica_load
from simulator.planner.money.facilities import Facilities, facilities
from simulator.planner.money.tco import EnergyCarbon, energy_and_carbon, total_cost
from simulator.planner.money.tco_records import OwningBar, TotalCost
from simulator.planner.plan import completed
from simulator.planner.studies.growth import Growth
from simulator.planner.studies.sensitivity import owning_bars
from simulator.planner.studies.stock_fleets import StockPlan
from simulator.records import dataclass
from simulator.reports.content.document import Block, Figure, Paragraph, Table, Tone
from simulator.reports.content.quantities import count_text, rate_text
from simulator.reports.handoff.launch import Handoff, launch_handoff, side_by_side
from simulator.specs.money.ownership import OwnershipProfile, load_ownership
from simulator.specs.money.prices import PriceProfile, load_prices
from simulator.specs.question.plan import PlanSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Studies:
    """A plan and what follows from it. ``created`` is an ISO date, ``input_hash`` the SHA-256 of the question.

    latencies : 80 % intervals of the latencies with the spares down; owning : what moves the cost of owning
    steps : a replica's prefill and decode near its planned capacity, by name; an encoder's one pass alone
    """

    plan: CapacityPlan
    prices: PriceProfile
    ownership: OwnershipProfile
    cost: TotalCost
    energy: EnergyCarbon
    rooms: Facilities
    load: ReplicaLoad
    latencies: LatencyRange
    owning: tuple[OwningBar, ...]
    steps: tuple[tuple[str, StepEstimate], ...]
    parameters: ParameterCounts
    command: str
    created: str
    version: str
    input_hash: str

    @property
    def spec(self) -> PlanSpec:
        """The question."""
        return self.plan.spec

    @property
    def model_id(self) -> str:
        """What the engines load."""
        model = self.plan.best.replica.deployment.model
        return model.checkpoint or model.name

    @property
    def handoff(self) -> Handoff:
        """The files that launch what serves; written when they are asked for, since no number needs them."""
        found = [
            launch_handoff(
                part.best,
                model_id=self.model_id,
                scheme=part.best.scheme,
                demand=part.demand,
                objectives=part.objectives,
                profiles=self.spec.profiles,
            )
            for part in self.plan.serving
        ]
        return found[0] if len(found) == 1 else side_by_side([name for name, _ in named_parts(self.plan)], found)

    def study(self, kind: type[S]) -> S | None:
        """The study of this class: where several fleets serve side by side, that of the first which has one."""
        return next((found for part in self.plan.serving if (found := part.study(kind)) is not None), None)

    @property
    def growth(self) -> Growth | None:
        """Demand to come: of several fleets side by side that of the one which has to grow first."""
        found = [item for part in self.plan.serving if (item := part.study(Growth)) is not None]
        return min(found, key=lambda item: (not item.steps, [step.date for step in item.steps[:1]]), default=None)

    @property
    def illustrates_growth(self) -> bool:
        """Whether the growth is an assumption of the report, for want of a given one."""
        return self.plan.spec.growth is None

    @property
    def start(self) -> date:
        """The day from which accelerators that are rented serve."""
        return self.spec.start or date.fromisoformat(self.created)

    @property
    def arrival(self) -> date:
        """The day on which what is bought at the start is in use."""
        growth = self.growth
        return self.start if growth is None else date.fromisoformat(growth.arrival)

    @property
    def currency(self) -> str:
        """Currency of all money."""
        return self.cost.currency


def input_hash(spec: PlanSpec) -> str:
    """SHA-256 of the question as canonical JSON: equal questions have equal hashes."""
    content = json.dumps(spec.model_dump(mode="json", exclude_defaults=True), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


def _steps(plan: CapacityPlan, *, sequences: int) -> tuple[tuple[str, StepEstimate], ...]:
    deployment, mix = plan.best.replica.deployment, plan.demand.mix
    prefill = prefill_step(sequences=1, tokens=max(1, round(mix.isl.mean_tokens)))
    first = ("prefill", estimate_step(deployment, prefill))
    if is_encoder_only(deployment.model):
        return (first,)
    decode = decode_step(sequences=sequences, context=max(1, round(mix.decode_context_tokens)))
    return first, ("decode", estimate_step(deployment, decode))


def gather(
    plan: CapacityPlan, *, command: str, ownership: str | None = None, created: str | None = None, complete: bool = True
) -> Studies:
    """Work out everything that a report shows beside the plan itself.

    complete : also the studies of a report that the plan lacks; not needed for parts of one

    Raises ProfileError: currencies differ, or a profile is unknown.
    """
    plan = completed(plan) if complete else plan
    spec = plan.spec
    prices = load_prices(spec.prices or "default", profiles=spec.profiles)
    owning = load_ownership(ownership or spec.ownership, prices=prices.name, profiles=spec.profiles)
    fleet = plan.best
    sequences = max(1, round(fleet.replica.lane_sequences))
    cost = total_cost(plan, prices=prices, ownership=owning)
    at = (fleet.at_peak.rate_per_s, fleet.degraded.rate_per_s)
    return Studies(
        plan=plan,
        prices=prices,
        ownership=owning,
        cost=cost,
        energy=energy_and_carbon(plan, prices=prices, ownership=owning),
        rooms=facilities(fleet, ownership=owning),
        load=replica_load(fleet, rates_per_s=at, objectives=plan.objectives),
        latencies=latency_range(fleet, objectives=plan.objectives),
        owning=tuple(owning_bars(plan, cost=cost, prices=prices, ownership=owning)),
        steps=_steps(plan, sequences=sequences),
        parameters=parameter_counts(fleet.replica.deployment.model),
        command=command,
        created=created or datetime.now(UTC).date().isoformat(),
        version=__version__,
        input_hash=input_hash(spec),
    )


def of_each(plan: CapacityPlan, blocks: Callable[[CapacityPlan], Sequence[Block]]) -> tuple[Block, ...]:
    """``blocks`` of what serves: where something exists those of each fleet side by side, under its name."""
    found: list[Block] = []
    for place, (name, part) in enumerate(named_parts(plan), start=1):
        said = blocks(part)
        if name and said:
            whole = part.basis.question.spec.round_to == "server"
            counted = f" ({count_text(part.best.devices)} in whole servers)" if whole else ""
            said = (Paragraph(text=f"{name}{counted}", tone=Tone.HEAD), *(_of_part(block, place) for block in said))
        found += said
    return tuple(found)


def _of_part(block: Block, place: int) -> Block:
    """A block whose key is its own in a document that has it for several fleets."""
    if isinstance(block, Table):
        return replace(block, key=f"{block.key}_{place}")
    if isinstance(block, Figure):
        return replace(block, chart=replace(block.chart, key=f"{block.chart.key}_{place}"))
    return block


def named_parts(plan: CapacityPlan, *, brief: bool = False) -> tuple[tuple[str, CapacityPlan], ...]:
    """What serves; of several fleets side by side each with its name, ``32 x l40s TP1 fp8, 134 requests/s``, or
    ``brief``, ``32 l40s``."""
    stock = plan.study(StockPlan)
    if stock is None:
        return (("", plan),)
    rates = [rate_text(share.rate_per_s, "requests") for share in stock.shares]
    names = (
        f"{count_text(share.devices)} {share.hardware}"
        if brief
        else f"{count_text(share.devices)} x {share.hardware} {share.label}, {rate}"
        for share, rate in zip(stock.shares, rates, strict=True)
    )
    return tuple(zip(names, plan.parts, strict=True))
