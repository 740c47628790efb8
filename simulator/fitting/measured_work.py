"""From a measured row to the work it did; and whether a measured layer or model is the sum of its kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from simulator.kernels.library import KernelLibrary
from simulator.operators.attention import attended_pairs
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.transformer import operator_list
from simulator.operators.work import (
    Array,
    AttentionShape,
    ElementwiseShape,
    Family,
    GemmShape,
    MatmulFormat,
    StepShape,
    Work,
    mixed_step,
)
from simulator.records import dataclass
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.measured.kernel_times import MeasuredKernel
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.precision import BITS, Dtype, PrecisionSpec
from simulator.techniques.structure import with_routing_skew
from simulator.units import BITS_PER_BYTE

# 4-bit weights in groups of 128 with a 16-bit scale and a 16-bit zero point each, as the harness packs them.
_W4_BITS = 4 + 32 / 128


def _plain(dtype: Dtype) -> MatmulFormat:
    return MatmulFormat(name=dtype.value, weight_bits=BITS[dtype], activation_bits=BITS[dtype], math=dtype)


FORMATS: Mapping[str, MatmulFormat] = {
    **{dtype.value: _plain(dtype) for dtype in (Dtype.FP32, Dtype.TF32, Dtype.BF16, Dtype.FP16, Dtype.FP8, Dtype.INT8)},
    "w4a16": MatmulFormat(name="w4a16", weight_bits=_W4_BITS, activation_bits=16, math=Dtype.BF16),
}
"""Formats of measured products that the simulator prices; the product alone, without quantising its input."""

OUTPUT_BYTES: Mapping[str, float] = {"fp32": 4.0, "tf32": 4.0, "int8": 4.0}
"""Of an element of the product, where it is not 2: int8 products leave the harness as 32-bit integers."""

ATTENTION_KERNEL = "flash"
SINGLE_PASSES = ("copy", "add", "rms_norm", "softmax")
"""Measured passes that are one kernel each, as fused engines run them."""


def _one(value: float) -> Array:
    return np.array([value], dtype=np.float64)


def _gemm(row: MeasuredKernel) -> Work:
    fmt = FORMATS[row.format]
    out_bytes = OUTPUT_BYTES.get(row.format, 2.0)
    return Work(
        name=row.kernel,
        family=Family.GEMM,
        role="mlp",
        shape=GemmShape(m=_one(row.m), n=row.n, k=row.k, format=fmt),
        flops=_one(2 * row.m * row.n * row.k),
        weight_bytes=_one(row.n * row.k * fmt.weight_bits / BITS_PER_BYTE),
        kv_bytes=_one(0.0),
        activation_bytes=_one(row.m * (row.k * fmt.activation_bits / BITS_PER_BYTE + row.n * out_bytes)),
    )


def _attention(row: MeasuredKernel) -> Work:
    dtype = Dtype(row.format)
    element_bytes = BITS[dtype] / BITS_PER_BYTE
    is_decode = row.family == "decode_attention"
    queries, context = _one(row.query_tokens), _one(row.context_tokens)
    pairs = attended_pairs(queries=queries, context=context, window=None, causal=True)
    keys_and_values = 2 * row.sequences * (context + queries) * row.num_kv_heads * row.head_dim
    return Work(
        name=row.kernel,
        family=Family.DECODE_ATTENTION if is_decode else Family.PREFILL_ATTENTION,
        role="attention",
        shape=AttentionShape(
            sequences=_one(row.sequences),
            query_tokens=queries,
            context_tokens=context,
            num_heads=row.num_heads,
            num_kv_heads=row.num_kv_heads,
            head_dim=row.head_dim,
            v_head_dim=row.head_dim,
            shared_kv=False,
            is_decode=is_decode,
            compute_dtype=dtype,
            kv_dtype=dtype,
        ),
        flops=4 * row.sequences * pairs * row.num_heads * row.head_dim,
        weight_bytes=_one(0.0),
        kv_bytes=keys_and_values * element_bytes,
        activation_bytes=2 * row.sequences * queries * row.num_heads * row.head_dim * element_bytes,
    )


def _pass(row: MeasuredKernel) -> Work:
    return Work(
        name=row.kernel,
        family=Family.ELEMENTWISE,
        role="mlp",
        shape=ElementwiseShape(bytes=_one(row.bytes)),
        flops=_one(0.0),
        weight_bytes=_one(0.0),
        kv_bytes=_one(0.0),
        activation_bytes=_one(row.bytes),
    )


def measured_work(row: MeasuredKernel) -> Work | None:
    """The work of a measured kernel, or None where the simulator has no row of that kind to price.

    Products in a known format, flash attention and single passes are priced; plain attention, sparse and grouped
    products, whole models, launches and host copies are measured for other checks.
    """
    match row.family:
        case "gemm" if row.format in FORMATS:
            return _gemm(row)
        case "prefill_attention" | "decode_attention" if row.kernel == ATTENTION_KERNEL and row.format in set(Dtype):
            return _attention(row)
        case "elementwise" if row.kernel in SINGLE_PASSES:
            return _pass(row)
        case _:
            return None


MEASURED_MODEL = "llama-3.1-8b"
"""Whose shape a whole layer or model has where its row names none."""
LAYER, MODEL = "whole_layer", "whole_model"
WEIGHTS: Mapping[str, Dtype] = {"bf16": Dtype.BF16, "fp8": Dtype.FP8}
DEVICE_TIME = "graph"
"""Mode of rows that hold the device's time alone: a replayed graph leaves the host out."""
COMPILED = "_compiled"
"""End of the kernel's name where passes were fused by a compiler, as engines fuse them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeError:
    """Errors of the steps of one kind, as fractions; ``bias`` is the mean signed error."""

    family: str
    model: str
    format: str
    phase: str
    steps: int
    mean: float
    bias: float


def model_of(row: MeasuredKernel) -> str:
    """Profile name of the model that a whole layer or model has the shape of."""
    return row.model or MEASURED_MODEL


def whole_rows(rows: Sequence[MeasuredKernel]) -> tuple[MeasuredKernel, ...]:
    """The rows of layers and models whose kernels alone were timed."""
    return tuple(
        row for row in rows if row.family in (LAYER, MODEL) and row.mode == DEVICE_TIME and row.format in WEIGHTS
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


def _seconds(
    model: ModelSpec, *, layers: int, weights: Dtype, fused: bool, step: StepShape, kernels: KernelLibrary
) -> Array:
    """Sum of the rows of a model cut down to ``layers`` [s]; elementwise operators are one kernel each unless fused."""
    cut = model.model_copy(update={"layer_order": model.layer_order[:1] * layers})
    works = operator_list(
        cut,
        parallelism=ParallelismSpec(),
        plan=precision_plan(cut, PrecisionSpec(weights=weights, kv_cache=Dtype.BF16)),
        step=step,
        fused=fused,
    )
    total = np.zeros(len(step.new_tokens))
    for work, timing in zip(works, kernels.price_all(works), strict=True):
        total = total + work.count * work.executed * timing.seconds
    return total


def whole_seconds(
    rows: Sequence[MeasuredKernel], *, model: ModelSpec, kernels: KernelLibrary, fused: bool = False
) -> Array:
    """Predicted time of each row of one model and format: so many equal layers, with embedding and LM head where it is
    a whole model [s].

    Valid for models of one kind of layer. Leaves out the host and what lies between two kernels of a graph. The harness
    draws each token's experts by themselves, with a noise of four times what its random router tells: they are priced
    as evenly chosen, not as a trained model's.

    Reference: [Williams2009]
    """
    step, weights = _step(rows), WEIGHTS[rows[0].format]
    model = with_routing_skew(model, 0.0)
    one, two = (
        _seconds(model, layers=layers, weights=weights, fused=fused, step=step, kernels=kernels) for layers in (1, 2)
    )
    depth = np.array([row.layers for row in rows])
    ends = np.where(np.array([row.family == MODEL for row in rows]), 2 * one - two, 0.0)
    return depth * (two - one) + ends


def whole_errors(
    rows: Sequence[MeasuredKernel], *, models: Callable[[str], ModelSpec], kernels: KernelLibrary
) -> tuple[WholeError, ...]:
    """Errors by family, model, format and phase, in the order of the file. models : the spec of a profile's name"""
    kinds: dict[tuple[str, str, str, str], list[MeasuredKernel]] = {}
    for row in rows:
        kinds.setdefault((row.family, model_of(row), row.format, row.kernel), []).append(row)
    found = []
    for (family, name, fmt, phase), mine in kinds.items():
        seconds = whole_seconds(mine, model=models(name), kernels=kernels, fused=phase.endswith(COMPILED))
        error = seconds / np.array([row.seconds for row in mine]) - 1
        found.append(
            WholeError(
                family=family,
                model=name,
                format=fmt,
                phase=phase.removesuffix(COMPILED) + (", fused" if phase.endswith(COMPILED) else ""),
                steps=len(mine),
                mean=float(np.abs(error).mean()),
                bias=float(error.mean()),
            )
        )
    return tuple(found)
