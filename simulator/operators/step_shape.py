"""What one forward pass works on: one description for prefill, decode and mixed steps."""

from __future__ import annotations

from dataclasses import field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.records import dataclass

Array = NDArray[np.float64]


def _array(value: ArrayLike) -> Array:
    return np.atleast_1d(np.asarray(value, dtype=np.float64))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """Sequences of one step, as seen by one attention-data-parallel rank; every field is an array of equal length.

    prefill_sequences : sequences that process prompt tokens
    prefill_tokens : new prompt tokens of each of them
    prefill_context : tokens of each that are already cached (earlier chunks, prefix hits)
    decode_sequences : sequences that generate
    decode_context : mean tokens that each of them attends to, the new one included
    decode_tokens : tokens each of them passes through the model (1; more when verifying a draft)
    prefill_logits : prefill sequences that finish their prompt in this step and so need logits
    decode_source_tokens : how many of ``decode_context`` are the encoder's output (encoder-decoder models). Left at 0
        all keys are priced as self attention, which costs the same where both kinds have equal heads.
    """

    prefill_sequences: Array
    prefill_tokens: Array
    prefill_context: Array
    decode_sequences: Array
    decode_context: Array
    decode_tokens: Array
    prefill_logits: Array
    decode_source_tokens: Array = field(default_factory=lambda: np.zeros(1))

    @property
    def new_tokens(self) -> Array:
        """Tokens that pass through every layer."""
        return self.prefill_sequences * self.prefill_tokens + self.decode_sequences * self.decode_tokens

    @property
    def logits_tokens(self) -> Array:
        """Rows that the LM head multiplies."""
        return self.prefill_logits + self.decode_sequences * self.decode_tokens


def mixed_step(
    *,
    prefill_sequences: ArrayLike = 0.0,
    prefill_tokens: ArrayLike = 0.0,
    prefill_context: ArrayLike = 0.0,
    decode_sequences: ArrayLike = 0.0,
    decode_context: ArrayLike = 0.0,
    decode_tokens: ArrayLike = 1.0,
    prefill_logits: ArrayLike | None = None,
    decode_source_tokens: ArrayLike = 0.0,
) -> StepShape:
    """Broadcast the arguments to one length. All prefill sequences are taken to need logits unless told otherwise."""
    logits = prefill_sequences if prefill_logits is None else prefill_logits
    fields = np.broadcast_arrays(
        *(
            _array(value)
            for value in (
                prefill_sequences,
                prefill_tokens,
                prefill_context,
                decode_sequences,
                decode_context,
                decode_tokens,
                logits,
                decode_source_tokens,
            )
        )
    )
    return StepShape(
        prefill_sequences=fields[0],
        prefill_tokens=fields[1],
        prefill_context=fields[2],
        decode_sequences=fields[3],
        decode_context=fields[4],
        decode_tokens=fields[5],
        prefill_logits=fields[6],
        decode_source_tokens=fields[7],
    )


def prefill_step(*, sequences: ArrayLike, tokens: ArrayLike, context: ArrayLike = 0.0) -> StepShape:
    """``sequences`` prompts of ``tokens`` new tokens each, after ``context`` cached ones."""
    return mixed_step(prefill_sequences=sequences, prefill_tokens=tokens, prefill_context=context)


def decode_step(
    *, sequences: ArrayLike, context: ArrayLike, tokens: ArrayLike = 1.0, source_tokens: ArrayLike = 0.0
) -> StepShape:
    """``sequences`` sequences that each add ``tokens`` tokens and attend to ``context`` tokens, the new included.
    ``source_tokens`` of the context are an encoder's output."""
    return mixed_step(
        decode_sequences=sequences, decode_context=context, decode_tokens=tokens, decode_source_tokens=source_tokens
    )


def behind_prefix(step: StepShape, *, tokens: int) -> StepShape:
    """``step`` with ``tokens`` more cached tokens before every sequence."""
    if not tokens:
        return step
    return replace(
        step,
        prefill_context=np.where(step.prefill_tokens > 0, step.prefill_context + tokens, 0.0),
        decode_context=np.where(step.decode_sequences > 0, step.decode_context + tokens, step.decode_context),
    )


def on_context_rank(step: StepShape, *, cp_size: int) -> StepShape:
    """What passes the layers of one of ``cp_size`` ranks that share the tokens of every prompt.

    Sequences that decode are divided too: their products take each rank's own, at least one. Any rank may hold the last
    tokens, so that logits are not divided. References: [Yang2024b]
    """
    if cp_size == 1:
        return step
    sequences = np.maximum(step.decode_sequences / cp_size, np.minimum(step.decode_sequences, 1.0))
    return replace(step, prefill_tokens=step.prefill_tokens / cp_size, decode_sequences=sequences)
