"""Where step tables have their nodes: on both sides of every jump that tiles, blocks and waves cause."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.operators.step_shape import Array
from simulator.phases.compiled import octave_nodes

# Nodes per octave of the tables' axes: enough for errors of well below 1 % of a step (tests/phases/test_compiled.py).
# Cost is linear in cached context but for the rounding to blocks.
DECODE_NODES = 4
CONTEXT_NODES = 3
TOKEN_NODES = 8
# Token counts at which a kernel's cost jumps are multiples of its tile rows: (tile rows, up to how many tokens).
TILE_RANGES = ((16, 512), (64, 4096), (128, 32768))
DENSE_TOKENS = 64
# The same for the query tiles of prefill attention (a group of query heads shares one, so that small ones count too)
# and the key blocks of decode attention; how many sequences fill the device in how many waves.
QUERY_RANGES = ((16, 128), (64, 2048), (128, 32768))
KEY_RANGES = ((128, 2048),)
SEQUENCE_RANGES = ((1, 128), (2, 256), (8, 65536))
PREFILL_SEQUENCES = (1, 2, 3, 4, 6, 8, 12, 16)
# Sizes at which vLLM captures CUDA graphs by default (its cudagraph_capture_sizes): 1, 2, 4, then multiples of 8 below
# 256 and of 16 from there. Other engines are taken to do likewise.
GRAPH_STEPS = ((4, 8), (256, 16))


def graph_tokens(tokens: Array, *, largest: int) -> Array:
    """Tokens that are computed: those of the smallest CUDA graph that holds the step; its own beyond the largest."""
    low, high = GRAPH_STEPS
    padded = np.where(tokens <= 2, tokens, np.where(tokens <= low[0], low[0], np.ceil(tokens / low[1]) * low[1]))
    padded = np.where(tokens > high[0], np.ceil(tokens / high[1]) * high[1], padded)
    return np.where((tokens > 0) & (padded <= largest), padded, tokens)


def stepped_nodes(largest: int, *, ranges: tuple[tuple[int, int], ...]) -> NDArray[np.int64]:
    """1, 2, ... in steps that grow from range to range, and the largest."""
    nodes = [np.array([largest])]
    first = 0
    for step, last in ranges:
        nodes.append(np.arange(first + step, min(last, largest) + 1, step))
        first = last
    return np.unique(np.concatenate(nodes))


def tile_nodes(largest: int) -> NDArray[np.int64]:
    """Every small number, and both sides of each multiple of a tile: between neighbours the cost is smooth."""
    largest = max(largest, 1)
    nodes = [np.arange(1, min(DENSE_TOKENS, largest) + 1), np.array([largest])]
    first = DENSE_TOKENS
    for tile, last in TILE_RANGES:
        edges = np.arange(first, min(last, largest) + 1, tile)
        nodes += [edges, edges + 1]
        first = last
    beyond = octave_nodes(max(largest / first, 1.0), per_octave=TOKEN_NODES) * first
    found = np.unique(np.concatenate([*nodes, beyond.astype(np.int64)]))
    return found[found <= largest]


def edge_nodes(largest: int, *, ranges: tuple[tuple[int, int], ...], per_octave: int) -> Array:
    """Both sides of each multiple of a tile, a few small numbers and what lies beyond; the largest."""
    nodes = [octave_nodes(largest, per_octave=1), np.array([largest])]
    first = 0
    for tile, last in ranges:
        edges = np.arange(first + tile, min(last, largest) + 1, tile)
        nodes += [edges, edges + 1]
        first = last
    beyond = octave_nodes(max(largest / first, 1.0), per_octave=per_octave) * first
    found = np.unique(np.concatenate([*nodes, beyond]))
    return found[found <= largest]


def sequence_nodes(largest: int) -> Array:
    """Every small number of prompts, then powers of two, and the largest."""
    powers = np.exp2(np.arange(np.log2(PREFILL_SEQUENCES[-1]), np.log2(largest) if largest > 1 else 0.0))
    nodes = np.unique(np.concatenate([PREFILL_SEQUENCES, powers, [largest]]))
    return nodes[nodes <= largest]
