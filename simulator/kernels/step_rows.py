"""The rows of a step priced together, in as few calls as their kinds allow: calls, not cases, cost time.

What a row's price becomes in an engine's step: streams and kernels that no table timed, launches, gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Protocol, TypeVar

import numpy as np

from simulator.kernels.attention.cases import attention_kernel, join_attention
from simulator.kernels.engine_traits import SHARED_EXPERT, EngineTraits
from simulator.kernels.timing import JOINED_CASES, Provenance, Timing, join, priced_once, split, without_idle
from simulator.operators.work import (
    Array,
    AttentionShape,
    Collective,
    CollectiveShape,
    ElementwiseShape,
    Family,
    GemmShape,
    GroupedGemmShape,
    MatmulFormat,
    MoeShape,
    Work,
)
from simulator.specs.model.precision import Dtype


def _on_vector_units(timing: Timing, shape: AttentionShape, *, kv_bytes: Array, traits: EngineTraits) -> Timing:
    """Decode attention whose query heads each go through the keys and values of their group on their own.

    One block of threads a query head, products by the vector units: every number of the cache is converted and
    multiplied once per head, in a block alone as slowly as among others, and delivered by memory once. Nobody timed
    that kernel. Valid for one query a sequence; leaves out launches, and kernels that divide a sequence.

    Reference: [NVIDIA2024b]
    """
    group = round(shape.num_heads / shape.num_kv_heads)
    if traits.matrix_groups is None or group in traits.matrix_groups or not shape.is_decode:
        return timing
    keys = np.minimum(shape.context_tokens + shape.query_tokens, np.inf if shape.window is None else shape.window)
    blocks = np.maximum(shape.sequences * shape.num_heads, traits.compute_units)
    vector_s = blocks * keys * (shape.head_dim + shape.v_head_dim) / traits.vector_elements_per_s
    memory_s = kv_bytes / traits.read_bytes_per_s
    return replace(
        timing,
        seconds=np.maximum(memory_s, vector_s),
        compute_s=vector_s,
        memory_s=memory_s,
        provenance=np.maximum(timing.provenance, float(Provenance.EXTRAPOLATED)),
    )


def _by_whole_sequences(timing: Timing, shape: AttentionShape, *, traits: EngineTraits) -> Timing:
    """Latent decode attention whose thread blocks take all keys of a sequence, so that few sequences leave units idle.

    t = waves x keys x rows of a block x 2 (key width + value width) / rate of a unit, waves = max(blocks / units, 1).
    Leaves out that the last wave is not full.
    """
    latent = traits.undivided
    if latent is None or not (shape.is_decode and shape.shared_kv):
        return timing
    rows = shape.num_heads * np.asarray(shape.query_tokens) / latent.heads
    waves = np.maximum(shape.sequences * np.ceil(rows) / traits.compute_units, 1.0)
    keys = shape.context_tokens + shape.query_tokens
    flops = 2.0 * latent.heads * keys * (shape.head_dim + shape.v_head_dim)
    alone_s = np.where(shape.num_heads >= latent.heads, waves * flops / traits.block_flops_per_s, 0.0)
    return _computing_for(timing, alone_s)


def _computing_for(timing: Timing, least_s: Array) -> Timing:
    """A row whose arithmetic takes that long at least, as whole runs say; nobody timed it."""
    inferred = np.where(least_s > timing.seconds, int(Provenance.EXTRAPOLATED), 0)
    return replace(
        timing,
        seconds=np.maximum(timing.seconds, least_s),
        compute_s=np.maximum(timing.compute_s, least_s),
        provenance=np.maximum(timing.provenance, inferred),
    )


def _again_per_group(timing: Timing, shape: AttentionShape, *, traits: EngineTraits) -> Timing:
    """Latent decode attention whose kernel takes few heads at a time: each further group reads the latents again
    [AMDAITER2025]."""
    narrow = traits.narrow_latent
    if narrow is None or not (shape.is_decode and shape.shared_kv):
        return timing
    heads = np.asarray(shape.num_heads, dtype=np.float64)
    groups = np.where(heads < narrow.native_heads, np.maximum(np.ceil(heads / narrow.heads), 1.0), 1.0)
    again_s = (groups - 1.0) * timing.memory_s
    return replace(timing, seconds=timing.seconds + again_s, memory_s=timing.memory_s + again_s)


def _untuned(timing: Timing, shape: MoeShape, *, traits: EngineTraits) -> Timing:
    """Experts in 16 bit on the engine's one tile, where its release has no better one for their number and width."""
    known = (shape.local_experts, shape.intermediate_size) in traits.tuned
    if traits.untuned is None or known or shape.exchanged or shape.format.name != Dtype.BF16.value:
        return timing
    from simulator.kernels.moe import on_one_tile

    return on_one_tile(timing, shape, untuned=traits.untuned, compute_units=traits.compute_units)


def _slow_product(timing: Timing, shape: GemmShape, *, traits: EngineTraits) -> Timing:
    """A product on a kernel whose arithmetic is slower than the tuned one's that its table holds [AMDAITER2025]."""
    rates = [rate for kernel, rate in traits.slow_products if kernel.weights == shape.format.name]
    if not rates:
        return timing
    product_s = 2.0 * np.asarray(shape.m, dtype=np.float64) * shape.n * shape.k * shape.batch / rates[0]
    return _computing_for(timing, product_s)


def _slower_experts(timing: Timing, shape: MoeShape, *, traits: EngineTraits) -> Timing:
    """Experts on kernels slower than the tuned ones that their table holds [AMDAITER2025]."""
    for kernel, above in traits.slower_experts:
        if kernel.weights != shape.format.name or not kernel.takes(shape.intermediate_size):
            continue
        slower = np.asarray(shape.tokens) > above
        inferred = np.where(slower, int(Provenance.EXTRAPOLATED), 0)  # from whole runs; no kernel of it was timed
        timing = replace(
            timing,
            seconds=np.where(slower, timing.seconds / kernel.rate_share, timing.seconds),
            provenance=np.maximum(timing.provenance, inferred),
        )
    return timing


def _from_memory(timing: Timing, work: Work, *, traits: EngineTraits) -> Timing:
    """``timing``, no shorter than memory takes to deliver the weights and the cache that a kernel reads.

    A step streams the whole model, so that nothing of a layer is left in the L2 when it comes round again. Benchmarks
    repeat one layer, and on cards with a large L2 their times for few rows beat the memory. Leaves out models of which
    a device holds less than its L2.

    Reference: [Williams2009]
    """
    read_s = (work.weight_bytes + work.kv_bytes) / traits.read_bytes_per_s
    delivered = timing.seconds >= read_s
    if np.count_nonzero(delivered) == np.size(delivered):  # a third of the time of np.all, for every row of a plan
        return timing
    return replace(timing, seconds=np.maximum(timing.seconds, read_s), memory_s=np.maximum(timing.memory_s, read_s))


def in_step(timing: Timing, work: Work, *, traits: EngineTraits) -> Timing:
    """The price of a row among the others of its step: nothing where it has nothing to do, less on a side stream.

    A shared expert's product that runs beside or among the routed experts only takes its bandwidth, or its
    multiplications, away from them; launch, first bytes and last wave are hidden.
    """
    if isinstance(work.shape, GemmShape | MoeShape | AttentionShape):
        timing = _from_memory(timing, work, traits=traits)
    among_routed = traits.fused_shared and work.role == SHARED_EXPERT
    hidden_tokens = np.inf if among_routed else traits.side_stream_tokens
    if hidden_tokens and work.role == SHARED_EXPERT and isinstance(work.shape, GemmShape):
        taken_s = np.minimum(timing.seconds, np.maximum(timing.compute_s, timing.memory_s))
        beside = np.asarray(work.shape.m) <= hidden_tokens
        timing = replace(timing, seconds=np.where(beside, taken_s, timing.seconds))
    if isinstance(work.shape, AttentionShape):
        timing = _on_vector_units(timing, work.shape, kv_bytes=work.kv_bytes, traits=traits)
        timing = _by_whole_sequences(timing, work.shape, traits=traits)
        timing = _again_per_group(timing, work.shape, traits=traits)
    if isinstance(work.shape, MoeShape):
        timing = _untuned(timing, work.shape, traits=traits)
        timing = _slower_experts(timing, work.shape, traits=traits)
    if isinstance(work.shape, GemmShape) and not among_routed:
        timing = _slow_product(timing, work.shape, traits=traits)
    return without_idle(_as_launched(timing, work, traits=traits), work)


def exposed(timing: Timing, shape: CollectiveShape, *, hidden_s: Array) -> Timing:
    """What of a collective outlasts the rows beside it, or takes of them [s]. Reference: [Liu2023b], [DeepSeek2024b]"""
    large = shape.apart_bytes is not None and shape.message_bytes > shape.apart_bytes
    least_s = np.where(large, shape.kept_share * timing.seconds, 0.0)
    seconds = np.maximum(timing.seconds - hidden_s, least_s)
    # What shows is as uncertain, in seconds, as the whole transfer.
    whole_s, part_s = np.where(seconds > least_s, (timing.seconds, seconds), 1.0)
    sigma = timing.log_sigma * whole_s / part_s
    return replace(timing, seconds=seconds, network_s=np.minimum(timing.network_s, seconds), log_sigma=sigma)


def is_shared(work: Work) -> bool:
    """Whether attention ranks that share experts do it together: the experts, and the all-to-all around them."""
    if isinstance(work.shape, CollectiveShape):
        return work.shape.operation is Collective.ALL_TO_ALL
    return work.family is Family.MOE


def launches_of(work: Work) -> float:
    """Kernels that one execution of a row launches [-]."""
    match work.shape:
        case ElementwiseShape(launches=launches):
            return launches
        case GemmShape(format=product):
            return product.launches
        case _:
            return 1.0


def _as_launched(timing: Timing, work: Work, *, traits: EngineTraits) -> Timing:
    """Products and experts at the engine's share of the tuned rate, and the gap before each kernel of the row."""
    seconds = timing.seconds
    if traits.tuned_share != 1.0 and isinstance(work.shape, GemmShape | MoeShape | GroupedGemmShape):
        seconds = seconds / traits.tuned_share
    if traits.launch_gap_s:
        seconds = seconds + traits.launch_gap_s * launches_of(work)
    return timing if seconds is timing.seconds else replace(timing, seconds=seconds)


Placed = tuple[int, Work]
"""A row with its place in the list."""
Shape = TypeVar("Shape", GemmShape, AttentionShape)


class KernelPrices(Protocol):
    """Prices of single kernels on one accelerator, and of those that can be priced as the cases of one."""

    @property
    def traits(self) -> EngineTraits:
        """Traits of the engine that launches the kernels."""
        ...

    def price(self, work: Work, *, hidden_s: Array | None = None) -> Timing:
        """One execution of a row; ``hidden_s`` takes what runs beside a collective, summed up here where None."""
        ...

    def product(self, shape: GemmShape) -> Timing | None:
        """Products of one format, sizes broadcast; None where their rows are priced one by one."""
        ...

    def attention_call(self, shape: AttentionShape) -> Timing | None:
        """Attention of one kernel, heads broadcast; None where its rows are priced one by one."""
        ...

    def memory_pass(self, shape: ElementwiseShape) -> Timing:
        """Passes bound by memory, launches broadcast."""
        ...


def price_rows(kernels: KernelPrices, works: Sequence[Work]) -> tuple[Timing, ...]:
    """``kernels.price`` of each row, in order: products, attention and passes in one go, equal collectives once. So are
    the rows beside collectives."""
    timings = {**_products(kernels, works), **_attention(kernels, works), **_passes(kernels, works)}
    beside = [row for work in works if isinstance(work.shape, CollectiveShape) for row in work.shape.beside]
    taken = iter(zip(beside, price_rows(kernels, beside), strict=True)) if beside else iter(())
    messages: dict[tuple[Collective, int, int, float, bytes], Timing] = {}
    for place, work in enumerate(works):
        if place in timings:
            continue
        if isinstance(work.shape, CollectiveShape) and not work.shape.beside:
            message = np.asarray(work.shape.message_bytes, dtype=np.float64)
            key = (
                work.shape.operation,
                work.shape.participants,
                work.shape.spacing,
                work.shape.block_token_bytes,
                message.tobytes(),
            )
            if key not in messages:
                messages[key] = kernels.price(work)
            timings[place] = messages[key]
        elif isinstance(work.shape, CollectiveShape):
            under_way = islice(taken, len(work.shape.beside))
            hidden_s = sum(row.count * row.executed * timing.seconds for row, timing in under_way)
            timings[place] = kernels.price(work, hidden_s=np.asarray(hidden_s))
        else:
            timings[place] = kernels.price(work)
    return tuple(timings[place] for place in range(len(works)))


def _products(kernels: KernelPrices, works: Sequence[Work]) -> dict[int, Timing]:
    """Prices of the matrix products that have company of the same format, by place."""
    groups: dict[tuple[MatmulFormat, float], list[tuple[Placed, GemmShape]]] = {}
    for place, work in enumerate(works):
        if isinstance(work.shape, GemmShape) and np.size(work.shape.m) <= JOINED_CASES:
            groups.setdefault((work.shape.format, work.shape.batch), []).append(((place, work), work.shape))
    return _together(
        kernels,
        groups.values(),
        price=lambda shapes: priced_once(join(shapes), kernels.product),
        cases=lambda shape: shape.m,
    )


def _attention(kernels: KernelPrices, works: Sequence[Work]) -> dict[int, Timing]:
    """Prices of attention on few heads that has company which differs in heads and sizes only, by place."""
    groups: dict[tuple[object, ...], list[tuple[Placed, AttentionShape]]] = {}
    for place, work in enumerate(works):
        shape = work.shape
        if isinstance(shape, AttentionShape) and np.size(shape.sequences) <= JOINED_CASES:
            groups.setdefault(attention_kernel(shape), []).append(((place, work), shape))
    return _together(
        kernels,
        groups.values(),
        price=lambda shapes: kernels.attention_call(join_attention(shapes)),
        cases=lambda shape: shape.sequences,
    )


def _together(
    kernels: KernelPrices,
    groups: Iterable[Sequence[tuple[Placed, Shape]]],
    *,
    price: Callable[[Sequence[Shape]], Timing | None],
    cases: Callable[[Shape], Array],
) -> dict[int, Timing]:
    """Every group of two or more in one call, by place; what has no joined price is left out."""
    timings: dict[int, Timing] = {}
    for members in groups:
        shapes = [shape for _, shape in members]
        if len(shapes) == 1:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            joined = price(shapes)
        if joined is not None:
            sizes = [np.size(cases(shape)) for shape in shapes]
            timings.update(_apart(kernels, joined, rows=[row for row, _ in members], sizes=sizes))
    return timings


def _passes(kernels: KernelPrices, works: Sequence[Work]) -> dict[int, Timing]:
    """Prices of the passes bound by memory, by place; none where there is but one."""
    members = [
        ((place, work), work.shape)
        for place, work in enumerate(works)
        if isinstance(work.shape, ElementwiseShape)
        and work.shape.searched_rows is None
        and np.size(work.shape.bytes) <= JOINED_CASES
    ]
    if len(members) < 2:
        return {}
    sizes = [np.size(shape.bytes) for _, shape in members]
    # Prices broadcast launches just as bytes, although a row of the operator list has one number of them.
    launches: Any = np.repeat([float(shape.launches) for _, shape in members], sizes)
    moved = np.concatenate([np.atleast_1d(np.asarray(shape.bytes, dtype=np.float64)) for _, shape in members])
    with np.errstate(divide="ignore", invalid="ignore"):
        joined = kernels.memory_pass(ElementwiseShape(bytes=moved, launches=launches))
    return dict(_apart(kernels, joined, rows=[row for row, _ in members], sizes=sizes))


def _apart(
    kernels: KernelPrices, joined: Timing, *, rows: Sequence[Placed], sizes: Sequence[int]
) -> Iterable[tuple[int, Timing]]:
    """The parts of a joined price, each as its row has it in the step."""
    for (place, work), part in zip(rows, split(joined, sizes=sizes), strict=True):
        yield place, in_step(part, work, traits=kernels.traits)
