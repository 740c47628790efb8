"""Engines' own Triton kernels on real GPUs beside what prices them: ``python -m validation.end_to_end.engine_kernels``.

Kernels of vLLM 0.15.1 and SGLang 0.5.6 as their code launches them. Experts are the kernel that the fits are of, which
hold sorting, activation and sum too, where rows hold the two products alone. On Hopper both engines decode with
FlashAttention-3 and FlashMLA and multiply blocks with DeepGEMM, which those fits are of: there the lines say what the
Triton kernel takes longer, and nothing of the fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from simulator.kernels.library import KernelLibrary, kernel_library
from simulator.operators.work import AttentionShape, Family, GemmShape, MoeShape, Work
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.measured.kernel_times import MeasuredKernel, load_measurements
from simulator.specs.model.precision import Dtype
from simulator.units import BITS_PER_BYTE, MICRO
from validation.end_to_end.visits import LIBRARY, VISITS, Visit
from validation.measure.engines.routing import DRAWS, LAYERS, SKEWS, Experts, drawn_experts
from validation.silicon.formats import EXPERT_FORMATS, GEMM_FORMATS

FORMAT = {"bf16": "bfloat16", "fp8_block": "fp8_block"}
"""The rows' names of formats -> those of the tables."""
LATENT_DIM = 512
"""Values of a latent key."""
EXPANDED = {192: 128}
"""Width of values where it is not that of the keys."""


def _one(value: float) -> np.ndarray:
    return np.array([value], dtype=float)


def _work(*, family: Family, shape: AttentionShape | GemmShape | MoeShape) -> Work:
    """A row of that shape; kernels' own models price the shape and read no totals, which only tell that it runs."""
    zero, some = _one(0.0), _one(1.0)
    return Work(
        name=family.value, family=family, role="mlp", shape=shape, count=1.0, flops=some, weight_bytes=zero,
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
    return _work(family=Family.DECODE_ATTENTION if is_decode else Family.PREFILL_ATTENTION, shape=shape)


def product_work(row: MeasuredKernel) -> Work:
    """A product of FP8 blocks."""
    shape = GemmShape(m=_one(row.m), n=row.n, k=row.k, format=GEMM_FORMATS[FORMAT[row.format]])
    return _work(family=Family.GEMM, shape=shape)


def experts_work(layer: Experts, *, tokens: int, skew: float) -> Work:
    """Both products of a layer with what surrounds them, at the mean of the experts that the measured draws reach."""
    draws = [drawn_experts(layer, tokens=tokens, skew=skew, draw=draw) for draw in range(DRAWS)]
    shape = MoeShape(
        tokens=_one(tokens),
        hidden_size=layer.hidden_size,
        intermediate_size=layer.intermediate_size,
        num_experts=layer.num_experts,
        num_experts_per_tok=layer.num_experts_per_tok,
        local_experts=layer.num_experts,
        gated=True,
        distinct_experts=_one(float(np.mean([len(np.unique(chosen)) for chosen in draws]))),
        local_assignments=_one(tokens * layer.num_experts_per_tok),
        format=EXPERT_FORMATS[FORMAT[layer.format]],
    )
    return _work(family=Family.MOE, shape=shape)


def experts_seconds(rows: Sequence[MeasuredKernel], layer: Experts) -> dict[tuple[int, float], float]:
    """(tokens, skew) -> time of the layer's two products [s]."""
    found: dict[tuple[int, float], float] = {}
    for row in rows:
        if (row.family, row.model, row.format) == ("experts", layer.model, layer.format):
            case = int(row.sequences), float(row.kernel.rpartition("skew")[2])
            found[case] = found.get(case, 0.0) + row.seconds
    return found


def bandwidth_share(work: Work, *, seconds: float, hardware: str) -> float:
    """Weights of the experts that are reached, once, over the time and the datasheet's bandwidth [-]."""
    shape = work.shape
    assert isinstance(shape, MoeShape)
    weights = 3 * shape.hidden_size * shape.intermediate_size * shape.format.weight_bits / BITS_PER_BYTE
    peak = load_hardware(hardware).memory_bytes_per_s
    return float(shape.distinct_experts[0] * weights / (seconds * peak))


def _expert_lines(visit: Visit, rows: Sequence[MeasuredKernel], kernels: KernelLibrary) -> list[str]:
    lines = []
    for layer in LAYERS:
        measured = experts_seconds(rows, layer)
        for tokens in sorted({tokens for tokens, _ in measured}):
            works = [experts_work(layer, tokens=tokens, skew=skew) for skew in SKEWS]
            priced = [float(kernels.price(work).seconds[0]) for work in works]
            taken = [measured[tokens, skew] for skew in SKEWS]
            share = bandwidth_share(works[0], seconds=taken[0], hardware=visit.hardware)
            over_even = [
                f"{real / taken[0]:.2f} | {guess / priced[0]:.2f}"
                for real, guess in zip(taken[1:], priced[1:], strict=True)
            ]
            lines.append(
                f"| {layer.model} {layer.format} | {tokens} | {taken[0] / MICRO:.0f} | {share:.2f} | "
                f"{priced[0] / MICRO:.0f} | {' | '.join(over_even)} |"
            )
    return lines


def experts_table(visit: Visit, *, rows: Sequence[MeasuredKernel]) -> str:
    """Markdown: experts evenly routed, measured and priced, and what skew makes of either."""
    skews = " | ".join(f"skew {skew:g} over even | priced" for skew in SKEWS[1:])
    heading = [
        f"| experts on one {visit.name} | tokens | products, us | of the bandwidth | priced with passes | {skews} |",
        f"|---|{'--:|' * 8}",
    ]
    kernels = kernel_library(load_hardware(visit.hardware), library=LIBRARY)
    return "\n".join([*heading, *_expert_lines(visit, rows, kernels)])


def _kind(row: MeasuredKernel) -> str:
    if row.family == "gemm":
        return f"products {row.format}"
    return f"{row.family.replace('_', ' ')} {row.num_heads:.0f}/{row.num_kv_heads:.0f}x{row.head_dim:.0f} {row.format}"


def others_table(visit: Visit, *, rows: Sequence[MeasuredKernel]) -> str:
    """Markdown: the other kernels' times over those of the kernels that the engine runs on this accelerator."""
    kernels = kernel_library(load_hardware(visit.hardware), library=LIBRARY)
    mine = [row for row in rows if row.kernel.startswith(("vllm_triton", "sglang_triton"))]
    lines = [
        f"| Triton kernels on one {visit.name} | points | over what is priced, median | least | most |",
        "|---|--:|--:|--:|--:|",
    ]
    for kind, members in groupby(sorted(mine, key=_kind), key=_kind):
        group = list(members)
        works = [product_work(row) if row.family == "gemm" else attention_work(row) for row in group]
        priced = np.array([float(kernels.price(work).seconds[0]) for work in works])
        over = np.array([row.seconds for row in group]) / priced
        lines.append(f"| {kind} | {len(group)} | {np.median(over):.1f} | {over.min():.1f} | {over.max():.1f} |")
    return "\n".join(lines)


def engine_kernel_tables() -> str:
    """Both tables of every visit."""
    found = []
    for visit in VISITS:
        rows = load_measurements(visit.folder / "engines.csv").rows
        found += [experts_table(visit, rows=rows), others_table(visit, rows=rows)]
    return "\n\n".join(found)


if __name__ == "__main__":
    print(engine_kernel_tables())
