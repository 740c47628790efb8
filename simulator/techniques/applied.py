"""What techniques come to: a changed model, changed number formats, rules that rewrite the operator list."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from simulator.operators.formats.tensor_formats import PrecisionPlan
from simulator.operators.linear import DeviceShare
from simulator.operators.step_shape import StepShape, behind_prefix
from simulator.operators.transformer import operator_list
from simulator.operators.work import Work
from simulator.records import dataclass
from simulator.specs.base import Assumption
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.question.techniques import TechniquesSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RowContext:
    """What a rule may look at: whose rows these are, of which step, and whether elementwise passes are fused."""

    model: ModelSpec
    plan: PrecisionPlan
    parallelism: ParallelismSpec
    step: StepShape
    stage: int
    fused: bool = True

    def share(self) -> DeviceShare:
        """One device's part in the step, for rows that a rule adds."""
        return DeviceShare.of(
            self.model, plan=self.plan, parallelism=self.parallelism, step=self.step, source=self.step, fused=self.fused
        )


class RowRule(Protocol):
    """A technique that replaces, scales or adds rows of one device; the same rows feed time and memory."""

    def __call__(self, rows: tuple[Work, ...], context: RowContext) -> tuple[Work, ...]:
        """Rows after the technique."""
        ...


class BatchNote(Protocol):
    """A technique whose worth is another in each batch."""

    def note(self, sequences: float) -> str:
        """What it does in a batch of ``sequences``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedTechniques:
    """A deployment's model and formats after every technique, and the rules for its rows.

    rules : applied in their order to each device's operator list
    prefix_tokens : cached tokens that stand before every sequence (prompt tuning)
    assumptions, notes : what was filled in, and what a reader should know; batch_notes : that depends on the batch
    """

    spec: TechniquesSpec
    model: ModelSpec
    plan: PrecisionPlan
    rules: tuple[RowRule, ...] = ()
    prefix_tokens: int = 0
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()
    batch_notes: tuple[BatchNote, ...] = ()

    def notes_at(self, sequences: float) -> tuple[str, ...]:
        """All notes, those on a batch for one of ``sequences``."""
        return (*self.notes, *(note.note(sequences) for note in self.batch_notes))


class Technique(Protocol):
    """One technique: what is applied so far in, the same with its own change out; refuses what cannot be."""

    def __call__(self, applied: AppliedTechniques, hardware: AcceleratorSpec) -> AppliedTechniques:
        """``applied`` with this technique added; unchanged where the scenario does not ask for it."""
        ...


def device_rows(
    techniques: AppliedTechniques, *, parallelism: ParallelismSpec, step: StepShape, stage: int = 0, fused: bool = True
) -> tuple[Work, ...]:
    """The operator list of one device of ``stage`` in ``step`` with every technique applied."""
    fused = fused if techniques.spec.fusion is None else techniques.spec.fusion
    step = behind_prefix(step, tokens=techniques.prefix_tokens)
    rows = operator_list(
        techniques.model, parallelism=parallelism, plan=techniques.plan, step=step, stage=stage, fused=fused
    )
    context = RowContext(
        model=techniques.model, plan=techniques.plan, parallelism=parallelism, step=step, stage=stage, fused=fused
    )
    for rule in techniques.rules:
        rows = rule(rows, context)
    return rows


def with_rule(applied: AppliedTechniques, rule: RowRule) -> AppliedTechniques:
    """``applied`` with one more rule at the end."""
    return replace(applied, rules=(*applied.rules, rule))
