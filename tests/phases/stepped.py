"""Steps looked up in step tables one by one, as the event simulation does."""

from __future__ import annotations

import numpy as np

from simulator.operators.work import Array, StepShape
from simulator.phases.compiled import StepTables, device_seconds, host_seconds


def step_seconds(
    tables: StepTables, prefills: float, tokens: float, work2: float, logits: float, decodes: float, context: float
) -> float:
    """Time of a step whose decoding sequences add one token each; work2 : see ``prefill_seconds`` [s]"""
    device_s = device_seconds(tables, prefills, tokens, work2, logits, decodes, 1, context)
    return float(host_seconds(tables, prefills, tokens, int(decodes)) + device_s)


def steps_seconds(tables: StepTables, step: StepShape) -> Array:
    """Time of each case, whose decoding sequences add one token each [s]."""
    prefills = step.prefill_sequences * step.prefill_tokens
    work2 = prefills * (2.0 * step.prefill_context + step.prefill_tokens)
    context = step.decode_sequences * step.decode_context
    cases = zip(
        step.prefill_sequences, prefills, work2, step.prefill_logits, step.decode_sequences, context, strict=True
    )
    return np.array([step_seconds(tables, *case) for case in cases])
