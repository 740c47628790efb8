"""The roofline: hand numbers and limits."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.kernels.roofline import RooflineParameters, floor_seconds, ridge_point, roofline_timing
from simulator.kernels.timing import Provenance
from simulator.operators.work import Collective, CollectiveShape, Family, GemmShape, MatmulFormat, Work
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.precision import Dtype

BF16 = MatmulFormat(name="bf16", weight_bits=16, activation_bits=16, math=Dtype.BF16)


def gemm(m: float, n: float, k: float) -> Work:
    tokens = np.array([m])
    return Work(
        name="linear",
        family=Family.GEMM,
        role="mlp",
        count=1,
        shape=GemmShape(m=tokens, n=n, k=k, format=BF16),
        flops=2 * tokens * n * k,
        weight_bytes=np.array([2 * n * k]),
        kv_bytes=np.zeros(1),
        activation_bytes=2 * tokens * (n + k),
    )


def test_linear_layer_has_the_published_bytes_and_intensity() -> None:
    # h x n layer, batch b, 16 bit: 2 (h n + b n + b h) bytes, 2 h n b FLOPs.
    work = gemm(8, 4096, 11008)
    assert work.bytes[0] == 2 * (4096 * 11008 + 8 * 4096 + 8 * 11008)
    assert work.arithmetic_intensity[0] == pytest.approx(2 * 4096 * 11008 * 8 / work.bytes[0])


def test_floor_switches_side_at_the_ridge() -> None:
    a100 = load_hardware("a100")
    ridge = ridge_point(a100, dtype=Dtype.BF16)
    small, large = gemm(32, 16384, 16384), gemm(4096, 16384, 16384)
    assert small.arithmetic_intensity[0] < ridge < large.arithmetic_intensity[0]
    assert floor_seconds(small, hardware=a100)[0] == pytest.approx(small.bytes[0] / 2.039e12, rel=1e-3)
    assert floor_seconds(large, hardware=a100)[0] == pytest.approx(large.flops[0] / 312e12, rel=1e-3)


def test_three_parameters_reduce_to_the_floor() -> None:
    h100 = load_hardware("h100")
    ideal = RooflineParameters(
        launch_s=0.0, compute_fraction=1.0, memory_fraction=1.0, log_sigma=0.1, provenance=Provenance.CALIBRATED
    )
    work = gemm(64, 4096, 4096)
    timing = roofline_timing(work, hardware=h100, parameters=ideal)
    assert timing.seconds[0] == floor_seconds(work, hardware=h100)[0]
    assert timing.seconds[0] == max(timing.compute_s[0], timing.memory_s[0])


def test_nothing_to_do_takes_no_time_and_collectives_are_not_passes() -> None:
    h100 = load_hardware("h100")
    idle = Work(
        name="idle",
        family=Family.GEMM,
        role="mlp",
        count=1,
        shape=GemmShape(m=np.zeros(1), n=1, k=1, format=BF16),
        flops=np.zeros(1),
        weight_bytes=np.zeros(1),
        kv_bytes=np.zeros(1),
        activation_bytes=np.zeros(1),
    )
    assert floor_seconds(idle, hardware=h100)[0] == 0
    reduce = Work(
        name="reduce",
        family=Family.COLLECTIVE,
        role="attention",
        count=1,
        shape=CollectiveShape(operation=Collective.ALL_REDUCE, message_bytes=np.ones(1), participants=2),
        flops=np.zeros(1),
        weight_bytes=np.zeros(1),
        kv_bytes=np.zeros(1),
        activation_bytes=np.ones(1),
    )
    with pytest.raises(TypeError, match="network"):
        floor_seconds(reduce, hardware=h100)
