"""What each change to a deployment contributes: on its own, and on top of those before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

from simulator.engine.runs.answers import ScenarioResult
from simulator.engine.runs.scenario_setup import ServeOptions
from simulator.errors import RoofcastError, ignored_option, missing_field
from simulator.planner.what_if import WhatIf, scenario_quality, what_if
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.engine.engine import with_feature
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.money.prices import OfferKind
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.scenario_file import FLAG, ScenarioChange, changed_scenario
from simulator.techniques.quality import joined, other_model_note


def _quality_beside(base: str, result: ScenarioResult) -> Note:
    """What is published about the answers; of another model than ``base`` what one source prints of both."""
    quality, model = scenario_quality(result), result.deployment.model.profile
    if model == base:
        return quality.note
    other = other_model_note(model, base=base)
    return other if quality.loss == 0 else joined(other, quality.note)


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
    """A deployment's answer and price; ``quality`` is of its answers."""

    answered: WhatIf
    quality: Note

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
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Answer ``scenario``, then with one change more at a time, and with each change alone.

    progress : called with how many deployments are answered, of how many at most

    Under kind serve only the first and the last deployment carry intervals, which take several simulations each.

    Raises RoofcastError: the base is refused; a change is refused on top of those before it (named with the reason), or
    moves no number.
    """
    if not changes:
        raise missing_field("nothing to compare with", field=FLAG, hint=f"`{FLAG}` weights=fp8")
    teacher, done = load_model(scenario.model, profiles=profiles).profile, count(1)

    def outcome_of(changed: ScenarioSpec, *, intervals: bool) -> ComparedAnswer:
        options = ServeOptions(intervals=intervals)
        answered = what_if(changed, price_kind=price_kind, profiles=profiles, options=options)
        if progress is not None:
            progress(next(done), 2 * len(changes))
        return ComparedAnswer(answered=answered, quality=_quality_beside(teacher, answered.result))

    scenario = _in_one_release(scenario, changes, profiles=profiles)
    base = before = outcome_of(scenario, intervals=True)
    together, steps = scenario, list[ComparisonStep]()
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


def _in_one_release(scenario: ScenarioSpec, changes: Sequence[ScenarioChange], *, profiles: str | None) -> ScenarioSpec:
    """``scenario`` in the release of its engine that a change asks for: no change is worth what a release is."""
    last, engine = scenario, scenario.engine
    try:
        for change in changes:
            last = changed_scenario(last, change)
    except RoofcastError:
        # Which change is refused is said where it is made.
        return scenario
    vendor = load_hardware(scenario.hardware, profiles=profiles).vendor
    if last.techniques.speculation is not None:
        engine = with_feature(engine, "speculation", vendor=vendor, profiles=profiles)
    if last.disaggregation is not None:
        engine = with_feature(engine, "disaggregation", vendor=vendor, profiles=profiles)
    return scenario.model_copy(update={"engine": engine}) if last.engine.name == engine.name else scenario


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
    message = f"{change.text!r}{where}: {error.place}{error.message}"
    refused = RoofcastError(message, field=FLAG, code=error.code, hint=error.hint)
    refused.exit_code = error.exit_code
    return refused
