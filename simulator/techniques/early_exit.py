"""Early exit: generated tokens that leave before the last layer, and what a batch makes of it [Schuster2022]."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import numpy as np

from simulator.errors import RoofcastError
from simulator.operators.parallelism import stage_layers
from simulator.operators.transformer import is_encoder_only, operator_list
from simulator.operators.work import Array, Family, GemmShape, Work
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.architecture import AttentionSpec, MlaSpec, ModelSpec
from simulator.specs.question.techniques import EarlyExitSpec
from simulator.techniques.applied import AppliedTechniques, RowContext, with_rule
from simulator.units import BITS_PER_BYTE

HALVINGS = 60
"""Bisection steps: beyond double precision."""


def staying(spec: EarlyExitSpec, *, layers: int) -> Array:
    """Share of the tokens that pass each layer (array over ``layers``, the first is 1) [-]."""
    if spec.mean_fraction is not None:
        return _geometric(spec.mean_fraction, layers=layers)
    depth = np.arange(layers)
    left = np.zeros(layers)
    for exit_ in spec.exits:
        left = left + exit_.probability * (depth >= exit_.layer)
    return 1.0 - left


def executed_fraction(shares: Array, sequences: Array) -> Array:
    """Expected share of the layers that run when a batch leaves with its last member [-].

    Equation
    --------
    x = mean over layers of 1 - (1 - S)^b

    Parameters
    ----------
    shares : share S of the tokens that pass each layer [-]
    sequences : sequences b of the batch, one value a case [-]

    Range of validity
    -----------------
    Independent tokens: the mean of S for one sequence, 1 for many. Leaves out engines that regroup batches by depth.

    References
    ----------
    [Schuster2022]

    Examples
    --------
    Two layers, the second passed by half of the tokens, two sequences: (1 + 0.75) / 2.

    >>> executed_fraction(np.array([1.0, 0.5]), np.array([1.0, 2.0])).tolist()
    [0.75, 0.875]
    """
    running: Array = 1.0 - (1.0 - shares[:, None]) ** sequences[None, :]
    fraction: Array = running.mean(axis=0)
    return fraction


def _geometric(mean: float, *, layers: int) -> Array:
    """Tokens that leave after each layer with the same chance, so that they pass ``mean`` of the layers on average. The
    least mean possible is one layer of all; below it every token leaves after the first."""
    low, high = 0.0, 1.0
    depth = np.arange(layers)
    for _ in range(HALVINGS):
        stay = (low + high) / 2
        if float(np.mean(stay**depth)) < mean:
            low = stay
        else:
            high = stay
    return np.asarray(((low + high) / 2) ** depth, dtype=np.float64)


OUTSIDE_ROLES = ("embedding", "lm_head", "unused", "pipeline")
"""Roles of rows outside the layers, which every token passes; so does the final norm."""


def early_exit(applied: AppliedTechniques, hardware: AcceleratorSpec) -> AppliedTechniques:
    """The scenario's ``early_exit`` on decode steps; prompts pass every layer, whose keys later tokens need.

    A layer that a token skips still gets its keys and values, projected from where it left. The test whether to leave
    (a classifier on the hidden state) is not priced.
    """
    spec = applied.spec.early_exit
    if spec is None:
        return applied
    _check(spec, model=applied.model, speculates=applied.spec.speculation is not None)
    shares = staying(spec, layers=applied.model.num_hidden_layers)
    rule = ExitRows(shares=tuple(float(share) for share in shares), compacts=spec.compacts)
    return replace(with_rule(applied, rule), batch_notes=(*applied.batch_notes, rule))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRows:
    """The rule that lets layers run for some of the decode steps, or for some of their tokens.

    shares : share of the tokens that pass each layer, of all stages
    compacts : tokens that have left take no part in the layers after
    """

    shares: tuple[float, ...]
    compacts: bool

    def note(self, sequences: float) -> Note:
        """How deep a token goes, and how deep its batch has to."""
        shares = np.array(self.shares)
        of_token = {"token": float(np.mean(shares))}
        if self.compacts or sequences <= 1:
            return Note("early_exit", of_token)
        batch = float(executed_fraction(shares, np.full(1, sequences))[0])
        return Note("early_exit_batch", {**of_token, "sequences": sequences, "batch": batch})

    def __call__(self, rows: tuple[Work, ...], context: RowContext) -> tuple[Work, ...]:
        """Rows of the layers over the sequences that are left, with the expected share of executions. Depths of a stage
        are averaged over its layers. A step with prompt tokens runs every layer. This rule comes before those that look
        at single rows."""
        depths = stage_layers(context.model, pp_size=context.parallelism.pp_size, stage=context.stage)
        shares = np.array(self.shares)[depths.start : depths.stop]
        step = context.step
        generating = (step.prefill_sequences * step.prefill_tokens == 0) & (step.decode_sequences > 0)
        executed = np.where(generating, executed_fraction(shares, step.decode_sequences), 1.0)
        inside = rows
        if self.compacts:
            left = step.decode_sequences * np.where(generating, shares.mean() / executed, 1.0)
            inside = operator_list(
                context.model,
                parallelism=context.parallelism,
                plan=context.plan,
                step=replace(step, decode_sequences=left),
                stage=context.stage,
                fused=context.fused,
            )
        changed = [
            row if row.role in OUTSIDE_ROLES or row.name == "final_norm" else replace(layer, executed=executed)
            for row, layer in zip(rows, inside, strict=True)
        ]
        return (*changed, *_propagated(context, layers=len(depths), skipped=1.0 - executed))


def _propagated(context: RowContext, *, layers: int, skipped: Array) -> tuple[Work, ...]:
    """Keys and values of the skipped layers, one product each, with weights that the layer's own row holds."""
    model, plan = context.model, context.plan
    width = max(_kv_width(layer.mixer, tp_size=context.parallelism.tp_size) for layer in model.layers)
    product = plan.format_for("attention")
    tokens = context.step.decode_sequences * context.step.decode_tokens
    hidden = float(model.hidden_size)
    return (
        Work(
            name="exit_kv_proj",
            family=Family.GEMM,
            role="attention",
            shape=GemmShape(m=tokens, n=width, k=hidden, format=product),
            count=float(layers),
            flops=2.0 * tokens * width * hidden,
            weight_bytes=np.where(tokens > 0, width * hidden * product.weight_bits / BITS_PER_BYTE, 0.0),
            kv_bytes=tokens * width * plan.kv_bytes,
            activation_bytes=tokens * hidden * product.activation_bits / BITS_PER_BYTE,
            executed=skipped,
        ),
    )


def _kv_width(mixer: object, *, tp_size: int) -> float:
    match mixer:
        case MlaSpec():
            return float(mixer.kv_lora_rank + mixer.qk_rope_head_dim)
        case AttentionSpec():
            return max(1.0, mixer.num_key_value_heads / tp_size) * (mixer.head_dim + mixer.value_dim)
        case _:
            return 0.0


def _check(spec: EarlyExitSpec, *, model: ModelSpec, speculates: bool) -> None:
    if bool(spec.exits) == (spec.mean_fraction is not None):
        _refuse("", "needs either exits or mean_fraction", code="missing_field", hint="such as mean_fraction: 0.5")
    if is_encoder_only(model):
        _refuse("", f"{model.name} is an encoder and generates nothing", code="no_effect", hint="leave it out")
    if any(layer.mixer is not None and not isinstance(layer.mixer, AttentionSpec | MlaSpec) for layer in model.layers):
        _refuse("", f"the recurrent states of {model.name} need every token in every layer", code="contradiction",
                hint="models with attention in every layer")  # fmt: skip
    if speculates:
        _refuse("", "contradicts speculation, whose verify step needs the last layer of every token",
                code="contradiction", hint="one of the two")  # fmt: skip
    depth = model.num_hidden_layers
    for exit_ in spec.exits:
        if exit_.layer >= depth:
            _refuse("exits", f"{model.name} has {depth} layers: leaving after layer {exit_.layer} is no exit",
                    code="no_effect", hint=f"layers 1 to {depth - 1}")  # fmt: skip
    if sum(exit_.probability for exit_ in spec.exits) > 1.0:
        _refuse("exits", "the probabilities add up to more than 1", code="contradiction", hint="shares of all tokens")
    if spec.mean_fraction is not None and spec.mean_fraction * depth < 1.0:
        _refuse("mean_fraction", f"{spec.mean_fraction} of {depth} layers is less than one layer", code="invalid_value",
                hint=f"more than {1 / depth:.3g}")  # fmt: skip


def _refuse(field: str, message: str, *, code: str, hint: str) -> NoReturn:
    where = "techniques.early_exit" + (f".{field}" if field else "")
    raise RoofcastError(message, field=where, code=code, hint=hint)
