"""Engines' kernels on an H200 and an H100: what skew, FP8 caches and absorbed latents cost as measured."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.operators.work import AttentionShape, MoeShape
from simulator.specs.measured.kernel_times import MeasuredKernel, load_measurements
from validation.end_to_end.engine_kernels import (
    attention_work,
    bandwidth_share,
    experts_seconds,
    experts_table,
    experts_work,
    others_table,
)
from validation.end_to_end.visits import VISITS, Visit
from validation.measure.engines.routing import LAYERS, SKEWS, TOKENS

each_visit = pytest.mark.parametrize("visit", VISITS, ids=[visit.hardware for visit in VISITS])


def rows_of(visit: Visit) -> tuple[MeasuredKernel, ...]:
    return load_measurements(visit.folder / "engines.csv").rows


def distinct(shape: object) -> float:
    assert isinstance(shape, MoeShape)
    return float(shape.distinct_experts[0])


@each_visit
def test_every_layer_has_both_products_of_every_case(visit: Visit) -> None:
    for layer in LAYERS:
        assert set(experts_seconds(rows_of(visit), layer)) == {(tokens, skew) for tokens in TOKENS for skew in SKEWS}


@each_visit
def test_few_skewed_tokens_take_as_much_less_as_they_read_fewer_experts(visit: Visit) -> None:
    """16 tokens: time falls with the distinct experts, a little less than they do, as launches do not."""
    for layer in LAYERS:
        seconds = experts_seconds(rows_of(visit), layer)
        reached = {skew: distinct(experts_work(layer, tokens=16, skew=skew).shape) for skew in SKEWS}
        for skew in SKEWS[1:]:
            over_even = seconds[16, skew] / seconds[16, 0.0]
            assert -0.01 < over_even - reached[skew] / reached[0.0] < 0.11


@each_visit
def test_skew_costs_more_where_all_experts_are_reached_anyway(visit: Visit) -> None:
    """The heaviest expert's rows fill several tiles, each of which reads its weights again: up to 17 %."""
    mixtral = next(layer for layer in LAYERS if layer.model == "mixtral-8x7b")
    seconds = experts_seconds(rows_of(visit), mixtral)
    for tokens in (128, 256):
        assert 1.05 < seconds[tokens, 1.5] / seconds[tokens, 0.0] < 1.2
    assert seconds[2048, 1.5] / seconds[2048, 0.0] == pytest.approx(1.0, abs=0.04)


@each_visit
def test_tuned_wide_experts_reach_more_of_the_bandwidth_than_runs_were_fitted_with(visit: Visit) -> None:
    mixtral = next(layer for layer in LAYERS if layer.model == "mixtral-8x7b")
    seconds = experts_seconds(rows_of(visit), mixtral)
    for tokens in (4, 16, 64):
        work = experts_work(mixtral, tokens=tokens, skew=0.0)
        share = bandwidth_share(work, seconds=seconds[tokens, 0.0], hardware=visit.hardware)
        assert 0.85 < share < 0.91


@each_visit
def test_an_fp8_cache_is_no_faster_in_a_kernel_that_widens_it(visit: Visit) -> None:
    rows = [row for row in rows_of(visit) if row.family == "paged_decode"]
    times = {
        fmt: {
            (row.sequences, row.context_tokens, row.num_heads, row.head_dim): row.seconds
            for row in rows
            if row.format == fmt
        }
        for fmt in ("bf16_kv_bf16", "bf16_kv_fp8")
    }
    both = sorted(set(times["bf16_kv_bf16"]) & set(times["bf16_kv_fp8"]))
    ratio = np.array([times["bf16_kv_fp8"][case] / times["bf16_kv_bf16"][case] for case in both])
    assert len(both) >= 50
    assert 1.0 < np.median(ratio) < 1.3


@each_visit
def test_absorbed_prompts_take_several_times_the_expanded_ones(visit: Visit) -> None:
    """The same Triton kernel, 16 heads, equal tokens: 3.4 times the FLOPs and, wider than a tile, a lower rate."""
    times = {
        width: {
            (row.query_tokens, row.context_tokens): row.seconds
            for row in rows_of(visit)
            if row.family == "extend_attention" and (row.num_heads, row.head_dim) == (16, width)
        }
        for width in (192, 576)
    }
    ratio = [times[576][case] / times[192][case] for case in times[192] if case in times[576]]
    assert len(ratio) == 8
    assert min(ratio) > 2
    assert np.median(ratio) > 3.4


@each_visit
@pytest.mark.slow
def test_tables_hold_a_line_for_each_layer_and_batch_and_for_each_other_kernel(visit: Visit) -> None:
    rows = rows_of(visit)
    experts = experts_table(visit, rows=rows).splitlines()
    assert len(experts) == 2 + len(LAYERS) * len(TOKENS)
    assert len({line.count("|") for line in experts}) == 1
    assert len(others_table(visit, rows=rows).splitlines()) == 2 + 13


@each_visit
def test_attention_is_priced_as_it_ran(visit: Visit) -> None:
    shapes = [attention_work(row).shape for row in rows_of(visit) if row.kernel.startswith(("vllm_triton_m", "sglang"))]
    for shape in shapes:
        assert isinstance(shape, AttentionShape)
        assert shape.shared_kv == (shape.head_dim == 576)
        assert shape.v_head_dim == {576: 512, 192: 128, 128: 128}[int(shape.head_dim)]
        assert not shape.is_decode or shape.context_tokens[0] in (511, 2047, 8191, 32767, 65535)
