"""Sequence parallelism: between tensor-parallel blocks every device holds only its share of the tokens."""

from __future__ import annotations

from dataclasses import replace

from simulator.errors import no_effect
from simulator.operators.work import Collective, CollectiveShape, ElementwiseShape, Work
from simulator.records import dataclass
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.techniques.applied import AppliedTechniques, RowContext, with_rule

SPLIT_ROLES = frozenset({"norm"})
"""Passes between the blocks; those inside a block are split by tensor parallelism already."""


def sequence_parallel(applied: AppliedTechniques, hardware: AcceleratorSpec) -> AppliedTechniques:
    """The scenario's ``sequence_parallel``."""
    return with_rule(applied, SplitTokens()) if applied.spec.sequence_parallel else applied


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTokens:
    """The rule that splits norms over the tensor-parallel ranks, and all-reduces into their two halves."""

    def __call__(self, rows: tuple[Work, ...], context: RowContext) -> tuple[Work, ...]:
        """``rows`` with each all-reduce as a reduce-scatter behind a block and an all-gather before the next one.

        The same bytes cross the links; norms and residuals take a share of the time and memory. Leaves out kernels
        that overlap the halves with products, and custom all-reduces, which have no halves: messages of single tokens
        get slower, which is why engines do it for prompts only.

        Reference: [Korthikanti2022]
        """
        size = context.parallelism.tp_size
        if size == 1:
            raise no_effect(
                "changes nothing on one tensor-parallel rank",
                field="techniques.sequence_parallel",
                hint="leave it out, or set tp_size",
            )
        return tuple(part for row in rows for part in _split(row, size=size))


def _split(row: Work, *, size: int) -> tuple[Work, ...]:
    shape = row.shape
    if isinstance(shape, CollectiveShape) and shape.block_token_bytes and shape.operation is Collective.ALL_REDUCE:
        halves = (Collective.REDUCE_SCATTER, Collective.ALL_GATHER)
        return tuple(
            replace(row, name=f"{row.name}_{half.value}", shape=replace(shape, operation=half)) for half in halves
        )
    if isinstance(shape, ElementwiseShape) and row.role in SPLIT_ROLES:
        return (
            replace(
                row,
                shape=replace(shape, bytes=shape.bytes / size),
                flops=row.flops / size,
                activation_bytes=row.activation_bytes / size,
            ),
        )
    return (row,)
