"""Contextual sparsity: predictors pick the heads and neurons of each token; a batch reads their union [Liu2023]."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.errors import contradiction, no_effect
from simulator.operators.work import Array, AttentionShape, ElementwiseShape, GemmShape, Work
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.architecture import AttentionSpec, MlpSpec
from simulator.specs.question.techniques import ContextualSparsitySpec
from simulator.techniques.applied import AppliedTechniques, RowContext, with_rule

# Rows whose columns (heads or neurons come out of them) and whose depth (they go into them) shrink.
HEAD_OUTPUTS, HEAD_INPUTS = ("qkv_proj",), ("o_proj",)
NEURON_OUTPUTS, NEURON_INPUTS = ("gate_up_proj", "up_proj"), ("down_proj",)
NEURON_PASSES = ("activation",)


def union_fraction(fraction: float, *, tokens: Array, correlation: float = 0.0) -> Array:
    """Expected share of heads or neurons that at least one token of a step needs [-].

    Equation
    --------
    u = c f + (1 - c) (1 - (1 - f)^t)

    Parameters
    ----------
    fraction : share f that one token needs [-]
    tokens : tokens t of the step [-]
    correlation : c, 0 where tokens choose independently, 1 where all choose alike [-]

    Range of validity
    -----------------
    0 < f <= 1; f for one token, 1 for many independent ones. Leaves out that some neurons are needed more often than
    others.

    References
    ----------
    [Liu2023]

    Examples
    --------
    >>> float(union_fraction(0.5, tokens=np.array(3.0)))
    0.875
    """
    independent = 1.0 - (1.0 - fraction) ** np.asarray(tokens, dtype=np.float64)
    return correlation * fraction + (1.0 - correlation) * np.maximum(independent, fraction)


def contextual_sparsity(applied: AppliedTechniques, hardware: AcceleratorSpec) -> AppliedTechniques:
    """The scenario's contextual sparsity; refused where the model has nothing that a predictor could choose from."""
    spec = applied.spec.contextual_sparsity
    if spec is None:
        return applied
    model = applied.model
    for field, fraction, there in (
        ("attention_fraction", spec.attention_fraction, any(_has_heads(layer.mixer) for layer in model.layers)),
        (
            "mlp_fraction",
            spec.mlp_fraction,
            any(isinstance(block, MlpSpec) for layer in model.layers for block in layer.feed_forward),
        ),
    ):
        if fraction < 1 and not there:
            part = "attention heads" if field == "attention_fraction" else "dense feed-forward blocks"
            raise no_effect(
                f"{model.name} has no {part} to choose from", field=f"techniques.contextual_sparsity.{field}"
            )
    sparsity = applied.spec.sparsity
    if sparsity is not None and sparsity.pattern != "structured":
        raise contradiction(
            f"rows are gathered at run time, which kernels of {sparsity.pattern} weights cannot do",
            field="techniques.contextual_sparsity",
            hint="use one of techniques.sparsity and techniques.contextual_sparsity",
        )
    rule = ContextualRows(spec=spec)
    return replace(with_rule(applied, rule), batch_notes=(*applied.batch_notes, rule))


def _has_heads(mixer: object) -> bool:
    return isinstance(mixer, AttentionSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextualRows:
    """Shrinks the products, attention and activations of every layer to the union over the step's tokens.

    Prompt tokens count like generated ones, so that a step with a prompt reads nearly everything. Weights stay in
    memory whole. Each predictor is two small products before its block.
    """

    spec: ContextualSparsitySpec

    def note(self, sequences: float) -> Note:
        """What the tokens of a decode step read together."""
        spec = self.spec
        tokens = np.array([max(1.0, sequences)])
        heads, neurons = (
            float(union_fraction(share, tokens=tokens, correlation=spec.correlation)[0])
            for share in (spec.attention_fraction, spec.mlp_fraction)
        )
        key = "contextual_token" if sequences <= 1 else "contextual_batch"
        return Note(key, {"sequences": sequences, "heads": heads, "neurons": neurons})

    def __call__(self, rows: tuple[Work, ...], context: RowContext) -> tuple[Work, ...]:
        """Rows with the needed share of heads and neurons, and the predictors' own."""
        spec, tokens = self.spec, context.step.new_tokens
        heads = union_fraction(spec.attention_fraction, tokens=tokens, correlation=spec.correlation)
        neurons = union_fraction(spec.mlp_fraction, tokens=tokens, correlation=spec.correlation)
        changed: list[Work] = []
        for row in rows:
            if row.role == "attention" and spec.attention_fraction < 1:
                if row.name in HEAD_OUTPUTS:
                    changed += self._predictor("attention", row, context)
                changed.append(_shrunk(row, heads, outputs=HEAD_OUTPUTS, inputs=HEAD_INPUTS))
            elif row.role == "mlp" and spec.mlp_fraction < 1:
                if row.name in NEURON_OUTPUTS:
                    changed += self._predictor("mlp", row, context)
                changed.append(_shrunk(row, neurons, outputs=NEURON_OUTPUTS, inputs=NEURON_INPUTS))
            else:
                changed.append(row)
        return tuple(changed)

    def _predictor(self, role: str, row: Work, context: RowContext) -> list[Work]:
        """Two products of every layer: hidden to ``predictor_rank`` to one score per choice."""
        share = context.share()
        assert isinstance(row.shape, GemmShape)
        choices = _choices(row, context)
        rank = float(self.spec.predictor_rank)
        return [
            share.linear(f"{role}_predictor_{part}", role="router", m=row.shape.m, n=n, k=k, count=row.count)
            for part, n, k in (("in", rank, float(context.model.hidden_size)), ("out", choices, rank))
        ]


def _choices(row: Work, context: RowContext) -> float:
    """Heads or neurons of this device that a predictor scores."""
    assert isinstance(row.shape, GemmShape)
    if row.role == "mlp":
        return float(row.shape.n) / (2.0 if row.name == "gate_up_proj" else 1.0)
    heads = [
        layer.mixer.num_attention_heads for layer in context.model.layers if isinstance(layer.mixer, AttentionSpec)
    ]
    return max(heads) / context.parallelism.tp_size


def _shrunk(row: Work, share: Array, *, outputs: tuple[str, ...], inputs: tuple[str, ...]) -> Work:
    """One row with the chosen share of its heads or neurons."""
    match row.shape:
        case GemmShape(n=n, k=k) as shape if row.name in outputs or row.name in inputs:
            # Prices broadcast n and k over the cases just as m.
            smaller = (
                replace(shape, n=n * share)  # type: ignore[arg-type]
                if row.name in outputs
                else replace(shape, k=k * share)  # type: ignore[arg-type]
            )
            return replace(
                row,
                shape=smaller,
                flops=row.flops * share,
                weight_bytes=row.weight_bytes * share,
                activation_bytes=row.activation_bytes * share,
            )
        case AttentionShape(num_heads=heads, num_kv_heads=kv_heads) as shape:
            return _fewer_heads(row, shape, share=share, group=heads / kv_heads)
        case ElementwiseShape() as shape if row.name in NEURON_PASSES:
            moved = row.activation_bytes * share
            return replace(row, shape=replace(shape, bytes=moved), activation_bytes=moved)
        case _:
            return row


def _fewer_heads(row: Work, shape: AttentionShape, *, share: Array, group: float) -> Work:
    """Attention over the chosen query heads; a KV head is read while any query head of its group is chosen."""
    read = 1.0 - (1.0 - share) ** group
    # Kernels spread (sequence, KV head) pairs alike, so that fewer heads are priced as fewer sequences.
    return replace(
        row,
        shape=replace(shape, sequences=shape.sequences * read),
        flops=row.flops * share,
        kv_bytes=row.kv_bytes * read,
        activation_bytes=row.activation_bytes * share,
    )
