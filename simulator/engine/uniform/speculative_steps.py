"""Speculation as the simulations take it: tokens to verify, acceptance, and the time of drafting by batch."""

from __future__ import annotations

import numpy as np

from simulator.engine.settings import SpeculativeSteps
from simulator.engine.uniform.simulation import UniformDemand, UniformRounds
from simulator.engine.uniform.static_batch import PhaseEstimate
from simulator.errors import RoofcastError
from simulator.operators.step_shape import Array, prefill_step
from simulator.phases.deployment import Deployment
from simulator.phases.draft_cost import prompt_draft_s, round_draft_s
from simulator.phases.memory import MemoryPlan
from simulator.techniques.speculation.acceptance import rounds_at
from simulator.units import GIGA, percent_text

_DRAFT_NODES_PER_OCTAVE = 2


def check_speculation_matters(deployment: Deployment, *, kind: str, osl_tokens: int | None) -> None:
    """Refuse speculation where nothing is left to guess or where the kind of run cannot use it."""
    speculation = deployment.speculation
    if speculation is None:
        return
    if osl_tokens == 1:
        raise RoofcastError(
            f"{speculation.plan.method} has nothing to guess: osl_tokens 1 ends with the prefill",
            field="techniques.speculation",
            code="ignored_option",
            hint="leave it out or ask for more output tokens",
        )
    if kind == "serve" and speculation.spec.adaptive:
        raise RoofcastError(
            "the event simulation verifies the same number of guesses in every step",
            field="techniques.speculation.adaptive",
            code="unsupported_option",
            hint="leave it out, or find the best k by batch with kind batch or closed_loop",
        )


def draft_table(deployment: Deployment, *, largest: int, context_tokens: float) -> Array:
    """Time of drafting for 0..``largest`` decoding sequences at a mean context [s]; linear between nodes."""
    octaves = np.arange(0.0, np.log2(max(largest, 2)) + 1.0, 1.0 / _DRAFT_NODES_PER_OCTAVE)
    nodes = np.unique(np.append(np.minimum(np.round(np.exp2(octaves)), largest), [1, largest]))
    seconds = round_draft_s(deployment, sequences=nodes, context=context_tokens)
    table: Array = np.interp(np.arange(largest + 1.0), nodes, seconds)
    table[0] = 0.0
    return table


def speculative_steps(deployment: Deployment, *, context_tokens: float) -> SpeculativeSteps | None:
    """What the event simulation verifies in each step; None without speculation.

    context_tokens : mean context of decoding sequences, at which drafting is priced
    """
    if deployment.speculation is None:
        return None
    plan = deployment.speculation.plan
    return SpeculativeSteps(
        verify_tokens=plan.verify_tokens,
        acceptance=plan.acceptance,
        draft_s=tuple(
            draft_table(deployment, largest=deployment.engine.max_num_seqs, context_tokens=context_tokens).tolist()
        ),
    )


def uniform_rounds(deployment: Deployment, *, demand: UniformDemand, resident: int) -> UniformRounds | None:
    """Verify steps of each of the equal requests, drawn evenly from their distribution; None without speculation."""
    if deployment.speculation is None:
        return None
    plan = deployment.speculation.plan
    levels = (np.random.default_rng(0).permutation(demand.requests) + 0.5) / demand.requests
    prompt = prefill_step(sequences=1, tokens=demand.isl_tokens)
    return UniformRounds(
        needed=rounds_at(np.array(plan.acceptance), tokens=demand.osl_tokens - 1, levels=levels),
        verify_tokens=plan.verify_tokens,
        draft_s=draft_table(deployment, largest=resident, context_tokens=demand.isl_tokens + demand.osl_tokens / 2),
        prompt_token_s=float(prompt_draft_s(deployment, prompt)[0]) / demand.isl_tokens,
    )


def speculation_notes(deployment: Deployment, decode: PhaseEstimate | None, memory: MemoryPlan) -> tuple[str, ...]:
    """What a round yields, what share of it drafting takes, and what the drafter holds; nothing without speculation."""
    speculation = deployment.speculation
    if speculation is None or decode is None or decode.estimate.draft_s is None:
        return ()
    plan = speculation.plan
    share = float(decode.weights @ decode.estimate.draft_s) / decode.total_s
    said = (
        f"speculation {plan.method}: {plan.mean_tokens:.2f} tokens per verify step of {plan.verify_tokens} tokens; "
        f"drafting takes {percent_text(share)} of a round"
    )
    if memory.draft_weights_bytes:
        said += (
            f"; the drafter holds {memory.draft_weights_bytes / GIGA:.2f} GB and "
            f"{memory.draft_kv_bytes_per_token:.0f} bytes of cache per token"
        )
    return (said, *speculation.notes)
