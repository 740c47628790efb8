"""Measured decoder layers and whole models beside the sum of their kernels: is a step the sum of its rows?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulator.kernels.library import KernelLibrary
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.step_shape import Array, StepShape, mixed_step
from simulator.operators.transformer import operator_list
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.measured.kernel_times import MeasuredKernel
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.precision import Dtype, PrecisionSpec

MEASURED_MODEL = "llama-3.1-8b"
"""Whose shape the harness builds (validation/measure/whole_model.py)."""
LAYER, MODEL = "whole_layer", "whole_model"
FORMAT = "bf16"
DEVICE_TIME = "graph"
"""Mode of rows that hold the device's time alone: a replayed graph leaves the host out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeError:
    """Errors of the steps of one kind, as fractions; ``bias`` is the mean signed error."""

    family: str
    phase: str
    steps: int
    mean: float
    bias: float


def whole_rows(rows: Sequence[MeasuredKernel]) -> tuple[MeasuredKernel, ...]:
    """The rows of layers and models whose kernels alone were timed."""
    return tuple(
        row for row in rows if row.family in (LAYER, MODEL) and row.mode == DEVICE_TIME and row.format == FORMAT
    )


def _step(rows: Sequence[MeasuredKernel]) -> StepShape:
    """Rows of one new token are steps of decoding, the others prompts; the new token is part of a decode's context."""
    sequences = np.array([row.sequences for row in rows])
    tokens = np.array([row.query_tokens for row in rows])
    context = np.array([row.context_tokens for row in rows])
    decodes = tokens == 1
    return mixed_step(
        prefill_sequences=np.where(decodes, 0.0, sequences),
        prefill_tokens=np.where(decodes, 0.0, tokens),
        prefill_context=np.where(decodes, 0.0, context),
        decode_sequences=np.where(decodes, sequences, 0.0),
        decode_context=np.where(decodes, context + 1, 0.0),
    )


def _seconds(model: ModelSpec, *, layers: int, step: StepShape, kernels: KernelLibrary) -> Array:
    """Sum of the rows of a model cut down to ``layers``, elementwise operators one kernel each [s]."""
    cut = model.model_copy(update={"layer_order": model.layer_order[:1] * layers})
    works = operator_list(
        cut,
        parallelism=ParallelismSpec(),
        plan=precision_plan(cut, PrecisionSpec(weights=Dtype.BF16)),
        step=step,
        fused=False,
    )
    total = np.zeros(len(step.new_tokens))
    for work, timing in zip(works, kernels.price_all(works), strict=True):
        total = total + work.count * work.executed * timing.seconds
    return total


def whole_seconds(rows: Sequence[MeasuredKernel], *, model: ModelSpec, kernels: KernelLibrary) -> Array:
    """Predicted time of each row: so many equal layers, with embedding and LM head where it is a whole model [s].

    Valid for models of one kind of layer. Leaves out the host and what lies between two kernels of a graph.

    References
    ----------
    [Williams2009]
    """
    step = _step(rows)
    one = _seconds(model, layers=1, step=step, kernels=kernels)
    layer = _seconds(model, layers=2, step=step, kernels=kernels) - one
    depth = np.array([row.layers for row in rows])
    ends = np.where(np.array([row.family == MODEL for row in rows]), one - layer, 0.0)
    seconds: Array = depth * layer + ends
    return seconds


def whole_errors(rows: Sequence[MeasuredKernel], *, model: ModelSpec, kernels: KernelLibrary) -> tuple[WholeError, ...]:
    """Errors by family and phase, in the order of the file."""
    if not rows:
        return ()
    error = whole_seconds(rows, model=model, kernels=kernels) / np.array([row.seconds for row in rows]) - 1
    kinds = dict.fromkeys((row.family, row.kernel) for row in rows)
    found = []
    for family, phase in kinds:
        mine = error[[(row.family, row.kernel) == (family, phase) for row in rows]]
        found.append(
            WholeError(
                family=family,
                phase=phase,
                steps=len(mine),
                mean=float(np.abs(mine).mean()),
                bias=float(mine.mean()),
            )
        )
    return tuple(found)
