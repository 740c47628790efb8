"""``simulator.kernels.library``: laws that every accelerator's prices obey, whatever the fits behind them."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from simulator.kernels.engine_traits import slowest_lag
from simulator.kernels.library import KernelLibrary, kernel_library
from simulator.kernels.roofline import floor_seconds, peak_flops_per_s
from simulator.kernels.timing import Provenance
from simulator.kernels.transfer import kernel_distance, link_distance, transfer_log_sigma
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.transformer import operator_list
from simulator.operators.work import (
    CollectiveShape,
    ElementwiseShape,
    GemmShape,
    StepShape,
    Work,
    decode_step,
    prefill_step,
)
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import list_hardware, load_hardware
from simulator.specs.model.precision import Dtype, PrecisionSpec
from tests.for_every import for_every
from tests.operators.operator_models import LLAMA_31_8B, MIXTRAL_8X7B

SIXTEEN_BIT = tuple(name for name in list_hardware() if Dtype.BF16 in load_hardware(name).peak_flops_per_s)
LIBRARIES = ("vllm", "sglang", "trtllm", "torch")
SEQUENCES = np.array([1.0, 2.0, 8.0, 32.0, 128.0])
CONTEXT = np.array([64.0, 512.0, 2048.0, 8192.0, 32768.0])


@cache
def library(name: str, engine: str = "vllm") -> KernelLibrary:
    return kernel_library(load_hardware(name), library=engine)


def rows(step: StepShape, *, model: object = LLAMA_31_8B, tp_size: int = 1) -> tuple[Work, ...]:
    return operator_list(
        model,  # type: ignore[arg-type]
        parallelism=ParallelismSpec(tp_size=tp_size),
        plan=precision_plan(model, PrecisionSpec()),  # type: ignore[arg-type]
        step=step,
    )


def total(name: str, step: StepShape, *, engine: str = "vllm", model: object = LLAMA_31_8B) -> np.ndarray:
    works = rows(step, model=model)
    prices = library(name, engine).price_all(works)
    seconds: np.ndarray = sum(work.count * price.seconds for work, price in zip(works, prices, strict=True))
    return seconds


@for_every(SIXTEEN_BIT)
def test_more_sequences_never_decode_faster(name: str) -> None:
    seconds = total(name, decode_step(sequences=SEQUENCES, context=1024.0))
    assert np.all(np.diff(seconds) >= -0.02 * seconds[:-1])
    # A hundred times the sequences cost far less than a hundred times the time.
    assert seconds[-1] < 60 * seconds[0]


@for_every(SIXTEEN_BIT)
def test_longer_contexts_never_decode_faster(name: str) -> None:
    seconds = total(name, decode_step(sequences=16.0, context=CONTEXT))
    assert np.all(np.diff(seconds) >= -0.02 * seconds[:-1])


@for_every(SIXTEEN_BIT)
def test_a_decode_step_is_slower_than_reading_its_weights(name: str) -> None:
    hardware = load_hardware(name)
    step = decode_step(sequences=1.0, context=64.0)
    weights = sum(float(np.max(work.count * work.weight_bytes)) for work in rows(step))
    assert total(name, step)[0] > weights / hardware.memory_bytes_per_s


@for_every(SIXTEEN_BIT)
def test_a_long_prompt_is_slower_than_its_flops_at_the_peak(name: str) -> None:
    hardware = load_hardware(name)
    step = prefill_step(sequences=1.0, tokens=4096.0)
    flops = sum(float(np.max(work.count * work.flops)) for work in rows(step))
    seconds = total(name, step)[0]
    assert seconds > flops / hardware.peak_flops_per_s[Dtype.BF16]
    assert seconds < 20 * flops / hardware.peak_flops_per_s[Dtype.BF16]


@for_every(SIXTEEN_BIT)
def test_every_price_is_finite_positive_and_spread(name: str) -> None:
    step = decode_step(sequences=SEQUENCES, context=1024.0)
    works = rows(step, model=MIXTRAL_8X7B)
    for work, price in zip(works, library(name).price_all(works), strict=True):
        assert np.all(np.isfinite(price.seconds)), work.name
        assert np.all(price.seconds >= 0), work.name
        assert np.all(price.log_sigma[price.seconds > 0] > 0), work.name
        assert set(price.provenance.tolist()) <= {float(item) for item in Provenance}, work.name


@pytest.mark.parametrize("engine", LIBRARIES)
@pytest.mark.parametrize("name", ["h100-sxm-80gb", "a100-sxm-80gb", "l40s", "mi300x"])
def test_engines_differ_and_stay_within_a_factor_of_three(name: str, engine: str) -> None:
    step = decode_step(sequences=SEQUENCES, context=1024.0)
    ratio = total(name, step, engine=engine) / total(name, step)
    assert np.all(ratio > 1 / 3)
    assert np.all(ratio < 3)


@pytest.mark.parametrize("name", ["h100-sxm-80gb", "b200-sxm", "mi300x", "l4"])
def test_one_price_at_a_time_is_the_price_of_all(name: str) -> None:
    works = rows(decode_step(sequences=SEQUENCES, context=1024.0))
    for work, together in zip(works, library(name).price_all(works), strict=True):
        alone = library(name).price(work)
        assert together.seconds == pytest.approx(alone.seconds, rel=1e-9), work.name
        assert together.log_sigma == pytest.approx(alone.log_sigma, rel=1e-9), work.name


@for_every(SIXTEEN_BIT)
def test_no_large_product_beats_the_floor(name: str) -> None:
    works = [work for work in rows(prefill_step(sequences=1.0, tokens=8192.0)) if isinstance(work.shape, GemmShape)]
    for work in works:
        price = library(name).price(work)
        floor = floor_seconds(work, hardware=load_hardware(name))
        assert np.all(price.seconds >= 0.999 * floor), work.name


@for_every(SIXTEEN_BIT)
def test_passes_take_no_tensor_cores(name: str) -> None:
    hardware = load_hardware(name)
    for work in rows(decode_step(sequences=4.0, context=64.0)):
        if isinstance(work.shape, ElementwiseShape):
            assert peak_flops_per_s(work, hardware) == hardware.vector_flops_per_s[Dtype.FP32]


@pytest.mark.parametrize("name", ["h100-sxm-80gb", "a100-sxm-80gb", "h200-sxm-141gb", "b200-sxm"])
@pytest.mark.parametrize("tp_size", [2, 4, 8])
def test_ranks_share_the_products_and_pay_for_their_sums(name: str, tp_size: int) -> None:
    step = decode_step(sequences=32.0, context=1024.0)
    alone, shared = rows(step), rows(step, tp_size=tp_size)
    products = []
    for works in (alone, shared):
        prices = library(name).price_all(works)
        pairs = list(zip(works, prices, strict=True))
        products.append(sum(float(w.count * p.seconds[0]) for w, p in pairs if isinstance(w.shape, GemmShape)))
        sums = sum(float(w.count * p.seconds[0]) for w, p in pairs if isinstance(w.shape, CollectiveShape))
        assert (sums > 0) == (works is shared)
    assert products[0] / tp_size < products[1] < products[0]


@for_every(SIXTEEN_BIT)
def test_an_accelerator_is_its_own_nearest(name: str) -> None:
    hardware = load_hardware(name)
    assert kernel_distance(hardware, relative=hardware) == 0
    assert link_distance(hardware, relative=hardware) == 0


def test_distances_are_symmetric() -> None:
    specs = [load_hardware(name) for name in SIXTEEN_BIT[::3]]
    for first in specs:
        for second in specs:
            assert kernel_distance(first, relative=second) == pytest.approx(kernel_distance(second, relative=first))
            assert link_distance(first, relative=second) == pytest.approx(link_distance(second, relative=first))


def test_the_spread_of_a_transfer_never_falls_with_the_distance() -> None:
    spreads = [transfer_log_sigma(distance) for distance in np.linspace(0, 12, 49)]
    assert all(later >= earlier for earlier, later in pairwise(spreads))
    assert spreads[0] >= 0


@pytest.mark.parametrize(("hosts", "lag"), [(1, 0.0), (2, 1 / 2), (3, 5 / 6), (4, 13 / 12)])
def test_the_slowest_of_few_hosts(hosts: int, lag: float) -> None:
    assert slowest_lag(hosts) == pytest.approx(lag)


def test_the_slowest_of_many_hosts_lags_by_the_logarithm() -> None:
    """The p-th harmonic number less one tends to ln p + 0.5772 - 1."""
    assert slowest_lag(1000) == pytest.approx(np.log(1000) + 0.5772 - 1, abs=1e-3)
