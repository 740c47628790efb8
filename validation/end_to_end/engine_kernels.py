"""Engines' own Triton kernels on a real GPU against what prices them: ``python -m validation.end_to_end.engine_kernels``.

Kernels of vLLM 0.15.1 and SGLang 0.5.6 as their code launches them. On Hopper vLLM decodes with FlashAttention-3 and
FlashMLA and multiplies blocks with DeepGEMM, which the fits are of: those lines say what the Triton kernel costs beside.
Experts are the same kernel; the fit holds their sorting, activation and sum too, the rows the two products alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from simulator.kernels.library import KernelLibrary, kernel_library
from simulator.operators.attention import attended_pairs
from simulator.operators.work import AttentionShape, Family, GemmShape, MoeShape, StepShape, Work
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.measured.kernel_times import MeasuredKernel, load_measurements
from simulator.specs.model.precision import Dtype
from validation.end_to_end.visits import H100, Visit
from validation.measure.engines.routing import DRAWS, LAYERS, Experts, drawn_experts
from validation.silicon.formats import EXPERT_FORMATS, GEMM_FORMATS

LATENT_DIM = 512
"""Values of a latent key."""
EXPANDED = {192: 128}
"""Width of values where it is not that of the keys."""
EXPERT_FORMAT = {"bf16": "bfloat16", "fp8_block": "fp8_block"}


def _one(value: float) -> np.ndarray:
    return np.array([value], dtype=float)


def _work(row: MeasuredKernel, *, family: Family, shape: AttentionShape | GemmShape | MoeShape) -> Work:
    """A row of that shape; kernels' own models price the shape and read no totals, which only tell that it runs."""
    zero, some = _one(0.0), _one(1.0)
    return Work(
        name=row.kernel, family=family, role="mlp", shape=shape, count=1.0, flops=some, weight_bytes=zero,
        kv_bytes=zero, activation_bytes=some,
    )  # fmt: skip


def attention_work(row: MeasuredKernel) -> Work:
    """Paged or latent decode, or new tokens of one sequence behind a cached prefix."""
    is_latent = row.head_dim > LATENT_DIM
    is_decode = row.query_tokens == 1
    kv_dtype = Dtype.FP8 if row.format.endswith("kv_fp8") else Dtype.BF16
    shape = AttentionShape(
        sequences=_one(row.sequences),
        query_tokens=_one(row.query_tokens),
        context_tokens=_one(row.context_tokens - is_decode),
        num_heads=row.num_heads,
        num_kv_heads=row.num_kv_heads,
        head_dim=row.head_dim,
        v_head_dim=LATENT_DIM if is_latent else EXPANDED.get(int(row.head_dim), row.head_dim),
        window=None,
        causal=True,
        shared_kv=is_latent,
        is_decode=is_decode,
        compute_dtype=Dtype.BF16,
        kv_dtype=kv_dtype,
    )
    return _work(row, family=Family.DECODE_ATTENTION if is_decode else Family.PREFILL_ATTENTION, shape=shape)


def product_work(row: MeasuredKernel) -> Work:
    """A product of FP8 blocks."""
    shape = GemmShape(m=_one(row.m), n=row.n, k=row.k, format=GEMM_FORMATS[row.format])
    return _work(row, family=Family.GEMM, shape=shape)
