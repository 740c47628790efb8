"""Decode steps of accelerators that nobody measured, beside those of measured ones of their architecture."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from simulator.engine.runs.scenario_setup import deployment_of
from simulator.kernels.collectives.network import collective_timing
from simulator.kernels.fits import collective_fits, fit_set
from simulator.kernels.library import kernel_library
from simulator.kernels.timing import Provenance
from simulator.kernels.transfer import TYPICAL, are_siblings, port_share
from simulator.operators.work import AttentionShape, Collective, CollectiveShape, GemmShape, MatmulFormat, decode_step
from simulator.phases.deployment import deploy
from simulator.phases.step import estimate_step
from simulator.specs.base import validate
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.hardware.calibration import CalibrationGroup, load_calibration
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype
from simulator.specs.question.scenario import ScenarioSpec

MODELS = [
    ("vllm", "llama-3.3-70b", "fp8", 8),
    ("vllm", "llama-3.3-70b", "bf16", 2),
    ("sglang", "deepseek-r1", "fp8", 8),
    ("vllm", "minimax-m2.5", "fp8", 4),
    ("vllm", "qwen3-235b-a22b", "fp8", 4),
    ("sglang", "qwen3.5-397b-a17b", "fp8", 8),
]
BATCHES = np.array([1.0, 8.0, 64.0, 256.0])
PLAIN = MatmulFormat(name="bf16", weight_bits=16, activation_bits=16, math=Dtype.BF16)
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


def test_siblings_are_the_same_dies_with_other_memory() -> None:
    pairs = [("mi300x", "mi325x"), ("mi355x", "mi350x"), ("h100", "h200"), ("a100", "a100-sxm-40gb"), ("h100", "h800")]
    others = [("h100", "h100-pcie"), ("h100", "h20"), ("mi300x", "mi355x"), ("h100", "b200"), ("l40s", "l4")]
    for kin, expected in ((pairs, True), (others, False)):
        for one, other in kin:
            ours, theirs = load_hardware(one), load_hardware(other)
            assert are_siblings(ours, theirs) == are_siblings(theirs, ours) == expected, (one, other)


@pytest.mark.parametrize(("sibling", "measured"), [("mi325x", "mi300x"), ("mi350x", "mi355x"), ("h800", "h100")])
def test_a_siblings_products_are_calibrated_and_wider(sibling: str, measured: str) -> None:
    shape = GemmShape(m=np.array([64.0]), n=7168, k=4096, format=PLAIN)
    own, lent = (kernel_library(load_hardware(name), library="sglang").product(shape) for name in (measured, sibling))
    assert own is not None
    assert lent is not None
    assert own.provenance[0] == lent.provenance[0] == Provenance.CALIBRATED
    assert lent.log_sigma[0] > own.log_sigma[0]


@pytest.mark.parametrize("part", ["h100-pcie-80gb", "h20-96gb", "vr200"])
def test_products_that_libraries_share_are_shared_where_a_relative_was_measured_too(part: str) -> None:
    block = MatmulFormat(name="fp8_block", weight_bits=8, activation_bits=8, math=Dtype.FP8, quantises_activations=True)
    shape = GemmShape(m=np.array([8.0, 512.0, 4096.0]), n=4096, k=4096, format=block)
    ours, theirs = (kernel_library(load_hardware(part), library=name).product(shape) for name in ("vllm", "sglang"))
    assert ours is not None
    assert theirs is not None
    np.testing.assert_allclose(ours.seconds, theirs.seconds)


@pytest.mark.parametrize(
    ("engine", "model", "known"),
    [
        ("vllm", "llama-3.1-70b", Provenance.CALIBRATED),
        ("sglang", "deepseek-r1", Provenance.CALIBRATED),
        ("vllm", "deepseek-r1", Provenance.EXTRAPOLATED),
        ("tgi", "llama-3.1-70b", Provenance.EXTRAPOLATED),
    ],
)
def test_a_borrowed_kernel_is_calibrated_where_whole_runs_held_it(engine: str, model: str, known: Provenance) -> None:
    replica = deploy(
        model=load_model(model),
        hardware=load_hardware("mi355x"),
        parallelism=ParallelismSpec(tp_size=8),
        engine=EngineSpec(name=engine),
    )
    step = estimate_step(replica, decode_step(sequences=64, context=1000))
    attention = next(row for row in step.rows if isinstance(row.work.shape, AttentionShape))
    assert attention.timing.provenance[0] == known
    # The width is that of the transfer, whatever the word.
    assert attention.timing.log_sigma[0] > 0.4


@pytest.mark.parametrize("library", ["vllm", "sglang", "trtllm"])
def test_racks_of_one_link_reduce_alike_across_trays(library: str) -> None:
    message = np.array([16e3, 256e3, 1e6, 4e6, 64e6])
    for participants in (8, 16):
        shape = CollectiveShape(operation=Collective.ALL_REDUCE, message_bytes=message, participants=participants)
        times = []
        for name in ("gb200", "gb300"):
            hardware = load_hardware(name)
            fits = collective_fits(hardware, library=library)
            times.append(collective_timing(shape, hardware=hardware, fits=fits.fits).seconds)
        assert times[0] == pytest.approx(times[1], rel=0.01)


@pytest.mark.parametrize("name", ["b200-sxm", "gb300"])
def test_a_narrow_cache_does_not_send_prompts_to_a_slower_kernel(name: str) -> None:
    library = kernel_library(load_hardware(name), library="sglang")
    for head_dim in (64.0, 128.0, 256.0):
        wide = AttentionShape(
            sequences=np.array([1.0]),
            query_tokens=np.array([8192.0]),
            context_tokens=np.zeros(1),
            num_heads=8.0,
            num_kv_heads=1.0,
            head_dim=head_dim,
            v_head_dim=head_dim,
            window=None,
            causal=True,
            shared_kv=False,
            is_decode=False,
            compute_dtype=Dtype.BF16,
            kv_dtype=Dtype.BF16,
        )
        timing = library.attention_call(wide)
        narrow = library.attention_call(replace(wide, kv_dtype=Dtype.FP8))
        assert timing is not None
        assert narrow is not None
        assert narrow.seconds[0] < 1.1 * timing.seconds[0]


@pytest.mark.parametrize("group", ["attention", "elementwise"])
def test_siblings_borrow_another_vendors_kernels_from_one_accelerator(group: str) -> None:
    borrowed = set()
    for name in ("mi300x", "mi325x"):
        fits = fit_set(load_hardware(name), library="vllm", group=group)
        assert fits is not None
        borrowed.add(fits.relative.name)
    assert len(borrowed) == 1


@pytest.mark.parametrize(
    ("hardware", "carried"), [("h20-96gb", True), ("rtx-4090", True), ("v100-sxm-32gb", False), ("gaudi3", False)]
)
def test_a_correction_of_decode_attention_is_carried_within_a_generation_alone(hardware: str, carried: bool) -> None:
    fits = fit_set(load_hardware(hardware), library="vllm", group="attention")
    assert fits is not None
    by_family = {
        family: [fit for fit in fits.fits if fit.family == family]
        for family in ("decode_attention", "prefill_attention")
    }
    assert any(fits.lattice(fit) is not None for fit in by_family["prefill_attention"])
    assert any(fits.lattice(fit) is not None for fit in by_family["decode_attention"]) is carried


@pytest.mark.parametrize("name", ["trainium2", "trainium3"])
def test_another_vendors_8_bit_products_of_many_rows_are_no_slower_than_its_16_bit_ones(name: str) -> None:
    library = kernel_library(load_hardware(name), library="vllm")
    narrow = MatmulFormat(name="fp8", weight_bits=8, activation_bits=8, math=Dtype.FP8, quantises_activations=True)
    for n, k in ((4096.0, 4096.0), (8192.0, 8192.0), (28672.0, 4096.0)):
        shapes = [GemmShape(m=np.array([4096.0, 16384.0]), n=n, k=k, format=one) for one in (PLAIN, narrow)]
        wide_s, narrow_s = (timing.seconds for timing in map(library.product, shapes) if timing is not None)
        assert np.all(narrow_s < 1.03 * wide_s), (n, k)


@pytest.mark.parametrize("name", ["h20-96gb", "h100-pcie-80gb", "l20", "rtx-4090", "mi325x"])
@pytest.mark.parametrize("group", ["gemm", "moe"])
def test_a_unit_takes_in_as_many_bytes_a_clock_beside_another_memory(name: str, group: CalibrationGroup) -> None:
    """Of one architecture; the memory's own share is carried as it is, and other architectures' fits wholly so."""
    hardware = load_hardware(name)
    fits = fit_set(hardware, library="vllm", group=group)
    assert fits is not None
    relative = load_hardware(fits.relative.name)
    measured = load_calibration(relative.name, library=fits.library, group=group)
    assert measured is not None
    rate, their_rate = (
        spec.memory_bytes_per_s / (spec.compute_units * spec.boost_clock_hz) for spec in (hardware, relative)
    )
    assert fits.relative.port_share != 1.0
    for ours, theirs in zip(fits.fits, measured.fits, strict=True):
        if "unit_bandwidth" in theirs.parameters:
            carried = rate * ours.parameters["unit_bandwidth"]
            assert carried == pytest.approx(their_rate * theirs.parameters["unit_bandwidth"])
        assert ours.model_copy(update={"parameters": theirs.parameters}) == theirs
    assert fits.fits is fits.fits
    assert port_share(load_hardware("v100-sxm-32gb"), relative=load_hardware("a100-sxm-80gb")) == 1.0


@pytest.mark.parametrize("group", ["gemm", "attention", "moe"])
def test_another_generation_s_slow_kernel_is_half_as_far_from_the_typical_one(group: CalibrationGroup) -> None:
    """In octaves, parameter by parameter, a fast one as it is; within a generation none moves but by the memory."""
    fits = fit_set(load_hardware("v100-sxm-32gb"), library="vllm", group=group)
    measured = load_calibration("a100-sxm-80gb", library="vllm", group=group)
    assert fits is not None
    assert measured is not None
    for ours, theirs in zip(fits.fits, measured.fits, strict=True):
        typical = TYPICAL[theirs.model]
        for name, value in theirs.parameters.items():
            lasts = name.endswith(("_s", "_cycles"))
            is_slow = name in typical and (value > typical[name] if lasts else value < typical[name])
            wanted = sqrt(value * typical[name]) if is_slow else value
            assert ours.parameters[name] == pytest.approx(wanted)
    own = fit_set(load_hardware("a10"), library="vllm", group=group)
    assert own is not None
    for ours, theirs in zip(own.fits, measured.fits, strict=True):
        kept = set(theirs.parameters) - {"unit_bandwidth", "memory_fraction"}
        assert {name: ours.parameters[name] for name in kept} == {name: theirs.parameters[name] for name in kept}


@pytest.mark.parametrize(("library", "keeps_rate"), [("vllm", True), ("sglang", False)])
def test_experts_that_one_kernel_widens_multiply_as_much_a_unit_and_clock_on_faster_units(
    library: str, keeps_rate: bool
) -> None:
    """Marlin is vLLM's on every generation; SGLang took another on Blackwell. VR200's units are twice as fast."""
    hardware = load_hardware("vr200")
    fits = fit_set(hardware, library=library, group="moe")
    assert fits is not None
    relative = load_hardware(fits.relative.name)
    measured = load_calibration(relative.name, library=library, group="moe")
    assert measured is not None
    rates = []
    for spec, found in ((hardware, fits.fits), (relative, measured.fits)):
        share = next(fit for fit in found if fit.format == "w4a16").parameters["compute_fraction"]
        rates.append(share * spec.peak_flops_per_s[Dtype.BF16] / (spec.compute_units * spec.boost_clock_hz))
    assert (rates[0] == pytest.approx(rates[1])) == keeps_rate


@pytest.mark.parametrize("name", ["a6000", "rtx-3090", "a10", "a40", "strix-halo"])
def test_a_card_behind_gddr_reads_weights_no_worse_than_the_measured_ones_behind_gddr(name: str) -> None:
    """They had the share of HBM that A100 and MI300X reach, whose units each take in two to three times as much."""
    hardware = load_hardware(name)
    library = kernel_library(hardware, library="vllm")
    shape = GemmShape(m=np.ones(1), n=28672, k=8192, format=PLAIN)
    timing = library.product(shape)
    assert timing is not None
    assert 0.7 < 2 * 28672 * 8192 / hardware.memory_bytes_per_s / timing.seconds[0] < 0.95
