"""Matrix products (m, k) x (k, n) in every number format that the device and this torch have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch.nn import functional

from validation.measure.bench import Bench, Group, random_tensor
from validation.measure.design import Axis, Choice, shapes
from validation.measure.table import Shape
from validation.measure.timing import Call, Case

Builder = Callable[[Bench, int, int, int], Call]

GROUP_SIZE = 128
"""Weights that share a scale in the 4-bit format."""
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
MODEL_ROWS = (1, 8, 32, 128, 512, 2048, 8192)
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
    return partial(torch._scaled_mm, a, weight.t(), scale_a=scale, scale_b=scale, out_dtype=out.dtype, out=out)


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
    """The products of real models in bf16 and fp8: an independent score of what was fitted on other shapes."""
    if not bench.is_cuda:
        return []
    widths = sorted({pair for pairs in MODEL_WIDTHS.values() for pair in pairs})
    groups = []
    kinds: tuple[tuple[str, str, Builder, int], ...] = (
        ("linear", "bf16", partial(_dense, dtype=torch.bfloat16), 16),
        ("scaled_mm", "fp8", _fp8, 8),
    )
    for kernel, fmt, builder, bits in kinds:
        cases = [
            _case(bench, kernel=kernel, fmt=fmt, builder=builder, shape=(m, n, k), weight_bits=bits, bits=bits)
            for m in MODEL_ROWS
            for n, k in widths
        ]
        groups.append(Group(name=f"model gemm {fmt}", cases=cases, weight=1.0))
    return groups


def _grouped(bench: Bench, m: int, n: int, k: int, groups: int, copies: int) -> Sequence[Call]:
    """``groups`` experts share ``m`` rows evenly; weights lie as [groups, n, k], as engines keep them."""
    calls = []
    for _ in range(copies):
        a = random_tensor(m, k, bench=bench, dtype=torch.bfloat16)
        weight = random_tensor(groups, n, k, bench=bench, dtype=torch.bfloat16)
        ends = torch.arange(1, groups + 1, device=bench.device, dtype=torch.int32) * (m // groups)
        calls.append(partial(functional.grouped_mm, a, weight.transpose(-2, -1), offs=ends))
    return calls


def grouped_groups(bench: Bench) -> list[Group]:
    """Products of the experts of an MoE layer: rows an expert, n, k, experts."""
    if bench.is_cuda:
        rows_each, widths = Axis(low=1, high=1024), Axis(low=256, high=8192, step=128)
        experts = (4, 8, 16, 32, 64, 128)
    else:
        rows_each, widths = Axis(low=1, high=64), Axis(low=128, high=512, step=64)
        experts = (2, 4, 8)
    cases = []
    for rows, n, k, groups in shapes(bench.points, axes=(rows_each, widths, widths, Choice(values=experts))):
        m = rows * groups
        shape = Shape(m=m, n=n, k=k, groups=groups)
        cases.append(
            Case(
                family="grouped_gemm",
                kernel="grouped_mm",
                format="bf16",
                shape=shape,
                footprint_bytes=2 * (groups * n * k + m * k + m * n),
                build=partial(_grouped, bench, m, n, k, groups),
            )
        )
    return [Group(name="grouped gemm bf16", cases=cases, weight=1.0 if bench.is_cuda else 0.3)]
