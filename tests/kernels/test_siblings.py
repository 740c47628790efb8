"""Decode steps of accelerators that nobody measured, beside those of measured ones of their architecture."""

import numpy as np
import pytest

from simulator.engine.runs.scenario_setup import deployment_of
from simulator.kernels.fits import fit_set
from simulator.operators.step_shape import decode_step
from simulator.phases.step import estimate_step
from simulator.specs.documents import validate
from simulator.specs.loading import load_hardware
from simulator.specs.question.scenario import ScenarioSpec

MODELS = [
    ("vllm", "llama-3.3-70b", "fp8", 8),
    ("vllm", "llama-3.3-70b", "bf16", 2),
    ("sglang", "deepseek-r1", "fp8", 8),
    ("vllm", "minimax-m2.5", "fp8", 4),
    ("vllm", "qwen3-235b-a22b", "fp8", 4),
]
BATCHES = np.array([1.0, 8.0, 64.0, 256.0])
ROUGH = 0.02
"""Fits of one chip have corrections that those of its sibling, in the same place, do not: a fiftieth either way."""


def step_s(hardware: str, *, engine: str, model: str, weights: str, tp_size: int) -> np.ndarray:
    asked = {"id": "sibling", "kind": "batch", "batch_size": 1, "isl_tokens": 64, "osl_tokens": 64}
    served = {"model": model, "hardware": hardware, "tp_size": tp_size, "engine": {"name": engine}}
    scenario = validate(ScenarioSpec, {**asked, **served, "precision": {"weights": weights}}, where="sibling")
    return estimate_step(deployment_of(scenario), decode_step(sequences=BATCHES, context=4000.0)).step_s


@pytest.mark.parametrize(("engine", "model", "weights", "tp_size"), MODELS)
@pytest.mark.parametrize(("faster", "slower"), [("mi325x", "mi300x"), ("mi355x", "mi350x"), ("h200", "h100")])
def test_more_bandwidth_or_clock_is_never_slower_and_gains_no_more_than_its_share(
    faster: str, slower: str, engine: str, model: str, weights: str, tp_size: int
) -> None:
    ratio = step_s(slower, engine=engine, model=model, weights=weights, tp_size=tp_size) / step_s(
        faster, engine=engine, model=model, weights=weights, tp_size=tp_size
    )
    ours, theirs = load_hardware(faster), load_hardware(slower)
    bandwidth = ours.memory_bytes_per_s / theirs.memory_bytes_per_s
    peak = ours.peak_flops_per_s["bf16"] / theirs.peak_flops_per_s["bf16"]
    assert np.all(ratio > 1 - ROUGH)
    assert np.all(ratio < max(bandwidth, peak) * (1 + ROUGH))


@pytest.mark.parametrize("group", ["attention", "elementwise"])
def test_siblings_borrow_another_vendors_kernels_from_one_accelerator(group: str) -> None:
    borrowed = set()
    for name in ("mi300x", "mi325x"):
        fits = fit_set(load_hardware(name), library="vllm", group=group)
        assert fits is not None
        borrowed.add(fits.relative.name)
    assert len(borrowed) == 1
