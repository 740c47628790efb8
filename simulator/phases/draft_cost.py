"""What a round of speculation costs beside the verify step: the drafter's passes and the host's bookkeeping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from simulator.operators.step_shape import Array, StepShape, decode_step
from simulator.operators.transformer import total_flops
from simulator.phases.deployment import Deployment, Speculation, without_speculation
from simulator.phases.step import StepEstimate, estimate_step
from simulator.techniques.applied import device_rows
from simulator.techniques.speculation.drafters import XEON_8480C
from simulator.techniques.speculation.methods import RETRIEVAL_S, TOKEN_BYTES, Bookkeeping


def verify_step(speculation: Speculation, *, sequences: ArrayLike, context: ArrayLike) -> StepShape:
    """The target's step that scores all guesses of ``sequences`` sequences with ``context`` tokens, the last one
    included."""
    tokens = float(speculation.plan.verify_tokens)
    last = np.asarray(context, dtype=np.float64) + tokens - 1.0
    return decode_step(sequences=sequences, context=last, tokens=tokens)


def decode_round(deployment: Deployment, *, sequences: ArrayLike, context: ArrayLike) -> StepEstimate:
    """The step that generates: one token of each sequence, or with speculation a verify step and its drafting.

    context : tokens that each sequence attends to, the last one of its own included
    """
    if deployment.speculation is None:
        return estimate_step(deployment, decode_step(sequences=sequences, context=context))
    verify = estimate_step(deployment, verify_step(deployment.speculation, sequences=sequences, context=context))
    return replace(verify, draft_s=round_draft_s(deployment, sequences=sequences, context=context))


def per_token_step(deployment: Deployment, step: StepShape, *, seconds: Callable[[StepEstimate], Array]) -> Array:
    """Time of the step that would add one token to each decoding sequence at the pace of speculation [s].

    A round yields ``mean_tokens`` tokens of each sequence, so that one token takes that part of it; the prompts of the
    step take what they add to a round. This is what a steady state that counts tokens needs. ``seconds`` prices a step.
    Adaptive speculation is off where one token at a time is faster.
    """
    speculation = deployment.speculation
    if speculation is None:
        return seconds(estimate_step(deployment, step))
    paced = _paced_step(deployment, speculation, step, seconds=seconds)
    if not speculation.spec.adaptive:
        return paced
    return np.minimum(paced, seconds(estimate_step(without_speculation(deployment), step)))


def paced_shapes(speculation: Speculation, step: StepShape) -> tuple[StepShape, StepShape]:
    """The verify step of ``step``'s decoding sequences, alone and with the prompts of ``step`` riding along."""
    plain = np.zeros_like(step.prefill_sequences)
    alone = replace(step, prefill_sequences=plain, prefill_tokens=plain, prefill_context=plain, prefill_logits=plain)
    tokens = float(speculation.plan.verify_tokens)
    verify, mixed = (
        replace(one, decode_tokens=np.full_like(plain, tokens), decode_context=one.decode_context + tokens - 1.0)
        for one in (alone, step)
    )
    return verify, mixed


def drafting_s(deployment: Deployment, step: StepShape) -> tuple[Array, Array]:
    """Time of the drafter for the decoding sequences of ``step`` and for its prompts [s]."""
    guesses = round_draft_s(deployment, sequences=step.decode_sequences, context=step.decode_context)
    return guesses, prompt_draft_s(deployment, _prompts_only(step))


def _paced_step(
    deployment: Deployment, speculation: Speculation, step: StepShape, *, seconds: Callable[[StepEstimate], Array]
) -> Array:
    verify, mixed = paced_shapes(speculation, step)
    bare = seconds(estimate_step(deployment, verify))
    together = seconds(estimate_step(deployment, mixed))
    guesses, prompts = drafting_s(deployment, step)
    return np.asarray((bare + guesses) / speculation.plan.mean_tokens + together - bare + prompts)


def _prompts_only(step: StepShape) -> StepShape:
    return replace(step, decode_sequences=np.zeros_like(step.decode_sequences))


def round_draft_s(deployment: Deployment, *, sequences: ArrayLike, context: ArrayLike) -> Array:
    """Time of a round outside the verify step, for each case of sequences and context (broadcast together) [s].

    ``k`` passes of the drafter one after another; the framework's own work around them; retrieval. Left out:
    token ids on their way between devices (some bytes), overlap of drafting with anything else.
    """
    speculation = deployment.speculation
    counts, contexts = np.broadcast_arrays(
        np.atleast_1d(np.asarray(sequences, dtype=np.float64)), np.atleast_1d(np.asarray(context, dtype=np.float64))
    )
    if speculation is None:
        return np.zeros(len(counts))
    plan = speculation.plan
    seconds = np.full(len(counts), RETRIEVAL_S if plan.method == "rest" else 0.0)
    overheads = deployment.engine.overheads
    is_tree = plan.bookkeeping is Bookkeeping.TREE
    seconds += overheads.speculation_tree_s if is_tree else overheads.speculation_chain_s
    seconds += counts * overheads.speculation_sequence_s
    if speculation.draft is not None:
        on_cpu = plan.draft_device == "cpu"
        pass_s: dict[float, Array] = {}
        for passes, width in ((1, plan.first_width), (plan.k - 1, plan.draft_width)):
            if width not in pass_s:
                # The i-th pass attends to i guesses more.
                ends = contexts + width * (plan.k + 1) / 2
                step = decode_step(sequences=counts, context=ends, tokens=width)
                pass_s[width] = _pass_s(speculation.draft, step, on_cpu=on_cpu)
            seconds += passes * pass_s[width]
        if plan.draft_device == "cpu":
            link = deployment.hardware.host_link.bytes_per_s_per_direction
            seconds += 2 * overheads.eager_launch_s + counts * plan.k * TOKEN_BYTES / link
    return seconds


def prompt_draft_s(deployment: Deployment, shape: StepShape) -> Array:
    """Time that the drafter needs for the prompts of each case of ``shape``, after the target's own pass [s]."""
    speculation = deployment.speculation
    if speculation is None or speculation.draft is None:
        return np.zeros(len(shape.new_tokens))
    return _pass_s(speculation.draft, shape, on_cpu=speculation.plan.draft_device == "cpu")


def _pass_s(draft: Deployment, step: StepShape, *, on_cpu: bool) -> Array:
    if not on_cpu:
        return estimate_step(draft, step).step_s
    rows = device_rows(draft.techniques, parallelism=draft.parallelism, step=step)
    read = sum((row.count * (row.weight_bytes + row.kv_bytes) for row in rows), np.zeros(len(step.new_tokens)))
    return XEON_8480C.seconds(flops=total_flops(rows), weight_bytes=read)
