"""Number formats compared over the batch: time of a decode step, what fits, what speculation brings in each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from simulator.engine.uniform.speculation_gain import SpeedupByBatch, speedup_by_batch
from simulator.phases.crossover import FormatCrossover, decode_seconds, format_crossovers
from simulator.phases.deployment import Deployment
from simulator.phases.memory import memory_plan, sequences_that_fit
from simulator.specs.base import Assumption

BATCHES = (1, 4, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatRow:
    """One number format: its step times at each batch, None sequences where the cache has no limit."""

    format: str
    step_s: tuple[float, ...]
    sequences_that_fit: int | None
    speculation: SpeedupByBatch | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatComparison:
    """Formats in the order asked for; the fastest of them at each batch, and where one overtakes another.

    assumptions : what was filled in for all of them alike
    """

    model: str
    hardware: str
    tp_size: int
    context_tokens: int
    batches: tuple[int, ...]
    formats: tuple[FormatRow, ...]
    fastest: tuple[str, ...]
    crossovers: tuple[FormatCrossover, ...]
    assumptions: tuple[Assumption, ...]
    notes: tuple[str, ...]


def _fitting(deployment: Deployment, *, context_tokens: int) -> int | None:
    memory = memory_plan(deployment)
    if not memory.fits:
        return 0
    found = sequences_that_fit(deployment, memory, tokens=float(context_tokens))
    return None if found == float("inf") else int(found)


def compare_formats(
    plain: Mapping[str, Deployment],
    *,
    guessing: Mapping[str, Deployment],
    context_tokens: int,
    tp_size: int,
    notes: tuple[str, ...] = (),
) -> FormatComparison:
    """Compare deployments that differ in their number format; ``guessing`` holds them with speculation, or nothing."""
    batches = np.array(BATCHES, dtype=float)
    rows = [
        FormatRow(
            format=name,
            step_s=tuple(
                float(value) for value in decode_seconds(deployment, batches, context_tokens=float(context_tokens))
            ),
            sequences_that_fit=_fitting(deployment, context_tokens=context_tokens),
            speculation=speedup_by_batch(guessing[name], batches=BATCHES, context_tokens=float(context_tokens))
            if name in guessing
            else None,
        )
        for name, deployment in plain.items()
    ]
    first = next(iter(plain.values()))
    return FormatComparison(
        model=first.model.name,
        hardware=first.hardware.name,
        tp_size=tp_size,
        context_tokens=context_tokens,
        batches=BATCHES,
        formats=tuple(rows),
        fastest=tuple(min(rows, key=lambda row: row.step_s[place]).format for place in range(len(BATCHES))),
        crossovers=tuple(format_crossovers(list(plain.items()), context_tokens=float(context_tokens))),
        assumptions=tuple(
            item for item in first.assumptions if all(item in other.assumptions for other in plain.values())
        ),
        notes=notes,
    )
