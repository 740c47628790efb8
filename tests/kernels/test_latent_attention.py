"""Latent attention: time follows the work of the form that runs, decode follows memory or the tensor cores."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.kernels.attention.cases import attention_cases, attention_machine, choose_attention_fit
from simulator.kernels.attention.latent import LAUNCH_S, REREAD, latent_decode_seconds, latent_grid_of, tile_rows
from simulator.kernels.library import KernelLibrary, kernel_library
from simulator.operators.work import AttentionShape
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.hardware.calibration import load_calibration
from simulator.specs.model.precision import Dtype

HOPPER = [(gpu, library) for gpu in ("h100-sxm-80gb", "h200-sxm-141gb") for library in ("vllm", "sglang", "trtllm")]
LATENT_BYTES = 576.0


def kernels(gpu: str, library: str) -> KernelLibrary:
    return kernel_library(load_hardware(gpu), library=library)


def call(
    sequences: float, query: float, context: float, *, heads: float, keys: float, values: float, kv: Dtype = Dtype.BF16
) -> AttentionShape:
    absorbed = keys == 576.0
    return AttentionShape(
        sequences=np.array([sequences]),
        query_tokens=np.array([query]),
        context_tokens=np.array([context]),
        num_heads=heads,
        num_kv_heads=1.0 if absorbed else heads,
        head_dim=keys,
        v_head_dim=values,
        window=None,
        causal=True,
        shared_kv=absorbed,
        is_decode=query == 1,
        compute_dtype=Dtype.BF16,
        kv_dtype=kv,
    )


def seconds(gpu: str, library: str, shape: AttentionShape) -> float:
    timing = kernels(gpu, library).attention_call(shape)
    assert timing is not None
    return float(timing.seconds[0])


def context_slope(gpu: str, library: str, *, heads: float, kv: Dtype) -> float:
    """Seconds per cached token of 64 sequences."""
    short, long = (
        seconds(gpu, library, call(64, 1, tokens, heads=heads, keys=576.0, values=512.0, kv=kv))
        for tokens in (4095.0, 16383.0)
    )
    return (long - short) / (64 * 12288)


@pytest.mark.parametrize(
    ("gpu", "library"), [*HOPPER, ("l40s", "vllm"), ("rtx-pro-6000", "vllm"), ("b200-sxm", "vllm")]
)
def test_expanded_prefill_costs_what_dense_heads_of_the_same_work_cost(gpu: str, library: str) -> None:
    """Keys of 192 and values of 128 multiply 1.25 times what heads of 128 do."""
    latent = seconds(gpu, library, call(1, 16384, 0, heads=16, keys=192.0, values=128.0))
    dense = seconds(gpu, library, call(1, 16384, 0, heads=16, keys=128.0, values=128.0))
    assert 0.7 < latent / dense / 1.25 < 1.6


@pytest.mark.parametrize(("gpu", "library"), HOPPER)
def test_an_8_bit_cache_does_not_slow_latent_prefill(gpu: str, library: str) -> None:
    wide, narrow = (
        seconds(gpu, library, call(1, 8192, 0, heads=16, keys=192.0, values=128.0, kv=kv))
        for kv in (Dtype.BF16, Dtype.FP8)
    )
    assert narrow < 1.1 * wide


@pytest.mark.parametrize(("gpu", "library"), HOPPER)
@pytest.mark.parametrize(("kv", "element_bytes"), [(Dtype.BF16, 2.0), (Dtype.FP8, 1.0)])
def test_few_heads_decode_at_the_rate_of_the_memory(gpu: str, library: str, kv: Dtype, element_bytes: float) -> None:
    slope = context_slope(gpu, library, heads=16, kv=kv)
    share = LATENT_BYTES * element_bytes / slope / load_hardware(gpu).memory_bytes_per_s
    assert 0.55 < share <= 1.0


@pytest.mark.parametrize(("gpu", "library"), HOPPER)
@pytest.mark.parametrize("kv", [Dtype.BF16, Dtype.FP8])
def test_128_heads_decode_at_the_rate_of_the_tensor_cores(gpu: str, library: str, kv: Dtype) -> None:
    """242 FLOPs a byte of 16-bit latents, twice that of 8-bit ones: near and beyond Hopper's ridge."""
    slope = context_slope(gpu, library, heads=128, kv=kv)
    peak = load_hardware(gpu).peak_flops_per_s[kv]
    assert 0.3 < 2.0 * 128 * (576 + 512) / slope / peak <= 1.0


def test_an_8_bit_cache_never_costs_more_than_twice_its_sibling() -> None:
    """The table of SGLang on Hopper converted the whole cache before every call: 4 to 7 times the 16-bit time."""
    for gpu, library in HOPPER:
        for heads in (16.0, 128.0):
            narrow, wide = (context_slope(gpu, library, heads=heads, kv=kv) for kv in (Dtype.FP8, Dtype.BF16))
            assert narrow < 1.15 * wide


def test_absorbed_prefill_takes_the_absorbed_fit_where_it_was_measured() -> None:
    calibration = load_calibration("h100-sxm-80gb", library="sglang", group="attention")
    assert calibration is not None
    sparse = call(1, 4096, 0, heads=16, keys=576.0, values=512.0)
    choice = choose_attention_fit(calibration.fits, shape=sparse)
    assert choice is not None
    assert (choice.fit.variant, choice.log_sigma_extra) == ("mla_absorbed", 0.0)
    assert 0.5 < choice.fit.parameters["tensor_fraction"] < 0.9


@pytest.mark.parametrize("library", ["vllm", "sglang", "trtllm"])
def test_latent_fits_are_shares_of_what_the_device_has(library: str) -> None:
    for gpu in ("h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm", "gb200", "l40s", "rtx-pro-6000"):
        calibration = load_calibration(gpu, library=library, group="attention")
        assert calibration is not None
        for fit in calibration.fits:
            if fit.variant.startswith("mla"):
                assert 0.0 < fit.parameters["tensor_fraction"] <= 1.0
                assert 0.0 < fit.parameters["memory_fraction"] <= 1.0


IDEAL = {
    "tensor_fraction": 1.0,
    "memory_fraction": 1.0,
    "part_cycles": 0.0,
    "query_passes": 0.0,
    "merge_s": 0.0,
    "tile_rows": 64.0,
    "narrow_heads": 0.0,
}


@pytest.mark.parametrize("heads", [1.0, 16.0, 64.0, 128.0])
def test_an_ideal_kernel_takes_the_roofline_of_its_padded_heads(heads: float) -> None:
    """Between the larger of the two limits and their smooth maximum, 2 ** (1/4) times it."""
    hardware = load_hardware("h100-sxm-80gb")
    machine = attention_machine(hardware, Dtype.BF16)
    cases = attention_cases(call(132, 1, 65535, heads=heads, keys=576.0, values=512.0))
    grid = latent_grid_of(cases, machine=machine, parameters=IDEAL)
    terms = latent_decode_seconds(cases, grid=grid, machine=machine, parameters=IDEAL)
    keys = 132 * 65536
    tiles = np.ceil(heads / 64)
    read = (1 + REREAD * (tiles - 1)) * keys * 1152
    limit = max(2 * 64 * tiles * keys * 1088 / machine.peak_flops_per_s, read / machine.memory_bytes_per_s)
    assert limit * 0.999 <= terms.seconds[0] - LAUNCH_S <= limit * 2**0.25


def test_narrow_tiles_read_the_latents_once_each() -> None:
    """32 heads in two tiles of 16 cost REREAD more than 16 heads in one."""
    machine = attention_machine(load_hardware("b200-sxm"), Dtype.BF16)
    parameters = {**IDEAL, "narrow_heads": 32.0}
    seconds = []
    for heads in (16.0, 32.0, 64.0):
        cases = attention_cases(call(512, 1, 32767, heads=heads, keys=576.0, values=512.0))
        assert tile_rows(cases, parameters)[0] == (16.0 if heads <= 32 else 64.0)
        grid = latent_grid_of(cases, machine=machine, parameters=parameters)
        terms = latent_decode_seconds(cases, grid=grid, machine=machine, parameters=parameters)
        seconds.append(float(terms.memory_s[0]))
    assert seconds[1] == pytest.approx((1 + REREAD) * seconds[0])
    assert seconds[2] == pytest.approx(seconds[0])
