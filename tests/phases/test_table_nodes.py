"""``simulator.phases.compiled``: where step tables have their nodes, and what scaling them does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.phases.compiled import (
    DENSE_TOKENS,
    KEY_RANGES,
    QUERY_RANGES,
    SEQUENCE_RANGES,
    TILE_RANGES,
    ascending,
    edge_nodes,
    octave_nodes,
    scale_tables,
    sequence_nodes,
    stepped_nodes,
    tile_nodes,
    uniform_tables,
)
from tests.phases.stepped import step_seconds

LARGEST = st.integers(1, 40_000)


@given(values=st.lists(st.integers(-9, 9), min_size=1))
def test_ascending_is_the_set_in_order(values: list[int]) -> None:
    assert ascending(np.array(values)).tolist() == sorted(set(values))


@given(last=st.floats(1, 1e6), per_octave=st.integers(1, 8))
def test_octaves_have_as_many_nodes_each_and_reach_the_last(last: float, per_octave: int) -> None:
    nodes = octave_nodes(last, per_octave=per_octave)
    assert nodes[0] == 1
    assert nodes[-1] >= last
    assert nodes[-1] < 2 * max(last, 2)
    assert (np.diff(nodes) > 0).all()
    assert np.diff(np.log2(nodes)).max() <= np.log2(1 + 1 / per_octave) + 1e-12
    assert (len(nodes) - 1) % per_octave == 0


@given(largest=LARGEST)
def test_tiles_have_both_of_their_sides(largest: int) -> None:
    nodes = set(tile_nodes(largest).tolist())
    assert set(range(1, min(DENSE_TOKENS, largest) + 1)) <= nodes
    assert max(nodes) == largest
    first = DENSE_TOKENS
    for tile, last in TILE_RANGES:
        for edge in range(first, min(last, largest - 1) + 1, tile):
            assert {edge, edge + 1} <= nodes
        first = last


@pytest.mark.parametrize("ranges", [QUERY_RANGES, KEY_RANGES])
@given(largest=LARGEST)
def test_edges_of_blocks_have_both_sides_within_the_largest(ranges: tuple[tuple[int, int], ...], largest: int) -> None:
    nodes = edge_nodes(largest, ranges=ranges, per_octave=4)
    assert nodes[0] == 1
    assert nodes[-1] == largest
    assert (np.diff(nodes) > 0).all()
    tile, last = ranges[0]
    for edge in range(tile, min(last, largest - 1) + 1, tile):
        assert {float(edge), float(edge + 1)} <= set(nodes.tolist())


@given(largest=LARGEST)
def test_steps_between_nodes_grow_from_range_to_range(largest: int) -> None:
    nodes = stepped_nodes(largest, ranges=SEQUENCE_RANGES)
    assert nodes[-1] == largest
    dense = min(SEQUENCE_RANGES[0][1], largest)
    assert nodes[:dense].tolist() == list(range(1, dense + 1))
    assert len(nodes) <= SEQUENCE_RANGES[0][1] + SEQUENCE_RANGES[1][1] / 2 + largest / 8 + 1


@given(largest=st.integers(1, 4096))
def test_prefilling_sequences_have_nodes_from_one_to_all(largest: int) -> None:
    nodes = sequence_nodes(largest)
    assert nodes[0] == 1
    assert nodes[-1] >= largest
    assert (np.diff(nodes) > 0).all()


@given(
    step_s=st.floats(1e-4, 1e-1),
    token_s=st.floats(0, 1e-4),
    context_s=st.floats(0, 1e-7),
    sequences=st.integers(1, 16),
    context=st.integers(2, 64),
)
def test_an_idealised_engine_takes_what_it_says(
    step_s: float, token_s: float, context_s: float, sequences: int, context: int
) -> None:
    tables = uniform_tables(
        step_s=step_s, max_tokens=64, max_sequences=16, per_token_s=token_s, per_context_token_s=context_s,
        max_context=64,
    )  # fmt: skip
    took = step_seconds(tables, 0, 0, 0.0, 0, sequences, sequences * context)
    assert took == pytest.approx(step_s + token_s * sequences + context_s * sequences * context, rel=1e-9)


@given(factor=st.floats(0.1, 10), sequences=st.integers(1, 8))
def test_scaled_tables_take_that_many_times_as_long(factor: float, sequences: int) -> None:
    tables = uniform_tables(step_s=0.01, max_tokens=8, max_sequences=8, per_token_s=1e-3, per_context_token_s=1e-6)
    once = step_seconds(tables, 0, 0, 0.0, 0, sequences, 2 * sequences)
    scaled = step_seconds(scale_tables(tables, factor=factor), 0, 0, 0.0, 0, sequences, 2 * sequences)
    assert scaled == pytest.approx(factor * once)
