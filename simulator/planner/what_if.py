"""A scenario with its answer and its price, what each technique is worth, and what makes a refused one fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from simulator.engine.runs.answers import ScenarioResult, answer
from simulator.engine.runs.scenario_setup import ServeOptions, deployment_of, pool_deployments
from simulator.engine.uniform.record import UniformRun, require_fit
from simulator.errors import RoofcastError
from simulator.phases.deployment import Deployment
from simulator.phases.memory import memory_plan
from simulator.planner.money.market import PriceRule, market_price
from simulator.planner.search.candidates import LARGE_TP_SIZES, USUAL_TP_SIZES
from simulator.records import dataclass
from simulator.specs.model.architecture import AttentionSpec
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.money.prices import OfferKind, load_prices
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.techniques import TechniquesSpec
from simulator.techniques.quality import AnswerQuality, answer_quality
from simulator.units import MEGA, SECONDS_PER_HOUR

BASE_NAME = "As published"
_PRECISION_NAME = "Number formats"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """What a running deployment costs at a price list's hourly rate; None where no price is known.

    per_hour : of all devices of all replicas; per_million_output_tokens : at the throughput of the scenario, all of the
    bill on the answers
    """

    currency: str
    offer: str
    per_hour: float | None = None
    per_million_output_tokens: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A scenario, its answer (what ``roofcast simulate`` prints) and its price."""

    scenario: ScenarioSpec
    result: ScenarioResult
    cost: RunCost

    @property
    def devices(self) -> int:
        """Accelerators of all replicas and pools."""
        return sum(count for _, count in accelerators(self.result))

    @property
    def output_tokens_per_s(self) -> float:
        """Generated tokens per second of all replicas, as in the contract."""
        return self.result.output_tokens_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class TechniqueStep:
    """The answer with this technique and all before it."""

    name: str
    result: ScenarioResult


def accelerators(result: ScenarioResult) -> tuple[tuple[str, int], ...]:
    """Kinds of accelerators that a scenario runs on and how many of each: of its replicas, or of all of its pools."""
    run, own = result.run, result.deployment
    name, each = own.hardware.name, own.parallelism.devices
    found = [(name, each * result.scenario.replicas)]
    if run.pools is not None:
        prefill, decode = run.pools.prefill, run.pools.decode
        found = [(name, prefill.devices + decode.replicas * each)]
        if decode.attention_ffn is not None:
            ffn = decode.attention_ffn.ffn
            found.append((ffn.hardware.name, decode.devices - decode.replicas * each))
    if not isinstance(run, UniformRun) and run.encoders is not None:
        found.append((run.encoders.hardware, run.encoders.devices))
    return tuple(found)


def run_cost(
    result: ScenarioResult, *, price_kind: OfferKind | None = None, prices: str = "default", profiles: str | None = None
) -> RunCost:
    """Price a scenario that runs all the time at its throughput."""
    listed = load_prices(prices, profiles=profiles)
    rule = PriceRule(kind=price_kind)
    price = market_price(listed, hardware=result.deployment.hardware.name, rule=rule)
    prices_of = {name: market_price(listed, hardware=name, rule=rule) for name, _ in accelerators(result)}
    known = {name: found.per_hour for name, found in prices_of.items() if found is not None}
    if price is None or len(known) < len(prices_of):
        return RunCost(currency=listed.currency, offer=f"no {' or '.join(rule.terms)} price is known")
    per_hour = sum(known[name] * count for name, count in accelerators(result))
    output_millions = result.output_tokens_per_s * SECONDS_PER_HOUR / MEGA
    return RunCost(
        currency=listed.currency,
        offer=str(price),
        per_hour=per_hour,
        per_million_output_tokens=per_hour / output_millions,
    )


def what_if(
    scenario: ScenarioSpec,
    *,
    price_kind: OfferKind | None = None,
    profiles: str | None = None,
    options: ServeOptions | None = None,
) -> WhatIf:
    """Answer a scenario and price it; refusals as from ``answer``."""
    result = answer(scenario, profiles=profiles, options=options)
    return WhatIf(scenario=scenario, result=result, cost=run_cost(result, price_kind=price_kind, profiles=profiles))


def _changes(scenario: ScenarioSpec) -> tuple[tuple[str, ScenarioSpec], ...]:
    """The scenario stripped of its techniques, then with one more at a time, in the order of the contract."""
    native = scenario.model_copy(update={"precision": PrecisionSpec(), "techniques": TechniquesSpec()})
    steps = [(BASE_NAME, native)]
    current = native
    if scenario.precision != PrecisionSpec():
        current = current.model_copy(update={"precision": scenario.precision})
        steps.append((_PRECISION_NAME, current))
    for field in TechniquesSpec.model_fields:
        value = getattr(scenario.techniques, field)
        if value != TechniquesSpec.model_fields[field].default:
            techniques = current.techniques.model_copy(update={field: value})
            current = current.model_copy(update={"techniques": techniques})
            steps.append((field.replace("_", " ").capitalize(), current))
    return tuple(steps)


def kv_head_choices(model: str, *, profiles: str | None = None) -> tuple[int, ...]:
    """Numbers of KV heads that a model could have been built with: divisors of its heads, its own left out. Empty for
    models without attention layers of the usual kind, or whose layers differ in heads."""
    mixers = [layer.mixer for layer in load_model(model, profiles=profiles).layers]
    heads = {
        (mixer.num_attention_heads, mixer.num_key_value_heads) for mixer in mixers if isinstance(mixer, AttentionSpec)
    }
    if len(heads) != 1:
        return ()
    (query_heads, kv_heads) = heads.pop()
    divisors = (count for count in range(1, query_heads + 1) if query_heads % count == 0)
    return tuple(count for count in divisors if count != kv_heads)


def scenario_quality(result: ScenarioResult) -> AnswerQuality:
    """What is published about the answers of a scenario."""
    scenario = result.scenario
    return answer_quality(result.deployment.model, scenario.precision, scenario.techniques)


def native_scenario(scenario: ScenarioSpec) -> ScenarioSpec:
    """A deployment without any technique, in the checkpoint's own number formats."""
    return _changes(scenario)[0][1]


def technique_steps(
    scenario: ScenarioSpec,
    *,
    profiles: str | None = None,
    answered: Callable[[ScenarioSpec], ScenarioResult] | None = None,
) -> tuple[TechniqueStep, ...]:
    """Answers from the published model to the whole scenario, one technique more at a time.

    What a technique is worth depends on those before it; the order is that of the contract. Where the published model
    itself is refused (its number format does not run there, it does not fit), the refusal is raised. ``answered`` is
    how to answer, where some answers are already at hand.
    """
    reply = answered or partial(answer, profiles=profiles)
    return tuple(TechniqueStep(name=name, result=reply(step)) for name, step in _changes(scenario))


_SCHEMES = ("fp8", "gptq-g128")
"""Of weights, from the one that changes answers least."""
_KV_CACHE = "fp8"
_POOLS = "disaggregation."


def _with(scenario: ScenarioSpec, field: str, value: str | int) -> ScenarioSpec:
    fields: dict[str, Any] = scenario.model_dump(exclude_unset=True)
    if field in ("scheme", "kv_cache"):
        kept = {} if field == "scheme" else fields.get("precision", {})
        fields["precision"] = {**kept, field: value}
    elif field.startswith(_POOLS):
        fields["disaggregation"] = {**fields["disaggregation"], field.removeprefix(_POOLS): value}
    else:
        fields[field] = value
    return ScenarioSpec.model_validate(fields)


def _tokens(scenario: ScenarioSpec) -> int:
    workload = scenario.workload
    if workload is None:
        return (scenario.isl_tokens or 1) + (scenario.osl_tokens or 0)
    prompt = workload.isl_tokens or (workload.system_prompt_tokens + (workload.question_tokens or 0))
    return prompt + (workload.osl_tokens or 0)


def _replicas(scenario: ScenarioSpec, *, profiles: str | None) -> tuple[Deployment, ...]:
    if scenario.disaggregation is None:
        return (deployment_of(scenario, profiles=profiles),)
    return pool_deployments(scenario, scenario.disaggregation, profiles=profiles)


def _tried(scenario: ScenarioSpec) -> Iterator[tuple[tuple[str, str | int], ...]]:
    sizes = (*USUAL_TP_SIZES, *LARGE_TP_SIZES)
    yield tuple(("tp_size", size) for size in sizes if size > scenario.tp_size)
    if scenario.disaggregation is not None:
        own = scenario.disaggregation.degrees("prefill").get("tp_size", scenario.tp_size)
        yield tuple((f"{_POOLS}prefill_tp_size", size) for size in sizes if size > own)
    yield tuple(("scheme", name) for name in _SCHEMES)
    yield (("kv_cache", _KV_CACHE),)


def fitting_changes(scenario: ScenarioSpec, *, profiles: str | None = None) -> dict[str, str | int]:
    """The nearest change of each kind, a value by its field, with which a request of the scenario fits; empty where
    none is enough, or where it fits as it is and was refused for something else."""

    def fits(*change: tuple[str, str | int]) -> bool:
        try:
            changed = _with(scenario, *change[0]) if change else scenario
            for deployment in _replicas(changed, profiles=profiles):
                require_fit(deployment, memory_plan(deployment), tokens=_tokens(scenario))
        except (RoofcastError, ValueError):
            return False
        return True

    if fits():
        return {}
    nearest = (next((change for change in changes if fits(change)), None) for changes in _tried(scenario))
    return dict(change for change in nearest if change is not None)
