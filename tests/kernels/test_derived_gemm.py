"""Products in formats without measurements: laws of the derivation, and a table that it never saw."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.errors import RoofcastError
from simulator.kernels.engine_traits import passes_of
from simulator.kernels.fits import fit_set
from simulator.kernels.format_choice import dequantise_seconds, derived_gemm_timing, format_family, multiplied_blocks
from simulator.kernels.library import KernelLibrary, kernel_library
from simulator.kernels.timing import Provenance, Timing
from simulator.operators.formats.schemes import fixed_format, format_of_pair, scheme_named
from simulator.operators.formats.sparse_formats import sparse_product
from simulator.operators.work import Family, GemmShape, MatmulFormat, Work
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.precision import Dtype, FormatKernelSpec, load_format_kernels

M = np.array([1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0])
N, K = 28672.0, 8192.0
BF16 = format_of_pair(Dtype.BF16, None, plain=Dtype.BF16)
SHIPPED = load_format_kernels()
GPUS = ("a100-sxm-80gb", "h100-sxm-80gb", "l40s", "b200-sxm", "rtx-4090", "mi300x")


def scheme(name: str) -> MatmulFormat:
    return scheme_named(name, plain=Dtype.BF16).format


def price(library: KernelLibrary, product: MatmulFormat, *, m: np.ndarray = M, n: float = N, k: float = K) -> Timing:
    stored = n * k * product.weight_bits / 8
    work = Work(
        name="product",
        family=Family.GEMM,
        role="mlp",
        shape=GemmShape(m=m, n=n, k=k, format=product),
        count=1.0,
        flops=2.0 * m * n * k,
        weight_bytes=np.full_like(m, stored),
        kv_bytes=np.zeros_like(m),
        activation_bytes=2.0 * m * (n + k),
    )
    return library.price(work)


@pytest.mark.parametrize("hardware", GPUS)
@pytest.mark.parametrize("name", ["gptq-g128", "awq", "rtn-8bit", "mxfp4", "w8a8"])
def test_narrow_weights_are_never_slower_for_one_token_and_never_beat_their_bytes(hardware: str, name: str) -> None:
    library = kernel_library(load_hardware(hardware), library="vllm")
    product = scheme(name)
    one = np.ones(1)
    gain = price(library, BF16, m=one).seconds / price(library, product, m=one).seconds
    assert 1.0 < gain[0] < 1.25 * 16 / product.weight_bits


@pytest.mark.parametrize("hardware", ["a100-sxm-80gb", "h100-sxm-80gb"])
def test_more_tokens_never_take_less_time_and_weight_only_ends_at_the_compute_roof(hardware: str) -> None:
    library = kernel_library(load_hardware(hardware), library="vllm")
    four = price(library, scheme("gptq-g128")).seconds
    assert np.all(np.diff(four) > -0.02 * four[:-1])
    assert 1.0 < four[-1] / price(library, BF16).seconds[-1] < 1.25


@pytest.mark.parametrize("hardware", [*GPUS, "mi355x", "gaudi3"])
@pytest.mark.parametrize("name", ["awq", "rtn-8bit", "q4_k_m"])
def test_weight_only_saves_the_stream_of_weights_and_no_arithmetic(hardware: str, name: str) -> None:
    if (name, hardware) == ("q4_k_m", "rtx-4090"):
        pytest.skip("integers, which multiply its blocks, run at four times the rate of its halved 16-bit products")
    spec = load_hardware(hardware)
    library, product, many = kernel_library(spec, library="vllm"), scheme(name), np.array([1024.0, 8192.0, 65536.0])
    saved_s = N * K * (16 - product.weight_bits) / 8 / spec.memory_bytes_per_s
    # Kernels reach at least a third of the bandwidth.
    assert np.all(price(library, product, m=many).seconds > price(library, BF16, m=many).seconds - 3 * saved_s)


@pytest.mark.parametrize(
    ("hardware", "conversions"), [("a100-sxm-80gb", 108 * 16 * 1.41e9), ("l40s", 142 * 16 * 2.52e9)]
)
def test_prompts_over_blocks_wait_for_their_sums_to_be_converted(hardware: str, conversions: float) -> None:
    """llama.cpp multiplies 32 inner elements in 8 bits, then turns each sum into a float: 16 a clock and SM."""
    library = kernel_library(load_hardware(hardware), library="torch")
    blocks, wide = (price(library, product, m=np.array([512.0, 8192.0])) for product in (scheme("q4_0"), BF16))
    least_s = np.array([512.0, 8192.0]) * N * K / 32 / conversions
    assert np.all((1.2 * least_s < blocks.seconds) & (blocks.seconds < 5 * least_s))
    assert np.all(blocks.seconds > 1.2 * wide.seconds), "vector units are what is left to wait for"


def test_blocks_are_multiplied_in_16_bits_where_matrix_units_have_no_integers() -> None:
    family = SHIPPED.family("ggml")
    for hardware, whole in (("v100-sxm-32gb", True), ("apple-m4-max", True), ("mi300x", True), ("t4", False)):
        assert (multiplied_blocks(family, load_hardware(hardware)) is None) == whole


@pytest.mark.parametrize("hardware", ["rtx-4090", "h100-sxm-80gb", "mi300x", "apple-m4-max"])
def test_blocks_of_llama_cpp_pay_for_one_more_token_what_a_token_takes(hardware: str) -> None:
    library = kernel_library(load_hardware(hardware), library="torch")
    seconds = price(library, scheme("q4_k_m"), m=np.arange(1.0, 65)).seconds
    assert np.all(seconds[1:] < 2.1 * seconds[:-1]), "a row of tiles more, no copy of all weights"


@pytest.mark.parametrize("hardware", ["apple-m4-max", "apple-m4-pro", "rtx-3090", "rtx-4090", "a6000"])
def test_one_token_multiplies_blocks_on_vector_units_and_fills_no_tile(hardware: str) -> None:
    library = kernel_library(load_hardware(hardware), library="torch")
    product, one = scheme("q4_0"), np.ones(1)
    gain = price(library, BF16, m=one).seconds / price(library, product, m=one).seconds
    # Sixteen rows of a tile would take 1.7 times the weights' stream on an M4 Max, whose lanes are its matrix units.
    assert 0.75 * 16 / product.weight_bits < gain[0] < 1.05 * 16 / product.weight_bits


def test_dequantisation_is_what_weight_only_loses_by() -> None:
    hardware = load_hardware("a100-sxm-80gb")
    fits = fit_set(hardware, library="sglang", group="gemm")
    assert fits is not None
    fit = fits.find(family="gemm", fmt="bf16")
    assert fit is not None
    family = SHIPPED.family("marlin")
    times = []
    for operations in (0.0, 1.0, 4.0):
        changed = family.model_copy(update={"dequantise_ops": operations})
        shape = GemmShape(m=M, n=N, k=K, format=scheme("gptq-g128"))
        times.append(derived_gemm_timing(shape, hardware=hardware, fit=fit, lattice=None, family=changed).seconds)
    assert np.all(times[1] >= times[0])
    assert np.all(times[2] >= times[1])
    assert times[2][-1] > 1.2 * times[0][-1]
    assert times[1][0] < 1.25 * times[0][0], "mostly hidden behind the stream of weights for one token"


def test_widening_a_weight_takes_lanes_of_one_unit_and_gathers_from_the_cache() -> None:
    hardware = load_hardware("a100-sxm-80gb")
    fits = fit_set(hardware, library="sglang", group="gemm")
    assert fits is not None
    fit = fits.find(family="gemm", fmt="bf16")
    assert fit is not None
    family = SHIPPED.family("aqlm").model_copy(update={"dequantise_ops": 1.0})
    small, large = scheme("aqlm-2x8"), scheme("aqlm-1x16")
    lanes = dequantise_seconds(small, family=family, hardware=hardware, fit=fit)
    # 64 lanes a unit at 1.41 GHz (A100 white paper): one instruction a weight.
    assert lanes == pytest.approx(1 / (64 * 1.41e9), rel=0.01)
    assert dequantise_seconds(large, family=family, hardware=hardware, fit=fit) > lanes


def test_wide_copies_are_written_above_the_rows_that_the_fused_kernel_takes() -> None:
    library = kernel_library(load_hardware("a100-sxm-80gb"), library="torch")
    eight = price(library, scheme("rtn-8bit")).seconds
    wide = price(library, BF16).seconds
    assert eight[0] < wide[0]
    assert np.all(eight[1:] > wide[1:])


@pytest.mark.parametrize("hardware", ["a100-sxm-80gb", "h100-sxm-80gb", "l40s"])
def test_two_of_four_gains_and_never_twice(hardware: str) -> None:
    library = kernel_library(load_hardware(hardware), library="vllm")
    for dense in (BF16, fixed_format("w8a8")):
        sparse = sparse_product(dense, kept=2, of=4)
        gain = price(library, dense).seconds / price(library, sparse).seconds
        assert np.all(gain <= 2.0 * 1.05)
        assert gain[-1] > 1.0
    halved = price(library, BF16).seconds / price(library, sparse_product(BF16, kept=2, of=4)).seconds
    assert np.all(halved > 1.0)
    assert np.all(halved < 2.0)


def test_smoothquant_levels_are_ordered_by_their_passes() -> None:
    library = kernel_library(load_hardware("a100-sxm-80gb"), library="torch")
    times = [price(library, scheme(f"smoothquant-o{level}")).seconds for level in (1, 2, 3)]
    assert np.all(times[0] > times[1])
    assert np.all(times[1] > times[2])


def test_llm_int8_pays_for_its_outliers() -> None:
    library = kernel_library(load_hardware("a100-sxm-80gb"), library="torch")
    product = scheme("llm.int8")
    with_outliers = price(library, product).seconds
    assert np.all(with_outliers > price(library, scheme("w8a8")).seconds)
    assert product.outlier_fraction > 0
    assert product.launches > 10


def test_int8_takes_the_measured_products_of_its_own_accelerator_and_the_derived_ones_elsewhere() -> None:
    int8 = fixed_format("w8a8")
    known = {
        hardware: price(kernel_library(load_hardware(hardware), library="vllm"), int8).provenance[0]
        for hardware in ("a100-sxm-80gb", "h100-sxm-80gb")
    }
    assert known["a100-sxm-80gb"] == Provenance.CALIBRATED
    assert known["h100-sxm-80gb"] == Provenance.EXTRAPOLATED


@pytest.mark.parametrize("name", ["w4a16", "w8a16", "int8"])
def test_derived_products_stay_near_the_table_that_trtllm_measured(name: str) -> None:
    """The table's own fits against the derivation from bf16, over sizes of real layers (A100)."""
    hardware = load_hardware("a100-sxm-80gb")
    fits = fit_set(hardware, library="trtllm", group="gemm")
    assert fits is not None
    fit = fits.find(family="gemm", fmt="bf16")
    assert fit is not None
    measured = kernel_library(hardware, library="trtllm")
    product = {"w4a16": scheme("gptq"), "w8a16": scheme("rtn-8bit"), "int8": scheme("smoothquant-o3")}[name]
    family = SHIPPED.family("cutlass" if name == "int8" else "trtllm")
    errors = []
    for n, k in ((12288.0, 4096.0), (28672.0, 8192.0), (8192.0, 28672.0), (5120.0, 13824.0)):
        shape = GemmShape(m=M, n=n, k=k, format=product)
        ours = derived_gemm_timing(shape, hardware=hardware, fit=fit, lattice=fits.lattice(fit), family=family).seconds
        theirs = price(measured, product, n=n, k=k).seconds
        errors.append(np.abs(ours / theirs - 1))
    assert np.mean(errors) < 0.15


def test_experts_of_an_unmeasured_format_follow_the_sixteen_bit_ones() -> None:
    from simulator import deploy, estimate_step, load_model
    from simulator.operators.work import decode_step
    from simulator.specs.model.precision import PrecisionSpec

    seconds = {}
    for name in ("bf16", "rtn-8bit", "gptq-g128", "w8a8"):
        replica = deploy(
            model=load_model("mixtral-8x7b"), hardware=load_hardware("a100"), precision=PrecisionSpec(scheme=name)
        )
        rows = estimate_step(replica, decode_step(sequences=[64.0], context=128.0)).rows
        seconds[name] = sum(float(row.seconds[0]) for row in rows if row.work.name == "experts")
    assert seconds["gptq-g128"] < seconds["rtn-8bit"] < seconds["bf16"]
    assert seconds["w8a8"] < seconds["bf16"]


def test_every_scheme_names_a_family_that_multiplies_it() -> None:
    from simulator.operators.formats.schemes import SCHEME_NAMES

    for name in SCHEME_NAMES:
        product = scheme(name)
        if product.name in ("bf16", "fp16"):
            continue
        for library in ("vllm", "sglang", "trtllm", "torch"):
            family = format_family(product, library=library)
            assert family is not None, name
            assert product.name in family.formats, name


def test_a_family_that_cannot_is_refused() -> None:
    product = MatmulFormat(name="nf4", weight_bits=4.1, activation_bits=16, math=Dtype.BF16, kernel="marlin")
    with pytest.raises(RoofcastError, match="do not multiply"):
        format_family(product, library="vllm")
    with pytest.raises(RoofcastError, match="did you mean marlin"):
        SHIPPED.family("marlinn")


def test_the_pass_over_the_activations_is_counted_once() -> None:
    product = fixed_format("w8a8")
    assert passes_of(product, contained=True) is None
    alone = passes_of(product, contained=False)
    assert alone is not None
    assert alone.input_bytes == 3.0
    assert passes_of(fixed_format("smoothquant-o3"), contained=False) is None


def test_every_family_says_where_it_comes_from_and_fits_are_scored_elsewhere() -> None:
    for family in SHIPPED.families:
        assert len(family.source) > 20, family.name
        if family.known_as == "fitted":
            assert family.fitted_on, family.name
            assert family.scored_on, family.name
    used = {name for scope in SHIPPED.defaults.values() for name in scope.values()}
    assert used <= {family.name for family in SHIPPED.families}


def test_a_table_with_a_family_twice_is_refused() -> None:
    from simulator.specs.model.precision import FormatKernelTable

    family = FormatKernelSpec(name="a", formats=("x",), log_sigma=0.1, known_as="assumed", source="nobody")
    with pytest.raises(ValueError, match="twice"):
        FormatKernelTable(date="2026-11-21", families=(family, family), defaults={})
