"""What a round of speculation costs beside the verify step: the drafter's passes and the host's bookkeeping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from simulator.operators.model_counts import total_flops
from simulator.operators.work import Array, StepShape, decode_step, prefill_step
from simulator.phases.compiled import StepTables, ascending, octave_nodes
from simulator.phases.deployment import Deployment, Speculation, without_speculation
from simulator.phases.step import StepEstimate, estimate_step, estimate_steps
from simulator.techniques.applied import device_rows
from simulator.units import MILLI

# Look-up of a continuation in REST's data store on the host, assumed: its authors report times around 1 ms [s].
RETRIEVAL_S = MILLI
TOKEN_BYTES = 4

PassTimes = Callable[[Deployment, Sequence[StepShape]], Sequence[Array]]
"""Seconds of passes of a drafter."""


def verify_step(speculation: Speculation, *, sequences: ArrayLike, context: ArrayLike) -> StepShape:
    """The target's step that scores all guesses of sequences with ``context`` tokens, the last one included."""
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


def _estimated(draft: Deployment, steps: Sequence[StepShape]) -> list[Array]:
    return [estimate.step_s for estimate in estimate_steps([(draft, step) for step in steps])]


def drafting_steps(speculation: Speculation, step: StepShape) -> tuple[StepShape, ...]:
    """The drafter's passes for the decoding sequences of ``step``, and that for its prompts the last."""
    guesses = _guessing(speculation, sequences=step.decode_sequences, context=step.decode_context)
    return (*(shape for _, shape in guesses), replace(step, decode_sequences=np.zeros_like(step.decode_sequences)))


def drafting_s(deployment: Deployment, step: StepShape, *, pass_times: PassTimes = _estimated) -> tuple[Array, Array]:
    """Time of the drafter for the decoding sequences of ``step`` and for its prompts [s], priced in one call."""
    speculation, counts = deployment.speculation, step.decode_sequences
    if speculation is None or speculation.draft is None:
        return _beside_passes_s(deployment, counts), np.zeros(len(counts))
    times = _pass_times(speculation, pass_times)(speculation.draft, drafting_steps(speculation, step))
    guesses = _guessing(speculation, sequences=counts, context=step.decode_context)
    seconds = _beside_passes_s(deployment, counts)
    for (passes, _), pass_s in zip(guesses, times[:-1], strict=True):
        seconds += passes * pass_s
    return seconds, times[-1]


def _paced_step(
    deployment: Deployment, speculation: Speculation, step: StepShape, *, seconds: Callable[[StepEstimate], Array]
) -> Array:
    verify, mixed = paced_shapes(speculation, step)
    bare, together = (seconds(item) for item in estimate_steps([(deployment, verify), (deployment, mixed)]))
    guesses, prompts = drafting_s(deployment, step)
    return np.asarray((bare + guesses) / speculation.plan.mean_tokens + together - bare + prompts)


def _guessing(speculation: Speculation, *, sequences: ArrayLike, context: ArrayLike) -> list[tuple[int, StepShape]]:
    """Passes of the drafter in a round, one after another: how many of each kind, and the step that each is."""
    plan = speculation.plan
    number = {plan.first_width: 1}
    number[plan.draft_width] = number.get(plan.draft_width, 0) + plan.k - 1
    # The i-th pass attends to i guesses more.
    ends = {width: np.asarray(context) + width * (plan.k + 1) / 2 for width in number}
    return [
        (passes, decode_step(sequences=sequences, context=ends[width], tokens=width))
        for width, passes in number.items()
    ]


def _beside_passes_s(deployment: Deployment, counts: Array) -> Array:
    """Time of a round outside the verify step and the drafter's passes, by its sequences [s]."""
    speculation = deployment.speculation
    if speculation is None:
        return np.zeros(len(counts))
    from simulator.specs.model.fitted import Bookkeeping

    plan, overheads = speculation.plan, deployment.engine.overheads
    seconds = np.full(len(counts), RETRIEVAL_S if plan.method == "rest" else 0.0)
    is_tree = plan.bookkeeping is Bookkeeping.TREE
    seconds += overheads.speculation_tree_s if is_tree else overheads.speculation_chain_s
    seconds += counts * overheads.speculation_sequence_s
    if speculation.draft is not None and plan.draft_device == "cpu":
        link = deployment.hardware.host_link.bytes_per_s_per_direction
        seconds += 2 * overheads.eager_launch_s + counts * plan.k * TOKEN_BYTES / link
    return seconds


def round_draft_s(deployment: Deployment, *, sequences: ArrayLike, context: ArrayLike) -> Array:
    """Time of a round outside the verify step, for each case of sequences and context (broadcast together) [s].

    ``k`` passes of the drafter one after another; the framework's own work around them; retrieval. Left out:
    token ids on their way between devices (some bytes), overlap of drafting with anything else.
    """
    speculation = deployment.speculation
    counts, contexts = np.broadcast_arrays(
        np.atleast_1d(np.asarray(sequences, dtype=np.float64)), np.atleast_1d(np.asarray(context, dtype=np.float64))
    )
    seconds = _beside_passes_s(deployment, counts)
    if speculation is None or speculation.draft is None:
        return seconds
    guesses = _guessing(speculation, sequences=counts, context=contexts)
    times = _pass_times(speculation, _estimated)(speculation.draft, [shape for _, shape in guesses])
    for (passes, _), pass_s in zip(guesses, times, strict=True):
        seconds += passes * pass_s
    return seconds


def prompt_draft_s(deployment: Deployment, shape: StepShape) -> Array:
    """Time that the drafter needs for the prompts of each case of ``shape``, after the target's own pass [s]."""
    speculation = deployment.speculation
    if speculation is None or speculation.draft is None:
        return np.zeros(len(shape.new_tokens))
    (seconds,) = _pass_times(speculation, _estimated)(speculation.draft, (shape,))
    return seconds


_NODES_PER_OCTAVE = 2


def with_drafts(
    tables: StepTables, deployment: Deployment, *, prompt_tokens: float, answer_tokens: float, scale: float = 1.0
) -> StepTables:
    """``tables`` and what drafting takes beside their steps for mean requests of such lengths, ``scale`` times as long;
    the same tables without speculation."""
    if deployment.speculation is None:
        return tables
    counts = np.arange(tables.max_sequences + 1.0)
    nodes = ascending(np.ceil(octave_nodes(counts[-1], per_octave=_NODES_PER_OCTAVE)))
    seconds = round_draft_s(deployment, sequences=nodes, context=prompt_tokens + answer_tokens / 2)
    draft_s = np.where(counts > 0, np.interp(counts, nodes, seconds), 0.0)
    prompt = max(1, round(prompt_tokens))
    prompt_s = float(prompt_draft_s(deployment, prefill_step(sequences=1, tokens=prompt))[0])
    return tables._replace(draft_s=scale * draft_s, draft_token_s=scale * prompt_s / prompt)


def _pass_times(speculation: Speculation, on_device: PassTimes) -> PassTimes:
    return _on_cpu if speculation.plan.draft_device == "cpu" else on_device


def _on_cpu(draft: Deployment, steps: Sequence[StepShape]) -> list[Array]:
    from simulator.techniques.speculation.drafters import XEON_8480C

    listed = [device_rows(draft.techniques, parallelism=draft.parallelism, step=step) for step in steps]
    return [
        XEON_8480C.seconds(
            flops=total_flops(rows),
            weight_bytes=sum(
                (row.count * (row.weight_bytes + row.kv_bytes) for row in rows), np.zeros(len(step.new_tokens))
            ),
        )
        for rows, step in zip(listed, steps, strict=True)
    ]
