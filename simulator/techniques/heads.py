"""Prediction heads on the target (Medusa, Hydra, blockwise): rows of its own operator list, in time and in memory."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.operators.linear import linear
from simulator.operators.work import Family, Work
from simulator.techniques.applied import RowContext


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionHeads:
    """``count`` heads beside the LM head, each for one later position.

    With ``own_vocabulary`` a head is a residual block of hidden_size x hidden_size and an LM head of its own (Medusa);
    otherwise two such products and the model's LM head (blockwise decoding). With ``every_token`` the heads see all
    tokens that a step scores, as published implementations do; otherwise the last one of each sequence.

    References
    ----------
    [Cai2024], [Stern2018].
    """

    count: int
    own_vocabulary: bool
    every_token: bool

    def __call__(self, rows: tuple[Work, ...], context: RowContext) -> tuple[Work, ...]:
        """``rows`` of the last stage with those of the heads."""
        if context.stage != context.parallelism.pp_size - 1:
            return rows
        share = context.share()
        step, hidden = context.step, context.model.hidden_size
        scored = step.logits_tokens if self.every_token else step.prefill_logits + step.decode_sequences
        blocks = linear(
            "head_blocks",
            share=share,
            role="lm_head",
            m=scored,
            n=hidden,
            k=hidden,
            bias=hidden,
            count=self.count * (1 if self.own_vocabulary else 2),
        )
        vocabulary = linear(
            "head_vocabulary",
            share=share,
            role="lm_head",
            m=scored,
            n=context.model.vocab_size / share.tp_size,
            k=hidden,
            held=self.own_vocabulary,
            count=self.count,
            family=Family.LM_HEAD,
        )
        return (*rows, blocks, vocabulary)
