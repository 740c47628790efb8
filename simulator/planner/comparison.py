"""What each change to a deployment contributes: on its own, and on top of those before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.errors import RoofcastError
from simulator.planner.format_quality import quality_note
from simulator.planner.what_if import WhatIf, what_if
from simulator.specs.models import load_model
from simulator.specs.prices import OfferKind
from simulator.specs.scenario import ScenarioSpec
from simulator.specs.scenario_changes import ScenarioChange, changed_scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The numbers of one deployment that a change can move.

    Latencies [s]; throughput of all replicas [tokens/s]; weights and KV of one device [bytes, tokens]; energy per
    generated token [J]; cost per million generated tokens, None where no price is known; ``quality`` in words.
    """

    ttft_s: float
    tpot_s: float
    e2e_s: float
    output_tokens_per_s: float
    weights_bytes: float
    kv_capacity_tokens: int
    energy_per_output_token_j: float
    cost_per_million_output_tokens: float | None
    currency: str
    quality: str

    @property
    def numbers(self) -> tuple[float | None, ...]:
        """All that is not a word."""
        return (
            self.ttft_s,
            self.tpot_s,
            self.e2e_s,
            self.output_tokens_per_s,
            self.weights_bytes,
            self.kv_capacity_tokens,
            self.energy_per_output_token_j,
            self.cost_per_million_output_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonStep:
    """One change: the deployment with it and all before it, and with it alone.

    alone is None where the change cannot stand alone; ``alone_refusal`` then says why
    """

    change: ScenarioChange
    together: Outcome
    alone: Outcome | None
    alone_refusal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A base deployment and what becomes of it step by step."""

    scenario: ScenarioSpec
    base: Outcome
    steps: tuple[ComparisonStep, ...]

    @property
    def final(self) -> Outcome:
        """The deployment with every change."""
        return self.steps[-1].together


def _outcome(answered: WhatIf, *, profiles: str | None) -> Outcome:
    run, scenario = answered.result.run, answered.scenario
    return Outcome(
        ttft_s=run.ttft_s,
        tpot_s=run.tpot_s,
        e2e_s=run.e2e_s,
        output_tokens_per_s=answered.output_tokens_per_s,
        weights_bytes=run.memory.weights_bytes,
        kv_capacity_tokens=run.memory.kv_capacity_tokens,
        energy_per_output_token_j=answered.result.energy_per_output_token_j,
        cost_per_million_output_tokens=answered.cost.per_million_output_tokens,
        currency=answered.cost.currency,
        quality=quality_note(load_model(scenario.model, profiles=profiles), scenario.precision, scenario.techniques),
    )


def compare(
    scenario: ScenarioSpec,
    changes: Sequence[ScenarioChange],
    *,
    price_kind: OfferKind = "on_demand",
    profiles: str | None = None,
) -> Comparison:
    """Answer ``scenario``, then with one change more at a time, and with each change alone.

    Raises
    ------
    RoofcastError
        A change is refused on top of those before it (named with the reason), or moves no number at all.
    """

    def answer_of(changed: ScenarioSpec) -> Outcome:
        return _outcome(what_if(changed, price_kind=price_kind, profiles=profiles), profiles=profiles)

    base = before = answer_of(scenario)
    together = scenario
    steps: list[ComparisonStep] = []
    for change in changes:
        together = changed_scenario(together, change)
        try:
            outcome = answer_of(together)
        except RoofcastError as error:
            raise _refused(change, error, after=[step.change for step in steps]) from error
        if outcome.numbers == before.numbers:
            raise RoofcastError(
                f"{change.text!r} changes no number of this scenario", field="--with", code="ignored_option"
            )
        alone, refusal = outcome if not steps else None, ""
        if alone is None:
            try:
                alone = answer_of(changed_scenario(scenario, change))
            except RoofcastError as error:
                refusal = str(error)
        steps.append(ComparisonStep(change=change, together=outcome, alone=alone, alone_refusal=refusal))
        before = outcome
    return Comparison(scenario=scenario, base=base, steps=tuple(steps))


def _refused(change: ScenarioChange, error: RoofcastError, *, after: Sequence[ScenarioChange]) -> RoofcastError:
    """The refusal of a change, naming what it was put on top of."""
    where = f" after {', '.join(repr(other.text) for other in after)}" if after else ""
    return RoofcastError(
        f"{change.text!r}{where}: {error.field}: {error.message}", field="--with", code=error.code, hint=error.hint
    )
