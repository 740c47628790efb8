"""Weights in the host's memory: less of the device's, and a trip over the host link in every pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.operators.work import Family, HostTransferShape, Work
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.techniques.applied import AppliedTechniques, RowContext, with_rule

OFFLOADED_ROLES = frozenset({"attention", "mlp", "experts", "shared_expert", "mixer"})
"""Weights of the layers; embeddings, norms and the LM head stay on the device."""


def weight_offload(applied: AppliedTechniques, hardware: AcceleratorSpec) -> AppliedTechniques:
    """The scenario's ``weight_offload``."""
    spec = applied.spec.weight_offload
    if spec is None:
        return applied
    note = Note("offloaded_weights", {"share": spec.fraction, "link": hardware.host_link})
    applied = with_rule(applied, OffloadedWeights(fraction=spec.fraction))
    return replace(applied, notes=(*applied.notes, note))


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadedWeights:
    """The rule that takes a share of the weights out of the device's memory and adds their way to it."""

    fraction: float

    def __call__(self, rows: tuple[Work, ...], context: RowContext) -> tuple[Work, ...]:
        """``rows`` and the copy of what they read from the host [Sheng2023]. Weights that a step does not touch
        (experts without tokens, layers after an early exit) are not copied. Leaves out the host's own memory, shared
        links, and schedules that copy the next layer while one computes."""
        moved = np.zeros_like(np.asarray(rows[0].flops, dtype=np.float64))
        changed = []
        for row in rows:
            if row.role in OFFLOADED_ROLES:
                moved = moved + row.count * row.executed * row.weight_bytes * self.fraction
                row = replace(row, stored_bytes=row.stored_bytes * (1.0 - self.fraction))
            changed.append(row)
        return (*changed, _copy(moved, rows=context.step.new_tokens))


def _copy(moved: np.ndarray, *, rows: np.ndarray) -> Work:
    nothing = np.zeros_like(moved)
    return Work(
        name="weight_copy",
        family=Family.COLLECTIVE,
        role="weight_copy",
        shape=HostTransferShape(bytes=moved, rows=rows),
        flops=nothing,
        weight_bytes=nothing,
        kv_bytes=nothing,
        activation_bytes=moved,
    )
