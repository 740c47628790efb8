"""A plan's question, resolved: model, demand, objectives, prices, and what was assumed where nothing was given."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.planner.demand import read_demand, read_objectives
from simulator.planner.fleet.availability import DEFAULT_SPARES
from simulator.planner.money.cost import check_kind
from simulator.planner.records import Assumption, Demand, Objective
from simulator.planner.search.candidates import check_parallelism, check_precision
from simulator.planner.serving.replica import Policy, check_context
from simulator.specs.loading import load_prices
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.loading import load_model
from simulator.specs.money.prices import PriceProfile
from simulator.specs.question.plan import PlanSpec
from simulator.units import percent_text

DEFAULT_MODEL = "llama-3.1-70b"
# A replica is loaded until an objective would fail. Where none does before, up to the share of its saturation rate to
# which the steady state agrees with the event simulation (see ``steady_state``).
DEFAULT_UTILIZATION = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A plan's inputs, resolved."""

    spec: PlanSpec
    model: ModelSpec
    demand: Demand
    objectives: tuple[Objective, ...]
    policy: Policy
    prices: PriceProfile
    assumptions: tuple[Assumption, ...]

    @property
    def serving(self) -> tuple[str, ...]:
        """Shapes to compare; aggregated where nothing was asked."""
        return self.spec.serving or ("aggregated",)


def resolve(spec: PlanSpec) -> Question:
    """Load the model and prices, measure the demand, and list everything that was not given.

    Raises
    ------
    RoofcastError, ProfileError, FileError
        A name is unknown, a value out of range, a file unreadable.
    """
    model = load_model(DEFAULT_MODEL if spec.model is None else spec.model, profiles=spec.profiles)
    demand = read_demand(spec)
    objectives, objective_source = read_objectives(spec)
    prices = load_prices(spec.prices or "default", profiles=spec.profiles)
    check_kind(prices, kind=spec.price_kind)
    check_parallelism(spec, model=model)
    check_precision(spec, model=model)
    check_context(model, mix=demand.mix, max_model_len=spec.max_model_len)
    utilization = spec.utilization or DEFAULT_UTILIZATION
    return Question(
        spec=spec,
        model=model,
        demand=demand,
        objectives=objectives,
        policy=Policy(utilization=utilization, profiles=spec.profiles, max_quality_loss=spec.max_quality_loss),
        prices=prices,
        assumptions=(
            Assumption(name="model", value=model.name, source="given" if spec.model else "default"),
            *demand.assumptions,
            objective_source,
            Assumption(
                name="highest load of a replica",
                value=f"{percent_text(utilization)} of the rate that saturates it",
                source="given"
                if spec.utilization
                else "default: the objectives decide, up to where the steady state was checked",
            ),
            _spares_assumption(spec),
            *_quality_assumption(spec),
            Assumption(
                name="prices",
                value=f"{prices.name}, {spec.price_kind}, {prices.currency}, {prices.date}",
                source="given" if spec.prices else "default: --prices and --price-kind choose others",
            ),
        ),
    )


def _quality_assumption(spec: PlanSpec) -> tuple[Assumption, ...]:
    if spec.max_quality_loss is None:
        return ()
    value = f"{percent_text(spec.max_quality_loss, digits=3)} of a published metric; what nobody published is refused"
    return (Assumption(name="loss of answer quality, at most", value=value, source="given"),)


def _spares_assumption(spec: PlanSpec) -> Assumption:
    wanted = [] if spec.server_spares is None else [f"as many as fill {spec.server_spares} servers"]
    if spec.availability is not None:
        wanted.append(f"for {spec.availability:g} % availability")
    if spec.spares is not None:
        return Assumption(name="spare replicas", value=str(spec.spares), source="given")
    if wanted:
        return Assumption(name="spare replicas", value=", at least ".join(wanted), source="given")
    return Assumption(name="spare replicas", value=str(DEFAULT_SPARES), source="default: N+1")
