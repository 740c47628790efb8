"""Measured layers and models against the sum of their kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.fitting.measured_work import LAYER, MEASURED_MODEL, MODEL, whole_errors, whole_rows, whole_seconds
from simulator.operators.work import decode_step, prefill_step
from simulator.phases.deployment import deploy
from simulator.phases.step import estimate_step
from simulator.specs.base import validate
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.measured.kernel_times import SHAPE_COLUMNS, MeasuredKernel
from simulator.specs.model.loading import load_model

LLAMA = load_model(MEASURED_MODEL)
EAGER = deploy(
    model=LLAMA, hardware=load_hardware("h100"), engine=validate(EngineSpec, {"name": "torch-eager"}, where="")
)


def row(family: str, *, sequences: int, tokens: int, context: int, layers: int) -> MeasuredKernel:
    shape = dict.fromkeys(SHAPE_COLUMNS, 0.0)
    shape |= {"sequences": sequences, "query_tokens": tokens, "context_tokens": context, "layers": layers}
    phase = "decode" if tokens == 1 else "prefill"
    return MeasuredKernel(line=2, family=family, kernel=phase, format="bf16", seconds=1e-3, mode="graph", **shape)


ROWS = (
    row(MODEL, sequences=32, tokens=1, context=1024, layers=32),
    row(MODEL, sequences=4, tokens=2048, context=0, layers=32),
)


def test_a_whole_model_is_the_device_time_of_an_eager_step() -> None:
    expected = [
        float(estimate_step(EAGER, step).stage_s.sum())
        for step in (decode_step(sequences=32, context=1025), prefill_step(sequences=4, tokens=2048))
    ]
    assert whole_seconds(ROWS, model=LLAMA, kernels=EAGER.kernels) == pytest.approx(expected, rel=1e-9)


def test_layers_add_up_and_the_ends_come_once() -> None:
    depths = (1, 2, 8, 32)
    models = [row(MODEL, sequences=8, tokens=1, context=1024, layers=depth) for depth in depths]
    layers = [row(LAYER, sequences=8, tokens=1, context=1024, layers=depth) for depth in depths]
    whole = whole_seconds(models, model=LLAMA, kernels=EAGER.kernels)
    bare = whole_seconds(layers, model=LLAMA, kernels=EAGER.kernels)
    assert bare == pytest.approx(bare[0] * np.array(depths))
    ends = whole - bare
    assert ends == pytest.approx(np.full(4, ends[0]))
    head_bytes = 2 * LLAMA.vocab_size * LLAMA.hidden_size
    assert head_bytes / EAGER.hardware.memory_bytes_per_s < ends[0] < whole[-1] - bare[-2]


def test_only_device_times_in_the_format_of_the_model_are_compared() -> None:
    others = (replace(ROWS[0], mode="eager"), replace(ROWS[0], format="fp16"), replace(ROWS[0], family="gemm"))
    assert whole_rows((*others, *ROWS)) == ROWS
    assert whole_errors((), models=load_model, kernels=EAGER.kernels) == ()


def test_each_model_and_format_is_compared_with_its_own_prediction() -> None:
    """Rows of several models are told apart by their name; fewer bits take less time, fused passes too."""
    other = load_model("qwen3-30b-a3b")
    named = replace(ROWS[0], model="qwen3-30b-a3b", layers=48)
    eight = replace(ROWS[0], format="fp8")
    fused = replace(ROWS[0], kernel="decode_compiled")
    exact = [
        float(whole_seconds([row], model=model, kernels=EAGER.kernels, fused=row is fused)[0])
        for row, model in ((ROWS[0], LLAMA), (named, other), (eight, LLAMA), (fused, LLAMA))
    ]
    assert max(exact[2:]) < exact[0]
    rows = [replace(row, seconds=time) for row, time in zip((ROWS[0], named, eight, fused), exact, strict=True)]
    found = whole_errors(rows, models=load_model, kernels=EAGER.kernels)
    assert [(item.model, item.format, item.phase) for item in found] == [
        (MEASURED_MODEL, "bf16", "decode"),
        ("qwen3-30b-a3b", "bf16", "decode"),
        (MEASURED_MODEL, "fp8", "decode"),
        (MEASURED_MODEL, "bf16", "decode, fused"),
    ]
    assert [item.mean for item in found] == pytest.approx([0.0] * 4, abs=1e-9)


def test_errors_are_those_of_each_kind() -> None:
    exact = whole_seconds(ROWS, model=LLAMA, kernels=EAGER.kernels)
    halves = [replace(item, seconds=float(value) / 2) for item, value in zip(ROWS, exact, strict=True)]
    found = whole_errors((*ROWS[:1], *halves), models=load_model, kernels=EAGER.kernels)
    assert [(item.family, item.phase, item.steps) for item in found] == [(MODEL, "decode", 2), (MODEL, "prefill", 1)]
    assert (found[1].mean, found[1].bias) == pytest.approx((1.0, 1.0))
