"""Recurrent kernels: limits of the scan, what decode moves, and who stands in for whom; on the shipped fits."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.kernels.attention.cases import attention_machine
from simulator.kernels.fits import fit_set, lattice_of
from simulator.kernels.recurrent import (
    choose_recurrent_fit,
    convolution_seconds,
    measured_timing,
    recurrent_cases,
    recurrent_timing,
    scan_seconds,
)
from simulator.kernels.timing import Provenance, Timing
from simulator.operators.work import Family, RecurrentShape, Work
from simulator.specs.engine.releases import KernelLibraryName
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.hardware.calibration import KernelFit, load_arrays, load_calibration
from simulator.specs.model.precision import Dtype

NAME = "h100-sxm-80gb"
PLAIN = {
    "launch_s": 1e-5,
    "start_cycles": 1.0,
    "chunk_cycles": 1000.0,
    "memory_fraction": 1.0,
    "l2_speedup": 1.0,
    "overlap": 12.0,
    "scratch": 0.0,
    "conv_launch_s": 2e-6,
    "conv_fraction": 0.5,
    "conv_l2_speedup": 1.0,
}


def shape(
    sequences: object,
    tokens: object,
    *,
    variant: str = "gated_delta",
    heads: float = 32.0,
    decode: bool = False,
    state_dtype: Dtype = Dtype.BF16,
) -> RecurrentShape:
    count, length = np.broadcast_arrays(
        *(np.atleast_1d(np.asarray(value, dtype=float)) for value in (sequences, tokens))
    )
    return RecurrentShape(
        variant=variant,
        sequences=count,
        tokens=length,
        num_heads=heads,
        head_dim=128.0,
        state_size=128.0,
        num_groups=heads / 2,
        conv_kernel=4.0,
        chunk_size=64.0,
        is_decode=decode,
        state_dtype=state_dtype,
    )


def work_of(tokens: np.ndarray) -> Work:
    """Nothing but a name: far below what the scan takes."""
    return Work(
        name="scan", family=Family.RECURRENT, role="mixer", shape=shape(1, tokens), flops=tokens, weight_bytes=tokens,
        kv_bytes=tokens, activation_bytes=tokens,
    )  # fmt: skip


@lru_cache
def fits() -> tuple[KernelFit, ...]:
    calibration = load_calibration(NAME, library="vllm", group="recurrent")
    assert calibration is not None
    return calibration.fits


def price(call: RecurrentShape, *, cold: bool = True) -> Timing:
    fit = choose_recurrent_fit(fits(), shape=call)
    assert fit is not None
    lattice = lattice_of(fit.correction, load_arrays(NAME, library="vllm", group="recurrent"))
    return recurrent_timing(call, hardware=load_hardware(NAME), fit=fit, lattice=lattice, cold=cold)


def test_scan_of_one_wave_is_its_chunks_in_a_row() -> None:
    # 4 x 32 = 128 scans on 132 units: one wave of 6,400 / 64 = 100 chunks of 1,000 cycles.
    hardware = load_hardware(NAME)
    machine = attention_machine(hardware, Dtype.BF16)
    _, compute, _ = scan_seconds(recurrent_cases(shape(4, 6400)), machine=machine, parameters=PLAIN)
    assert compute[0] == pytest.approx((1 + 100 * 1000) / hardware.boost_clock_hz)


def test_convolution_moves_every_channel_in_and_out() -> None:
    # 16 key heads and 32 value heads of 128: (2 x 16 + 32) x 128 = 8,192 channels of 2 bytes, both ways.
    hardware = load_hardware(NAME)
    machine = attention_machine(hardware, Dtype.BF16)
    seconds = convolution_seconds(recurrent_cases(shape(64, 1024)), machine=machine, parameters=PLAIN)
    moved = 64 * 1024 * 8192 * 2 * 2
    assert seconds[0] == pytest.approx(2e-6 + moved / (0.5 * hardware.memory_bytes_per_s))


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("name", ["a100-sxm-80gb", "a100-sxm-40gb"])
def test_a_prompt_on_an_accelerator_whose_tables_hold_none_takes_as_much_longer_as_its_rates_are_lower(
    name: str, engine: KernelLibraryName
) -> None:
    tokens = np.array([4096.0, 32768.0])
    seconds = {}
    for hardware in (load_hardware(name), load_hardware(NAME)):
        tables = partial(fit_set, hardware, library=engine, group="recurrent")
        timing = measured_timing(work_of(tokens), shape(1, tokens), hardware=hardware, tables=tables)
        assert timing is not None
        assert timing.provenance.max() == (Provenance.CALIBRATED if hardware.name == NAME else Provenance.EXTRAPOLATED)
        seconds[hardware.name] = timing.seconds
    assert np.all((seconds[name] > seconds[NAME]) & (seconds[name] < 3.2 * seconds[NAME]))


def test_large_decode_reads_and_writes_the_state() -> None:
    seconds = price(shape([512, 1024], 1, decode=True)).seconds
    state_bytes = 512 * 32 * 128 * 128 * 2 * 2
    assert seconds[1] - seconds[0] >= state_bytes / load_hardware(NAME).memory_bytes_per_s
    assert seconds[1] / seconds[0] == pytest.approx(2.0, rel=0.1)


def test_wider_states_cost_more_to_decode() -> None:
    narrow = price(shape(512, 1, decode=True)).seconds[0]
    wide = price(shape(512, 1, decode=True, state_dtype=Dtype.FP32)).seconds[0]
    assert 1.5 < wide / narrow < 2.1


def test_long_prefill_is_linear_in_tokens() -> None:
    seconds = price(shape(1, [8192, 16384])).seconds
    assert seconds[1] / seconds[0] == pytest.approx(2.0, rel=0.1)


def test_scratch_follows_the_value_heads_and_not_the_keys() -> None:
    """Two layers of equal keys: the one with twice the values moves twice the numbers between its kernels."""
    machine = attention_machine(load_hardware(NAME), Dtype.BF16)

    def extra(heads: float) -> float:
        cases = recurrent_cases(replace(shape(64, 4096, heads=heads), num_groups=4.0))
        scratched = scan_seconds(cases, machine=machine, parameters=PLAIN | {"scratch": 4.0})
        return float((scratched[2] - scan_seconds(cases, machine=machine, parameters=PLAIN)[2])[0])

    assert extra(16.0) == pytest.approx(2.0 * extra(8.0))
    assert extra(8.0) == pytest.approx(64 * 4096 * 8 * 128 * 4.0 * 2.0 / machine.memory_bytes_per_s)


def test_tokens_and_sequences_do_not_make_it_cheaper() -> None:
    by_tokens = price(shape(4, np.geomspace(16, 32768, 60))).seconds
    by_sequences = price(shape(np.geomspace(1, 256, 60), 1024)).seconds
    for seconds in (by_tokens, by_sequences):
        assert np.all(seconds >= 0.9 * np.maximum.accumulate(seconds))


def test_a_cold_state_is_not_faster() -> None:
    call = shape([1, 8, 64], 1, decode=True)
    assert np.all(price(call, cold=True).seconds >= price(call, cold=False).seconds)


def test_mamba_borrows_the_delta_rule_and_says_so() -> None:
    own, borrowed = price(shape(4, 1024)), price(shape(4, 1024, variant="mamba2"))
    assert own.provenance[0] == Provenance.CALIBRATED
    assert borrowed.provenance[0] == Provenance.ASSUMED
    assert borrowed.log_sigma[0] > own.log_sigma[0] + 0.2


@settings(max_examples=40, deadline=None)
@given(
    sequences=st.integers(1, 5000),
    tokens=st.integers(1, 200_000),
    heads=st.sampled_from([1.0, 4.0, 32.0, 96.0]),
    variant=st.sampled_from(["gated_delta", "kda", "mamba2"]),
    decode=st.booleans(),
)
def test_every_call_has_a_finite_price(sequences: int, tokens: int, heads: float, variant: str, decode: bool) -> None:
    timing = price(shape(sequences, 1 if decode else tokens, variant=variant, heads=heads, decode=decode))
    assert np.all(np.isfinite(timing.seconds))
    assert np.all(timing.seconds > 1e-6)
    assert np.all(timing.log_sigma > 0)
