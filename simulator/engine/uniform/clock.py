"""Times of steps and of whole runs of equal decode steps, on plain numbers.

A simulation of a few thousand requests asks for one time after another. The look-ups of ``phases.compiled`` are made
for arrays and machine code; here are the same interpolations for one number at a time, and the time of a run of decode
steps in closed form: between nodes a step is linear in the context, so that a sum over steps is a difference of two
values of its integral, and costs the same for one step and for a thousand. A test holds both to the tables.
"""

from __future__ import annotations

from bisect import bisect_right
from math import ceil, floor, log2
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.phases.compiled import CONTEXT_UNIT_TOKENS, StepTables, host_seconds

Array = NDArray[np.float64]
_LONG_RUN = 32
"""Up to this many steps the time of a step hardly changes: that of the first is used for all."""


class _Row(NamedTuple):
    """For one number of decoding sequences: seconds of a step at each context node, and their integral over it."""

    seconds: list[float]
    integral: list[float]


class Chunks(NamedTuple):
    """Pieces of prompts that one step computes.

    work2 : sum of q (2 c + q) over the sequences, for q new tokens after c; logits : prompts that it completes
    """

    sequences: int
    tokens: int
    work2: float
    logits: int


NO_CHUNKS = Chunks(0, 0, 0.0, 0)


class StepClock:
    """Seconds of the steps of one rank.

    verify_tokens : tokens that a decoding sequence adds in a step, those of ``tables``
    shared_s : see ``StepTables``
    """

    def __init__(self, tables: StepTables, *, verify_tokens: int = 1) -> None:
        self.verify_tokens = verify_tokens
        # Plain numbers in lists: one value of an array costs several times as much to read.
        self._tables = tables._replace(draft_s=tables.draft_s.tolist())
        # Nodes are whole numbers of tokens: the last ones that lie at their places.
        places = np.searchsorted(tables.decode_places, np.arange(tables.decode_s.shape[1]), side="right") - 1
        self._contexts: list[float] = places.astype(np.float64).tolist()
        self._token_places: list[float] = tables.token_places.tolist()
        self._token_s: list[float] = tables.token_s.tolist()
        self.shared_s: list[float] = tables.shared_s.tolist()
        self._logits_s: list[float] = tables.logits_s.tolist()
        self._decodes: list[list[float]] = tables.decode_s.tolist()
        self._planes: dict[int, list[list[float]]] = {}
        self._rows = self._rows_of(tables)

    def _rows_of(self, tables: StepTables) -> list[_Row]:
        """Steps of nothing but decodes, by their number from 0 on."""
        sequences = np.arange(len(tables.decode_s))
        tokens = sequences * self.verify_tokens
        device_s = (tables.token_s[tokens] + tables.logits_s[tokens])[:, None] + tables.decode_s[sequences]
        seconds = host_seconds(tables, 0, 0, sequences)[:, None] + np.maximum(device_s, tables.issue_s)
        areas = np.zeros_like(seconds)
        np.cumsum((seconds[:, 1:] + seconds[:, :-1]) / 2 * np.diff(self._contexts), axis=1, out=areas[:, 1:])
        # Contexts below the first node cost as much as there.
        integral = areas + seconds[:, :1] * self._contexts[0]
        return [_Row(*row) for row in zip(seconds.tolist(), integral.tolist(), strict=True)]

    def _integral_s(self, row: _Row, context: float) -> float:
        contexts = self._contexts
        if context <= contexts[0]:
            return row.seconds[0] * context
        place = bisect_right(contexts, context) - 1
        beyond = context - contexts[place]
        if place >= len(contexts) - 1:
            return row.integral[-1] + row.seconds[-1] * beyond
        rise = (row.seconds[place + 1] - row.seconds[place]) / (contexts[place + 1] - contexts[place])
        return row.integral[place] + beyond * (row.seconds[place] + rise * beyond / 2)

    def decode_run_s(self, sequences: int, *, context: float, growth: float, steps: int) -> float:
        """Time of ``steps`` steps of nothing but decodes [s].

        context : mean of the sequences before the first of the steps; growth : tokens that it gains in each [tokens]
        """
        row = self._rows[sequences]
        first = context + self.verify_tokens - growth / 2
        span = self._integral_s(row, first + growth * steps) - self._integral_s(row, first)
        return span / growth

    def steps_within(self, sequences: int, *, context: float, growth: float, span_s: float) -> int:
        """Decode steps that begin before ``span_s`` from the start of the first are over, 0 where that is nothing."""
        pace_s = self.decode_run_s(sequences, context=context, growth=growth, steps=1)
        steps = ceil(span_s / pace_s)
        if steps <= _LONG_RUN:
            return steps
        return ceil(steps * span_s / self.decode_run_s(sequences, context=context, growth=growth, steps=steps))

    def _prefill_s(self, chunks: Chunks) -> float:
        """Attention and states of prefilling sequences [s]; ``phases.compiled.prefill_seconds`` on numbers."""
        sequences, tokens, work2, _ = chunks
        plane = self._planes.get(sequences)
        if plane is None:
            plane = self._planes[sequences] = self._plane(sequences).tolist()
        mean = tokens / sequences
        context = 1.0 + max(0.5 * (work2 / tokens - mean), 0.0) / CONTEXT_UNIT_TOKENS
        octave = floor(log2(context))
        context_place = self._tables.context_nodes * (octave + context * 2.0**-octave - 1.0)
        whole = min(int(mean), len(self._token_places) - 2)
        near, far = self._token_places[whole], self._token_places[whole + 1]
        token_place = near + min(mean - whole, 1.0) * (far - near)
        token = min(int(token_place), len(plane) - 2)
        node = min(int(context_place), len(plane[0]) - 2)
        along, across = token_place - token, context_place - node
        shorter, longer = plane[token], plane[token + 1]
        low_s = shorter[node] + along * (longer[node] - shorter[node])
        high_s = shorter[node + 1] + along * (longer[node + 1] - shorter[node + 1])
        seconds: float = low_s + across * (high_s - low_s)
        return seconds

    def _plane(self, sequences: int) -> Array:
        """Seconds of ``sequences`` prefilling sequences by their mean new tokens and cached context."""
        tables = self._tables
        place = float(tables.sequence_places[sequences])
        row = min(int(place), tables.prefill_s.shape[0] - 2)
        low, high = tables.prefill_s[row], tables.prefill_s[row + 1]
        plane: Array = low + (place - row) * (high - low)
        return plane

    def _decode_s(self, sequences: int, *, attended: float) -> float:
        """Attention and states of decoding sequences that attend to that many tokens on average [s]."""
        contexts, seconds = self._contexts, self._decodes[sequences]
        if attended <= contexts[0]:
            return seconds[0]
        if attended >= contexts[-1]:
            return seconds[-2] + (seconds[-1] - seconds[-2])
        place = bisect_right(contexts, attended) - 1
        share = (attended - contexts[place]) / (contexts[place + 1] - contexts[place])
        return seconds[place] + share * (seconds[place + 1] - seconds[place])

    def mixed_step_s(self, chunks: Chunks, *, sequences: int, context: float) -> float:
        """Time of one step of prompts, with or without decodes beside [s]. context : mean before the step."""
        tables, decode_tokens = self._tables, sequences * self.verify_tokens
        prefills, tokens, _, logits = chunks
        device_s = self._prefill_s(chunks) + (
            self._token_s[tokens + decode_tokens] + self._logits_s[logits + decode_tokens]
        )
        if sequences:
            device_s += self._decode_s(sequences, attended=context + self.verify_tokens)
        seconds: float = host_seconds(tables, prefills, tokens, sequences) + max(device_s, tables.issue_s)
        return seconds
