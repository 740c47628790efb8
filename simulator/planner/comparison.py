"""What each change to a deployment contributes: on its own, and on top of those before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulator.engine.serve_options import ServeOptions
from simulator.errors import RoofcastError
from simulator.planner.what_if import WhatIf, scenario_quality, what_if
from simulator.specs.prices import OfferKind
from simulator.specs.scenario import ScenarioSpec
from simulator.specs.scenario_changes import FLAG, ScenarioChange, changed_scenario

Progress = Callable[[int, int], None]
"""Called with (deployments answered, of how many at most)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A deployment's answer and price, and the numbers of it that a change can move; ``quality`` is in words.

    Latencies [s] are means over requests; throughput and bill are of all replicas; weights [bytes] and KV capacity
    [tokens] of one device and one replica, as in the contract; costs are None where no price is known.
    """

    answered: WhatIf
    quality: str

    @property
    def ttft_s(self) -> float:
        """Time to first token [s]."""
        return self.answered.result.run.ttft_s

    @property
    def tpot_s(self) -> float:
        """Time per output token after the first [s]; NaN where there is one only."""
        return self.answered.result.run.tpot_s

    @property
    def e2e_s(self) -> float:
        """Time to the last token [s]."""
        return self.answered.result.run.e2e_s

    @property
    def output_tokens_per_s(self) -> float:
        """Generated tokens per second of all replicas."""
        return self.answered.output_tokens_per_s

    @property
    def weights_bytes(self) -> float:
        """Weights on one device [bytes]."""
        return self.answered.result.run.memory.weights_bytes

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens that the cache of one replica holds."""
        return self.answered.result.run.memory.kv_capacity_tokens

    @property
    def energy_per_output_token_j(self) -> float:
        """Energy per generated token, prompts included [J]."""
        return self.answered.result.energy_per_output_token_j

    @property
    def cost_per_hour(self) -> float | None:
        """Bill of all devices per hour, in ``currency``."""
        return self.answered.cost.per_hour

    @property
    def cost_per_million_output_tokens(self) -> float | None:
        """All of the bill on the generated tokens, in ``currency``."""
        return self.answered.cost.per_million_output_tokens

    @property
    def currency(self) -> str:
        """Of the price list."""
        return self.answered.cost.currency

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
            self.cost_per_hour,
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


def compare(
    scenario: ScenarioSpec,
    changes: Sequence[ScenarioChange],
    *,
    price_kind: OfferKind = "on_demand",
    profiles: str | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Answer ``scenario``, then with one change more at a time, and with each change alone.

    Under kind serve only the first and the last deployment carry intervals, which take several simulations each.

    Raises
    ------
    RoofcastError
        The base is refused; a change is refused on top of those before it (named with the reason), or moves no number.
    """
    if not changes:
        raise RoofcastError("nothing to compare with", field=FLAG, code="missing_field", hint=f"{FLAG} weights=fp8")
    runs_at_most = 2 * len(changes)
    done = 0

    def outcome_of(changed: ScenarioSpec, *, intervals: bool) -> Outcome:
        nonlocal done
        options = ServeOptions(intervals=intervals)
        answered = what_if(changed, price_kind=price_kind, profiles=profiles, options=options)
        done += 1
        if progress is not None:
            progress(done, runs_at_most)
        return Outcome(answered=answered, quality=scenario_quality(answered.result).note)

    base = before = outcome_of(scenario, intervals=True)
    together = scenario
    steps: list[ComparisonStep] = []
    for place, change in enumerate(changes, start=1):
        try:
            together = changed_scenario(together, change)
            outcome = outcome_of(together, intervals=place == len(changes))
        except RoofcastError as error:
            raise _refused(change, error, after=[step.change for step in steps]) from error
        _check_effect(change, outcome, before=before)
        alone, refusal = outcome if not steps else None, ""
        if alone is None:
            try:
                alone = outcome_of(changed_scenario(scenario, change), intervals=False)
            except RoofcastError as error:
                refusal = str(error)
        steps.append(ComparisonStep(change=change, together=outcome, alone=alone, alone_refusal=refusal))
        before = outcome
    return Comparison(scenario=scenario, base=base, steps=tuple(steps))


def _check_effect(change: ScenarioChange, outcome: Outcome, *, before: Outcome) -> None:
    """Refuse a change that moves no number; NaN on both sides (no second token) is no movement."""
    if all(_same(now, then) for now, then in zip(outcome.numbers, before.numbers, strict=True)):
        raise RoofcastError(
            f"{change.text!r} changes no number of this scenario",
            field=FLAG,
            code="ignored_option",
            hint="leave it out; it may be what the base does already",
        )


def _same(now: float | None, then: float | None) -> bool:
    return now == then or (now is not None and then is not None and math.isnan(now) and math.isnan(then))


def _refused(change: ScenarioChange, error: RoofcastError, *, after: Sequence[ScenarioChange]) -> RoofcastError:
    """The refusal of a change, naming what it was put on top of."""
    where = f" after {', '.join(repr(other.text) for other in after)}" if after else ""
    inside = f"{error.field}: " if error.field else ""
    return RoofcastError(
        f"{change.text!r}{where}: {inside}{error.message}",
        field=FLAG,
        code=error.code,
        hint=error.hint,
        exit_code=error.exit_code,
    )
