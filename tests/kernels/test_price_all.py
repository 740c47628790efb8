"""Pricing a step's rows together changes nothing but the number of calls."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from simulator.kernels import library as pricing
from simulator.kernels.gemm import CASES_AT_ONCE
from simulator.kernels.library import KernelLibrary, kernel_library
from simulator.kernels.timing import JOINED_CASES, Timing, join, split
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.transformer import operator_list
from simulator.operators.work import ElementwiseShape, GemmShape, Work, mixed_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype, PrecisionSpec


def _rows(model: str, *, tp_size: int, weights: Dtype | None = None, cases: int = 3) -> tuple[Work, ...]:
    spec = load_model(model)
    # One case without prompts, so that some rows have nothing to do in it.
    tokens = np.linspace(0.0, 512.0, cases)
    step = mixed_step(
        prefill_sequences=np.where(tokens > 0, 1.0, 0.0),
        prefill_tokens=tokens,
        decode_sequences=np.full(cases, 8.0),
        decode_context=1000.0,
    )
    plan = precision_plan(spec, PrecisionSpec(weights=weights))
    return operator_list(spec, parallelism=ParallelismSpec(tp_size=tp_size), plan=plan, step=step)


def _assert_same(timing: Timing, alone: Timing) -> None:
    for field in ("seconds", "compute_s", "memory_s", "network_s", "log_sigma", "provenance"):
        np.testing.assert_allclose(getattr(timing, field), getattr(alone, field), rtol=1e-12, err_msg=field)


@pytest.mark.parametrize(
    ("hardware", "model", "tp_size", "weights"),
    [
        ("h100", "llama-3.1-70b", 4, None),
        ("h100", "llama-3.1-8b", 1, Dtype.FP8),
        ("mi300x", "llama-3.1-8b", 2, Dtype.INT4),
        ("b200", "qwen3-30b-a3b", 2, None),
        ("h200", "deepseek-v3", 8, None),
    ],
)
def test_rows_priced_together_cost_what_each_costs_alone(
    hardware: str, model: str, tp_size: int, weights: Dtype | None
) -> None:
    kernels = kernel_library(load_hardware(hardware), library="vllm")
    rows = _rows(model, tp_size=tp_size, weights=weights)
    timings = kernels.price_all(rows)
    assert len(timings) == len(rows)
    for work, timing in zip(rows, timings, strict=True):
        _assert_same(timing, kernels.price(work))


def test_products_of_one_format_passes_and_equal_messages_take_one_call_each(monkeypatch: pytest.MonkeyPatch) -> None:
    products, messages, passes = [], [], []
    gemm, collective, memory = pricing.gemm_timing, pricing.collective_timing, pricing.elementwise_timing
    monkeypatch.setattr(pricing, "elementwise_timing", lambda *a, **k: passes.append(1) or memory(*a, **k))
    monkeypatch.setattr(pricing, "gemm_timing", lambda *a, **k: products.append(1) or gemm(*a, **k))
    monkeypatch.setattr(pricing, "collective_timing", lambda *a, **k: messages.append(1) or collective(*a, **k))
    kernels = kernel_library(load_hardware("h100"), library="vllm")
    rows = _rows("llama-3.1-70b", tp_size=4)
    kernels.price_all(rows)
    assert sum(isinstance(row.shape, GemmShape) for row in rows) > 1
    assert len(products) == 1
    assert sum(isinstance(row.shape, ElementwiseShape) for row in rows) > 1
    assert len(passes) == 1
    distinct = {
        (row.shape.operation, np.asarray(row.shape.message_bytes).tobytes())
        for row in rows
        if hasattr(row.shape, "operation")
    }
    assert len(messages) == len(distinct)


def test_products_of_many_cases_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels: KernelLibrary = kernel_library(load_hardware("h100"), library="vllm")
    calls: list[int] = []
    gemm, memory = pricing.gemm_timing, pricing.elementwise_timing
    monkeypatch.setattr(pricing, "gemm_timing", lambda *a, **k: calls.append(1) or gemm(*a, **k))
    monkeypatch.setattr(pricing, "elementwise_timing", lambda *a, **k: calls.append(1) or memory(*a, **k))
    rows = _rows("llama-3.1-8b", tp_size=1, cases=JOINED_CASES + 1)
    kernels.price_all(rows)
    assert len(calls) == sum(isinstance(row.shape, GemmShape | ElementwiseShape) for row in rows)


def test_joining_and_splitting_keep_every_case() -> None:
    shapes = [row.shape for row in _rows("llama-3.1-8b", tp_size=1) if isinstance(row.shape, GemmShape)]
    joined = join(shapes)
    sizes = [np.size(shape.m) for shape in shapes]
    values = np.asarray(joined.m) * np.asarray(joined.n) * np.asarray(joined.k)
    one = Timing(**{field.name: values for field in fields(Timing)})
    for part, shape in zip(split(one, sizes=sizes), shapes, strict=True):
        np.testing.assert_array_equal(part.seconds, np.atleast_1d(shape.m) * shape.n * shape.k)


@pytest.mark.parametrize(
    ("hardware", "model"), [("h100", "llama-3.1-70b"), ("a100", "llama-2-7b"), ("b200", "gemma-2-9b")]
)
def test_degrees_priced_together_cost_what_each_costs_alone(hardware: str, model: str) -> None:
    kernels = kernel_library(load_hardware(hardware), library="vllm")
    degrees = [_rows(model, tp_size=tp_size, cases=cases) for tp_size, cases in ((1, 3), (2, 5), (4, 4))]
    together = iter(kernels.price_all([work for rows in degrees for work in rows]))
    for rows in degrees:
        for work in rows:
            _assert_same(next(together), kernels.price(work))


def test_products_beyond_what_is_priced_at_once_cost_the_same() -> None:
    kernels = kernel_library(load_hardware("h100"), library="vllm")
    m = np.arange(1.0, 2.0 * CASES_AT_ONCE + 8.0)
    shapes = [work.shape for work in _rows("llama-3.1-8b", tp_size=1) if isinstance(work.shape, GemmShape)]
    whole = kernels.product(replace(shapes[0], m=m))
    part = kernels.product(replace(shapes[0], m=m[CASES_AT_ONCE - 2 : CASES_AT_ONCE + 2]))
    assert whole is not None
    assert part is not None
    np.testing.assert_allclose(whole.seconds[CASES_AT_ONCE - 2 : CASES_AT_ONCE + 2], part.seconds, rtol=1e-12)


def test_sizes_that_differ_by_case_stay_with_their_case() -> None:
    first = next(work.shape for work in _rows("llama-3.1-8b", tp_size=1) if isinstance(work.shape, GemmShape))
    columns = np.array([1.0, 2.0, 3.0])
    # Contextual sparsity computes other columns in every case.
    uneven = replace(first, n=columns)  # type: ignore[arg-type]
    joined = join([first, uneven])
    np.testing.assert_array_equal(joined.n, [first.n] * 3 + [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(joined.k, [first.k] * 6)
