"""Step-time tables of one deployment: built once, then a step costs a few look-ups.

A step is a sum of rows. Rows that see only the number of new tokens become one table, those that see only the number
of logits a second; attention and recurrent rows become one table over decoding sequences and their mean context and
one over prefilling sequences, their new tokens and cached context. Nothing is fitted: the tables hold the full model's
values, and between them the step is linear.

``device_seconds`` is written so that it works on numbers inside compiled code and on numpy arrays alike.

Where step tables have their nodes: on both sides of every jump that tiles, blocks and waves cause.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.operators.work import Array
from simulator.records import dataclass

CONTEXT_UNIT_TOKENS = 64.0
"""Cached context of a prefill is resolved down to this many tokens; below, its cost hardly changes."""


class StepTables(NamedTuple):
    """Seconds of one step, in parts. A NamedTuple because compiled code takes it as it is; treat it as frozen.

    token_s : by new tokens, one entry for each number from 0; CUDA-graph padding included
    shared_s : of ``token_s`` what attention-data-parallel ranks share (experts, their all-to-all) if all have as many;
        every rank waits for the tokens of all there. One entry where they share nothing
    logits_s : by rows of the LM head, one entry for each number from 0
    decode_s : [sequences from 0, context node]
    prefill_s : [sequence node, token node, context node]
    decode_places : where each whole number of tokens attended to lies among the nodes of ``decode_s``
    sequence_places, token_places : the same of sequences and tokens among those of ``prefill_s``
    step_s, sequence_s, prompt_s : engine time per step, per sequence in it, per prompt that it takes in
    draft_s, draft_token_s : beside a step what drafting takes, by decoding sequences from 0 on, and what the drafter
        takes for a token of a prompt; nothing without speculation
    issue_s : time that the host needs to launch a step's kernels one by one, 0 where CUDA graphs do; a step of
        the device takes at least that
    context_nodes : nodes per octave of the context axis of ``prefill_s``
    """

    token_s: Array
    shared_s: Array
    logits_s: Array
    decode_s: Array
    prefill_s: Array
    decode_places: Array
    sequence_places: Array
    token_places: Array
    step_s: float
    sequence_s: float
    prompt_s: float
    draft_s: Array
    draft_token_s: float
    issue_s: float
    context_nodes: int

    @property
    def max_tokens(self) -> int:
        """New tokens of the largest step that the tables hold."""
        return len(self.token_s) - 1

    @property
    def max_sequences(self) -> int:
        """Decoding sequences of the largest step that the tables hold."""
        return len(self.decode_s) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBounds:
    """Which steps are asked for of tables that are made for one run, so that no others are priced.

    sequences : that are in a step at most
    contexts : fewest and most tokens that decoding sequences attend to on average
    prompts : shortest and longest prompt [tokens], both 0 where there is none
    budget : fewest and most tokens of a step that prompts fill; a step that they do not fill completes all it holds
    """

    sequences: int
    contexts: tuple[int, int]
    prompts: tuple[int, int]
    budget: tuple[int, int]

    def prefill_nodes(self, counts: Array, lengths: Array, contexts: Array) -> NDArray[np.bool_]:
        """Which nodes of prefilling sequences, their mean new tokens and mean cached context are read [each by each].

        All but the first and the last prompt of a step are whole ones, all but the first where the step is not filled,
        so that many prompts in a step are long ones. Cached and new tokens of one are its length at most; one alone
        is completed or fills the step.
        """
        (shortest, longest), (least, most) = self.prompts, self.budget
        few, many = _cells(counts)
        # Between two neighbouring counts there is none, and on the lower one the upper has no weight.
        more = (few < self.sequences) & (many > few)
        more[:-1] &= many[:-1] > few[:-1] + 1
        fewest = np.minimum(((few - 1) * shortest + 1) / few, least / np.where(more, many, few))
        some = (few <= self.sequences) & (longest > 0) & ((few - 2) * shortest + 2 <= most)
        (low, high), (near, far) = _cells(lengths), _cells(contexts)
        filled = (high >= least) & (low <= most)
        high[-1] = far[-1] = np.inf
        met = some[:, None] & (low <= np.minimum(longest, most / few)[:, None]) & (high >= fewest[:, None])
        cells = met[..., None] & (np.add.outer(low, near) <= longest)
        cells[(few == 1) & ~more] &= (np.add.outer(high, far) >= shortest) | filled[:, None]
        upper = cells & more[:, None, None]
        read = np.zeros((len(counts), len(lengths), len(contexts)), dtype=bool)
        for found, first in ((cells, 0), (upper, 1)):
            rows = read[min(first, len(counts) - 1) :][: len(found)]
            for token in (slice(len(low)), slice(-len(low), None)):
                for node in (slice(len(near)), slice(-len(near), None)):
                    rows[:, token, node] |= found[: len(rows)]
        return read


def _cells(nodes: Array) -> tuple[Array, Array]:
    """Lower and upper ends of what lies between neighbours; a node alone is its own."""
    return (nodes[:-1], nodes[1:].copy()) if len(nodes) > 1 else (nodes, nodes.copy())


def ascending(values: NDArray[Any]) -> NDArray[Any]:
    """Each value once, in order. ``np.unique`` loads the masked arrays of NumPy, a fortieth of a short command."""
    ordered: NDArray[Any] = np.sort(values)
    found: NDArray[Any] = ordered[np.append(True, ordered[1:] != ordered[:-1])]
    return found


def octave_nodes(last: float, *, per_octave: int) -> Array:
    """1, and ``per_octave`` evenly spaced nodes in each octave up to the first at or above ``last``."""
    octaves = max(int(np.ceil(np.log2(max(last, 2.0)))), 1)
    inner = 1.0 + np.arange(per_octave) / per_octave
    return np.append(np.concatenate([np.exp2(octave) * inner for octave in range(octaves)]), np.exp2(octaves))


def _place(value: Any, per_octave: int) -> Any:
    """Position of a value >= 1 among ``octave_nodes``; linear in the value between nodes."""
    octave = np.floor(np.log2(value))
    return per_octave * (octave + value * np.exp2(-octave) - 1.0)


def _between(values: Any, position: Any) -> Any:
    low = np.minimum(np.int64(position), len(values) - 2)
    share = np.minimum(position - low, 1.0)
    return values[low] + share * (values[low + 1] - values[low])


def decode_seconds(tables: Any, sequences: Any, context_tokens: Any) -> Any:
    """Attention and states of decoding sequences that attend to ``context_tokens`` in sum [s]."""
    row = np.int64(sequences)
    place = _between(tables.decode_places, context_tokens / np.maximum(row, 1))
    node = np.minimum(np.int64(place), tables.decode_s.shape[1] - 2)
    low = tables.decode_s[row, node]
    return low + (place - node) * (tables.decode_s[row, node + 1] - low)


def _prefill_plane(tables: Any, row: Any, token_place: Any, context_place: Any) -> Any:
    token = np.minimum(np.int64(token_place), tables.prefill_s.shape[1] - 2)
    node = np.minimum(np.int64(context_place), tables.prefill_s.shape[2] - 2)
    along, across = token_place - token, context_place - node
    near = tables.prefill_s[row, token, node]
    far = tables.prefill_s[row, token + 1, node]
    low = near + along * (far - near)
    near = tables.prefill_s[row, token, node + 1]
    far = tables.prefill_s[row, token + 1, node + 1]
    return low + across * (near + along * (far - near) - low)


def prefill_seconds(tables: Any, sequences: Any, tokens: Any, work2: Any) -> Any:
    """Attention and states of prefilling sequences [s].

    sequences : at least 1; tokens : new ones, of all; work2 : sum of q (2 c + q) over them, for q new tokens after c.
    Different sequences are priced as equal ones with the same number, tokens and query-key pairs.
    """
    mean = tokens / sequences
    context = np.maximum(0.5 * (work2 / tokens - mean), 0.0)
    sequence_place = tables.sequence_places[np.int64(sequences)]
    row = np.minimum(np.int64(sequence_place), tables.prefill_s.shape[0] - 2)
    token_place = _between(tables.token_places, mean)
    context_place = _place(1.0 + context / CONTEXT_UNIT_TOKENS, tables.context_nodes)
    low = _prefill_plane(tables, row, token_place, context_place)
    high = _prefill_plane(tables, row + 1, token_place, context_place)
    return low + (sequence_place - row) * (high - low)


def device_seconds(
    tables: Any,
    prefill_sequences: Any,
    prefill_tokens: Any,
    prefill_work2: Any,
    prefill_logits: Any,
    decode_sequences: Any,
    decode_tokens: Any,
    decode_context: Any,
) -> Any:
    """Time of a step on the device [s]. Scalars.

    decode_tokens : of each decoding sequence, as in the tables. See ``prefill_seconds`` and ``decode_seconds``.
    """
    seconds = tables.token_s[np.int64(prefill_tokens + decode_sequences * decode_tokens)]
    seconds += tables.logits_s[np.int64(prefill_logits + decode_sequences * decode_tokens)]
    if decode_sequences > 0:
        seconds += decode_seconds(tables, decode_sequences, decode_context)
    if prefill_tokens > 0:
        seconds += prefill_seconds(tables, prefill_sequences, prefill_tokens, prefill_work2)
    return max(seconds, tables.issue_s)


def host_seconds(tables: Any, prefill_sequences: Any, prefill_tokens: Any, decode_sequences: Any) -> Any:
    """Time of a step beside what its device computes for it: the engine's own, and drafting [s]."""
    engine_s = tables.step_s + tables.sequence_s * (prefill_sequences + decode_sequences)
    engine_s += tables.prompt_s * prefill_sequences
    return engine_s + tables.draft_s[decode_sequences] + tables.draft_token_s * prefill_tokens


SCALAR_FUNCTIONS = (_place, _between, decode_seconds, _prefill_plane, prefill_seconds, device_seconds, host_seconds)
"""What compiled code has to be able to call."""


def uniform_tables(
    *,
    step_s: float,
    max_tokens: int,
    max_sequences: int,
    per_token_s: float = 0.0,
    per_context_token_s: float = 0.0,
    max_context: int = 2,
) -> StepTables:
    """Tables of an idealised engine: a fixed time per step, per new token and per token attended to while decoding."""
    contexts = octave_nodes(max_context, per_octave=1)
    sequences = np.arange(max_sequences + 1.0)
    return StepTables(
        token_s=per_token_s * np.arange(max_tokens + 1.0),
        shared_s=np.zeros(max_tokens + 1),
        logits_s=np.zeros(max_tokens + 1),
        decode_s=per_context_token_s * sequences[:, np.newaxis] * contexts,
        prefill_s=np.zeros((2, 2, 2)),
        decode_places=np.interp(np.arange(max_context + 1), contexts, np.arange(len(contexts))),
        sequence_places=np.zeros(max_sequences + 1),
        token_places=np.zeros(max_tokens + 2),
        step_s=step_s,
        sequence_s=0.0,
        prompt_s=0.0,
        draft_s=np.zeros(max_sequences + 1),
        draft_token_s=0.0,
        issue_s=0.0,
        context_nodes=1,
    )


def scale_tables(tables: StepTables, *, factor: ArrayLike) -> StepTables:
    """Tables of a deployment with every part of a step ``factor`` times as long (for intervals)."""
    scale = float(np.asarray(factor))
    return tables._replace(**{name: getattr(tables, name) * scale for name in tables._fields if name.endswith("_s")})


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


def stepped_nodes(largest: int, *, ranges: tuple[tuple[int, int], ...]) -> NDArray[np.int64]:
    """1, 2, ... in steps that grow from range to range, and the largest."""
    nodes = [np.array([largest])]
    first = 0
    for step, last in ranges:
        nodes.append(np.arange(first + step, min(last, largest) + 1, step))
        first = last
    return ascending(np.concatenate(nodes))


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
    found = ascending(np.concatenate([*nodes, beyond.astype(np.int64)]))
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
    found = ascending(np.concatenate([*nodes, beyond]))
    return found[found <= largest]


def sequence_nodes(largest: int) -> Array:
    """Every small number of prompts, then powers of two, and the largest."""
    powers = np.exp2(np.arange(np.log2(PREFILL_SEQUENCES[-1]), np.log2(largest) if largest > 1 else 0.0))
    nodes = ascending(np.concatenate([PREFILL_SEQUENCES, powers, [largest]]))
    return nodes[nodes <= largest]
