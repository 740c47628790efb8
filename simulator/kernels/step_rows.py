"""The rows of a step priced together, in as few calls as their kinds allow: calls, not cases, cost time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from simulator.kernels.attention.cases import AttentionKernel, attention_kernel, join_attention
from simulator.kernels.engine_traits import EngineTraits
from simulator.kernels.step_price import in_step
from simulator.kernels.timing import JOINED_CASES, Timing, join, priced_once, split
from simulator.operators.step_shape import Array
from simulator.operators.work import (
    AttentionShape,
    Collective,
    CollectiveShape,
    ElementwiseShape,
    GemmShape,
    MatmulFormat,
    Work,
)

Placed = tuple[int, Work]
"""A row with its place in the list."""
Shape = TypeVar("Shape", GemmShape, AttentionShape)


class KernelPrices(Protocol):
    """Prices of single kernels on one accelerator, and of those that can be priced as the cases of one."""

    @property
    def traits(self) -> EngineTraits:
        """Of the engine that launches them."""
        ...

    def price(self, work: Work) -> Timing:
        """One execution of a row."""
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
    """``kernels.price`` of each row, in order: products, attention and passes in one go, equal collectives once."""
    timings = {**_products(kernels, works), **_attention(kernels, works), **_passes(kernels, works)}
    messages: dict[tuple[Collective, int, int, bool, bytes], Timing] = {}
    for place, work in enumerate(works):
        if place in timings:
            continue
        if isinstance(work.shape, CollectiveShape) and work.shape.beside_flops is None:
            message = np.asarray(work.shape.message_bytes, dtype=np.float64)
            key = (
                work.shape.operation,
                work.shape.participants,
                work.shape.spacing,
                work.shape.ends_block,
                message.tobytes(),
            )
            if key not in messages:
                messages[key] = kernels.price(work)
            timings[place] = messages[key]
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
    groups: dict[AttentionKernel, list[tuple[Placed, AttentionShape]]] = {}
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
        if isinstance(work.shape, ElementwiseShape) and np.size(work.shape.bytes) <= JOINED_CASES
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
