"""Requests of equal lengths in closed form: a static batch, a constant concurrency, everything queued at once.

All three are made of the same two parts: passes over the prompts, and decode steps whose context grows by one
token each. Both are priced in one vectorised call.

Verify steps of speculation as loops take them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from simulator.engine.uniform.loop_requests import LoopDemand
from simulator.errors import RoofcastError, ignored_option
from simulator.kernels.timing import Provenance
from simulator.operators.work import Array, Family, StepShape, decode_step, mixed_step
from simulator.phases.compiled import ascending
from simulator.phases.deployment import Deployment
from simulator.phases.draft_cost import decode_round, prompt_draft_s
from simulator.phases.memory import MemoryPlan
from simulator.phases.step import StepEstimate, estimate_step
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.techniques.speculation.acceptance import rounds_at, rounds_needed

# Decode time is close to linear in the context, so that few points carry the integral over it.
DECODE_SAMPLES = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEstimate:
    """The steps of one phase: ``weights`` says how many real steps each sampled case stands for."""

    estimate: StepEstimate
    weights: Array

    @property
    def total_s(self) -> float:
        """Time of the whole phase [s]."""
        return float(self.weights @ self.estimate.step_s)

    @property
    def steps(self) -> float:
        """Number of steps."""
        return float(self.weights.sum())

    @property
    def log_sigma(self) -> float:
        """Standard deviation of log(measured / predicted) of the steps, as one error of all of them."""
        return self.mean(self.estimate.log_sigma)

    @property
    def provenance(self) -> Provenance:
        """How well the least known of the steps is known."""
        return Provenance(int(self.estimate.provenance.max()))

    @property
    def family_s(self) -> Mapping[str, float]:
        """Mean seconds of a step by operator family; they add up to the mean step."""
        return {family: self._mean_step(values) for family, values in self.estimate.breakdown_s.items()}

    @property
    def operator_s(self) -> Mapping[str, float]:
        """Mean seconds of each operator of a step over all layers, in the order they run; the host comes first."""
        found = {"host": self._mean_step(self.estimate.host_s)}
        if self.estimate.draft_s is not None:
            found["drafting"] = self._mean_step(self.estimate.draft_s)
        for row in self.estimate.rows:
            found[row.work.name] = found.get(row.work.name, 0.0) + self._mean_step(row.seconds)
        return found

    @property
    def operator_families(self) -> Mapping[str, str]:
        """The family of each of them."""
        beside = {"host": "host", "drafting": "draft"}
        return beside | {row.work.name: row.work.family.value for row in self.estimate.rows}

    @property
    def network_fraction(self) -> float:
        """Share of the steps in which devices exchange what the next operator needs."""
        return self.family_s.get(Family.COLLECTIVE.value, 0.0) * self.steps / self.total_s

    def _mean_step(self, values: Array) -> float:
        return float(self.weights @ values) / self.steps

    def mean(self, values: Array) -> float:
        """Mean of a per-case quantity, weighted by time."""
        seconds = self.weights * self.estimate.step_s
        return float(seconds @ values / seconds.sum())


def prompt_passes(*, sequences: int, isl_tokens: int, limit_tokens: int | None) -> tuple[StepShape, Array]:
    """Steps that take ``sequences`` prompts through the model, at most ``limit_tokens`` new tokens each.

    Whole prompts share a step while they fit; a prompt longer than the limit goes alone, in chunks that see the
    earlier ones as context. Returns the shapes and how often each of them occurs.
    """
    limit = limit_tokens or sequences * isl_tokens
    if isl_tokens <= limit:
        per_step = min(sequences, limit // isl_tokens)
        full, rest = divmod(sequences, per_step)
        sizes = [float(per_step)] * (full > 0) + [float(rest)] * (rest > 0)
        counts = [float(full)] * (full > 0) + [1.0] * (rest > 0)
        return mixed_step(prefill_sequences=sizes, prefill_tokens=float(isl_tokens)), np.array(counts)
    chunks = -(-isl_tokens // limit)
    starts = np.arange(chunks) * float(limit)
    tokens = np.minimum(float(limit), isl_tokens - starts)
    logits = (starts + tokens >= isl_tokens).astype(np.float64)
    shape = mixed_step(prefill_sequences=1.0, prefill_tokens=tokens, prefill_context=starts, prefill_logits=logits)
    return shape, np.full(chunks, float(sequences))


def prefill_phase(
    deployment: Deployment, *, sequences: int, isl_tokens: int, limit_tokens: int | None
) -> PhaseEstimate:
    """All prompts of a batch, through the drafter too where there is one."""
    shape, weights = prompt_passes(sequences=sequences, isl_tokens=isl_tokens, limit_tokens=limit_tokens)
    estimate = estimate_step(deployment, shape)
    if deployment.speculation is not None and deployment.speculation.draft is not None:
        estimate = replace(estimate, draft_s=prompt_draft_s(deployment, shape))
    return PhaseEstimate(estimate=estimate, weights=weights)


def _integration_weights(points: Array) -> Array:
    """Trapezoid weights that count every integer from the first to the last of the sorted ``points`` once."""
    if len(points) == 1:
        return np.ones(1)
    gaps = np.diff(points)
    weights = np.zeros(len(points))
    weights[:-1] += gaps / 2
    weights[1:] += gaps / 2
    weights[0] += 1 / 2
    weights[-1] += 1 / 2
    return weights


def decode_phase(
    deployment: Deployment, *, sequences: float, isl_tokens: int, osl_tokens: int, together: bool = False
) -> PhaseEstimate | None:
    """The steps after the first token; None when there is none.

    Step j of 1..OSL-1 attends to ISL + j tokens. With speculation they are rounds, as many as a sequence needs on
    average, or ``together`` the slowest of all of them: those that are done wait in their places.
    """
    if osl_tokens < 2:
        return None
    if deployment.speculation is not None:
        waiting = max(1, round(sequences)) if together else 1
        return _rounds(deployment, sequences=sequences, waiting=waiting, isl_tokens=isl_tokens, tokens=osl_tokens - 1)
    first, last = isl_tokens + 1, isl_tokens + osl_tokens - 1
    contexts = ascending(np.round(np.linspace(first, last, min(DECODE_SAMPLES, last - first + 1))))
    estimate = estimate_step(deployment, decode_step(sequences=float(sequences), context=contexts))
    return PhaseEstimate(estimate=estimate, weights=_integration_weights(contexts))


def _rounds(deployment: Deployment, *, sequences: float, waiting: int, isl_tokens: int, tokens: int) -> PhaseEstimate:
    """Rounds of drafting and verifying until the slowest of ``waiting`` sequences has its ``tokens`` tokens. They are
    spread evenly over the contexts from the first new token to the last."""
    speculation = deployment.speculation
    assert speculation is not None, "asked for a deployment that speculates"
    rounds = rounds_needed(np.array(speculation.plan.acceptance), tokens=tokens, sequences=waiting)
    contexts = ascending(np.round(np.linspace(isl_tokens + 1, isl_tokens + tokens, min(DECODE_SAMPLES, tokens))))
    estimate = decode_round(deployment, sequences=float(sequences), context=contexts)
    return PhaseEstimate(estimate=estimate, weights=_integration_weights(contexts) * (rounds / tokens))


def check_speculation_matters(deployment: Deployment, *, kind: str, osl_tokens: int | None) -> None:
    """Refuse speculation where nothing is left to guess or where the kind of run cannot use it."""
    speculation = deployment.speculation
    if speculation is None:
        return
    if osl_tokens == 1:
        raise ignored_option(
            f"{speculation.plan.method} has nothing to guess: osl_tokens 1 ends with the prefill",
            field="techniques.speculation",
            hint="leave it out or ask for more output tokens",
        )
    if kind == "serve" and speculation.spec.adaptive:
        raise RoofcastError(
            "the event simulation verifies the same number of guesses in every step",
            field="techniques.speculation.adaptive",
            code="unsupported_option",
            hint="leave it out, or find the best k by batch with kind batch or closed_loop",
        )


def verify_rounds(deployment: Deployment, *, demand: LoopDemand) -> NDArray[np.int64] | None:
    """Verify steps of each request after its first token, drawn evenly from their distribution; None without any."""
    if deployment.speculation is None:
        return None
    levels = (np.random.default_rng(0).permutation(demand.requests) + 0.5) / demand.requests
    acceptance = np.array(deployment.speculation.plan.acceptance)
    return _rounds_of(acceptance, tokens=demand.osl_tokens - 1, levels=levels)


_ROUND_LENGTHS = 9
"""Answer lengths at which verify steps are worked out: between them they grow as the tokens do."""


def _rounds_of(acceptance: Array, *, tokens: NDArray[np.int64], levels: Array) -> NDArray[np.int64]:
    """Verify steps that answers of ``tokens`` further tokens take, at these levels of their distributions."""
    needed = np.zeros(len(tokens), dtype=np.int64)
    nodes = ascending(np.rint(np.linspace(tokens.min(), tokens.max(), _ROUND_LENGTHS)).astype(np.int64))
    nearest = nodes[np.argmin(np.abs(tokens[:, None] - nodes), axis=1)]
    for node in nodes[nodes > 0]:
        chosen = nearest == node
        rounds = rounds_at(acceptance, tokens=int(node), levels=levels[chosen])
        needed[chosen] = np.maximum(np.rint(rounds * tokens[chosen] / node), 1)
    return np.where(tokens > 0, np.maximum(needed, 1), 0)


def speculation_notes(deployment: Deployment, decode: PhaseEstimate | None, memory: MemoryPlan) -> tuple[Note, ...]:
    """What a round yields, what share of it drafting takes, and what the drafter holds; nothing without speculation."""
    speculation = deployment.speculation
    if speculation is None or decode is None or decode.estimate.draft_s is None:
        return ()
    share = float(decode.weights @ decode.estimate.draft_s) / decode.total_s
    of_round = {"plan": speculation.plan, "drafting_share": share, "memory": memory}
    return (Note("speculation_round", of_round), *speculation.notes)
