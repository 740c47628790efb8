"""Attention kernels: limits, monotonicity, and what windows, groups and cold caches do; on the shipped fits."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import ProfileError
from simulator.kernels.attention.cases import AttentionCases, attention_machine, choose_attention_fit
from simulator.kernels.attention.decode import (
    SplitRule,
    balanced_splits,
    decode_attention_timing,
    decode_grid,
    decode_seconds,
    efficient_splits,
)
from simulator.kernels.attention.prefill import attention_timing, prefill_grid, visible_keys
from simulator.kernels.fits import lattice_of
from simulator.kernels.timing import Lattice, Provenance, Timing
from simulator.operators.work import AttentionShape
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.hardware.calibration import KernelFit, load_arrays, load_calibration
from simulator.specs.model.precision import Dtype

WIGGLE = 0.12
"""How far a longer or larger call may seem cheaper: waves and split rules are steps, and the lattice is fitted."""


def shape(
    sequences: object,
    query: object,
    context: object,
    *,
    heads: float = 32.0,
    kv_heads: float = 8.0,
    head_dim: float = 128.0,
    window: float | None = None,
    decode: bool = False,
    kv_dtype: Dtype = Dtype.BF16,
    compute: Dtype = Dtype.BF16,
) -> AttentionShape:
    arrays = np.broadcast_arrays(
        *(np.atleast_1d(np.asarray(value, dtype=float)) for value in (sequences, query, context))
    )
    return AttentionShape(
        sequences=arrays[0],
        query_tokens=arrays[1],
        context_tokens=arrays[2],
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        v_head_dim=head_dim,
        window=window,
        causal=True,
        shared_kv=False,
        is_decode=decode,
        compute_dtype=compute,
        kv_dtype=kv_dtype,
    )


@lru_cache
def calibrated(name: str) -> tuple[AcceleratorSpec, tuple[KernelFit, ...]]:
    calibration = load_calibration(name, library="vllm", group="attention")
    assert calibration is not None
    return load_hardware(name), calibration.fits


@lru_cache
def lattice(name: str, fit_key: str) -> Lattice | None:
    _, fits = calibrated(name)
    fit = next(fit for fit in fits if f"{fit.family}.{fit.format}.{fit.variant}" == fit_key)
    return lattice_of(fit.correction, load_arrays(name, library="vllm", group="attention"))


def price(call: AttentionShape, *, name: str = "h100-sxm-80gb", cold: bool = True, corrected: bool = True) -> Timing:
    hardware, fits = calibrated(name)
    choice = choose_attention_fit(fits, shape=call)
    assert choice is not None
    fit = choice.fit
    values = lattice(name, f"{fit.family}.{fit.format}.{fit.variant}") if corrected else None
    timing = decode_attention_timing if call.is_decode else attention_timing
    return timing(call, hardware=hardware, fit=fit, lattice=values, cold=cold)


def one_case(
    *, sequences: float, query: float, context: float, kv_heads: float, group: float, window: float = np.inf
) -> AttentionCases:
    def column(value: float) -> np.ndarray:
        return np.array([value])

    return AttentionCases(
        sequences=column(sequences),
        query_tokens=column(query),
        context_tokens=column(context),
        num_kv_heads=column(kv_heads),
        group=column(group),
        head_dim=column(128.0),
        v_head_dim=column(128.0),
        window=column(window),
        kv_element_bytes=column(2.0),
    )


# --- the grid, by hand ------------------------------------------------------------------------------------------


def test_causal_grid_counts_the_triangle() -> None:
    # 1024 queries, 128 rows a tile, 128 keys a block, one head: 8 tiles that see 1, 2, ..., 8 blocks.
    grid = prefill_grid(
        one_case(sequences=1, query=1024, context=0, kv_heads=1, group=1),
        compute_units=132,
        tile_rows=128,
        packs_group=True,
        split_rule=SplitRule.OWN,
    )
    assert grid.tiles[0] == 8
    assert grid.mean_blocks[0] == pytest.approx(4.5)
    assert grid.longest_blocks[0] == 8


def test_packing_a_group_keeps_the_tiles_of_its_rows() -> None:
    # 4 query heads share a KV head: 256 queries are 1024 packed rows, 8 tiles of 32 queries each.
    case = one_case(sequences=2, query=256, context=512, kv_heads=3, group=4)
    packed = prefill_grid(case, compute_units=132, tile_rows=128, packs_group=True, split_rule=SplitRule.OWN)
    apart = prefill_grid(case, compute_units=132, tile_rows=128, packs_group=False, split_rule=SplitRule.OWN)
    assert packed.tiles[0] == 2 * 3 * 8
    assert apart.tiles[0] == 2 * 12 * 2
    assert packed.longest_blocks[0] == apart.longest_blocks[0] == 6


def test_many_tiles_are_sampled_without_bias() -> None:
    # 16,384 queries: 128 tiles with 1..128 blocks, of which 16 are counted.
    grid = prefill_grid(
        one_case(sequences=1, query=16384, context=0, kv_heads=1, group=1),
        compute_units=132,
        tile_rows=128,
        packs_group=True,
        split_rule=SplitRule.OWN,
    )
    assert grid.mean_blocks[0] == pytest.approx(64.5, rel=0.02)


def test_full_grids_do_not_split_their_keys() -> None:
    tiles, blocks = np.array([1.0, 100.0, 132.0, 1000.0]), np.full(4, 64.0)
    efficient = efficient_splits(tiles, blocks, slots=132.0)
    balanced = balanced_splits(tiles, blocks, tiles_of_one=tiles, slots=132.0)
    assert efficient[0] > 16
    assert balanced[0] > 16
    assert efficient[2:].tolist() == [1.0, 1.0]
    assert balanced[2:].tolist() == [1.0, 1.0]


def test_few_keys_are_never_split_by_flash_attention_3() -> None:
    splits = balanced_splits(np.array([1.0]), np.array([4.0]), tiles_of_one=np.array([1.0]), slots=132.0)
    assert splits[0] == 1.0


def test_heads_without_a_group_are_not_split_by_flash_attention_2() -> None:
    case = one_case(sequences=1, query=1, context=32767, kv_heads=8, group=1)
    grid = decode_grid(case, compute_units=108, tile_rows=64, split_rule=SplitRule.EFFICIENT)
    assert grid.splits.tolist() == [[1.0]]
    assert not grid.copies_queries[0]


def test_flash_attention_2_packs_a_group_only_without_a_window() -> None:
    free = one_case(sequences=4, query=1, context=4095, kv_heads=8, group=4)
    local = one_case(sequences=4, query=1, context=4095, kv_heads=8, group=4, window=128)
    open_grid = decode_grid(free, compute_units=142, tile_rows=64, split_rule=SplitRule.EFFICIENT)
    local_grid = decode_grid(local, compute_units=142, tile_rows=64, split_rule=SplitRule.EFFICIENT)
    assert open_grid.tiles[0] == 4 * 8
    assert open_grid.copies_queries[0]
    assert open_grid.splits[0, 0] > 1
    assert local_grid.tiles[0] == 4 * 32
    assert not local_grid.copies_queries[0]
    assert local_grid.splits[0, 0] == 1
    assert local_grid.blocks[0] == 2  # 128 keys that lie across a block border


# --- limits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm"])
def test_long_decode_runs_at_a_plausible_share_of_the_bandwidth(name: str) -> None:
    hardware, _ = calibrated(name)
    timing = price(shape(128, 1, 16383, decode=True), name=name)
    kv_bytes = 128 * 16384 * 8 * 2 * 128 * 2
    share = kv_bytes / timing.seconds[0] / hardware.memory_bytes_per_s
    assert 0.6 < share < 1.0


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("a100-sxm-80gb", 0.45, 0.75),
        ("h100-sxm-80gb", 0.5, 0.75),
        ("h200-sxm-141gb", 0.5, 0.75),
        ("b200-sxm", 0.5, 0.8),
    ],
)
def test_long_prefill_runs_at_a_plausible_share_of_the_peak(name: str, low: float, high: float) -> None:
    hardware, _ = calibrated(name)
    timing = price(shape(4, 8192, 0), name=name)
    flops = 4 * 32 * 8192**2 / 2 * 4 * 128
    assert low < flops / timing.seconds[0] / hardware.peak_flops_per_s[Dtype.BF16] < high


def test_large_calls_scale_with_the_work() -> None:
    decode = price(shape([256, 512], 1, 8191, decode=True), corrected=False).seconds
    prefill = price(shape([16, 32], 8192, 0), corrected=False).seconds
    assert decode[1] / decode[0] == pytest.approx(2.0, rel=0.05)
    assert prefill[1] / prefill[0] == pytest.approx(2.0, rel=0.1)


def test_empty_device_is_the_launch_and_little_else() -> None:
    timing = price(shape(1, 1, 1, decode=True))
    assert 3e-6 < timing.seconds[0] < 2e-5


# --- monotonicity -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm"])
@pytest.mark.parametrize("decode", [True, False])
def test_more_work_is_not_cheaper(name: str, decode: bool) -> None:
    sizes = np.geomspace(1, 256, 40).round()
    lengths = np.geomspace(16, 8192, 60).round()
    by_sequences = price(shape(sizes, 1 if decode else 512, 2047 if decode else 0, decode=decode), name=name).seconds
    by_length = price(shape(16, 1 if decode else lengths, lengths if decode else 0, decode=decode), name=name).seconds
    for seconds in (by_sequences, by_length):
        assert np.all(seconds >= np.maximum.accumulate(seconds) * (1 - WIGGLE))


def test_more_bandwidth_is_never_slower() -> None:
    hardware, fits = calibrated("h100-sxm-80gb")
    faster = hardware.model_copy(update={"memory_bytes_per_s": 2 * hardware.memory_bytes_per_s})
    for decode in (True, False):
        call = shape([1, 8, 64, 256], 1 if decode else 256, 4095, decode=decode)
        choice = choose_attention_fit(fits, shape=call)
        assert choice is not None
        timing = decode_attention_timing if decode else attention_timing
        slow = timing(call, hardware=hardware, fit=choice.fit, lattice=None)
        fast = timing(call, hardware=faster, fit=choice.fit, lattice=None)
        assert np.all(fast.seconds <= slow.seconds * (1 + 1e-9))


def test_cached_context_costs_time() -> None:
    seconds = price(shape(8, 512, [0, 1024, 4096, 16384]), corrected=False).seconds
    assert np.all(np.diff(seconds) > 0)


# --- windows, groups, formats, caches ---------------------------------------------------------------------------


def test_window_caps_the_growth() -> None:
    contexts = np.array([4095.0, 65535.0])
    full = price(shape(32, 1, contexts, heads=64, head_dim=64, decode=True)).seconds
    local = price(shape(32, 1, contexts, heads=64, head_dim=64, window=128, decode=True)).seconds
    assert full[1] / full[0] > 8
    assert local[1] / local[0] == pytest.approx(1.0, rel=0.01)
    prompts = np.array([4096.0, 16384.0])
    wide = price(shape(1, prompts, 0, heads=64, head_dim=64)).seconds
    narrow = price(shape(1, prompts, 0, heads=64, head_dim=64, window=128)).seconds
    assert wide[1] / wide[0] > 10
    assert narrow[1] / narrow[0] < 5


def test_grouped_heads_are_cheaper_than_separate_ones() -> None:
    grouped = price(shape(32, 1, 4095, heads=32, kv_heads=8, decode=True)).seconds[0]
    separate = price(shape(32, 1, 4095, heads=32, kv_heads=32, decode=True)).seconds[0]
    assert 3.0 < separate / grouped < 4.5


def test_eight_bit_cache_halves_a_long_decode() -> None:
    wide = price(shape(64, 1, 16383, decode=True)).seconds[0]
    narrow = price(shape(64, 1, 16383, decode=True, kv_dtype=Dtype.FP8)).seconds[0]
    assert 1.6 < wide / narrow < 2.2


def test_cold_cache_costs_only_what_fits_in_l2() -> None:
    call = shape([16, 512], 1, 511, decode=True)
    hot, cold = price(call, cold=False).seconds, price(call, cold=True).seconds
    assert cold[0] > 1.05 * hot[0]
    assert cold[1] == pytest.approx(hot[1], rel=0.01)


def test_verifying_several_tokens_shares_the_read() -> None:
    one = price(shape(64, 1, 8191, decode=True)).seconds[0]
    four = price(shape(64, 4, 8191, decode=True)).seconds[0]
    assert one * 0.95 < four < 1.3 * one


# --- provenance, refusals, everywhere finite --------------------------------------------------------------------


def test_a_long_cached_prefix_is_extrapolated_and_wider() -> None:
    timing = price(shape(1, 512, [0, 8192]))
    assert timing.provenance.tolist() == [Provenance.CALIBRATED, Provenance.EXTRAPOLATED]
    assert timing.log_sigma[1] > timing.log_sigma[0]


def test_an_unmeasured_head_width_borrows_the_next_larger() -> None:
    _, fits = calibrated("h100-sxm-80gb")
    choice = choose_attention_fit(fits, shape=shape(1, 128, 0, head_dim=80))
    assert choice is not None
    assert choice.fit.variant == "d128"
    assert choice.log_sigma_extra > 0


def test_a_stand_in_is_wider_the_further_its_head_width() -> None:
    _, fits = calibrated("h100-sxm-80gb")
    for decode in (False, True):
        family = "decode_attention" if decode else "prefill_attention"
        narrow = [fit for fit in fits if fit.family == family and fit.format == "bf16" and fit.variant == "d64"]
        spreads = []
        for head_dim in (64, 96, 256, 512):
            choice = choose_attention_fit(narrow, shape=shape(1, 1, 128, head_dim=head_dim, decode=decode))
            assert choice is not None
            spreads.append(choice.log_sigma_extra)
        assert spreads[0] == 0
        assert spreads == sorted(spreads)
        assert spreads[-1] >= 0.5  # another kernel, which the narrower one says little about


def test_heads_of_another_kernel_are_the_last_choice() -> None:
    _, fits = calibrated("h100-sxm-80gb")
    known = [fit for fit in fits if fit.variant in ("d128", "d512")]
    choice = choose_attention_fit(known, shape=shape(1, 128, 0, head_dim=192))
    assert choice is not None
    assert choice.fit.variant == "d128"


def test_a_format_without_a_rate_is_refused() -> None:
    with pytest.raises(ProfileError, match="fp8"):
        attention_machine(load_hardware("a100"), Dtype.FP8)


@settings(max_examples=60, deadline=None)
@given(
    sequences=st.floats(1, 4096),
    query=st.floats(1, 100_000),
    context=st.floats(0, 1_000_000),
    kv_heads=st.sampled_from([1.0, 2.0, 5.0, 8.0, 32.0, 128.0]),
    group=st.sampled_from([1.0, 3.0, 4.0, 8.0, 16.0, 128.0]),
    head_dim=st.sampled_from([64.0, 80.0, 128.0, 256.0]),
    window=st.sampled_from([None, 128.0, 4096.0]),
    name=st.sampled_from(["a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm"]),
    decode=st.booleans(),
)
def test_every_call_has_a_finite_price(
    sequences: float,
    query: float,
    context: float,
    kv_heads: float,
    group: float,
    head_dim: float,
    window: float | None,
    name: str,
    decode: bool,
) -> None:
    call = shape(
        np.ceil(sequences),
        min(np.ceil(query), 8.0) if decode else np.ceil(query),
        np.ceil(context),
        heads=kv_heads * group,
        kv_heads=kv_heads,
        head_dim=head_dim,
        window=window,
        decode=decode,
    )
    timing = price(call, name=name)
    assert np.all(np.isfinite(timing.seconds))
    assert np.all(timing.seconds > 1e-6)
    assert np.all(timing.log_sigma > 0)


def test_decode_terms_are_inside_the_total() -> None:
    hardware, fits = calibrated("h100-sxm-80gb")
    fit = next(fit for fit in fits if fit.family == "decode_attention" and fit.variant == "d128")
    case = one_case(sequences=64, query=1, context=4095, kv_heads=8, group=4)
    machine = attention_machine(hardware, Dtype.BF16)
    grid = decode_grid(case, compute_units=132, tile_rows=64, split_rule=SplitRule.OWN)
    terms = decode_seconds(case, grid=grid, machine=machine, parameters=fit.parameters)
    assert terms.seconds[0] > max(terms.compute_s[0], terms.memory_s[0])


@given(
    query=st.integers(min_value=1, max_value=64),
    context=st.integers(min_value=0, max_value=64),
    window=st.one_of(st.just(np.inf), st.integers(min_value=1, max_value=160)),
)
def test_the_keys_that_a_query_sees_are_counted_one_by_one(query: int, context: int, window: float) -> None:
    seen = np.mean([min(context + position, window) for position in range(1, query + 1)])
    cases = AttentionCases(
        sequences=np.ones(1),
        query_tokens=np.full(1, float(query)),
        context_tokens=np.full(1, float(context)),
        num_kv_heads=np.ones(1),
        group=np.ones(1),
        head_dim=np.full(1, 128.0),
        v_head_dim=np.full(1, 128.0),
        window=np.full(1, float(window)),
        kv_element_bytes=np.full(1, 2.0),
    )
    assert visible_keys(cases)[0] == pytest.approx(seen)


@pytest.mark.parametrize("head_dim", [64, 72, 80])
def test_whole_sequences_at_once_run_the_kernels_of_encoders_and_nothing_else_does(head_dim: int) -> None:
    _, fits = calibrated("h100-sxm-80gb")
    causal = shape(1, 1024, 0, head_dim=head_dim)
    choices = [choose_attention_fit(fits, shape=call) for call in (replace(causal, causal=False), causal)]
    assert [choice.fit.variant.endswith("_encoder") for choice in choices if choice] == [True, False]
    assert choices[0] is not None
    assert (choices[0].fit.variant, choices[0].log_sigma_extra) == (f"d{head_dim}_encoder", 0.0)
    wider = choose_attention_fit(fits, shape=replace(causal, causal=False, head_dim=128, v_head_dim=128))
    assert wider is not None
    assert wider.fit.variant == "d128"
