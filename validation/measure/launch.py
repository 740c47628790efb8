"""What a launch costs: the host's time to issue it, the device's time between kernels, and both inside a CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from validation.measure.bench import Bench, Group
from validation.measure.table import Shape
from validation.measure.timing import Call, Case

KERNELS = (1, 10, 100, 1000)
"""Kernels in one call: their time is linear, with what the call costs as intercept."""


def _tiny(bench: Bench, kernels: int, copies: int) -> Sequence[Call]:
    """Kernels that do next to nothing, one after another on the same number."""
    number = torch.zeros(1, device=bench.device)

    def issue() -> None:
        for _ in range(kernels):
            number.add_(1.0)

    return [issue]


def _replay(bench: Bench, kernels: int, copies: int) -> Sequence[Call]:
    """The same kernels captured once: what the host pays to replay the graph."""
    number = torch.zeros(1, device=bench.device)
    number.add_(1.0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(kernels):
            number.add_(1.0)
    return [graph.replay]


def _case(bench: Bench, *, kernel: str, kernels: int, host: bool, eager: bool) -> Case:
    return Case(
        family="launch",
        kernel=kernel,
        format="fp32",
        shape=Shape(groups=kernels),
        footprint_bytes=4,
        build=partial(_replay if kernel == "graph_replay_host" else _tiny, bench, kernels),
        host=host,
        eager_only=eager,
        executions_per_call=kernels,
    )


def launch_groups(bench: Bench) -> list[Group]:
    """Seconds for each kernel of a call, ``groups`` kernels long."""
    kinds = [("eager_host", True, True)]
    if bench.is_cuda:
        kinds += [("eager_device", False, True), ("graph_device", False, False), ("graph_replay_host", True, True)]
    cases = [
        _case(bench, kernel=kernel, kernels=kernels, host=host, eager=eager)
        for kernel, host, eager in kinds
        for kernels in KERNELS
    ]
    return [Group(name="launch", cases=cases, weight=0.3)]
