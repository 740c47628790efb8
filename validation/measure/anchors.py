"""Ten shapes that are measured again and again, and a few that run for long: how steady is this machine?

Noise lies between visits, not inside a burst: clocks, temperature and neighbours change over minutes. And a burst of
50 ms runs at a clock that no server keeps up.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from validation.measure.attention import attention_case
from validation.measure.bench import Bench, Group
from validation.measure.gemm import bf16_case
from validation.measure.passes import copy_case
from validation.measure.table import Shape
from validation.measure.timing import Case

VISITS = 3
SUSTAINED_S = 10.0
PREHEAT_S = 3.0
PREHEAT_WIDTH = 8192


def anchor_cases(bench: Bench) -> list[Case]:
    """Products, attention and copies, from bound by launches to bound by either peak."""
    products = [(16, 4096, 4096), (64, 28672, 4096), (512, 6144, 4096), (2048, 4096, 14336), (8192, 8192, 8192)]
    prompts = Shape(sequences=1, query_tokens=4096, num_heads=32, num_kv_heads=8, head_dim=128)
    decodes = [
        Shape(sequences=count, query_tokens=1, context_tokens=context, num_heads=32, num_kv_heads=8, head_dim=128)
        for count, context in ((8, 2048), (64, 2048))
    ]
    return [
        *(bf16_case(bench, shape) for shape in products),
        *(attention_case(bench, shape) for shape in (prompts, *decodes)),
        *(copy_case(bench, rows, 8192) for rows in (256, 16384)),
    ]


def anchor_groups(bench: Bench) -> list[Group]:
    """The same cases once for every visit; a CPU is spared."""
    if not bench.is_cuda:
        return []
    return [Group(name=f"anchors {visit}", cases=anchor_cases(bench), weight=0.2) for visit in range(1, VISITS + 1)]


def sustained_groups(bench: Bench) -> list[Group]:
    """The largest product, decode step and copy for ten seconds each: sustained clocks, power, throttling."""
    if not bench.is_cuda:
        return []
    largest = [anchor_cases(bench)[place] for place in (4, 7, 9)]
    cases = [replace(case, wanted_s=SUSTAINED_S, kernel=f"{case.kernel}_sustained") for case in largest]
    return [Group(name="sustained", cases=cases, weight=2.0)]


def preheat(bench: Bench) -> None:
    """Large products until clocks and temperature have settled; a CPU is spared."""
    if not bench.is_cuda:
        return
    a = torch.randn(PREHEAT_WIDTH, PREHEAT_WIDTH, device=bench.device, dtype=torch.bfloat16)
    out = torch.empty_like(a)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    once = partial(torch.mm, a, a, out=out)
    once()
    begin.record()
    passed_s = 0.0
    while passed_s < PREHEAT_S:
        for _ in range(50):
            once()
        end.record()
        end.synchronize()
        passed_s = begin.elapsed_time(end) / 1000.0
