"""Build the step-time tables of a deployment from the full model, once for all that is asked of it in a process."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from simulator.allocation import kept_within
from simulator.kernels.step_rows import is_shared
from simulator.operators.transformer import is_encoder_only
from simulator.operators.work import (
    Array,
    CollectiveShape,
    ElementwiseShape,
    GemmShape,
    KernelShape,
    StepShape,
    Work,
    decode_step,
    mixed_step,
)
from simulator.phases import compiled
from simulator.phases.deployment import Deployment
from simulator.phases.step import graph_tokens, sampling_s, stage_rows
from simulator.records import dataclass
from simulator.units import MIB

SAME = float(np.sqrt(np.finfo(np.float64).eps))
"""Relative difference below which two prices are one."""

Part = TypeVar("Part", Work, KernelShape)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowKinds:
    """Which rows of the operator list (by position) see only new tokens, only logits, or the sequences themselves."""

    token: frozenset[int]
    logits: frozenset[int]
    sequence: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Pipeline stages whose rows make one set of tables; tokens that a decoding sequence adds in a step; which steps
    are asked for, None: all that the engine takes. The key of what is kept: equal parts are those of equal deployments,
    and their tables are the same numbers."""

    deployment: Deployment
    stages: tuple[int, ...]
    decode_tokens: int
    bounds: compiled.StepBounds | None = None

    def __hash__(self) -> int:
        """Of what usually differs: specs hold mappings, which have no hash; the comparison looks at everything."""
        made, engine = self.deployment, self.deployment.engine
        limits = (engine.name, engine.max_num_batched_tokens, engine.max_num_seqs, engine.max_model_len)
        asked = (self.stages, self.decode_tokens, self.bounds)
        return hash((made.model.name, made.hardware.name, made.parallelism, limits, asked))


_kept = kept_within(most=32, most_bytes=128 * MIB)
"""Sets of tables in memory, of about a megabyte each: those of the deployments that were asked for last. With an
engine's limits raised they take a hundred times as much."""

_PRODUCTS = 4096
"""Row counts of a product that are all priced."""


def _whole(deployment: Deployment, *, decode_tokens: int) -> _Part:
    """All stages, without what changes no step: notes on the deployment, and its drafter, which has its own."""
    return _Part(
        deployment=replace(deployment, assumptions=(), speculation=None),
        stages=tuple(range(deployment.parallelism.pp_size)),
        decode_tokens=decode_tokens,
    )


def _works(part: _Part, step: StepShape) -> list[Work]:
    """Rows of the part's stages, one after another."""
    deployment = part.deployment
    if is_encoder_only(deployment.model):
        step = replace(step, decode_sequences=0.0 * step.decode_sequences)
    return [work for _, work in stage_rows(deployment, step, stages=part.stages)]


def _seconds(part: _Part, step: StepShape, rows: frozenset[int]) -> Array:
    """Time of all executions of the chosen rows in all cases but the last [s], which is there to keep the rows of
    prompts or of decodes in the list."""
    wanted = len(step.new_tokens) - 1
    total = np.zeros(wanted)
    for place, work in enumerate(_works(part, step)):
        if place in rows:
            seconds = _row_seconds(part.deployment, work, wanted=wanted)
            total = total + (work.count * work.executed * seconds)[:wanted]
    return total


def _cases_of(part: Part, cases: NDArray[np.int64], *, length: int) -> Part:
    """A Work, with its shape, or a kernel shape with some of its cases only."""
    changed: dict[str, Any] = {}
    for item in fields(part):
        value = getattr(part, item.name)
        if isinstance(value, np.ndarray) and len(value) == length:
            changed[item.name] = value[cases]
    if isinstance(part, Work):
        changed["shape"] = _cases_of(part.shape, cases, length=length)
    elif isinstance(part, CollectiveShape) and part.beside:
        changed["beside"] = tuple(_cases_of(row, cases, length=length) for row in part.beside)
    return replace(part, **changed)


def _price(deployment: Deployment, work: Work, cases: NDArray[np.int64], *, length: int) -> Array:
    return deployment.kernels.price(_cases_of(work, cases, length=length)).seconds


def _row_seconds(deployment: Deployment, work: Work, *, wanted: int | None = None) -> Array:
    """Time of one execution in each case, 0 where a case gives it nothing to do or where it lies beyond the ``wanted``
    first [s]. A product over very many row counts is priced at some of them only: latent attention projects cached
    context again, so that the rows of a product depend on two axes of a table at once."""
    busy = work.shape.message_bytes if isinstance(work.shape, CollectiveShape) else work.flops + work.bytes
    length = len(busy)
    seconds = np.zeros(length)
    active = np.flatnonzero(busy[:wanted] > 0)
    if not len(active):
        return seconds
    if not isinstance(work.shape, GemmShape):
        seconds[active] = _price(deployment, work, active, length=length)
        return seconds
    distinct, first = np.unique(work.shape.m[active], return_index=True)
    kept = np.arange(len(distinct))
    if len(distinct) > _PRODUCTS:
        nodes = np.append(distinct[0], compiled.tile_nodes(int(np.ceil(distinct[-1]))))
        kept = compiled.ascending(np.minimum(np.searchsorted(distinct, nodes), len(distinct) - 1))
    priced = _price(deployment, work, active[first[kept]], length=length)
    seconds[active] = np.interp(work.shape.m[active], distinct[kept], priced)
    return seconds


def _trial_step(part: _Part) -> StepShape:
    if is_encoder_only(part.deployment.model):
        return mixed_step(prefill_sequences=[1, 2, 8, 4], prefill_tokens=[2048, 1024, 256, 512])
    return mixed_step(
        prefill_sequences=[1, 2, 1, 0],
        prefill_tokens=[2048, 504, 2048, 0],
        prefill_context=[0, 4096, 0, 0],
        prefill_logits=[0, 0, 1040, 0],
        decode_sequences=[0, 1040, 0, 2048],
        decode_context=[1, 900, 1, 500],
    )


def _row_kinds(part: _Part) -> _RowKinds:
    """Find out by trial: the same 2048 tokens as a prompt, mixed with 1040 decodes, with 1040 logits, as decodes."""
    token, logits, sequence = set(), set(), set()
    for place, work in enumerate(_works(part, _trial_step(part))):
        prompt, mixed, with_logits, decodes = work.executed * _row_seconds(part.deployment, work)
        if np.allclose([mixed, with_logits, decodes], prompt, rtol=SAME, atol=0.0):
            token.add(place)
        elif np.isclose(mixed, with_logits, rtol=SAME, atol=0.0) and mixed > 0 and decodes > 0:
            logits.add(place)
        else:
            sequence.add(place)
    return _RowKinds(token=frozenset(token), logits=frozenset(logits), sequence=frozenset(sequence))


def _dense(nodes: NDArray[np.int64], values: Array, *, largest: int) -> Array:
    """One entry for each number 0..largest; nothing takes no time."""
    table: Array = np.interp(np.arange(largest + 1), nodes, values)
    table[0] = 0.0
    return table


def _token_table(part: _Part, rows: frozenset[int], *, largest: int, graphs: int) -> Array:
    nodes = compiled.tile_nodes(largest)
    # The last case only keeps the decode rows in the list.
    step = mixed_step(
        prefill_sequences=np.append(np.ones(len(nodes)), 0),
        prefill_tokens=np.append(nodes, 0),
        prefill_logits=0,
        decode_sequences=np.append(np.zeros(len(nodes)), 1),
        decode_context=1,
    )
    table = _dense(nodes, _seconds(part, step, rows), largest=largest)
    padded = _padded(part, np.arange(largest + 1.0), graphs=graphs)
    return np.ascontiguousarray(table[np.minimum(padded, largest).astype(np.int64)])


def _padded(part: _Part, tokens: Array, *, graphs: int) -> Array:
    """Tokens that graphs of up to ``graphs`` compute for a step. Those of rounds of guesses hold whole sequences: by
    their number, or the first multiple of a round's tokens from each size on."""
    each, steps = float(part.decode_tokens), part.deployment.engine.round_graphs
    if each == 1:
        return graph_tokens(tokens, largest=graphs)
    if steps:
        padded = each * graph_tokens(np.ceil(tokens / each), largest=graphs, steps=steps)
    else:
        padded = each * np.ceil(graph_tokens(np.maximum(tokens - each + 1, 1.0), largest=graphs) / each)
    return np.where(padded <= graphs * (each if steps else 1), padded, tokens)


def _logits_table(part: _Part, rows: frozenset[int], *, largest: int) -> Array:
    nodes = compiled.tile_nodes(largest)
    step = decode_step(sequences=nodes, context=1)
    table = _dense(nodes, _seconds(part, _with_prefill(step), rows), largest=largest)
    # The stage with the LM head draws the tokens.
    return table + sampling_s(part.deployment, np.arange(largest + 1.0)) if rows else table


def _with_prefill(step: StepShape) -> StepShape:
    """The same decode cases and a last one with a prompt, which keeps the prefill rows in the list."""
    return mixed_step(
        prefill_sequences=np.append(step.prefill_sequences, 1),
        prefill_tokens=np.append(step.prefill_tokens, 1),
        decode_sequences=np.append(step.decode_sequences, 0),
        decode_context=np.append(step.decode_context, 1),
        decode_tokens=np.append(step.decode_tokens, 1),
    )


def _within(nodes: Array, first: float, last: float) -> Array:
    """Ascending nodes from ``first`` to ``last`` and one more at either end: between them the table says what the whole
    one does."""
    begin = max(0, min(int(np.searchsorted(nodes, first, side="right")) - 1, len(nodes) - 2))
    return nodes[begin : np.searchsorted(nodes, last, side="right") + 1]


def _decode_table(part: _Part, rows: frozenset[int], *, contexts: Array, sequences: int) -> Array:
    every = compiled.stepped_nodes(part.deployment.engine.max_num_seqs, ranges=compiled.SEQUENCE_RANGES)
    counts = _within(every.astype(np.float64), 1, sequences)
    n, c = (grid.ravel() for grid in np.meshgrid(counts, contexts, indexing="ij"))
    step = decode_step(sequences=n, context=np.maximum(c, part.decode_tokens), tokens=part.decode_tokens)
    seconds = _seconds(part, _with_prefill(step), rows)
    by_count = seconds.reshape(len(counts), len(contexts))
    dense = [np.interp(np.arange(sequences + 1), counts, column) for column in by_count.T]
    table = np.ascontiguousarray(np.stack(dense, axis=1))
    table[0] = 0.0
    return table


def _places(nodes: Array, *, largest: int) -> Array:
    """Position of 0..largest among ascending nodes, by linear interpolation."""
    return np.interp(np.arange(largest + 1), nodes, np.arange(len(nodes)))


def _prefill_table(part: _Part, rows: frozenset[int], *, counts: Array, lengths: Array, contexts: Array) -> Array:
    s, q, c = (grid.ravel() for grid in np.meshgrid(counts, lengths, contexts, indexing="ij"))
    if part.bounds is None:
        # Between nodes beyond the token budget nothing is asked for.
        fewer, shorter = (np.append(nodes[:1], nodes[:-1]) for nodes in (counts, lengths))
        met = np.multiply.outer(fewer, shorter) <= part.deployment.engine.max_num_batched_tokens
        read = np.repeat(met.ravel(), len(contexts))
    else:
        read = part.bounds.prefill_nodes(counts, lengths, contexts).ravel()
    asked = np.append(np.flatnonzero(read), len(s))
    step = mixed_step(
        prefill_sequences=np.append(s, 0)[asked],
        prefill_tokens=np.append(q, 0)[asked],
        prefill_context=np.append(c, 0)[asked],
        prefill_logits=0,
        decode_sequences=np.append(np.zeros(len(s)), 1)[asked],
        decode_context=1,
    )
    flat = np.zeros(len(s))
    flat[asked[:-1]] = _seconds(part, step, rows)
    table = flat.reshape(len(counts), len(lengths), len(contexts))
    # Interpolation needs two nodes on every axis, also where only one is possible.
    return np.pad(table, [(0, int(size < 2)) for size in table.shape], mode="edge")


def _issue_s(part: _Part) -> float:
    """Host time to launch the kernels of a decode step one by one; 0 for engines that replay CUDA graphs [s]."""
    if not part.deployment.engine.issues_kernels:
        return 0.0
    works = _works(part, decode_step(sequences=1, context=1))
    launches = [work.shape.launches if isinstance(work.shape, ElementwiseShape) else 1.0 for work in works]
    counts = [work.count for work in works]
    return part.deployment.engine.overheads.eager_launch_s * float(np.dot(counts, launches))


def compile_steps(
    deployment: Deployment, *, decode_tokens: int = 1, bounds: compiled.StepBounds | None = None
) -> compiled.StepTables:
    """Tabulate the steps that the engine of ``deployment`` can take, up to its own limits.

    decode_tokens : tokens that each decoding sequence adds in a step, more than one where it verifies a draft
    bounds : of all that will be asked for; None: what the engine takes
    Steps that fit a CUDA graph are padded to the captured size. Pipeline stages are added up: one step passes through
    all of them. Of an encoder there are prompts alone. Equal deployments share their tables.
    """
    return _compile(replace(_whole(deployment, decode_tokens=decode_tokens), bounds=bounds))


def _graph_tokens(deployment: Deployment) -> int:
    """Tokens of the largest step that replays a CUDA graph; by default vLLM captures up to twice max_num_seqs at most
    (its max_cudagraph_capture_size)."""
    engine = deployment.engine
    return 0 if engine.eager else min(engine.cuda_graph_max_sequences, 2 * engine.max_num_seqs)


def compile_stages(deployment: Deployment, *, decode_tokens: int = 1) -> tuple[compiled.StepTables, ...]:
    """Step tables of each pipeline stage; stages of equal cost share one set, so that it is made once. The sum of their
    steps' device times is that of ``compile_steps``; each carries the whole host time of a step."""
    return _compile_stages(_whole(deployment, decode_tokens=decode_tokens))


@_kept
def _compile_stages(whole: _Part) -> tuple[compiled.StepTables, ...]:
    made: dict[bytes, compiled.StepTables] = {}
    stages = []
    for stage in whole.stages:
        part = replace(whole, stages=(stage,))
        works = _works(part, _trial_step(part))
        costs = [work.count * work.executed * _row_seconds(part.deployment, work) for work in works]
        cost = np.stack(costs).tobytes()
        if cost not in made:
            made[cost] = _compile(part)
        stages.append(made[cost])
    return tuple(stages)


class _ByTokens(NamedTuple):
    """Which rows see what, and the tables of those that see no sequences: the same for every length and number."""

    kinds: _RowKinds
    token_s: Array
    shared_s: Array
    logits_s: Array


@_kept
def _by_tokens(part: _Part) -> _ByTokens:
    kinds, engine = _row_kinds(part), part.deployment.engine
    verified = engine.max_num_seqs * part.decode_tokens
    # Beside all that decode a prompt goes on by a token, whatever the limit (`loop_replica`).
    largest = max(engine.max_num_batched_tokens, verified + 1)
    graphs, shared = _graph_tokens(part.deployment), frozenset[int]()
    if part.deployment.parallelism.ranks_in_step > 1:
        works = enumerate(_works(part, _trial_step(part)))
        shared = kinds.token & {place for place, work in works if is_shared(work)}
    return _ByTokens(
        kinds=kinds,
        token_s=_token_table(part, kinds.token, largest=largest, graphs=graphs),
        shared_s=_token_table(part, shared, largest=largest, graphs=graphs) if shared else np.zeros(1),
        logits_s=_logits_table(part, kinds.logits, largest=verified),
    )


@_kept
def _compile(part: _Part) -> compiled.StepTables:
    engine, tokens, asked = part.deployment.engine, part.deployment.engine.max_num_batched_tokens, part.bounds
    kinds, token_s, shared_s, logits_s = _by_tokens(replace(part, bounds=None))
    lengths = compiled.edge_nodes(tokens, ranges=compiled.QUERY_RANGES, per_octave=compiled.TOKEN_NODES)
    contexts = compiled.edge_nodes(engine.max_model_len, ranges=compiled.KEY_RANGES, per_octave=compiled.DECODE_NODES)
    units = 1.0 + engine.max_model_len / compiled.CONTEXT_UNIT_TOKENS
    cached = compiled.octave_nodes(units, per_octave=compiled.CONTEXT_NODES) - 1.0
    cached *= compiled.CONTEXT_UNIT_TOKENS
    counts = compiled.sequence_nodes(engine.max_num_seqs)
    sequences = engine.max_num_seqs
    if asked is not None:
        sequences = min(asked.sequences, sequences)
        lengths, cached = (_within(nodes, 0, asked.prompts[1]) for nodes in (lengths, cached))
        contexts, counts = _within(contexts, *asked.contexts), _within(counts, 1, sequences)
    return compiled.StepTables(
        token_s=token_s,
        shared_s=shared_s,
        logits_s=logits_s,
        decode_s=_decode_table(part, kinds.sequence, contexts=contexts, sequences=sequences),
        prefill_s=_prefill_table(part, kinds.sequence, counts=counts, lengths=lengths, contexts=cached),
        decode_places=_places(contexts, largest=int(contexts[-1])),
        sequence_places=_places(counts, largest=sequences),
        token_places=_places(lengths, largest=tokens + 1),
        step_s=engine.overheads.step_s,
        sequence_s=engine.overheads.step_per_sequence_s,
        prompt_s=engine.overheads.step_per_prompt_s,
        draft_s=np.zeros(sequences + 1),
        draft_token_s=0.0,
        issue_s=_issue_s(part),
        context_nodes=compiled.CONTEXT_NODES,
    )
