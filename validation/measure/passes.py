"""Passes that move bytes: copy, add, norm, activation, rotary, softmax, embedding, sampling, and host-device copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch.nn import functional

from validation.measure.bench import Bench, Group, random_tensor
from validation.measure.design import Axis, shapes
from validation.measure.table import Shape
from validation.measure.timing import Call, Case

Pass = Callable[[Bench, int, int, torch.dtype], Call]

VOCABULARY = 128_256
"""Rows of the embedding and columns of the logits, those of Llama 3."""


def _copy(bench: Bench, rows: int, width: int, dtype: torch.dtype) -> Call:
    source = random_tensor(rows, width, bench=bench, dtype=dtype)
    return partial(torch.empty_like(source).copy_, source)


def _add(bench: Bench, rows: int, width: int, dtype: torch.dtype) -> Call:
    first, second = (random_tensor(rows, width, bench=bench, dtype=dtype) for _ in range(2))
    return partial(torch.add, first, second, out=torch.empty_like(first))


def _rms_norm(bench: Bench, rows: int, width: int, dtype: torch.dtype) -> Call:
    x, weight = random_tensor(rows, width, bench=bench, dtype=dtype), random_tensor(width, bench=bench, dtype=dtype)
    return partial(functional.rms_norm, x, (width,), weight, 1e-5)


def _silu_mul(bench: Bench, rows: int, width: int, dtype: torch.dtype) -> Call:
    gate, up = (random_tensor(rows, width, bench=bench, dtype=dtype) for _ in range(2))
    return lambda: functional.silu(gate) * up


def _rotary(bench: Bench, rows: int, width: int, dtype: torch.dtype) -> Call:
    x = random_tensor(rows, width, bench=bench, dtype=dtype)
    cosine, sine = (random_tensor(rows, width, bench=bench, dtype=dtype) for _ in range(2))

    def rotate() -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * cosine + torch.cat((-second, first), dim=-1) * sine

    return rotate


def _softmax(bench: Bench, rows: int, width: int, dtype: torch.dtype) -> Call:
    return partial(torch.softmax, random_tensor(rows, width, bench=bench, dtype=dtype), -1)


# Name, builder, tensors of [rows, width] read plus written by the operators as they stand (SiLU: read, write; product:
# read both, write. Rotary: negate 1, concatenate 2, two products 3 + 3, sum 3).
PASSES: tuple[tuple[str, Pass, float], ...] = (
    ("copy", _copy, 2.0),
    ("add", _add, 3.0),
    ("rms_norm", _rms_norm, 2.0),
    ("silu_mul", _silu_mul, 5.0),
    ("rotary", _rotary, 12.0),
    ("softmax", _softmax, 2.0),
)


def _calls(build: Pass, bench: Bench, rows: int, width: int, dtype: torch.dtype, copies: int) -> Sequence[Call]:
    return [build(bench, rows, width, dtype) for _ in range(copies)]


def _case(bench: Bench, *, name: str, rows: int, width: int) -> Case:
    build, passes = next((build, passes) for known, build, passes in PASSES if known == name)
    dtype, fmt = (torch.bfloat16, "bf16") if bench.is_cuda else (torch.float32, "fp32")
    return Case(
        family="elementwise",
        kernel=name,
        format=fmt,
        shape=Shape(m=rows, n=width, bytes=int(passes * rows * width * dtype.itemsize)),
        footprint_bytes=4 * rows * width * dtype.itemsize,
        build=partial(_calls, build, bench, rows, width, dtype),
    )


HOT_BYTES_AT_MOST = 16 * 1024**2
"""Operands that stay in the cache of any GPU made for models."""


def hot_groups(bench: Bench) -> list[Group]:
    """The same passes over operands that the cache still holds, as one kernel of a step leaves them to the next."""
    if not bench.is_cuda:
        return []
    cases = [
        replace(case, kernel=f"{name}_hot", build=partial(_one_copy, case.build))
        for name in ("copy", "add", "rms_norm")
        for rows in (16, 64, 256, 512)
        for width in (2048, 4096, 8192)
        if (case := _case(bench, name=name, rows=rows, width=width)).footprint_bytes <= HOT_BYTES_AT_MOST
    ]
    return [Group(name="hot passes", cases=cases, weight=0.3)]


def _one_copy(build: Callable[[int], Sequence[Call]], copies: int) -> Sequence[Call]:
    return build(1)


def copy_case(bench: Bench, rows: int, width: int) -> Case:
    """One copy of [rows, width] numbers."""
    return _case(bench, name="copy", rows=rows, width=width)


def pass_groups(bench: Bench) -> list[Group]:
    """A group for each pass, rows by width."""
    axes = (
        Axis(low=1, high=32768 if bench.is_cuda else 1024),
        Axis(low=512, high=16384 if bench.is_cuda else 4096, step=64),
    )
    found = shapes(bench.points, axes=axes)
    return [
        Group(name=name, cases=[_case(bench, name=name, rows=rows, width=width) for rows, width in found], weight=0.5)
        for name, _, _ in PASSES
    ]


def _embedding(bench: Bench, tokens: int, width: int, dtype: torch.dtype, copies: int) -> Sequence[Call]:
    table = random_tensor(VOCABULARY if bench.is_cuda else VOCABULARY // 64, width, bench=bench, dtype=dtype)
    ids = [torch.randint(0, table.shape[0], (tokens,), device=bench.device) for _ in range(copies)]
    return [partial(functional.embedding, each, table) for each in ids]


def _sampling(bench: Bench, sequences: int, dtype: torch.dtype, copies: int) -> Sequence[Call]:
    """Softmax in fp32 and one draw a sequence."""
    vocabulary = VOCABULARY if bench.is_cuda else VOCABULARY // 64
    logits = [random_tensor(sequences, vocabulary, bench=bench, dtype=dtype) for _ in range(copies)]
    return [partial(_draw, each) for each in logits]


def _draw(logits: torch.Tensor) -> torch.Tensor:
    return torch.multinomial(torch.softmax(logits.float(), dim=-1), num_samples=1)


def end_groups(bench: Bench) -> list[Group]:
    """The two ends of a model: embedding rows in, samples out."""
    dtype, fmt = (torch.bfloat16, "bf16") if bench.is_cuda else (torch.float32, "fp32")
    vocabulary = VOCABULARY if bench.is_cuda else VOCABULARY // 64
    gathers = [
        Case(
            family="embedding",
            kernel="embedding",
            format=fmt,
            shape=Shape(m=tokens, n=width, bytes=2 * tokens * width * dtype.itemsize),
            footprint_bytes=2 * tokens * width * dtype.itemsize,
            build=partial(_embedding, bench, tokens, width, dtype),
        )
        for tokens, width in shapes(
            bench.points,
            axes=(
                Axis(low=1, high=16384 if bench.is_cuda else 512),
                Axis(low=512, high=8192 if bench.is_cuda else 1024, step=128),
            ),
        )
    ]
    draws = [
        Case(
            family="sampling",
            kernel="softmax_multinomial",
            format=fmt,
            shape=Shape(m=sequences, n=vocabulary, bytes=sequences * vocabulary * dtype.itemsize),
            footprint_bytes=12 * sequences * vocabulary,
            build=partial(_sampling, bench, sequences, dtype),
        )
        for (sequences,) in shapes(40, axes=(Axis(low=1, high=256 if bench.is_cuda else 16),))
    ]
    return [Group(name="embedding", cases=gathers, weight=0.5), Group(name="sampling", cases=draws, weight=0.3)]


def _host_copy(bench: Bench, size: int, direction: str, copies: int) -> Sequence[Call]:
    pinned = not direction.endswith("pageable")
    host = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
    device = torch.empty(size, dtype=torch.uint8, device=bench.device)
    source, target = (device, host) if direction.startswith("d2h") else (host, device)
    return [partial(target.copy_, source, non_blocking=pinned)]


def host_link_groups(bench: Bench) -> list[Group]:
    """Copies between host and device; a CPU has none."""
    if not bench.is_cuda:
        return []
    groups = []
    for direction in ("h2d_pinned", "d2h_pinned", "h2d_pageable"):
        cases = [
            Case(
                family="host_link",
                kernel=direction,
                format="bytes",
                shape=Shape(bytes=size),
                footprint_bytes=size,
                build=partial(_host_copy, bench, size, direction),
                eager_only=True,
            )
            for (size,) in shapes(40, axes=(Axis(low=4096, high=1024**3, step=4096),))
        ]
        groups.append(Group(name=f"host link {direction}", cases=cases, weight=0.3))
    return groups
