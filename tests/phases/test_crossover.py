"""The batch at which decoding turns compute bound."""

from __future__ import annotations

import pytest

from simulator import deploy, load_hardware, load_model
from simulator.kernels.roofline import ridge_point
from simulator.phases.crossover import crossover_batch
from simulator.specs.precision import Dtype, PrecisionSpec


def test_bf16_turns_a_little_above_the_ridge_point() -> None:
    """One product of m rows: 2 m n k FLOPs over 2 (n k + m k + m n) bytes is below m, so m exceeds the ridge point."""
    hardware = load_hardware("h100")
    found = crossover_batch(deploy(model=load_model("llama-3.1-70b"), hardware=hardware), context_tokens=1024)
    ridge = ridge_point(hardware, dtype=Dtype.BF16)
    assert found is not None
    assert ridge < found < 1.3 * ridge


def test_halving_weight_bytes_alone_halves_it_roughly() -> None:
    hardware, model = load_hardware("h100"), load_model("llama-3.1-70b")
    native = crossover_batch(deploy(model=model, hardware=hardware), context_tokens=1024)
    narrow = deploy(
        model=model, hardware=hardware, precision=PrecisionSpec(weights=Dtype.INT4, activations=Dtype.BF16)
    )
    found = crossover_batch(narrow, context_tokens=1024)
    assert native is not None
    assert found is not None
    assert found < native / 2


def test_a_compute_poor_card_turns_earlier() -> None:
    model = load_model("llama-3.1-8b")
    batches = [
        crossover_batch(deploy(model=model, hardware=load_hardware(name)), context_tokens=512)
        for name in ("a100", "h100")
    ]
    assert None not in batches
    assert batches == sorted(batch for batch in batches if batch is not None)
    assert batches[0] == pytest.approx(ridge_point(load_hardware("a100"), dtype=Dtype.BF16), rel=0.4)
