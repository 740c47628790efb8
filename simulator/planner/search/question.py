"""A plan's question, resolved: model, demand, objectives, prices, and what was assumed where nothing was given."""

from __future__ import annotations

from math import inf
from statistics import NormalDist

from simulator.engine.lanes.steady_state import Objective
from simulator.operators.transformer import is_encoder_only
from simulator.planner.demand import read_demand, read_objectives
from simulator.planner.fleet.records import DEFAULT_SPARES, Fleet
from simulator.planner.money.market import check_rule, plan_rule
from simulator.planner.records import Demand
from simulator.planner.search.candidates import check_parallelism, check_power_cap, check_precision, platforms
from simulator.planner.serving.replica import Policy, check_context
from simulator.planner.workload_presets import SparesWanted
from simulator.records import dataclass
from simulator.specs.base import Assumption, ValueOrigin
from simulator.specs.loading import list_hardware, load_prices
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.loading import load_model
from simulator.specs.money.prices import PriceProfile
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.plan_values import PLANNED_MODEL

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

    @property
    def has_limits(self) -> bool:
        """Whether the whole fleet has a limit of devices, money, power or racks."""
        spec = self.spec
        limits = (spec.max_gpus, spec.max_cost_per_hour, spec.max_power_kw, spec.max_racks)
        return any(limit is not None for limit in limits)


def resolve(spec: PlanSpec) -> Question:
    """Load the model and prices, measure the demand, and list everything that was not given.

    Raises
    ------
    RoofcastError, ProfileError, FileError
        A name is unknown, a value out of range, a file unreadable.
    """
    named = _recorded_model(spec)
    asked = (named or PLANNED_MODEL) if spec.model is None else spec.model
    model = load_model(asked, profiles=spec.profiles)
    context = spec.max_model_len or model.max_position_embeddings or inf
    demand = read_demand(spec, context_tokens=context, encodes=is_encoder_only(model))
    if spec.images_per_request is not None:
        from simulator.operators.vision import with_pictures

        model = with_pictures(
            model,
            images_per_request=spec.images_per_request,
            image_pixels=spec.image_pixels,
            prompt_tokens=demand.mix.isl.mean_tokens,
        )
    objectives, objective_source = read_objectives(spec, mix=demand.mix)
    prices = load_prices(spec.prices or "default", profiles=spec.profiles)
    check_rule(prices, rule=plan_rule(spec))
    check_parallelism(spec, model=model)
    check_precision(spec, model=model)
    check_power_cap(spec)
    check_context(model, mix=demand.mix, max_model_len=spec.max_model_len)
    utilization = spec.utilization or DEFAULT_UTILIZATION
    return Question(
        spec=spec,
        model=model,
        demand=demand,
        objectives=objectives,
        policy=Policy(
            utilization=utilization,
            deviate=NormalDist().inv_cdf(spec.confidence / 100),
            profiles=spec.profiles,
            max_quality_loss=spec.max_quality_loss,
        ),
        prices=prices,
        assumptions=(
            Assumption(key="model", value=model.name, origin=_model_origin(spec, named), detail=model.profile or None),
            *_checkpoint_assumption(model),
            *_picture_assumption(spec, model),
            *demand.assumptions,
            objective_source,
            Assumption(key="utilization", value=utilization, origin=_origin(spec.utilization)),
            Assumption(
                key="confidence",
                value=spec.confidence,
                origin=ValueOrigin.GIVEN if "confidence" in spec.model_fields_set else ValueOrigin.DEFAULT,
            ),
            _spares_assumption(spec),
            *_limit_assumptions(spec),
            *_hardware_assumption(spec),
            Assumption(key="prices", value=prices, origin=_origin(spec.prices), detail=plan_rule(spec)),
        ),
    )


def _recorded_model(spec: PlanSpec) -> str | None:
    """The model that the trace names, where it names one."""
    if spec.trace is None:
        return None
    from simulator.traffic.recorded.traces import read_trace

    return read_trace(spec.trace).model


def _model_origin(spec: PlanSpec, recorded: str | None) -> ValueOrigin:
    return ValueOrigin.TRACE if spec.model is None and recorded else _origin(spec.model)


def _checkpoint_assumption(model: ModelSpec) -> tuple[Assumption, ...]:
    return (Assumption(key="checkpoint", detail=model.assumption),) if model.assumption else ()


def _hardware_assumption(spec: PlanSpec) -> tuple[Assumption, ...]:
    """A search over everything says what it leaves out."""
    if spec.hardware:
        return ()
    every, offered = list_hardware(profiles=spec.profiles), [item.hardware.name for item in platforms(spec)]
    left_out = tuple(name for name in every if name not in offered)
    return (Assumption(key="hardware", value=left_out, origin=ValueOrigin.DEFAULT, detail=f"{len(offered)}"),)


def price_assumptions(fleet: Fleet) -> tuple[Assumption, ...]:
    """What an hour of each of its accelerators costs, and by whose offers."""
    cost = fleet.cost
    return tuple(
        Assumption(key="price", value=price, origin=ValueOrigin.RULE, detail=cost.currency) for price in cost.prices
    )


def _picture_assumption(spec: PlanSpec, model: ModelSpec) -> tuple[Assumption, ...]:
    return () if spec.images_per_request is None else (Assumption(key="pictures", detail=model.notes[-1]),)


def _limit_assumptions(spec: PlanSpec) -> tuple[Assumption, ...]:
    given = {name: getattr(spec, name) for name in ("max_quality_loss", "power_cap_w")}
    return tuple(
        Assumption(key=name, value=value, origin=ValueOrigin.GIVEN)
        for name, value in given.items()
        if value is not None
    )


def _spares_assumption(spec: PlanSpec) -> Assumption:
    if spec.spares is None and (spec.server_spares is not None or spec.availability is not None):
        wanted = SparesWanted(server_spares=spec.server_spares, availability=spec.availability)
        return Assumption(key="spares", value=wanted, origin=ValueOrigin.GIVEN)
    return Assumption(
        key="spares", value=DEFAULT_SPARES if spec.spares is None else spec.spares, origin=_origin(spec.spares)
    )


def _origin(value: object) -> ValueOrigin:
    return ValueOrigin.DEFAULT if value is None else ValueOrigin.GIVEN
