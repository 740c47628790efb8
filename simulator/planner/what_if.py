"""One deployment under change: its answer, its price, and what each technique of it contributes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from simulator.engine.answers import ScenarioResult, answer
from simulator.engine.serve_options import ServeOptions
from simulator.planner.cost import choose_offer
from simulator.planner.format_quality import AnswerQuality, answer_quality
from simulator.specs.loading import load_prices
from simulator.specs.model import AttentionSpec, MoeSpec
from simulator.specs.models import load_model
from simulator.specs.precision import PrecisionSpec
from simulator.specs.prices import OfferKind
from simulator.specs.scenario import ScenarioSpec
from simulator.specs.techniques import TechniquesSpec
from simulator.units import MEGA, SECONDS_PER_HOUR

BASE_NAME = "As published"
_PRECISION_NAME = "Number formats"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """What a running deployment costs at a price list's hourly rate; None where no price is known.

    per_hour : of all devices of all replicas; per_million_* : at the throughput of the scenario, all of the bill on
    the output tokens, or spread over prompts and answers alike
    """

    currency: str
    offer: str
    per_hour: float | None
    per_million_output_tokens: float | None
    per_million_tokens: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A scenario, its answer (what ``roofcast simulate`` prints) and its price."""

    scenario: ScenarioSpec
    result: ScenarioResult
    cost: RunCost

    @property
    def devices(self) -> int:
        """Accelerators of all replicas."""
        return self.result.deployment.parallelism.devices * self.scenario.replicas

    @property
    def output_tokens_per_s(self) -> float:
        """Generated tokens per second of all replicas, as in the contract."""
        return self.result.run.output_tokens_per_s * self.scenario.replicas * self.result.copies_per_replica


@dataclass(frozen=True, slots=True, kw_only=True)
class TechniqueStep:
    """The answer with this technique and all before it."""

    name: str
    result: ScenarioResult


def run_cost(
    result: ScenarioResult, *, price_kind: OfferKind = "on_demand", prices: str = "default", profiles: str | None = None
) -> RunCost:
    """Price a scenario that runs all the time at its throughput."""
    listed = load_prices(prices, profiles=profiles)
    offer = choose_offer(listed, hardware=result.deployment.hardware.name, kind=price_kind)
    if offer is None or offer.per_hour is None:
        return RunCost(
            currency=listed.currency,
            offer=f"no {price_kind} price is known",
            per_hour=None,
            per_million_output_tokens=None,
            per_million_tokens=None,
        )
    replicas = result.scenario.replicas
    per_hour = offer.per_hour * result.deployment.parallelism.devices * replicas
    copies = replicas * result.copies_per_replica
    output_millions = result.run.output_tokens_per_s * copies * SECONDS_PER_HOUR / MEGA
    total_millions = result.run.total_tokens_per_s * copies * SECONDS_PER_HOUR / MEGA
    return RunCost(
        currency=listed.currency,
        offer=f"{offer.provider}, {offer.kind.replace('_', ' ')}, {offer.date}",
        per_hour=per_hour,
        per_million_output_tokens=per_hour / output_millions,
        per_million_tokens=per_hour / total_millions,
    )


def what_if(
    scenario: ScenarioSpec,
    *,
    price_kind: OfferKind = "on_demand",
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
    """Numbers of KV heads that a model could have been built with: divisors of its heads, its own left out.

    Empty for models without attention layers of the usual kind, or whose layers differ in heads.
    """
    mixers = [layer.mixer for layer in load_model(model, profiles=profiles).layers]
    heads = {
        (mixer.num_attention_heads, mixer.num_key_value_heads) for mixer in mixers if isinstance(mixer, AttentionSpec)
    }
    if len(heads) != 1:
        return ()
    (query_heads, kv_heads) = heads.pop()
    divisors = (count for count in range(1, query_heads + 1) if query_heads % count == 0)
    return tuple(count for count in divisors if count != kv_heads)


def has_experts(model: str, *, profiles: str | None = None) -> bool:
    """Whether any layer of a model routes its tokens to experts."""
    layers = load_model(model, profiles=profiles).layers
    return any(isinstance(block, MoeSpec) for layer in layers for block in layer.feed_forward)


def scenario_quality(result: ScenarioResult) -> AnswerQuality:
    """What is published about the answers of a scenario."""
    scenario = result.scenario
    return answer_quality(result.deployment.model, scenario.precision, scenario.techniques)


def native_scenario(scenario: ScenarioSpec) -> ScenarioSpec:
    """The same deployment without any technique, in the checkpoint's own number formats."""
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
