"""Decoding with attention and feed-forward blocks on devices of their own, which pass tokens back and forth by layer.

A replica has several attention instances with the cache of their own sequences, and one group of devices that holds the
experts of all. Each step goes as micro-batches, so that one side computes while the other does, tokens under way.
Left out: kernels of both sides that slow each other's links, and what placement of experts balances.

References
----------
[Zhu2025], [Wang2025]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from simulator.errors import RoofcastError
from simulator.operators.work import Array, Family, decode_step
from simulator.phases.compiled import DECODE_NODES, KEY_RANGES, SEQUENCE_RANGES, StepTables, edge_nodes, stepped_nodes
from simulator.phases.deployment import Deployment
from simulator.phases.step import StepEstimate, StepRow, estimate_step, scheduling_s
from simulator.phases.tabulate import compile_steps
from simulator.records import dataclass
from simulator.specs.model.architecture import ModelSpec

_ENDS = (Family.EMBEDDING, Family.LM_HEAD)
_DISPATCH, _COMBINE = "experts_dispatch", "experts_combine"


def attention_only(model: ModelSpec) -> ModelSpec:
    """The model without its feed-forward blocks, which must hold experts."""
    if not model.has_experts:
        raise RoofcastError(
            f"{model.name} has no experts to move",
            field="disaggregation.decode_ffn",
            code="no_effect",
            hint="leave it out, or take a mixture of experts",
        )
    layers = tuple(layer.model_copy(update={"feed_forward": (), "norms": 1}) for layer in model.layers)
    return model.model_copy(update={"layers": layers})


def ffn_only(model: ModelSpec) -> ModelSpec:
    """The model without what mixes tokens."""
    layers = tuple(
        layer.model_copy(update={"mixer": None, "cross_attention": None, "norms": 1}) for layer in model.layers
    )
    return model.model_copy(update={"layers": layers})


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionFfn:
    """A replica of both kinds of devices.

    attention : one instance, a deployment of the model without feed-forward blocks; ffn : one of the model without
    attention, whose data-parallel ranks are its devices; ranks : attention instances; layers : of the model
    ordinary : as many devices of the attention's kind with data-parallel attention and the experts spread over all of
        them; None where that is no legal set-up
    """

    attention: Deployment
    ffn: Deployment
    ranks: int
    micro_batches: int
    layers: int
    ordinary: Deployment | None = None

    @property
    def attention_devices(self) -> int:
        """Devices of all attention instances."""
        return self.ranks * self.attention.parallelism.devices

    @property
    def devices(self) -> int:
        """Devices of the replica."""
        return self.attention_devices + self.ffn.parallelism.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class PingPong:
    """Parts of decode steps, one entry per case. Per layer and micro-batch: attention_s, ffn_s, dispatch_s, combine_s.

    ends_s : embedding, LM head and sampling of all micro-batches; layers_s : all layers of all micro-batches
    micro_batches : how many there are, as many as sequences at most; needed_micro_batches : how many hide all transfers
    """

    attention: StepEstimate
    ffn: StepEstimate
    attention_s: Array
    ffn_s: Array
    dispatch_s: Array
    combine_s: Array
    ends_s: Array
    layers_s: Array
    micro_batches: Array

    @property
    def needed_micro_batches(self) -> Array:
        """The fewest whose time on the slower side covers the way of one through both sides and back."""
        slower = np.maximum(self.attention_s, self.ffn_s)
        return np.ceil((self.attention_s + self.ffn_s + self.dispatch_s + self.combine_s) / slower)

    @property
    def step_s(self) -> Array:
        """The step without the engine's scheduling [s]."""
        return self.ends_s + self.layers_s


def ping_pong_seconds(
    *, attention_s: ArrayLike, ffn_s: ArrayLike, transfers_s: ArrayLike, micro_batches: ArrayLike, layers: int
) -> Array:
    """Time of all layers when micro-batches take turns on both sides [s].

    Equation
    --------
    (L - 1) max(m F, R) + R + (m - 1) F with F = max(a, f) and R = a + f + c

    Parameters
    ----------
    attention_s, ffn_s : a and f, a micro-batch and layer on its side [s]
    transfers_s : c, its way to the experts and back [s]
    micro_batches, layers : m, L [-]

    Range of validity
    -----------------
    Equal layers and micro-batches. Where m F >= R every transfer is hidden and this is R + F (m L - 1), equation 5 of
    the paper; one micro-batch takes L R. Leaves out layers that differ.

    References
    ----------
    [Zhu2025] section 4.1, equations 3 to 5 (from memory, verify).

    Examples
    --------
    Two layers, three micro-batches of 1 ms on each side, half a millisecond under way: 2.5 + 5 ms.

    >>> float(ping_pong_seconds(attention_s=1e-3, ffn_s=1e-3, transfers_s=5e-4, micro_batches=3, layers=2))
    0.0075
    """
    slower = np.maximum(attention_s, ffn_s)
    through: Array = np.asarray(attention_s, dtype=np.float64) + np.asarray(ffn_s) + np.asarray(transfers_s)
    turns = np.asarray(micro_batches, dtype=np.float64)
    return (layers - 1) * np.maximum(turns * slower, through) + through + (turns - 1) * slower


def ping_pong(parts: AttentionFfn, *, sequences: ArrayLike, context: ArrayLike) -> PingPong:
    """A decode step of so many sequences on each attention instance, all instances having as many."""
    held, ffn_ranks = np.asarray(sequences, dtype=np.float64), parts.ffn.parallelism.dp_size
    # A micro-batch without a sequence is none.
    micro = np.minimum(parts.micro_batches, np.maximum(1.0, np.ceil(held)))
    each = held / micro
    attention = estimate_step(parts.attention, decode_step(sequences=each, context=context))
    shared = each * parts.ranks / ffn_ranks
    ffn = estimate_step(parts.ffn, decode_step(sequences=shared, context=1.0))
    # Every token crosses, where of those of its own group a device keeps its share.
    crossing = shared * ffn_ranks / (ffn_ranks - 1)
    moved = estimate_step(parts.ffn, decode_step(sequences=crossing, context=1.0))
    # The side with fewer devices sends and takes more on each of its links.
    links = max(1.0, ffn_ranks / parts.attention_devices)
    layers = parts.layers
    attention_s = _sum(attention, lambda row: row.work.family not in _ENDS) / layers
    ffn_s = _sum(ffn, _is_ffn) / layers
    dispatch_s = links * _sum(moved, lambda row: row.work.name == _DISPATCH) / layers
    combine_s = links * _sum(moved, lambda row: row.work.name == _COMBINE) / layers
    return PingPong(
        attention=attention,
        ffn=ffn,
        attention_s=attention_s,
        ffn_s=ffn_s,
        dispatch_s=dispatch_s,
        combine_s=combine_s,
        ends_s=micro * _sum(attention, lambda row: row.work.family in _ENDS),
        layers_s=ping_pong_seconds(
            attention_s=attention_s, ffn_s=ffn_s, transfers_s=dispatch_s + combine_s, micro_batches=micro, layers=layers
        ),
        micro_batches=micro,
    )


def _is_ffn(row: StepRow) -> bool:
    """Router, experts and dense blocks with their norms, and no transfer."""
    return row.work.family not in (*_ENDS, Family.COLLECTIVE)


def _sum(estimate: StepEstimate, chosen: Callable[[StepRow], bool]) -> Array:
    total = np.zeros_like(estimate.host_s)
    for row in estimate.rows:
        total = total + row.seconds if chosen(row) else total
    return total


def decode_estimate(parts: AttentionFfn, *, sequences: ArrayLike, context: ArrayLike) -> StepEstimate:
    """The step as the breakdown of a mean device; what is left of it, devices wait for tokens of the other side."""
    found = ping_pong(parts, sequences=sequences, context=context)
    step = decode_step(sequences=sequences, context=context)
    total, holding = parts.devices, found.micro_batches / parts.micro_batches
    shares = (
        (found.attention, lambda row: True, parts.attention_devices / total),
        (found.ffn, _is_ffn, parts.ffn.parallelism.devices / total),
    )
    rows = [
        replace(
            row,
            work=replace(
                row.work, count=row.work.count * parts.micro_batches * share, executed=row.work.executed * holding
            ),
        )
        for estimate, chosen, share in shares
        for row in estimate.rows
        if chosen(row)
    ]
    busy_s = sum((row.seconds for row in rows), np.zeros_like(found.step_s))
    waiting = next(row for row in found.ffn.rows if row.work.name == _DISPATCH)
    left = replace(waiting.timing, seconds=(found.step_s - busy_s) / waiting.work.count)
    rows.append(replace(waiting, work=replace(waiting.work, name="micro_batches_under_way"), timing=left))
    return replace(
        found.attention,
        rows=tuple(rows),
        stage_s=found.step_s[np.newaxis],
        host_s=scheduling_s(parts.attention, step),
        step=step,
        replicas=parts.ranks,
        devices=total,
    )


def decode_tables(parts: AttentionFfn) -> StepTables:
    """Step tables of one attention instance for a pool that decodes.

    What is thrown out and computed again passes both sides one after the other, without micro-batches.
    """
    own, ffn, engine = compile_steps(parts.attention), compile_steps(parts.ffn), parts.attention.engine
    spread = parts.ranks / parts.ffn.parallelism.dp_size
    tokens = np.arange(len(own.token_s))
    shared = np.minimum(np.ceil(tokens * spread).astype(np.int64), len(ffn.token_s) - 1)
    token_s = own.token_s + ffn.token_s[shared]
    sequences = engine.max_num_seqs
    contexts = edge_nodes(engine.max_model_len, ranges=KEY_RANGES, per_octave=DECODE_NODES)
    counts = stepped_nodes(sequences, ranges=SEQUENCE_RANGES).astype(np.float64)
    n, c = (grid.ravel() for grid in np.meshgrid(counts, contexts, indexing="ij"))
    whole = ping_pong(parts, sequences=n, context=c).step_s.reshape(len(counts), len(contexts))
    every = np.arange(sequences + 1)
    dense = np.stack([np.interp(every, counts, column) for column in whole.T], axis=1)
    dense -= (token_s[every] + own.logits_s[every])[:, np.newaxis]
    dense[0] = 0.0
    return own._replace(token_s=token_s, decode_s=np.ascontiguousarray(dense))
