"""EAGLE's drafter, or a prediction layer, as a model of its own: one layer of the target over its features, between
its embedding and head.

Prediction heads on the target (Medusa, blockwise; Hydra, one after another): rows of its own operator list, in time
and in memory.

The host's processor as a place for a draft model: a roofline of one socket.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.errors import contradiction
from simulator.operators.device_share import SAMPLE, PassCost
from simulator.operators.work import Array, Family, Work
from simulator.records import dataclass
from simulator.specs.model.architecture import ModelSpec
from simulator.techniques.applied import RowContext
from simulator.units import GIGA

HYDRA_BLOCKS = 4.0
"""Products of a head before its vocabulary in Hydra++ [Ankner2024], recalled."""

RESIDUAL_ACTIVATION = PassCost(fused_passes=3, fused_launches=1, unfused_passes=5, unfused_launches=2)
"""x + SiLU(y), per element of hidden_size; unfused: activation 2, sum 3."""

SHARED_ROLES = frozenset({"embedding", "lm_head"})
"""What the drafter borrows from the target, and so takes no memory for."""


def draft_layer_model(target: ModelSpec) -> ModelSpec:
    """One decoder layer like the target's last. Reference: [Li2024]"""
    if target.encoder is not None:
        raise contradiction(
            f"eagle and mtp draft with a decoder layer, and {target.name} has an encoder too",
            field="techniques.speculation.method",
            hint="method ngram works with every model that generates",
        )
    return target.model_copy(
        update={
            "name": f"{target.name}-draft-layer",
            "layers": (target.layers[target.layer_order[-1]],),
            "layer_order": (0,),
            "extra_parameters": 0,
            "notes": (),
        }
    )


def join_features(rows: tuple[Work, ...], context: RowContext) -> tuple[Work, ...]:
    """Rows with the product that brings embedding and feature, side by side, back to hidden_size."""
    share = context.share()
    hidden = context.model.hidden_size
    joined = share.linear(
        "feature_proj", role="mlp", n=hidden / share.tp_size, k=2 * hidden, bias=hidden / share.tp_size
    )
    return (joined, *rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionHeads:
    """``count`` heads beside the LM head, each for one later position.

    With ``own_vocabulary`` a head is a residual block of hidden_size x hidden_size and an LM head of its own (Medusa);
    otherwise two such products and the model's LM head (blockwise decoding). With ``every_token`` the heads see all
    tokens that a step scores, as published implementations do; otherwise the last one of each sequence.

    Reference: [Cai2024], [Stern2018].
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
        blocks = share.linear(
            "head_blocks",
            role="lm_head",
            m=scored,
            n=hidden,
            k=hidden,
            bias=hidden,
            count=self.count * (1 if self.own_vocabulary else 2),
        )
        vocabulary = share.linear(
            "head_vocabulary",
            role="lm_head",
            m=scored,
            n=context.model.vocab_size / share.tp_size,
            k=hidden,
            held=self.own_vocabulary,
            count=self.count,
            family=Family.LM_HEAD,
        )
        return (*rows, blocks, vocabulary)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialHeads:
    """Heads that run one after another down a tree, each over the hidden state and the guesses before its own.

    widths : guesses of a sequence that each head extends, one entry a head. Head i brings i + 1 vectors of hidden_size
    back to one, adds residual blocks up to HYDRA_BLOCKS products and multiplies by a vocabulary of its own; a decoder
    layer like the model's runs before them (Hydra++). Left out: the cache of that layer.

    Reference: [Ankner2024], its sizes as recalled.
    """

    widths: tuple[float, ...]

    def __call__(self, rows: tuple[Work, ...], context: RowContext) -> tuple[Work, ...]:
        """``rows`` of the last stage with those of the layer before the heads and of each head."""
        if context.stage != context.parallelism.pp_size - 1:
            return rows
        layers = context.model.num_hidden_layers / context.parallelism.pp_size
        before = tuple(
            replace(row, name=f"head_prefix_{row.name}", count=row.count / layers)
            for row in rows
            if row.role not in SHARED_ROLES and row.count >= layers
        )
        heads = tuple(
            row for place, width in enumerate(self.widths, start=1) for row in _head(context, place=place, width=width)
        )
        return (*rows, *before, *heads)


def _head(context: RowContext, *, place: int, width: float) -> tuple[Work, ...]:
    """The products and passes of the head at ``place``, over ``width`` guesses of each sequence."""
    share, step = context.share(), context.step
    hidden, vocabulary = context.model.hidden_size, context.model.vocab_size / share.tp_size
    guesses = step.prefill_logits + width * step.decode_sequences
    return (
        share.linear(f"head_{place}_input", role="lm_head", m=guesses, n=hidden, k=(place + 1) * hidden, bias=hidden),
        share.linear(f"head_{place}_blocks", role="lm_head", m=guesses, n=hidden, k=hidden, bias=hidden,
                     count=HYDRA_BLOCKS - 1.0),
        share.elementwise(f"head_{place}_activations", cost=RESIDUAL_ACTIVATION, rows=guesses, width=hidden,
                          count=HYDRA_BLOCKS, role="lm_head"),
        share.linear(f"head_{place}_vocabulary", role="lm_head", m=guesses, n=vocabulary, k=hidden,
                     family=Family.LM_HEAD),
        share.elementwise(f"head_{place}_guesses", cost=SAMPLE, rows=guesses, width=vocabulary, role="lm_head"),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCpu:
    """One socket: memory bandwidth [bytes/s] and 16-bit matrix peak [FLOP/s]."""

    name: str
    memory_bytes_per_s: float
    peak_flops_per_s: float

    def seconds(self, *, flops: Array, weight_bytes: Array) -> Array:
        """Roofline time of a pass on the host's processor [s].

        Equation
        --------
        t = max(F / P, B / W)

        Parameters
        ----------
        flops : arithmetic F of the pass [FLOP]
        weight_bytes : bytes B that it reads [bytes]

        Range of validity
        -----------------
        One socket at its datasheet peak P and bandwidth W. Leaves out launches, caches and other work of the host.

        References
        ----------
        [Williams2009]

        Examples
        --------
        >>> cpu = HostCpu(name="", memory_bytes_per_s=3e11, peak_flops_per_s=1e14)
        >>> float(cpu.seconds(flops=np.array(1e12), weight_bytes=np.array(6e9)))
        0.02
        """
        return np.maximum(flops / self.peak_flops_per_s, weight_bytes / self.memory_bytes_per_s)


# Intel Xeon Platinum 8480C, the host of DGX H100: 8 channels of DDR5-4800 x 8 bytes; 56 cores x 1,024 bf16 FLOPs a
# clock (Intel, Advanced Matrix Extensions) x 2.0 GHz base clock.
XEON_8480C = HostCpu(
    name="Xeon Platinum 8480C", memory_bytes_per_s=8 * 4.8 * GIGA * 8, peak_flops_per_s=56 * 1024 * 2.0 * GIGA
)
"""Assumed host where the scenario runs a draft model on the CPU."""
