"""Two-batch overlap: a step as two halves, of which one computes while tokens of the other travel between experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from simulator.errors import no_effect
from simulator.operators.device_share import has_decode, has_prefill
from simulator.operators.transformer import operator_list
from simulator.operators.work import Array, Collective, CollectiveShape, Family, StepShape, Work
from simulator.records import dataclass
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.techniques.applied import AppliedTechniques, RowContext, RowRule, with_rule
from simulator.techniques.early_exit import OUTSIDE_ROLES

SHARED_EXPERT = "shared_expert"
MIXING = (Family.PREFILL_ATTENTION, Family.DECODE_ATTENTION, Family.RECURRENT)
LAYER_END = "residual_norm"
EXCHANGE_UNITS, UNITS_OF_H800 = 20, 132
"""Compute units that large exchanges keep from the other half's kernels; small ones keep none [DeepSeek2024b],
[DeepEP2025]. Taken for other accelerators too; where units are fewer each is larger, so that the share is no larger."""


def two_batch_overlap(applied: AppliedTechniques, hardware: AcceleratorSpec) -> AppliedTechniques:
    """The scenario's ``two_batch_overlap``; last, for it makes the rows of a half with every rule before it."""
    if not applied.spec.two_batch_overlap:
        return applied
    rule = TwoBatches(rules=applied.rules, kept_share=EXCHANGE_UNITS / max(hardware.compute_units, UNITS_OF_H800))
    return with_rule(applied, rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoBatches:
    """The rule that runs layers with exchanged experts as two halves.

    rules : those that make a half's rows; kept_share : of the compute units, that large exchanges keep
    """

    rules: tuple[RowRule, ...]
    kept_share: float

    def __call__(self, rows: tuple[Work, ...], context: RowContext) -> tuple[Work, ...]:
        """``rows`` with those layers as kernels of half the size, twice as many, and exchanges beside the other half's.

        Steps with prompts take turns: while tokens of one half travel the other runs attention or experts. Of decode
        steps one half is two stages ahead, so that dispatch lies beside the other's projections and combine beside its
        attention, as in SGLang 0.5.9 (srt/batch_overlap/operations_strategy.py) and DeepSeek's own engine; vLLM's
        (--enable-dbo) is taken alike. A step of one token stays whole. Leaves out thresholds below which engines do
        not split, and memory that both sides share.

        Reference: [DeepSeek2025b]
        """
        split = context.step.new_tokens >= 2
        half = halved(context.step, split=split)
        inside = operator_list(
            context.model,
            parallelism=context.parallelism,
            plan=context.plan,
            step=half,
            stage=context.stage,
            fused=context.fused,
        )
        for rule in self.rules:
            inside = rule(inside, replace(context, step=half))
        made: list[Work] = []
        begin, exchanged = 0, False
        for place, row in enumerate(inside):
            if row.name == LAYER_END:
                layer = slice(begin, place + 1)
                begin = place + 1
                parts = self._halves(inside[layer], context.step, split=split)
                exchanged = exchanged or bool(parts)
                made += parts or rows[layer]
        if not exchanged:
            raise no_effect(
                "changes nothing where no all-to-all takes tokens to their experts",
                field="techniques.two_batch_overlap",
                hint="a mixture of experts with dp_size and ep_size above 1, or leave it out",
            )
        return (*made, *rows[begin:])

    def _halves(self, layer: Sequence[Work], step: StepShape, *, split: NDArray[np.bool_]) -> list[Work]:
        """Rows of a layer as two halves; none where it exchanges nothing."""
        sent = [place for place, row in enumerate(layer) if _is_exchange(row)]
        if not sent:
            return []
        dispatch, combine = sent
        mixer = next((place for place, row in enumerate(layer) if row.family in MIXING), 0)
        shared = [row for row in layer if row.role == SHARED_EXPERT]
        before = [row for row in layer[:mixer] if row.role not in OUTSIDE_ROLES]
        behind = [row for row in layer[mixer:dispatch] if row.role != SHARED_EXPERT]
        attention, experts = [*before, *behind], layer[dispatch + 1 : combine]
        prompts = step.prefill_sequences * step.prefill_tokens > 0
        covers: list[tuple[int, str, NDArray[np.bool_], float, Sequence[Work]]] = []
        if has_decode(step):
            covers += [(dispatch, "", ~prompts, 2, [*shared, *before]), (combine, "", ~prompts, 2, behind)]
        if has_prefill(step):
            covers += [
                (dispatch, "_first", prompts, 1, [*shared, *attention]),
                (dispatch, "_second", prompts, 1, experts),
                (combine, "_first", prompts, 1, [*experts, *shared]),
                (combine, "_second", prompts, 1, [*shared, *attention, *shared]),
            ]
        made: list[Work] = []
        for place, row in enumerate(layer):
            if row.role in OUTSIDE_ROLES:
                made.append(row)
            elif place not in sent:
                made.append(_twice(row, split=split))
            for sent_at, name, runs, times, beside in covers:
                if sent_at == place:
                    made.append(self._sent(row, name=name, runs=runs, times=times, beside=beside, split=split))
        return made

    def _sent(
        self,
        row: Work,
        *,
        name: str,
        runs: NDArray[np.bool_],
        times: float,
        beside: Sequence[Work],
        split: NDArray[np.bool_],
    ) -> Work:
        """An exchange of ``times`` halves in the cases ``runs``, with the other half's rows ``beside`` it."""
        assert isinstance(row.shape, CollectiveShape)
        under_way = tuple(
            replace(one, count=one.count / row.count, executed=np.where(split, one.executed, 0.0)) for one in beside
        )
        return replace(
            row,
            name=row.name + name,
            shape=replace(row.shape, beside=under_way, kept_share=self.kept_share),
            count=times * row.count,
            executed=np.where(runs, _executions(row, split=split), 0.0),
        )


def halved(step: StepShape, *, split: NDArray[np.bool_]) -> StepShape:
    """Half of the sequences where ``split``, or half of a prompt that is alone, with as many query-key pairs."""
    alone = split & (step.prefill_sequences < 2) & (step.prefill_tokens > 0)
    part: Array = np.where(split, 0.5, 1.0)
    tokens = np.where(alone, 0.5, 1.0) * step.prefill_tokens
    return replace(
        step,
        prefill_sequences=np.where(alone, 1.0, part) * step.prefill_sequences,
        prefill_tokens=tokens,
        prefill_context=step.prefill_context + np.where(alone, tokens / 2, 0.0),
        decode_sequences=part * step.decode_sequences,
        prefill_logits=part * step.prefill_logits,
    )


def _is_exchange(row: Work) -> bool:
    is_sent = isinstance(row.shape, CollectiveShape) and row.shape.operation is Collective.ALL_TO_ALL
    return is_sent and row.role == "experts"


def _executions(row: Work, *, split: NDArray[np.bool_]) -> Array:
    """Of twice as many: all of them where the step is ``split``, otherwise one for both."""
    return row.executed * np.where(split, 1.0, 0.5)


def _twice(row: Work, *, split: NDArray[np.bool_]) -> Work:
    """Both halves of a row; they share its weights."""
    return replace(
        row,
        count=2 * row.count,
        parameters=row.parameters / 2,
        active_parameters=row.active_parameters / 2,
        stored_bytes=row.stored_bytes / 2,
        executed=_executions(row, split=split),
    )
