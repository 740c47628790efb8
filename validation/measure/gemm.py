"""Matrix products (m, k) x (k, n) in every number format that the device and this torch have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch.nn import functional

from validation.measure.bench import Bench, Group, random_tensor
from validation.measure.design import Axis, Choice, shapes
from validation.measure.table import Shape
from validation.measure.timing import Call, Case

Builder = Callable[[Bench, int, int, int], Call]
Widths = tuple[tuple[int, int], ...]

GROUP_SIZE = 128
"""Weights that share a scale in the 4-bit format, and inputs and weights a side in FP8 blocks."""
INNER_K_TILES = 8
INT4_ROWS_AT_MOST = 256
"""Its kernel is made for decoding; thousands of rows take tens of seconds."""
MODEL_WIDTHS = {
    "llama-3.1-8b": ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096)),
    "llama-3.1-70b": ((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672), (128256, 8192)),
    "qwen3-32b": ((10240, 5120), (5120, 8192), (51200, 5120), (5120, 25600), (151936, 5120)),
    "mistral-7b": ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (32000, 4096)),
}
"""(n, k) of the products of a layer (qkv, output, gate and up, down) and of the output head."""
BLOCK_WIDTHS = {
    "deepseek-v3": ((24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048), (36864, 7168)),
    "qwen3-32b": ((10240, 5120), (5120, 8192), (51200, 5120), (5120, 25600)),
}
"""Of models that are published with scales a block; every k is a multiple of 512, so that no scale is padding."""
MODEL_ROWS = (1, 8, 32, 128, 512, 2048, 8192)
BLOCK_ROWS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
"""The library's kernel wants rows in multiples of four; twice as many steps, to see where its tiles end."""
INT8_ROWS = 32
"""``torch._int_mm`` wants more than 16 rows on a GPU, the sparse kernels multiples of 32."""


def _dense(bench: Bench, m: int, n: int, k: int, *, dtype: torch.dtype, precision: str = "highest") -> Call:
    # Read when a product is launched or captured, and cases are built and measured one after another.
    torch.set_float32_matmul_precision(precision)
    a, weight = (random_tensor(rows, k, bench=bench, dtype=dtype) for rows in (m, n))
    # An output of its own for each copy: one that the allocator hands out again would stay in the cache.
    return partial(torch.mm, a, weight.t(), out=torch.empty(m, n, device=bench.device, dtype=dtype))


def _int8(bench: Bench, m: int, n: int, k: int) -> Call:
    a, weight = (random_tensor(rows, k, bench=bench, dtype=torch.int8) for rows in (m, n))
    return partial(torch._int_mm, a, weight.t(), out=torch.empty(m, n, device=bench.device, dtype=torch.int32))


def _fp8(bench: Bench, m: int, n: int, k: int) -> Call:
    a, weight = (random_tensor(rows, k, bench=bench, dtype=torch.float8_e4m3fn) for rows in (m, n))
    scale = torch.ones((), device=bench.device)
    out = torch.empty(m, n, device=bench.device, dtype=torch.bfloat16)
    # Engines let the tensor cores keep their sums in fewer bits; without it Hopper adds each 128 terms elsewhere.
    return partial(
        torch._scaled_mm, a, weight.t(), scale_a=scale, scale_b=scale, out_dtype=out.dtype, out=out, use_fast_accum=True
    )


def _fp8_block(bench: Bench, m: int, n: int, k: int) -> Call:
    """A scale for each 128 numbers of an input row and each 128 x 128 weights, as DeepSeek publishes them."""
    a, weight = (random_tensor(rows, k, bench=bench, dtype=torch.float8_e4m3fn) for rows in (m, n))
    blocks = k // GROUP_SIZE
    # The library wants the scales of the inputs column by column, those of the weights row by row.
    of_inputs = torch.ones(blocks, m, device=bench.device).t()
    of_weights = torch.ones(n // GROUP_SIZE, blocks, device=bench.device).t()
    out = torch.empty(m, n, device=bench.device, dtype=torch.bfloat16)
    return partial(torch._scaled_mm, a, weight.t(), scale_a=of_inputs, scale_b=of_weights, out_dtype=out.dtype, out=out)


def _sparse(bench: Bench, m: int, n: int, k: int, *, dtype: torch.dtype) -> Call:
    """2:4 weights: the first two of every four are zero, which prunes any shape without a search."""
    from torch.sparse import to_sparse_semi_structured

    weight = random_tensor(n, k // 4, 4, bench=bench, dtype=dtype)
    weight[:, :, :2] = 0
    a = random_tensor(m, k, bench=bench, dtype=dtype)
    return partial(torch.mm, to_sparse_semi_structured(weight.reshape(n, k)), a.t())


def _int4(bench: Bench, m: int, n: int, k: int) -> Call:
    """4-bit weights with a scale and zero point for each group, 16-bit activations."""
    a = random_tensor(m, k, bench=bench, dtype=torch.bfloat16)
    scales = random_tensor(k // GROUP_SIZE, n, 2, bench=bench, dtype=torch.bfloat16)
    if bench.is_cuda:
        # Two numbers to a byte since torch 2.5.
        bytes_ = torch.randint(0, 256, (n, k // 2), device=bench.device, dtype=torch.uint8)
        packed = torch._convert_weight_to_int4pack(bytes_, INNER_K_TILES)
        return partial(torch._weight_int4pack_mm, a, packed, GROUP_SIZE, scales)
    numbers = torch.randint(0, 16, (n, k), dtype=torch.int32)
    packed = torch._convert_weight_to_int4pack_for_cpu(numbers, 1)
    return partial(torch._weight_int4pack_mm_for_cpu, a, packed, GROUP_SIZE, scales)


def _calls(builder: Builder, bench: Bench, m: int, n: int, k: int, copies: int) -> Sequence[Call]:
    return [builder(bench, m, n, k) for _ in range(copies)]


def _case(
    bench: Bench, *, kernel: str, fmt: str, builder: Builder, shape: tuple[int, int, int], weight_bits: int, bits: int
) -> Case:
    m, n, k = shape
    return Case(
        family="gemm",
        kernel=kernel,
        format=fmt,
        shape=Shape(m=m, n=n, k=k),
        footprint_bytes=(n * k * weight_bits + m * k * bits) // 8 + 4 * m * n,
        build=partial(_calls, builder, bench, m, n, k),
    )


def bf16_case(bench: Bench, shape: tuple[int, int, int]) -> Case:
    """One product (m, n, k) of 16-bit numbers."""
    builder = partial(_dense, dtype=torch.bfloat16)
    return _case(bench, kernel="linear", fmt="bf16", builder=builder, shape=shape, weight_bits=16, bits=16)


def _axes(bench: Bench, *, lowest_m: int = 1, highest_m: int = 16384) -> tuple[Axis, ...]:
    step = lowest_m if lowest_m > 1 else 1
    if bench.is_cuda:
        return Axis(low=lowest_m, high=highest_m, step=step), *(Axis(low=256, high=28672, step=128) for _ in range(2))
    return Axis(low=lowest_m, high=128, step=step), *(Axis(low=128, high=1024, step=128) for _ in range(2))


def dense_groups(bench: Bench) -> list[Group]:
    """fp32, tf32, bf16, fp16, int8, fp8, 2:4 sparse and 4-bit weights, a group each."""
    dense: list[tuple[str, str, Builder, int, int, int]] = [
        ("linear", "bf16", partial(_dense, dtype=torch.bfloat16), 16, 16, 1),
        ("linear", "fp16", partial(_dense, dtype=torch.float16), 16, 16, 1),
        ("linear", "fp32", partial(_dense, dtype=torch.float32), 32, 32, 1),
        ("int_mm", "int8", _int8, 8, 8, INT8_ROWS),
        ("scaled_mm", "fp8", _fp8, 8, 8, 1),
        ("int4pack_mm", "w4a16", _int4, 4, 16, 1),
    ]
    if bench.is_cuda:
        dense += [
            ("linear", "tf32", partial(_dense, dtype=torch.float32, precision="high"), 32, 32, 1),
            ("sparse_2_4", "bf16_2_4", partial(_sparse, dtype=torch.bfloat16), 16, 16, INT8_ROWS),
            ("sparse_2_4", "fp16_2_4", partial(_sparse, dtype=torch.float16), 16, 16, INT8_ROWS),
            ("sparse_2_4", "int8_2_4", partial(_sparse, dtype=torch.int8), 8, 8, INT8_ROWS),
        ]
    else:
        # An emulation on most CPUs, far from what the format is for.
        dense = [entry for entry in dense if entry[1] in ("fp32", "bf16", "int8", "w4a16")]
    groups = []
    for kernel, fmt, builder, weight_bits, bits, lowest_m in dense:
        highest_m = INT4_ROWS_AT_MOST if fmt == "w4a16" else 16384
        found = shapes(bench.points, axes=_axes(bench, lowest_m=lowest_m, highest_m=highest_m))
        cases = [
            _case(bench, kernel=kernel, fmt=fmt, builder=builder, shape=(m, n, k), weight_bits=weight_bits, bits=bits)
            for m, n, k in found
        ]
        groups.append(Group(name=f"gemm {fmt}", cases=cases, weight=2.0 if fmt in ("bf16", "fp32") else 0.7))
    return groups


def model_groups(bench: Bench) -> list[Group]:
    """The products of real models in bf16, fp8 and fp8 blocks: a score of what was fitted on other shapes."""
    if not bench.is_cuda:
        return []
    groups = []
    kinds: tuple[tuple[str, str, Builder, int, Mapping[str, Widths], Sequence[int]], ...] = (
        ("linear", "bf16", partial(_dense, dtype=torch.bfloat16), 16, MODEL_WIDTHS, MODEL_ROWS),
        ("scaled_mm", "fp8", _fp8, 8, MODEL_WIDTHS, MODEL_ROWS),
        ("scaled_mm", "fp8_block", _fp8_block, 8, BLOCK_WIDTHS, BLOCK_ROWS),
    )
    for kernel, fmt, builder, bits, models, rows in kinds:
        widths = sorted({pair for pairs in models.values() for pair in pairs})
        cases = [
            _case(bench, kernel=kernel, fmt=fmt, builder=builder, shape=(m, n, k), weight_bits=bits, bits=bits)
            for m in rows
            for n, k in widths
        ]
        groups.append(Group(name=f"model gemm {fmt}", cases=cases, weight=1.0))
    return groups


def rows_of_experts(m: int, groups: int, *, skewed: bool) -> tuple[int, ...]:
    """Rows of each expert, ``m`` in all: evenly, or falling as 1 / rank, as routers that were not balanced choose."""
    shares = 1.0 / np.arange(1, groups + 1) if skewed else np.ones(groups)
    ends = np.rint(m * np.cumsum(shares) / shares.sum()).astype(int)
    return tuple(int(rows) for rows in np.diff(ends, prepend=0))


def _grouped(bench: Bench, m: int, n: int, k: int, groups: int, skewed: bool, copies: int) -> Sequence[Call]:
    """``groups`` experts share ``m`` rows; weights lie as [groups, n, k], as engines keep them."""
    rows = rows_of_experts(m, groups, skewed=skewed)
    calls = []
    for _ in range(copies):
        a = random_tensor(m, k, bench=bench, dtype=torch.bfloat16)
        weight = random_tensor(groups, n, k, bench=bench, dtype=torch.bfloat16)
        ends = torch.tensor(rows, device=bench.device).cumsum(0).to(torch.int32)
        calls.append(partial(functional.grouped_mm, a, weight.transpose(-2, -1), offs=ends))
    return calls


def grouped_groups(bench: Bench) -> list[Group]:
    """Products of the experts of an MoE layer: rows an expert, n, k, experts; the same with rows that are not even."""
    if bench.is_cuda:
        rows_each, widths = Axis(low=1, high=1024), Axis(low=256, high=8192, step=128)
        experts = (4, 8, 16, 32, 64, 128)
    else:
        rows_each, widths = Axis(low=1, high=64), Axis(low=128, high=512, step=64)
        experts = (2, 4, 8)
    found = shapes(bench.points, axes=(rows_each, widths, widths, Choice(values=experts)))
    return [
        Group(
            name=f"grouped gemm bf16{' skewed' if skewed else ''}",
            cases=[
                Case(
                    family="grouped_gemm",
                    kernel="grouped_mm_skewed" if skewed else "grouped_mm",
                    format="bf16",
                    shape=Shape(m=rows * groups, n=n, k=k, groups=groups),
                    footprint_bytes=2 * groups * (n * k + rows * (k + n)),
                    build=partial(_grouped, bench, rows * groups, n, k, groups, skewed),
                )
                for rows, n, k, groups in found
            ],
            weight=1.0 if bench.is_cuda else 0.3,
        )
        for skewed in (False, True)
    ]
