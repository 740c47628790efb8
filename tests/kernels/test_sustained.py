"""Accelerators whose matrix library is known to reach less of the peak than that of the relative that prices them."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.kernels.library import KernelLibrary, kernel_library
from simulator.kernels.sustained import SIDE, large_product, sustained_peaks, with_sustained_rates
from simulator.operators.work import Family, GemmShape, MatmulFormat, decode_step, prefill_step
from simulator.phases.deployment import deploy
from simulator.phases.step import StepEstimate, estimate_step
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype, PrecisionSpec
from simulator.specs.question.techniques import TechniquesSpec
from tests.for_every import for_every


def library(hardware: AcceleratorSpec) -> KernelLibrary:
    return kernel_library(hardware, library="vllm")


def reached(name: str, dtype: Dtype, *, kernels: str = "vllm") -> float:
    hardware = load_hardware(name)
    priced = with_sustained_rates(kernel_library(hardware, library=kernels)).price(large_product(dtype))
    return float(2 * SIDE**3 / priced.seconds[0])


PUBLISHED = [("mi300x", Dtype.BF16), ("mi300x", Dtype.FP8), ("mi325x", Dtype.FP8)]


@pytest.mark.parametrize(("name", "dtype"), PUBLISHED)
def test_large_products_reach_what_was_published(name: str, dtype: Dtype) -> None:
    assert reached(name, dtype) == pytest.approx(load_hardware(name).library_flops_per_s[dtype], rel=0.02)


@pytest.mark.parametrize(("name", "dtype"), [*PUBLISHED, ("mi350x", Dtype.BF16), ("mi350x", Dtype.FP8)])
def test_peaks_sink_in_the_ratio_of_what_was_published_to_what_the_fits_reach(name: str, dtype: Dtype) -> None:
    """In no other: what holds a large product beside arithmetic must not make every kernel pay for it."""
    kernels = library(load_hardware(name))
    plain = float(2 * SIDE**3 / kernels.price(large_product(dtype)).seconds[0])
    ratio = kernels.hardware.library_flops_per_s[dtype] / plain
    assert sustained_peaks(kernels)[dtype] == pytest.approx(ratio * kernels.hardware.peak_flops_per_s[dtype])


@pytest.mark.parametrize(("cooler", "hotter"), [("mi300x", "mi325x"), ("mi350x", "mi355x")])
def test_the_same_dies_multiply_faster_at_more_power(cooler: str, hotter: str) -> None:
    slow, fast = load_hardware(cooler), load_hardware(hotter)

    def working_s(name: str, dtype: Dtype) -> float:
        kernels = with_sustained_rates(kernel_library(load_hardware(name), library="aiter"))
        return float(kernels.price(large_product(dtype)).tensor_s[0])

    for dtype in (Dtype.BF16, Dtype.FP8):
        assert 1.05 < working_s(cooler, dtype) / working_s(hotter, dtype) < fast.tdp_w / slow.tdp_w


def test_mi325x_multiplies_squares_as_they_were_measured() -> None:
    # HazyResearch/HipKittens f09e9685, PyTorch on MI325X: 8,192 in 1.400 ms, 16,384 in 11.73 ms.
    assert reached("mi325x", Dtype.BF16, kernels="aiter") == pytest.approx(2 * 8192**3 / 1.400e-3, rel=0.15)


def test_peaks_are_lowered_only_and_only_where_something_is_known() -> None:
    hardware = load_hardware("mi300x")
    peaks = sustained_peaks(library(hardware))
    assert peaks.keys() == hardware.peak_flops_per_s.keys()
    assert all(0 < peaks[dtype] <= hardware.peak_flops_per_s[dtype] for dtype in peaks)
    fast = hardware.model_copy(update={"library_flops_per_s": {Dtype.BF16: 1e18}})
    assert sustained_peaks(library(fast)) == hardware.peak_flops_per_s
    measured = library(load_hardware("h100"))
    assert with_sustained_rates(measured) is measured


def test_what_is_not_published_is_lowered_like_the_format_nearest_to_it_in_width() -> None:
    hardware = load_hardware("mi300x")
    peaks = sustained_peaks(library(hardware))
    assert peaks[Dtype.INT8] == pytest.approx(peaks[Dtype.FP8])
    assert peaks[Dtype.INT8] < hardware.peak_flops_per_s[Dtype.INT8]
    assert peaks[Dtype.FP32] == hardware.peak_flops_per_s[Dtype.FP32]


@pytest.mark.parametrize("name", ["mi300x", "mi355x", "b200-sxm", "l4"])
def test_a_format_that_nobody_measured_is_no_faster_than_a_measured_one_of_its_widths_and_peak(name: str) -> None:
    kernels = with_sustained_rates(library(load_hardware(name)))
    for rows in (1.0, 16.0, 256.0, 4096.0):
        both = [
            kernels.product(
                GemmShape(
                    m=np.full(1, rows),
                    n=14336.0,
                    k=8192.0,
                    format=MatmulFormat(
                        name=dtype.value, weight_bits=8, activation_bits=8, math=dtype, quantises_activations=True
                    ),
                )
            )
            for dtype in (Dtype.INT8, Dtype.FP8)
        ]
        unmeasured, measured = both
        assert unmeasured is not None
        assert measured is not None
        assert unmeasured.seconds[0] >= measured.seconds[0]


def test_prompts_slow_down_and_decoding_alone_hardly_does() -> None:
    hardware = load_hardware("mi300x")
    model = load_model("llama-3.1-8b")
    lowered = deploy(model=model, hardware=hardware)
    free = deploy(model=model, hardware=hardware.model_copy(update={"library_flops_per_s": {}}))
    prompts = prefill_step(sequences=4, tokens=4096)
    single = decode_step(sequences=1, context=1000.0)
    assert estimate_step(lowered, prompts).step_s[0] > 1.05 * estimate_step(free, prompts).step_s[0]
    np.testing.assert_allclose(estimate_step(lowered, single).step_s, estimate_step(free, single).step_s, rtol=0.03)


CHECKED = {"l40s", "l4", "a10", "a10g", "a40", "t4"}
UNCHECKED = {"rtx-4090", "rtx-3090", "rtx-6000-ada", "rtx-pro-6000", "a100", "h200"}


@for_every(sorted(CHECKED | UNCHECKED))
def test_check_bits_travel_with_the_data_where_they_lie_beside_it(name: str) -> None:
    hardware = load_hardware(name)
    assert hardware.memory_data_share == (15 / 16 if name in CHECKED else 1.0)


@pytest.mark.parametrize(("name", "ratio"), [("rtx-4090", 16 / 15), ("l40s", 1.0), ("a10", 15 / 16), ("a100", 1.0)])
def test_the_share_of_a_relative_is_carried_over_without_its_check_bits(name: str, ratio: float) -> None:
    """Fits of L40S price the RTX 4090, those of A100 the A10."""
    plain = library(load_hardware(name))
    priced = with_sustained_rates(plain)
    assert priced.hardware.memory_bytes_per_s == pytest.approx(ratio * plain.hardware.memory_bytes_per_s)


@pytest.mark.parametrize(("capped", "whole"), [("h20-96gb", "h200-sxm-141gb"), ("l20", "l40s"), ("rtx-4090", "l40s")])
def test_a_capped_chip_reaches_its_cap_where_a_whole_one_is_held_by_feed_and_power(capped: str, whole: str) -> None:
    def reached(name: str) -> tuple[float, float]:
        kernels = with_sustained_rates(kernel_library(load_hardware(name), library="vllm"))
        work, spec = large_product(Dtype.BF16), load_hardware(name)
        rate = float(work.flops[0] / kernels.price(work).seconds[0])
        return rate / spec.peak_flops_per_s[Dtype.BF16], rate / spec.parallel_units / spec.boost_clock_hz

    share, each = reached(capped)
    whole_share, whole_each = reached(whole)
    assert whole_share < share <= 1.01
    assert each <= whole_each * 1.01


def test_a_chip_that_is_no_capped_one_keeps_its_peaks() -> None:
    # A10 has narrower units of another die than A100; L4 the same units as L40S at another clock.
    for name in ("a10", "l4", "h800-sxm-80gb"):
        kernels = kernel_library(load_hardware(name), library="vllm")
        assert with_sustained_rates(kernels).hardware.peak_flops_per_s == load_hardware(name).peak_flops_per_s


@pytest.mark.parametrize("model", ["mixtral-8x7b", "qwen3-30b-a3b", "llama-3.1-8b"])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_chip_that_multiplies_8_bits_as_fast_as_16_is_fed_by_half_the_bytes(model: str, engine: str) -> None:
    """Gaudi 3: the kernels that it borrows reach a smaller share of a rate that is twice as high there. SGLang's block
    experts are slower than 16-bit ones there too, in their tables: no law makes up for that here."""
    step = prefill_step(sequences=1, tokens=[8192.0])

    def estimated(hardware: str, weights: str) -> StepEstimate:
        deployment = deploy(
            model=load_model(model),
            hardware=load_hardware(hardware),
            precision=PrecisionSpec(weights=weights),
            engine=EngineSpec(name=engine),
        )
        return estimate_step(deployment, step)

    lent = estimated("gb200", "fp8").step_s[0] / estimated("gb200", "bf16").step_s[0]
    narrow = estimated("gaudi3", "fp8")
    assert narrow.step_s[0] < 1.1 * max(1.0, lent) * estimated("gaudi3", "bf16").step_s[0]
    peak = load_hardware("gaudi3").peak_flops_per_s[Dtype.FP8]
    for row in narrow.rows:
        if row.work.family in (Family.GEMM, Family.MOE):
            assert row.work.flops[0] / row.timing.seconds[0] <= peak * (1 + 1e-9)


@pytest.mark.parametrize("capped", ["h20-96gb", "l20", "rtx-4090", "rtx-5090"])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_no_product_of_a_capped_chip_beats_its_cap(capped: str, engine: str) -> None:
    spec = load_hardware(capped)
    kernels = with_sustained_rates(kernel_library(spec, library=engine))
    for dtype in (Dtype.BF16, Dtype.FP8):
        work = large_product(dtype, rows=(64.0, 512.0, 1024.0, 3072.0, 16384.0))
        assert np.all(work.flops / kernels.price(work).seconds <= spec.peak_flops_per_s[dtype] * (1 + 1e-9))


@pytest.mark.parametrize("capped", ["h20-96gb", "l20", "rtx-4090", "rtx-5090"])
def test_no_part_of_a_prompt_on_a_capped_chip_beats_its_cap(capped: str) -> None:
    spec = load_hardware(capped)
    for model in ("llama-3.1-8b", "mixtral-8x7b"):
        for engine in ("vllm", "sglang", "tensorrt-llm"):
            replica = deploy(model=load_model(model), hardware=spec, engine=EngineSpec(name=engine))
            for row in estimate_step(replica, prefill_step(sequences=1, tokens=[512.0, 8192.0, 65536.0])).rows:
                if row.work.family in (Family.GEMM, Family.PREFILL_ATTENTION, Family.MOE):
                    rate = row.work.flops / row.timing.seconds
                    assert np.all(rate <= spec.peak_flops_per_s[Dtype.BF16] * (1 + 1e-9)), (
                        model,
                        engine,
                        row.work.name,
                    )


@pytest.mark.parametrize("capped", ["h20-96gb", "l20", "rtx-4090", "rtx-5090"])
def test_sparse_products_of_a_prompt_are_as_much_faster_on_a_capped_chip(capped: str) -> None:
    """Matrix units skip half of the work at their cap as below it; a few percent more, as dense products alone have a
    measured correction."""
    model, spec = load_model("llama-3.1-8b"), load_hardware(capped)
    step = prefill_step(sequences=1, tokens=[4096.0])
    dense_s, sparse_s = (
        float(estimate_step(deploy(model=model, hardware=spec, techniques=techniques), step).breakdown_s["gemm"][0])
        for techniques in (TechniquesSpec(), TechniquesSpec.model_validate({"sparsity": "2:4"}))
    )
    assert 1.7 < dense_s / sparse_s < 2.1


@pytest.mark.parametrize(("capped", "whole"), [("h20-96gb", "h200-sxm-141gb"), ("rtx-4090", "l40s")])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_only_the_cap_takes_a_capped_chip_longer(capped: str, whole: str, engine: str) -> None:
    """Small tiles, and what lies between the products of attention, take its units as long as those of a whole chip."""
    model, cut, full = load_model("llama-3.1-8b"), load_hardware(capped), load_hardware(whole)
    units = full.parallel_units * full.boost_clock_hz / (cut.parallel_units * cut.boost_clock_hz)
    memory = full.memory_bytes_per_s * full.memory_data_share / cut.memory_bytes_per_s
    step = decode_step(sequences=[4.0, 64.0], context=4096.0)
    ours, theirs = (
        estimate_step(deploy(model=model, hardware=spec, engine=EngineSpec(name=engine)), step) for spec in (cut, full)
    )
    for mine, other in zip(ours.rows, theirs.rows, strict=True):
        if mine.work.family in (Family.GEMM, Family.DECODE_ATTENTION):
            slower = max(units, memory, 1.0) * other.timing.seconds
            # A query fills one row of 64 of attention's tiles, or one of 16.
            padded_s = 64 * mine.work.flops / cut.peak_flops_per_s[Dtype.BF16]
            assert np.all(mine.timing.seconds <= 1.05 * (slower + padded_s)), mine.work.name


def test_slower_arithmetic_is_no_capped_chip() -> None:
    spec = load_hardware("l4")
    halved = {
        name: {dtype: rate / 2 for dtype, rate in getattr(spec, name).items()}
        for name in ("peak_flops_per_s", "vector_flops_per_s")
    }
    slower = spec.model_copy(update=halved)
    kernels = with_sustained_rates(kernel_library(slower, library="vllm"))
    assert kernels.hardware.peak_flops_per_s == slower.peak_flops_per_s
