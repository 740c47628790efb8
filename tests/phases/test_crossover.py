"""The batch at which decoding turns compute bound."""

from __future__ import annotations

import pytest

from simulator import deploy, load_hardware, load_model
from simulator.kernels.roofline import ridge_point
from simulator.kernels.timing import Provenance
from simulator.phases.crossover import crossover_batch, crossover_range
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.model.precision import Dtype, PrecisionSpec

WIDE = ParallelismSpec(tp_size=8, ep_size=8)


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
    narrow = deploy(model=model, hardware=hardware, precision=PrecisionSpec(weights=Dtype.INT4, activations=Dtype.BF16))
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


def test_the_range_holds_the_crossover_and_widens_with_the_errors() -> None:
    split = ParallelismSpec(tp_size=4)
    deployment = deploy(model=load_model("llama-3.1-70b"), hardware=load_hardware("h100"), parallelism=split)
    narrow, wide = (crossover_range(deployment, context_tokens=1024, z=z) for z in (0.5, 2.0))
    batch = crossover_batch(deployment, context_tokens=1024)
    assert narrow.batch == wide.batch == batch
    low, inner_low, middle, inner_high, high = wide.low, narrow.low, batch, narrow.high, wide.high
    assert low is not None
    assert inner_low is not None
    assert middle is not None
    assert inner_high is not None
    assert high is not None
    assert low < inner_low < middle < inner_high < high
    assert narrow.provenance is Provenance.CALIBRATED


def test_no_spread_no_range() -> None:
    deployment = deploy(model=load_model("llama-3.1-8b"), hardware=load_hardware("a100"))
    found = crossover_range(deployment, context_tokens=512, z=0.0)
    assert found.low == found.batch == found.high


def test_a_crossover_beyond_every_batch_has_open_ends() -> None:
    """Mixture-of-experts models share few tokens per expert: their products turn late."""
    deployment = deploy(model=load_model("deepseek-v3"), hardware=load_hardware("b200"), parallelism=WIDE)
    found = crossover_range(deployment, context_tokens=512, z=1.28)
    assert found.high is None
    assert found.batch is None or found.low is not None
