"""What a step waits for: limits of the datasheet where they explain it, else what keeps it from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulator.api.steps import step
from simulator.errors import RoofcastError
from simulator.kernels.roofline import BOUNDS, bound_indices
from simulator.kernels.timing import Timing
from simulator.operators.work import Family, GemmShape, MatmulFormat, Work
from simulator.specs.hardware.accelerator import list_hardware, load_hardware
from simulator.specs.model.precision import Dtype
from tests.for_every import for_every

A100 = load_hardware("a100-sxm-80gb")
PLAIN = MatmulFormat(name="bf16", weight_bits=16, activation_bits=16, math=Dtype.BF16)
NARROW = MatmulFormat(name="w4a16", weight_bits=4.125, activation_bits=16, math=Dtype.BF16)


def label(
    product: MatmulFormat, *, flops: float, moved: float, seconds: float, compute_s: float, memory_s: float
) -> str:
    """The word for one product of given work and time."""
    one = np.ones(1)
    work = Work(
        name="product",
        family=Family.GEMM,
        role="mlp",
        shape=GemmShape(m=one, n=4096.0, k=4096.0, format=product),
        count=1.0,
        flops=flops * one,
        weight_bytes=moved * one,
        kv_bytes=0.0 * one,
        activation_bytes=0.0 * one,
    )
    timing = Timing(
        seconds=seconds * one,
        compute_s=compute_s * one,
        memory_s=memory_s * one,
        network_s=0.0 * one,
        tensor_s=compute_s * one,
        log_sigma=one,
        provenance=one,
    )
    return BOUNDS[int(bound_indices([(work, timing)], hardware=A100)[0, 0])]


@pytest.mark.parametrize(
    ("product", "shares", "terms", "expected"),
    [
        (PLAIN, (0.01, 0.8), (0.2, 0.9), "memory"),
        (PLAIN, (0.7, 0.1), (0.9, 0.1), "tensor core"),
        (PLAIN, (0.3, 0.1), (0.9, 0.1), "tensor core"),
        (PLAIN, (0.01, 0.2), (0.9, 0.3), "occupancy"),
        (PLAIN, (0.01, 0.1), (0.1, 0.2), "occupancy"),
        (NARROW, (0.01, 0.3), (0.9, 0.4), "dequantisation"),
        (NARROW, (0.01, 0.7), (0.8, 0.75), "memory"),
        (NARROW, (0.6, 0.1), (0.9, 0.4), "tensor core"),
    ],
)
def test_a_product_waits_for_the_limit_that_explains_its_time(
    product: MatmulFormat, shares: tuple[float, float], terms: tuple[float, float], expected: str
) -> None:
    """shares of the time that peak and bandwidth explain; terms of the kernel's model as shares of the time."""
    flops = shares[0] * A100.peak_flops_per_s[Dtype.BF16]
    moved = shares[1] * A100.memory_bytes_per_s
    found = label(product, flops=flops, moved=moved, seconds=1.0, compute_s=terms[0], memory_s=terms[1])
    assert found == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "memory"),
        ({"precision": {"scheme": "gptq-g128"}}, "memory"),
        ({"precision": {"scheme": "nf4"}}, "dequantisation"),
        ({"model": "llama-3.1-8b", "context_tokens": 100_000}, "memory"),
        # Its 32 KV heads are one tile each, whose keys flash-attention 2 does not divide among 108 units.
        ({"context_tokens": 100_000}, "occupancy"),
        ({"phase": "prefill", "context_tokens": 4096}, "tensor core"),
        ({"engine": "torch-eager"}, "host"),
        ({"engine": "torch-eager", "precision": {"scheme": "gptq-g128"}}, "host"),
    ],
)
def test_a_step_of_one_sequence_on_an_a100(fields: dict[str, Any], expected: str) -> None:
    answer = step(**{"model": "llama-2-7b", "hardware": "a100", "context_tokens": 512, **fields})
    assert answer.to_dict()["bound"] == expected


@for_every(["a100", "h100", "b200", "mi300x", "l4", "t4", "tpu-v5e", "gaudi3"])
def test_one_decoding_sequence_never_waits_for_the_matrix_units(hardware: str) -> None:
    for model in ("opt-1.3b", "llama-2-7b", "llama-3.1-70b", "mixtral-8x7b", "mamba2-2.7b", "t5-3b", "deepseek-v3"):
        assert step(model=model, hardware=hardware).to_dict()["bound"] != "tensor core", model


@pytest.mark.slow
@for_every(list_hardware)
def test_one_decoding_sequence_waits_for_no_unit_on_any_accelerator(hardware: str) -> None:
    for model in ("llama-3.1-8b", "gpt-oss-20b", "mamba2-2.7b", "deepseek-v2-lite"):
        for scheme in (None, "gptq-g128", "nf4", "fp8", "bitnet"):
            try:
                bound = step(model=model, hardware=hardware, precision={"scheme": scheme}).to_dict()["bound"]
            except RoofcastError:
                # The format is not multiplied there, or has nothing to do.
                continue
            assert bound != "tensor core", (model, scheme)


def test_operators_carry_their_own_bound() -> None:
    operators = step(model="llama-2-7b", hardware="a100", tp_size=2).to_dict()["operators"]
    bounds = {row["operator"]: row["bound"] for row in operators}
    assert set(bounds.values()) <= set(BOUNDS)
    assert {bound for name, bound in bounds.items() if "all_reduce" in name} == {"link"}
