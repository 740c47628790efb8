"""Resolve a plan's question and try every candidate of a platform."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.planner.demand import read_demand, read_objectives
from simulator.planner.fleet.fleet import DEFAULT_SPARES, Sized, size
from simulator.planner.money.cost import check_kind
from simulator.planner.records import Assumption, Demand, Objective, Rejection
from simulator.planner.search.candidates import Candidate, Platform, candidates, check_parallelism, check_precision
from simulator.planner.search.evaluated_once import KEPT, evaluate_ahead, evaluate_once
from simulator.planner.serving.feasibility import Policy, check_context
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
# Pipeline depths tried on hardware that was asked for by name and is too small otherwise.
PIPELINE_DEPTHS = (2, 4, 8)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Candidates of all platforms: those that can serve, sized, and those refused; ``more`` were tried and beaten."""

    sized: tuple[Sized, ...]
    rejections: tuple[Rejection, ...]
    more: int = 0


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


def look_ahead(question: Question, tried: tuple[Platform, ...]) -> None:
    """Evaluate together what the platforms will be asked for first, as far as that is remembered until then."""
    if "aggregated" not in (question.spec.serving or ("aggregated",)):
        return
    found = [
        candidate
        for platform in tried
        for candidate in candidates(question.spec, model=question.model, platform=platform)
    ]
    if len(found) <= KEPT:
        evaluate_ahead(
            found,
            model=question.model,
            mix=question.demand.mix,
            objectives=question.objectives,
            policy=question.policy,
        )


def try_platform(question: Question, platform: Platform) -> Trial:
    """Evaluate a platform's candidates, as one kind of replica, as two pools, or both ways."""
    serving = question.spec.serving or ("aggregated",)
    trial = _try_replicas(question, platform) if "aggregated" in serving else Trial(sized=(), rejections=())
    if "disaggregated" in serving:
        from simulator.planner.serving.disaggregated_search import try_pools

        trial = join(trial, try_pools(question, platform))
    return trial


def _try_replicas(question: Question, platform: Platform) -> Trial:
    """Replicas that do both phases; where all are too small, larger tensor and then pipeline degrees."""
    spec, model = question.spec, question.model
    trial = _evaluate(question, candidates(spec, model=model, platform=platform))
    if not trial.sized and not spec.tp and _all_too_small(trial):
        trial = join(trial, _evaluate(question, candidates(spec, model=model, platform=platform, large=True)))
    if not trial.sized and spec.hardware and not spec.pp and _all_too_small(trial):
        deeper = spec.model_copy(update={"pp": PIPELINE_DEPTHS, "tp": _largest_tp(trial, spec)})
        depths = [depth for depth in PIPELINE_DEPTHS if depth <= model.num_hidden_layers]
        deeper = deeper.model_copy(update={"pp": tuple(depths)})
        trial = join(trial, _evaluate(question, candidates(deeper, model=model, platform=platform)))
    return trial


def _largest_tp(trial: Trial, spec: PlanSpec) -> tuple[int, ...]:
    tried = [int(rejection.label.split()[0].removeprefix("TP")) for rejection in trial.rejections]
    return spec.tp or ((max(tried),) if tried else (1,))


def _all_too_small(trial: Trial) -> bool:
    return all(rejection.code in ("memory", "slots") for rejection in trial.rejections)


def join(first: Trial, second: Trial) -> Trial:
    """Two trials as one."""
    return Trial(
        sized=first.sized + second.sized,
        rejections=first.rejections + second.rejections,
        more=first.more + second.more,
    )


def evaluate_all(question: Question, tried: tuple[Candidate, ...]) -> Trial:
    """Size every candidate that can serve; nothing is left out."""
    trial = Trial(sized=(), rejections=())
    for candidate in tried:
        trial = join(trial, _evaluate(question, (candidate,)))
    return trial


def _evaluate(question: Question, tried: tuple[Candidate, ...]) -> Trial:
    """Size every candidate, the smallest tensor-parallel degree first.

    Degrees above one that gives less per device without an objective being the reason are left out, unless asked for.
    """
    sized: list[Sized] = []
    rejections: list[Rejection] = []
    best: dict[str, float] = {}
    for candidate in tried:
        family = candidate.family
        if best.get(family) == float("inf"):
            continue
        outcome = evaluate_once(
            candidate,
            model=question.model,
            mix=question.demand.mix,
            objectives=question.objectives,
            policy=question.policy,
        )
        if isinstance(outcome, Rejection):
            rejections.append(outcome)
            continue
        sized.append(size(outcome, demand=question.demand, spec=question.spec, prices=question.prices))
        per_device = outcome.replica.capacity_per_s / outcome.replica.devices
        declines = outcome.replica.binding is None and per_device < best.get(family, 0.0)
        best[family] = float("inf") if declines and not question.spec.tp else max(per_device, best.get(family, 0.0))
    return Trial(sized=tuple(sized), rejections=tuple(rejections))
