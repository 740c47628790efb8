"""vLLM's Triton product of FP8 blocks, in the configurations that it ships."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from validation.measure.bench import Bench, Group, random_tensor
from validation.measure.engines import engine_is_installed
from validation.measure.engines.routing import BLOCK
from validation.measure.gemm import BLOCK_WIDTHS
from validation.measure.table import Shape
from validation.measure.timing import Call, Case

ROWS = (1, 16, 64, 256, 1024, 4096)


def _calls(bench: Bench, m: int, n: int, k: int, copies: int) -> Sequence[Call]:
    from vllm.model_executor.layers.quantization.utils.fp8_utils import w8a8_triton_block_scaled_mm

    calls = []
    for _ in range(copies):
        a, weight = (random_tensor(rows, k, bench=bench, dtype=torch.float8_e4m3fn) for rows in (m, n))
        of_inputs = torch.ones(m, k // BLOCK, device=bench.device)
        of_weights = torch.ones(n // BLOCK, k // BLOCK, device=bench.device)
        calls.append(
            partial(w8a8_triton_block_scaled_mm, a, weight, of_inputs, of_weights, [BLOCK, BLOCK], torch.bfloat16)
        )
    return calls


def engine_product_groups(bench: Bench) -> list[Group]:
    """Products of models that are published with scales a block; nothing without the engine or on a CPU."""
    if bench.device.type == "cpu" or not engine_is_installed():
        return []
    widths = sorted({pair for pairs in BLOCK_WIDTHS.values() for pair in pairs})
    cases = [
        Case(
            family="gemm",
            kernel="vllm_triton_block",
            format="fp8_block",
            shape=Shape(m=m, n=n, k=k),
            footprint_bytes=n * k + m * k + 2 * m * n,
            build=partial(_calls, bench, m, n, k),
        )
        for m in ROWS
        for n, k in widths
    ]
    return [Group(name="engine gemm fp8_block", cases=cases)]
