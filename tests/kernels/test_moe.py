"""Routed experts: bounded by the weights they must read, monotone in load, and one expert is an ordinary product."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.kernels.fits import lattice_of
from simulator.kernels.gemm import GemmMachine
from simulator.kernels.moe import (
    BOX_AXES,
    CORRECTION_AXES,
    ExpertLoad,
    correction_points,
    expert_load,
    moe_seconds,
    moe_timing,
    ragged_tiles,
    tokens_on_rank,
)
from simulator.kernels.timing import Provenance
from simulator.operators.work import MatmulFormat, MoeShape
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.hardware.calibration import KernelFit, load_arrays, load_calibration
from simulator.specs.model.precision import Dtype

BF16 = MatmulFormat(name="bf16", weight_bits=16, activation_bits=16, math=Dtype.BF16)
MACHINE = GemmMachine(peak_flops_per_s=1e15, memory_bytes_per_s=3e12, l2_bytes=5e7, compute_units=128)
PARAMETERS = {
    "launch_s": 3e-5,
    "expert_s": 1e-9,
    "compute_fraction": 0.8,
    "prologue": 200.0,
    "half_tile": 10.0,
    "l2_speedup": 1.5,
    "memory_fraction": 0.8,
    "unit_bandwidth": 4.0,
    "overlap": 3.0,
    "pass_speedup": 0.4,
    "pair_s": 1e-12,
}


def load_case(*, tokens: float, distinct: float, assignments: float, local: float = 128.0) -> ExpertLoad:
    fields = (tokens, 4096.0, 1536.0, 8.0, local, distinct, assignments)
    arrays = [np.array([value]) for value in fields]
    return ExpertLoad(
        tokens=arrays[0],
        hidden_size=arrays[1],
        intermediate_size=arrays[2],
        num_experts_per_tok=arrays[3],
        local_experts=arrays[4],
        distinct_experts=arrays[5],
        local_assignments=arrays[6],
    )


def seconds_of(load: ExpertLoad, *, machine: GemmMachine = MACHINE, gated: bool = True, cold: bool = False) -> float:
    terms = moe_seconds(
        load, machine=machine, parameters=PARAMETERS, weight_bytes=2.0, activation_bytes=2.0, gated=gated, cold=cold
    )
    return float(terms.seconds[0])


def shape_of(tokens: list[float], *, intermediate: float = 1536.0) -> MoeShape:
    counts = np.array(tokens)
    return MoeShape(
        tokens=counts,
        hidden_size=4096.0,
        intermediate_size=intermediate,
        num_experts=128.0,
        num_experts_per_tok=8.0,
        local_experts=128.0,
        gated=True,
        distinct_experts=128 * (1 - (1 - 8 / 128) ** counts),
        local_assignments=counts * 8,
        format=BF16,
    )


def fit_of(hardware: str) -> KernelFit:
    calibration = load_calibration(hardware, library="vllm", group="moe")
    assert calibration is not None
    return next(fit for fit in calibration.fits if fit.format == "bf16")


@given(st.floats(1, 30000), st.floats(1, 128), st.floats(1, 100))
def test_never_faster_than_its_weights_or_its_flops(tokens: float, distinct: float, rows: float) -> None:
    load = load_case(tokens=tokens, distinct=distinct, assignments=distinct * rows)
    weights = 3 * 4096 * 1536 * distinct
    assert seconds_of(load) >= 2 * weights / (MACHINE.memory_bytes_per_s * PARAMETERS["l2_speedup"])
    assert seconds_of(load) >= 2 * weights * rows / MACHINE.peak_flops_per_s


@given(st.floats(1, 4000), st.floats(1, 128), st.floats(1, 3))
def test_more_load_never_takes_less_time(tokens: float, distinct: float, factor: float) -> None:
    base = load_case(tokens=tokens, distinct=distinct, assignments=tokens * 8)
    before = seconds_of(base) * (1 - 1e-9)
    assert seconds_of(replace(base, tokens=base.tokens * factor)) >= before
    more_rows = replace(base, local_assignments=base.local_assignments * factor)
    assert seconds_of(more_rows) >= before
    wider = replace(base, intermediate_size=base.intermediate_size * factor)
    assert seconds_of(wider) >= before


@given(st.floats(1, 30000), st.floats(1, 128), st.floats(1, 4))
def test_better_hardware_is_never_slower(tokens: float, distinct: float, factor: float) -> None:
    load = load_case(tokens=tokens, distinct=distinct, assignments=tokens * 8)
    before = seconds_of(load) * (1 + 1e-9)
    wider = GemmMachine(peak_flops_per_s=1e15, memory_bytes_per_s=3e12 * factor, l2_bytes=5e7, compute_units=128)
    faster = GemmMachine(peak_flops_per_s=1e15 * factor, memory_bytes_per_s=3e12, l2_bytes=5e7, compute_units=128)
    assert seconds_of(load, machine=wider) <= before
    assert seconds_of(load, machine=faster) <= before


@given(st.integers(1, 8))
def test_experts_that_all_get_whole_tiles_of_rows_take_less_than_a_routers(tiles: int) -> None:
    """Rows that scatter leave half a tile of each expert empty."""
    routed = load_case(tokens=2048.0, distinct=128.0, assignments=128.0 * 128.0 * tiles)
    assert seconds_of(replace(routed, even=np.array([True]))) < seconds_of(routed)
    assert seconds_of(replace(routed, even=np.array([False]))) == seconds_of(routed)


@given(st.floats(1, 4096), st.floats(1, 128), st.floats(1.0, 64.0))
def test_tensor_units_multiply_at_least_what_was_asked(tokens: float, distinct: float, rows: float) -> None:
    """At their peak, and no longer than the products that they multiply for."""
    load = load_case(tokens=tokens, distinct=distinct, assignments=distinct * rows)
    terms = moe_seconds(
        load, machine=MACHINE, parameters=PARAMETERS, weight_bytes=2.0, activation_bytes=2.0, gated=True
    )
    asked_s = 2.0 * distinct * rows * 3.0 * 4096.0 * 1536.0 / MACHINE.peak_flops_per_s
    assert asked_s * (1 - 1e-9) <= terms.tensor_s[0] <= terms.compute_s[0] * (1 + 1e-9)


def test_experts_of_a_step_come_from_memory() -> None:
    """A benchmark that repeats one layer finds the few experts of one token in the L2; among all layers nothing is."""
    few = load_case(tokens=1.0, distinct=1.0, assignments=1.0)
    many = load_case(tokens=128.0, distinct=128.0, assignments=1024.0)
    weights_s = 2 * 3 * 4096 * 1536 / MACHINE.memory_bytes_per_s
    assert seconds_of(few, cold=True) > seconds_of(few) + 0.1 * weights_s
    assert seconds_of(many, cold=True) == pytest.approx(seconds_of(many), rel=1e-3)


def test_gate_costs_a_third_matrix() -> None:
    load = load_case(tokens=64.0, distinct=126.0, assignments=512.0)
    assert 1.3 < seconds_of(load) / seconds_of(load, gated=False) < 1.5


def test_decode_time_follows_the_distinct_experts() -> None:
    """With one row each, twice the experts read twice the weights."""
    few, many = (load_case(tokens=8.0, distinct=each, assignments=each) for each in (32.0, 64.0))
    floor = PARAMETERS["launch_s"]
    assert (seconds_of(many) - floor) / (seconds_of(few) - floor) == pytest.approx(2.0, rel=0.1)


@given(st.floats(1, 1e5), st.sampled_from([16.0, 64.0, 128.0]))
def test_ragged_tiles_lie_between_one_and_one_more_than_full(rows: float, tile: float) -> None:
    tiles = float(ragged_tiles(np.array(rows), np.array(tile)))
    assert max(1.0, rows / tile) <= tiles <= rows / tile + 1.0


def test_ragged_tiles_against_a_draw() -> None:
    draws = np.random.default_rng(7).exponential(100.0, 200_000)
    assert float(ragged_tiles(np.array(100.0), np.array(64.0))) == pytest.approx(np.ceil(draws / 64).mean(), rel=0.01)


def test_shape_becomes_load_of_one_length() -> None:
    load = expert_load(shape_of([1.0, 64.0, 4096.0]))
    assert all(len(field) == 3 for field in (load.tokens, load.hidden_size, load.local_experts, load.distinct_experts))
    assert load.rows_per_expert[0] == pytest.approx(1.0)
    assert correction_points(load).shape == (3, len(BOX_AXES))
    assert BOX_AXES[: len(CORRECTION_AXES)] == CORRECTION_AXES


# vLLM 0.24.0, H100, bf16, hidden 2048, inter 768, 8 of 128 experts, balanced (aiconfigurator-core 0.12.0) [us].
@pytest.mark.parametrize(
    ("tokens", "measured_us", "tolerance"), [(1, 49.0, 0.2), (16, 420.0, 0.2), (128, 450.0, 0.2), (8192, 1489.0, 0.2)]
)
def test_measured_kernels(tokens: float, measured_us: float, tolerance: float) -> None:
    fit = fit_of("h100-sxm-80gb")
    lattice = lattice_of(fit.correction, load_arrays("h100-sxm-80gb", library="vllm", group="moe"))
    shape = MoeShape(
        tokens=np.array([float(tokens)]),
        hidden_size=2048.0,
        intermediate_size=768.0,
        num_experts=128.0,
        num_experts_per_tok=8.0,
        local_experts=128.0,
        gated=True,
        distinct_experts=np.array([min(128.0, 8.0 * tokens)]),
        local_assignments=np.array([8.0 * tokens]),
        format=BF16,
    )
    timing = moe_timing(shape, hardware=load_hardware("h100-sxm-80gb"), fit=fit, lattice=lattice)
    assert timing.seconds[0] * 1e6 == pytest.approx(measured_us, rel=tolerance)
    assert timing.provenance[0] == Provenance.CALIBRATED


@pytest.mark.parametrize("hardware", ["a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm"])
def test_shipped_calibrations_meet_their_bar(hardware: str) -> None:
    error = fit_of(hardware).error
    assert error.score_mape <= 0.12
    assert error.score_points > 100


def test_beyond_the_box_it_is_extrapolated_and_wider() -> None:
    fit, hardware = fit_of("h100-sxm-80gb"), load_hardware("h100-sxm-80gb")
    inside = moe_timing(shape_of([64.0]), hardware=hardware, fit=fit, lattice=None)
    beyond = moe_timing(shape_of([64.0], intermediate=262144.0), hardware=hardware, fit=fit, lattice=None)
    assert inside.provenance[0] == Provenance.CALIBRATED
    assert beyond.provenance[0] == Provenance.EXTRAPOLATED
    assert beyond.log_sigma[0] > inside.log_sigma[0]


def spread_over(ranks: float, *, tokens: float, exchanged: bool = True) -> MoeShape:
    """A layer of 256 experts, eight a token, spread evenly over ``ranks``."""
    local = 256.0 / ranks
    return replace(
        shape_of([tokens]),
        num_experts=256.0,
        local_experts=local,
        distinct_experts=np.array([local]),
        local_assignments=np.array([8.0 * tokens / ranks]),
        exchanged=exchanged,
    )


@given(st.floats(2, 256), st.floats(1, 1e6), st.floats(1, 1e5))
def test_a_rank_holds_what_all_to_all_brings_or_what_its_table_held(ranks: float, tokens: float, most: float) -> None:
    shape = spread_over(ranks, tokens=tokens)
    held = tokens_on_rank(shape, most_measured=most)[0]
    pairs = shape.local_assignments[0]
    assert pairs / 8 <= tokens_on_rank(shape, most_measured=0.0)[0] * (1 + 1e-9)
    assert tokens_on_rank(shape, most_measured=0.0)[0] <= min(pairs, tokens) * (1 + 1e-9)
    assert held == pytest.approx(min(tokens, max(most, tokens_on_rank(shape, most_measured=0.0)[0])))
    assert tokens_on_rank(replace(shape, exchanged=False), most_measured=most)[0] == tokens


def test_tokens_that_a_rank_receives_against_a_draw() -> None:
    chosen = np.random.default_rng(0).permuted(np.tile(np.arange(256), (20000, 1)), axis=1)[:, :8]
    received = np.mean((chosen < 256 / 16).any(axis=1))
    expected = tokens_on_rank(spread_over(16, tokens=1.0), most_measured=0.0)[0]
    assert expected == pytest.approx(received, rel=0.03)


def test_more_ranks_with_as_many_tokens_each_do_not_slow_their_experts_without_end() -> None:
    fit, hardware = fit_of("h100-sxm-80gb"), load_hardware("h100-sxm-80gb")
    for ranks in (64.0, 128.0, 256.0):
        near, far = (
            moe_timing(spread_over(each, tokens=1024 * each), hardware=hardware, fit=fit, lattice=None).seconds[0]
            for each in (ranks / 2, ranks)
        )
        assert far < 1.05 * near
