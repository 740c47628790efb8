"""What each change to a deployment contributes: on its own, and on top of those before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from simulator.engine.runs.answers import ScenarioResult, answer
from simulator.engine.runs.scenario_setup import ServeOptions
from simulator.engine.uniform.record import UniformRun
from simulator.errors import RoofcastError, ignored_option, missing_field
from simulator.planner.money.market import PriceRule, market_price
from simulator.records import dataclass
from simulator.specs.model.architecture import AttentionSpec, MoeSpec
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.money.prices import OfferKind, load_prices
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.scenario_file import FLAG, ScenarioChange, changed_scenario
from simulator.specs.question.techniques import TechniquesSpec
from simulator.techniques.quality import AnswerQuality, answer_quality, other_model_note
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
    if isinstance(run, UniformRun):
        use = run.pools
        if use is None:
            return ((name, each * result.scenario.replicas),)
        return ((name, use.prefill_replicas * use.prefill.parallelism.devices + use.decode_replicas * each),)
    found = [(name, each * result.scenario.replicas)]
    if run.pools is not None:
        prefill, decode = run.pools.pools.prefill, run.pools.pools.decode
        found = [(name, prefill.devices + decode.replicas * each)]
        if decode.attention_ffn is not None:
            ffn = decode.attention_ffn.ffn
            found.append((ffn.hardware.name, decode.devices - decode.replicas * each))
    if run.encoders is not None:
        found.append((run.encoders.hardware, run.encoders.devices))
    return tuple(found)


def run_cost(
    result: ScenarioResult, *, price_kind: OfferKind | None = None, prices: str = "default", profiles: str | None = None
) -> RunCost:
    """Price a scenario that runs all the time at its throughput."""
    listed = load_prices(prices, profiles=profiles)
    rule = PriceRule(kind=price_kind)
    terms = " or ".join(rule.terms)
    price = market_price(listed, hardware=result.deployment.hardware.name, rule=rule)
    prices_of = {name: market_price(listed, hardware=name, rule=rule) for name, _ in accelerators(result)}
    known = {name: found.per_hour for name, found in prices_of.items() if found is not None}
    if price is None or len(known) < len(prices_of):
        return RunCost(
            currency=listed.currency,
            offer=f"no {terms} price is known",
            per_hour=None,
            per_million_output_tokens=None,
            per_million_tokens=None,
        )
    per_hour = sum(known[name] * count for name, count in accelerators(result))
    output_millions = result.output_tokens_per_s * SECONDS_PER_HOUR / MEGA
    total_millions = result.total_tokens_per_s * SECONDS_PER_HOUR / MEGA
    return RunCost(
        currency=listed.currency,
        offer=str(price),
        per_hour=per_hour,
        per_million_output_tokens=per_hour / output_millions,
        per_million_tokens=per_hour / total_millions,
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


def has_experts(model: str, *, profiles: str | None = None) -> bool:
    """Whether any layer of a model routes its tokens to experts."""
    layers = load_model(model, profiles=profiles).layers
    return any(isinstance(block, MoeSpec) for layer in layers for block in layer.feed_forward)


def scenario_quality(result: ScenarioResult) -> AnswerQuality:
    """What is published about the answers of a scenario."""
    scenario = result.scenario
    return answer_quality(result.deployment.model, scenario.precision, scenario.techniques)


def _quality_beside(base: str, result: ScenarioResult) -> str:
    """What is published about the answers; of another model than ``base`` what one source prints of both."""
    quality, model = scenario_quality(result), result.deployment.model.profile
    if model == base:
        return quality.note
    changed = "" if quality.loss == 0 else f"; {quality.note}"
    return f"{other_model_note(model, base=base)}{changed}"


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


Progress = Callable[[int, int], None]
"""Called with (deployments answered, of how many at most)."""


class ComparedNumbers(NamedTuple):
    """The numbers of a deployment that a change can move.

    Latencies [s] are means over requests, TPOT NaN where there is one token only; throughput and bill are of all
    replicas; weights [bytes] and KV capacity [tokens] of one device and one replica, as in the contract; costs are None
    where no price is known.
    """

    ttft_s: float
    tpot_s: float
    e2e_s: float
    output_tokens_per_s: float
    weights_bytes: float
    kv_capacity_tokens: int
    energy_per_output_token_j: float
    cost_per_hour: float | None
    cost_per_million_output_tokens: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedAnswer:
    """A deployment's answer and price; ``quality`` of its answers is in words."""

    answered: WhatIf
    quality: str

    @property
    def numbers(self) -> ComparedNumbers:
        """All that is not a word."""
        result, run, cost = self.answered.result, self.answered.result.run, self.answered.cost
        return ComparedNumbers(
            ttft_s=run.ttft_s,
            tpot_s=run.tpot_s,
            e2e_s=run.e2e_s,
            output_tokens_per_s=result.output_tokens_per_s,
            weights_bytes=run.memory.weights_bytes,
            kv_capacity_tokens=run.memory.kv_capacity_tokens,
            energy_per_output_token_j=result.energy_per_output_token_j,
            cost_per_hour=cost.per_hour,
            cost_per_million_output_tokens=cost.per_million_output_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonStep:
    """One change: the deployment with it and all before it, and with it alone. alone is None where the change cannot
    stand alone; ``alone_refusal`` then says why"""

    change: ScenarioChange
    together: ComparedAnswer
    alone: ComparedAnswer | None
    alone_refusal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A base deployment and what becomes of it step by step."""

    scenario: ScenarioSpec
    base: ComparedAnswer
    steps: tuple[ComparisonStep, ...]

    @property
    def final(self) -> ComparedAnswer:
        """The deployment with every change."""
        return self.steps[-1].together


def compare(
    scenario: ScenarioSpec,
    changes: Sequence[ScenarioChange],
    *,
    price_kind: OfferKind | None = None,
    profiles: str | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Answer ``scenario``, then with one change more at a time, and with each change alone.

    Under kind serve only the first and the last deployment carry intervals, which take several simulations each.

    Raises RoofcastError: the base is refused; a change is refused on top of those before it (named with the reason), or
    moves no number.
    """
    if not changes:
        raise missing_field("nothing to compare with", field=FLAG, hint=f"`{FLAG}` weights=fp8")
    runs_at_most, teacher = 2 * len(changes), load_model(scenario.model, profiles=profiles).profile
    done = 0

    def outcome_of(changed: ScenarioSpec, *, intervals: bool) -> ComparedAnswer:
        nonlocal done
        options = ServeOptions(intervals=intervals)
        answered = what_if(changed, price_kind=price_kind, profiles=profiles, options=options)
        done += 1
        if progress is not None:
            progress(done, runs_at_most)
        return ComparedAnswer(answered=answered, quality=_quality_beside(teacher, answered.result))

    base = before = outcome_of(scenario, intervals=True)
    together = scenario
    steps: list[ComparisonStep] = []
    for place, change in enumerate(changes, start=1):
        try:
            together = _with_cache_of(base, changed_scenario(together, change))
            outcome = outcome_of(together, intervals=place == len(changes))
        except RoofcastError as error:
            raise _refused(change, error, after=[step.change for step in steps]) from error
        _check_effect(change, outcome, before=before)
        alone, refusal = outcome if not steps else None, ""
        if alone is None:
            try:
                alone = outcome_of(_with_cache_of(base, changed_scenario(scenario, change)), intervals=False)
            except RoofcastError as error:
                refusal = str(error)
        steps.append(ComparisonStep(change=change, together=outcome, alone=alone, alone_refusal=refusal))
        before = outcome
    return Comparison(scenario=scenario, base=base, steps=tuple(steps))


def _with_cache_of(base: ComparedAnswer, changed: ScenarioSpec) -> ScenarioSpec:
    """``changed`` with the base's cache format where other weights of its model would bring another."""
    given, before = changed.precision, base.answered.scenario
    if given.kv_cache is not None or given == before.precision or changed.model != before.model:
        return changed
    held = {"kv_cache": base.answered.result.deployment.plan.kv_dtype}
    return changed.model_copy(update={"precision": given.model_copy(update=held)})


def _check_effect(change: ScenarioChange, outcome: ComparedAnswer, *, before: ComparedAnswer) -> None:
    """Refuse a change that moves no number and says nothing else of the answers; NaN on both sides (no second token)
    is no movement. Methods of equal speed stand beside each other by their quality."""
    if outcome.quality == before.quality and all(
        _same(now, then) for now, then in zip(outcome.numbers, before.numbers, strict=True)
    ):
        raise ignored_option(
            f"{change.text!r} changes no number of this scenario",
            field=FLAG,
            hint="leave it out; it may be what the base does already",
        )


def _same(now: float | None, then: float | None) -> bool:
    return now == then or (now is not None and then is not None and math.isnan(now) and math.isnan(then))


def _refused(change: ScenarioChange, error: RoofcastError, *, after: Sequence[ScenarioChange]) -> RoofcastError:
    """The refusal of a change, naming what it was put on top of."""
    where = f" after {', '.join(repr(other.text) for other in after)}" if after else ""
    return RoofcastError(
        f"{change.text!r}{where}: {error.place}{error.message}",
        field=FLAG,
        code=error.code,
        hint=error.hint,
        exit_code=error.exit_code,
    )
