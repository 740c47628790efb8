"""What speculation and number formats bring by batch: speedup, break-even batch, best run length, room for cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.errors import RoofcastError
from simulator.kernels.intervals import Range, interval
from simulator.kernels.timing import Provenance
from simulator.operators.work import Array, decode_step
from simulator.phases.crossover import FormatCrossover, format_crossovers
from simulator.phases.deployment import Deployment, without_speculation
from simulator.phases.draft_cost import decode_round
from simulator.phases.memory import memory_plan, sequences_that_fit
from simulator.phases.step import estimate_step
from simulator.records import dataclass
from simulator.specs.base import Assumption, Note
from simulator.specs.model.fitted import Bookkeeping
from simulator.techniques.speculation.scenario import with_run_length

# A dense search for the break-even batch looks no further.
MAX_BATCH = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupByBatch:
    """TPOT without speculation over TPOT with it, per number of decoding sequences.

    speedup : as the scenario sets it; best_k : run length that is fastest there, 0 for none; best_speedup : its, >= 1
    break_even_batch : smallest batch at which speculation does not pay, None where it pays up to the largest asked for
    """

    batches: NDArray[np.int64]
    speedup: Array
    best_k: NDArray[np.int64]
    best_speedup: Array
    break_even_batch: int | None
    tokens_per_step: float

    @property
    def pays_up_to(self) -> int | None:
        """Largest batch at which speculation pays, 0 for none; None where it pays up to the largest asked for."""
        return None if self.break_even_batch is None else self.break_even_batch - 1


def token_s(deployment: Deployment, *, sequences: ArrayLike, context: float) -> Array:
    """Mean time per token of each sequence while ``sequences`` decode at a mean context of ``context`` tokens [s]."""
    tokens = 1.0 if deployment.speculation is None else deployment.speculation.plan.mean_tokens
    return np.asarray(decode_round(deployment, sequences=sequences, context=context).step_s / tokens)


def run_lengths(deployment: Deployment) -> tuple[Deployment, ...]:
    """The deployment with every shorter chain of guesses; trees and lookahead windows have one size only."""
    speculation = deployment.speculation
    if speculation is None:
        return ()
    plan = speculation.plan
    if plan.bookkeeping is Bookkeeping.TREE:
        return (deployment,)
    return tuple(
        replace(deployment, speculation=replace(speculation, plan=with_run_length(plan, k=k)))
        for k in range(1, plan.k + 1)
    )


def speedup_by_batch(deployment: Deployment, *, batches: Sequence[int], context_tokens: float) -> SpeedupByBatch:
    """Speedup of decoding over the same replica without speculation, in steady decoding at ``context_tokens``.

    Raises RoofcastError for a deployment that does not speculate. Left out: prompts, and sequences that a static batch
    holds until its slowest is done.
    """
    if deployment.speculation is None:
        raise RoofcastError("nothing to compare: the deployment does not speculate", field="techniques.speculation")
    asked = np.asarray(batches, dtype=np.int64)
    if not len(asked) or asked.min() < 1 or asked.max() > MAX_BATCH:
        raise RoofcastError(f"{list(batches)}; allowed: 1 to {MAX_BATCH}", field="batches", code="out_of_range")
    plain = token_s(without_speculation(deployment), sequences=asked, context=context_tokens)
    lengths = run_lengths(deployment)
    gains = [plain / token_s(one, sequences=asked, context=context_tokens) for one in lengths]
    table = np.stack([np.ones(len(asked)), *gains])
    best = np.argmax(table, axis=0)
    ks = np.array([0, *(one.speculation.plan.k for one in lengths if one.speculation is not None)], dtype=np.int64)
    return SpeedupByBatch(
        batches=asked,
        speedup=gains[-1],
        best_k=ks[best],
        best_speedup=table[best, np.arange(len(asked))],
        break_even_batch=_break_even(deployment, largest=int(asked.max()), context=context_tokens),
        tokens_per_step=deployment.speculation.plan.mean_tokens,
    )


def _break_even(deployment: Deployment, *, largest: int, context: float) -> int | None:
    every = np.arange(1, largest + 1)
    plain = token_s(without_speculation(deployment), sequences=every, context=context)
    loses = np.flatnonzero(plain <= token_s(deployment, sequences=every, context=context))
    return int(every[loses[0]]) if len(loses) else None


BATCHES = (1, 4, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatRow:
    """One number format: its step times at each batch with their 80 % intervals and how they are known, None sequences
    where the cache has no limit."""

    format: str
    step_s: tuple[float, ...]
    interval_s: tuple[Range | None, ...]
    provenance: tuple[str, ...]
    sequences_that_fit: int | None
    speculation: SpeedupByBatch | None

    @property
    def reach(self) -> float | None:
        """How far measured steps lie above these at most, in 80 % of cases and at the batch that is known least [-]."""
        ends = zip(self.step_s, self.interval_s, strict=True)
        return max((between[1] / seconds - 1 for seconds, between in ends if between is not None), default=None)


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
    notes: tuple[Note, ...]


def _fitting(deployment: Deployment, *, context_tokens: int) -> int | None:
    memory = memory_plan(deployment)
    if not memory.fits:
        return 0
    found = sequences_that_fit(deployment, memory, tokens=float(context_tokens))
    return None if found == float("inf") else int(found)


def _interval(seconds: float, log_sigma: float) -> Range | None:
    return interval(float(seconds), log_sigma=float(log_sigma))


def compare_formats(
    plain: Mapping[str, Deployment],
    *,
    guessing: Mapping[str, Deployment],
    context_tokens: int,
    tp_size: int,
    notes: tuple[Note, ...] = (),
) -> FormatComparison:
    """Compare deployments that differ in their number format; ``guessing`` holds them with speculation, or nothing."""
    step = decode_step(sequences=np.array(BATCHES, dtype=float), context=float(context_tokens))
    priced = {name: estimate_step(deployment, step) for name, deployment in plain.items()}
    rows = [
        FormatRow(
            format=name,
            step_s=tuple(priced[name].step_s.tolist()),
            interval_s=tuple(map(_interval, priced[name].step_s, priced[name].log_sigma)),
            provenance=tuple(Provenance(int(known)).label for known in priced[name].provenance),
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
