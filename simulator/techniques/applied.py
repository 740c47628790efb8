"""What techniques come to: a changed model, changed number formats, rules that rewrite the operator list.

Which there are, and their order, stands in ``registry``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from simulator.errors import no_effect
from simulator.operators.device_share import DeviceShare
from simulator.operators.formats.tensor_formats import PrecisionPlan
from simulator.operators.transformer import MadeRows, operator_list
from simulator.operators.work import StepShape, Work, behind_prefix
from simulator.records import dataclass
from simulator.specs.base import Assumption, Note
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.question.techniques import KvPolicySpec, TechniquesSpec


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

    def note(self, sequences: float) -> Note:
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
    notes: tuple[Note, ...] = ()
    batch_notes: tuple[BatchNote, ...] = ()

    def notes_at(self, sequences: float) -> tuple[Note, ...]:
        """All notes, those on a batch for one of ``sequences``."""
        return (*self.notes, *(note.note(sequences) for note in self.batch_notes))


class Technique(Protocol):
    """One technique: what is applied so far in, the same with its own change out; refuses what cannot be."""

    def __call__(self, applied: AppliedTechniques, hardware: AcceleratorSpec) -> AppliedTechniques:
        """``applied`` with this technique added; unchanged where the scenario does not ask for it."""
        ...


def device_rows(
    techniques: AppliedTechniques,
    *,
    parallelism: ParallelismSpec,
    step: StepShape,
    stage: int = 0,
    fused: bool = True,
    made: MadeRows | None = None,
) -> tuple[Work, ...]:
    """The operator list of one device of ``stage`` in ``step`` with every technique applied; see ``operator_list``."""
    fused = fused if techniques.spec.fusion is None else techniques.spec.fusion
    step = behind_prefix(step, tokens=techniques.prefix_tokens)
    model, plan = techniques.model, techniques.plan
    rows = operator_list(model, parallelism=parallelism, plan=plan, step=step, stage=stage, fused=fused, made=made)
    context = RowContext(model=model, plan=plan, parallelism=parallelism, step=step, stage=stage, fused=fused)
    for rule in techniques.rules:
        rows = rule(rows, context)
    return rows


def with_rule(applied: AppliedTechniques, rule: RowRule) -> AppliedTechniques:
    """``applied`` with one more rule at the end."""
    return replace(applied, rules=(*applied.rules, rule))


def check_on_engine(spec: TechniquesSpec, *, engine: str, fused: bool, max_model_len: int, ep_size: int) -> None:
    """Refuse what this engine does anyway, or cannot show."""
    if spec.kv_policy is not None:
        check_budget(spec.kv_policy, longest_tokens=max_model_len)
    if spec.fusion is not None and spec.fusion == fused:
        raise no_effect(
            f"{str(spec.fusion).lower()} is what {engine} does: its elementwise passes are "
            f"{'fused' if fused else 'separate kernels'} already",
            field="techniques.fusion",
            hint="leave it out, or ask for the other",
        )
    of_ranks = ("expert_imbalance", "expert_placement")
    given = [field for field in of_ranks if getattr(spec.structure, field, None) is not None]
    if given and ep_size == 1:
        raise no_effect(
            "one rank holds all experts under ep_size 1: there is no busiest one",
            field=f"techniques.structure.{given[0]}",
            hint="ep_size above 1, or leave it out",
        )


_NEEDS: Mapping[str, Callable[[ParallelismSpec], bool]] = {
    "sequence_parallel": lambda degrees: degrees.tp_size > 1,
    "two_batch_overlap": lambda degrees: degrees.dp_size > 1 and degrees.ep_size > 1,
}
"""Techniques that need several ranks of a kind."""


def works_on(spec: TechniquesSpec, degrees: ParallelismSpec) -> bool:
    """Whether every such technique of ``spec`` has ranks to work on."""
    return all(works(degrees) for name, works in _NEEDS.items() if getattr(spec, name))


def in_pool(spec: TechniquesSpec, degrees: ParallelismSpec, *, other: ParallelismSpec) -> TechniquesSpec:
    """``spec`` in one of two pools: without what has ranks to work on in the other pool alone."""
    idle = [name for name, works in _NEEDS.items() if getattr(spec, name) and works(other) and not works(degrees)]
    return spec.model_copy(update=dict.fromkeys(idle)) if idle else spec


def shares_prefixes(spec: TechniquesSpec) -> bool:
    """Whether prompts may share cached blocks: not where each sequence keeps a choice of tokens of its own."""
    return spec.kv_policy is None or spec.kv_policy.method == "window"


def check_budget(policy: KvPolicySpec | None, *, longest_tokens: int) -> None:
    """Refuse a budget that holds the longest sequence of a scenario, and so changes nothing."""
    if policy is not None and policy.kept_tokens is not None and policy.kept_tokens >= longest_tokens:
        raise no_effect(
            f"{policy.method} changes nothing: {policy.kept_tokens} tokens hold the longest sequence, which has "
            f"{longest_tokens}",
            field="techniques.kv_policy.budget_tokens",
            hint=f"less than {longest_tokens}, or longer sequences",
        )
