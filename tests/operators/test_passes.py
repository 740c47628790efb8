"""``simulator.operators.device_share``: what passes bound by memory read and write, fused and operator by operator."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.operators.device_share import (
    ACTIVATION,
    CONVOLUTION,
    GATED_ACTIVATION,
    GATHER,
    NORM,
    RESIDUAL_NORM,
    ROTARY,
    SAMPLE,
    TOP_K,
    PassCost,
)
from simulator.operators.hyper_connections import (
    SCALES,
    SINKHORN_LAUNCHES,
    hyper_expand,
    hyper_head,
    hyper_rows,
    mixing_numbers,
)
from simulator.operators.work import ElementwiseShape, Family, Work
from simulator.specs.model.architecture import HyperConnectionSpec
from tests.for_every import for_every
from tests.operators.shares import DECODE, HIDDEN, PREFILL, SMALL, named, share

COSTS = {
    "residual_norm": RESIDUAL_NORM, "norm": NORM, "rotary": ROTARY, "gated": GATED_ACTIVATION,
    "activation": ACTIVATION, "gather": GATHER, "sample": SAMPLE, "convolution": CONVOLUTION, "top_k": TOP_K,
}  # fmt: skip


def one_pass(
    cost: PassCost, *, rows: float = 10.0, width: float = 100.0, fused: bool = True, **changes: object
) -> Work:
    return share(PREFILL, fused=fused).elementwise(
        "x",
        cost=cost,
        rows=np.array([rows]),
        width=width,
        count=1.0,
        role="norm",
        **changes,  # type: ignore[arg-type]
    )


def launches(row: Work) -> float:
    assert isinstance(row.shape, ElementwiseShape)
    return row.shape.launches


@for_every(COSTS.values())
def test_fusing_never_adds_bytes_or_kernels(cost: PassCost) -> None:
    fused, apart = (one_pass(cost, fused=is_fused) for is_fused in (True, False))
    assert fused.activation_bytes[0] <= apart.activation_bytes[0]
    assert launches(fused) <= launches(apart)
    assert fused.activation_bytes[0] == cost.fused_passes * 10 * 100 * 2
    assert apart.activation_bytes[0] == cost.unfused_passes * 10 * 100 * 2


@pytest.mark.parametrize(
    ("cost", "reads", "writes"),
    [
        (GATHER, 1, 1),  # a row of the table, a row of the stream
        (ACTIVATION, 1, 1),
        (GATED_ACTIVATION, 2, 1),  # gate and up in, product out
        (ROTARY, 1, 1),
        (NORM, 1, 1),
        (RESIDUAL_NORM, 2, 2),  # stream and block in, stream and normed out
        (CONVOLUTION, 1, 1),
    ],
)
def test_a_fused_pass_reads_every_input_and_writes_every_output_once(cost: PassCost, reads: int, writes: int) -> None:
    assert cost.fused_passes == reads + writes
    assert cost.fused_launches == 1


@given(rows=st.floats(0, 1e5), width=st.floats(1, 1e5), factor=st.floats(1, 10))
def test_bytes_are_proportional_to_rows_and_width(rows: float, width: float, factor: float) -> None:
    base = one_pass(NORM, rows=rows, width=width).activation_bytes[0]
    assert one_pass(NORM, rows=factor * rows, width=width).activation_bytes[0] == pytest.approx(factor * base)
    assert one_pass(NORM, rows=rows, width=factor * width).activation_bytes[0] == pytest.approx(factor * base)


def test_a_pass_counts_no_flops() -> None:
    for cost in COSTS.values():
        assert one_pass(cost).flops[0] == 0


def test_the_shape_moves_weights_cache_and_activations() -> None:
    row = one_pass(NORM, parameters=300.0, kv_bytes=np.array([77.0]))
    assert isinstance(row.shape, ElementwiseShape)
    assert row.shape.bytes[0] == row.bytes[0] == 2 * 10 * 100 * 2 + 600 + 77
    assert row.stored_bytes == 600


def test_an_embedding_is_held_in_full_and_read_by_the_row() -> None:
    row = one_pass(GATHER, parameters=1e6, family=Family.EMBEDDING)
    assert row.stored_bytes == 2e6
    assert row.weight_bytes[0] == 0
    assert row.activation_bytes[0] == 2 * 10 * 100 * 2


def test_extra_kernels_are_launched_beside() -> None:
    assert launches(one_pass(ROTARY, extra_launches=1.0)) == launches(one_pass(ROTARY)) + 1


@pytest.mark.parametrize("active", [False, True])
def test_weights_without_a_time_of_their_own(active: bool) -> None:
    row = share(DECODE).held_only("tower", role="vision", parameters=500.0, active=active)
    assert (row.parameters, row.stored_bytes) == (500, 1000)
    assert row.active_parameters == (500 if active else 0)
    assert row.bytes[0] == row.flops[0] == launches(row) == 0


HYPER = HyperConnectionSpec(streams=4, sinkhorn_iterations=3)
HYPER_MODEL = SMALL.model_copy(update={"hyper_connections": HYPER})


def test_a_site_mixes_streams_with_one_weight_each_way_and_a_square_matrix() -> None:
    """One to gather, one to spread per stream, and 4 x 4 to mix: 24 numbers."""
    assert mixing_numbers(HYPER) == 4 + 4 + 16
    weights, gather, spread = hyper_rows(HYPER, share=share(DECODE, model=HYPER_MODEL), sites=8)
    assert weights.parameters == 24 * 4 * HIDDEN + 24 + SCALES + 1
    assert weights.flops[0] == 2 * 7 * 24 * 4 * HIDDEN
    assert (gather.count, spread.count) == (8, 8)
    assert gather.activation_bytes[0] == (4 + 1) * 7 * HIDDEN * 2  # streams in, one input out
    assert spread.activation_bytes[0] == (2 * 4 + 1) * 7 * HIDDEN * 2  # streams and output in, streams out


def test_streams_that_do_not_mix_have_no_square_matrix() -> None:
    apart = HyperConnectionSpec(streams=4, sinkhorn_iterations=0, mix=False)
    weights, _, _ = hyper_rows(apart, share=share(DECODE, model=HYPER_MODEL), sites=8)
    assert weights.parameters == 8 * 4 * HIDDEN + 8 + SCALES


def test_the_doubly_stochastic_mix_costs_kernels_only_where_nothing_is_fused() -> None:
    plain = HyperConnectionSpec(streams=4, sinkhorn_iterations=0)
    for fused, expected in ((True, 0), (False, 3 * SINKHORN_LAUNCHES)):
        rows = [hyper_rows(spec, share=share(DECODE, fused=fused), sites=1)[1] for spec in (HYPER, plain)]
        assert launches(rows[0]) - launches(rows[1]) == expected


def test_streams_start_as_copies_and_end_as_one() -> None:
    expand = hyper_expand(HYPER, share=share(DECODE))
    weights, gather = hyper_head(HYPER, share=share(DECODE))
    assert expand.activation_bytes[0] == gather.activation_bytes[0] == (4 + 1) * 7 * HIDDEN * 2
    assert weights.parameters == 4 * 4 * HIDDEN + 4 + 1


@pytest.mark.parametrize("streams", [2, 4, 8])
def test_one_stream_more_costs_a_read_to_gather_and_a_round_trip_to_spread(streams: int) -> None:
    fewer, more = (
        hyper_rows(HyperConnectionSpec(streams=count, sinkhorn_iterations=0), share=share(DECODE), sites=1)
        for count in (streams, streams + 1)
    )
    token = 7 * HIDDEN * 2
    gathered = named(more, "hyper_gather").activation_bytes[0] - named(fewer, "hyper_gather").activation_bytes[0]
    spread = named(more, "hyper_spread").activation_bytes[0] - named(fewer, "hyper_spread").activation_bytes[0]
    assert (gathered, spread) == (token, 2 * token)
