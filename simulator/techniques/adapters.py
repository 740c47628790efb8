"""Adapters beside the weights of a served model: low-rank products, bottlenecks, biases, virtual tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import numpy as np

from simulator.errors import RoofcastError, contradiction
from simulator.operators.formats.tensor_formats import PrecisionPlan, precision_plan
from simulator.operators.parallelism import kv_bytes_per_sequence
from simulator.operators.work import Array, ElementwiseShape, Family, GemmShape, GroupedGemmShape, StepShape, Work
from simulator.records import dataclass
from simulator.specs.base import Assumption, Note, ValueOrigin
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.architecture import MlpSpec, ModelSpec
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.techniques import AdaptersSpec
from simulator.techniques.applied import AppliedTechniques, RowContext, with_rule

NEEDS = {"lora": ("rank",), "qlora": ("rank",), "adapter": ("rank",), "prompt_tuning": ("prompt_tokens",), "bitfit": ()}
"""Sizes that each method needs; it takes no other."""

MERGEABLE = ("lora", "bitfit")
TARGETED = ("lora", "qlora", "bitfit")


def check_adapters(spec: AdaptersSpec, *, model: ModelSpec) -> None:
    """Refuse sizes that are missing or ignored, merging of what cannot be merged, targets that are not there."""
    for field in ("rank", "prompt_tokens"):
        given, needed = getattr(spec, field) is not None, field in NEEDS[spec.method]
        if needed and not given and not spec.merged:
            _refuse(field, f"{spec.method} needs it", code="missing_field", hint="such as 16")
        if given and not needed:
            _refuse(field, f"has no effect with {spec.method}", code="ignored_option", hint="leave it out")
    if spec.targets is not None and spec.method not in TARGETED:
        _refuse("targets", f"has no effect with {spec.method}", code="ignored_option", hint="leave it out")
    if spec.merged and spec.method not in MERGEABLE:
        why = "its base is quantised and its adapters are not" if spec.method == "qlora" else "it adds layers or tokens"
        _refuse("merged", f"{spec.method} cannot be merged into the weights: {why}", code="contradiction",
                hint="merged: false")  # fmt: skip
    if spec.merged and spec.count > 1:
        _refuse("count", f"{spec.count} adapters cannot be merged into one set of weights", code="contradiction",
                hint="count: 1, or merged: false")  # fmt: skip
    blocks = [block for layer in model.layers for block in layer.feed_forward]
    dense = any(isinstance(block, MlpSpec) or block.shared_expert_intermediate_size for block in blocks)
    if spec.targets == "mlp" and not dense:
        _refuse("targets", f"{model.name} has routed experts only, which get no adapters", code="no_effect",
                hint="attention, or all")  # fmt: skip
    if spec.rank is not None and spec.rank >= model.hidden_size:
        _refuse("rank", f"{spec.rank} is not below the hidden size {model.hidden_size} of {model.name}",
                code="contradiction", hint="16 is usual")  # fmt: skip


def _refuse(field: str, message: str, *, code: str, hint: str) -> NoReturn:
    raise RoofcastError(message, field=f"techniques.adapters.{field}", code=code, hint=hint)


SLICES = {
    "qkv_proj": 3,
    "q_a_kv_a_proj": 2,
    "q_kv_a_proj": 2,
    "gate_up_proj": 2,
    "shared_gate_up_proj": 2,
    "cross_kv_proj": 2,
}
"""Products that engines join into one: each part has its own pair of low-rank matrices."""

ROLES = {
    "attention": ("attention",),
    "mlp": ("mlp", "shared_expert"),
    "all": ("attention", "mlp", "shared_expert", "mixer"),
}

BASE_SCHEME = "nf4"
"""What QLoRA keeps the frozen weights in [Dettmers2023]."""


def _assumed(note: Note) -> Assumption:
    return Assumption(key="techniques.adapters", origin=ValueOrigin.RULE, detail=note)


def adapters(applied: AppliedTechniques, hardware: AcceleratorSpec) -> AppliedTechniques:
    """The scenario's ``adapters``; merged ones change the weights' values and nothing that is priced."""
    spec = applied.spec.adapters
    if spec is None:
        return applied
    check_adapters(spec, model=applied.model)
    if spec.merged:
        return replace(applied, notes=(*applied.notes, Note("merged_adapter", {"method": spec.method})))
    if spec.method == "qlora":
        applied = replace(applied, plan=_quantised_base(applied))
    if spec.method == "prompt_tuning":
        assert spec.prompt_tokens is not None, "checked"
        note = Note("virtual_tokens", {"tokens": spec.prompt_tokens})
        applied = replace(applied, prefix_tokens=spec.prompt_tokens, assumptions=(*applied.assumptions, _assumed(note)))
    elif spec.targets is None and spec.method in ("lora", "qlora"):
        applied = replace(applied, assumptions=(*applied.assumptions, _assumed(Note("adapters_on_all"))))
    return with_rule(applied, AdapterRows(spec=spec))


def distinct_adapters(sequences: Array, *, count: int) -> Array:
    """Expected adapters that a batch uses when each is equally likely [-].

    Equation
    --------
    d = n (1 - (1 - 1 / n)^b)

    Parameters
    ----------
    sequences : sequences b of the batch [-]
    count : adapters n that are served [-]

    Range of validity
    -----------------
    n >= 1, sequences that choose independently: the least favourable workload of the reference. Leaves out
    skewed popularity, which uses fewer.

    References
    ----------
    [Chen2023]

    Examples
    --------
    >>> float(distinct_adapters(np.array(2.0), count=4))
    1.75
    """
    return count * (1.0 - (1.0 - 1.0 / count) ** sequences)


def step_sequences(step: StepShape) -> Array:
    """Sequences with tokens in a step, prefilling or generating."""
    return np.where(step.prefill_tokens > 0, step.prefill_sequences, 0.0) + step.decode_sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterRows:
    """The rule that adds the rows of adapters."""

    spec: AdaptersSpec

    def __call__(self, rows: tuple[Work, ...], context: RowContext) -> tuple[Work, ...]:
        """``rows`` with each adapted product followed by its adapters."""
        spec = self.spec
        distinct = distinct_adapters(step_sequences(context.step), count=spec.count)
        changed: list[Work] = []
        for place, row in enumerate(rows):
            changed.append(row)
            if spec.method in ("lora", "qlora") and _is_target(row, spec):
                changed += low_rank_rows(row, spec=spec, distinct=distinct, context=context)
            elif spec.method == "adapter" and row.name in ("o_proj", "down_proj"):
                changed += bottleneck_rows(row, spec=spec, distinct=distinct, context=context)
            elif spec.method == "bitfit" and _is_target(row, spec):
                changed.append(bias_row(row, count=spec.count, distinct=distinct, context=context))
            elif spec.method == "prompt_tuning" and place == 0:
                changed.append(_prompt_row(row, spec=spec, context=context))
        return tuple(changed)


def _is_target(row: Work, spec: AdaptersSpec) -> bool:
    plain = isinstance(row.shape, GemmShape) and row.shape.batch == 1 and row.family is Family.GEMM
    return plain and row.role in ROLES[spec.targets or "all"]


def _product(
    base: Work, name: str, *, m: Array, n: float, k: float, held: float, distinct: Array, context: RowContext
) -> Work:
    """One grouped product (m, k) x (k, n) of a batch whose rows choose among ``held`` matrices, ``distinct`` chosen.
    Not fused with the base product: its inputs are read, its outputs written [Chen2023]."""
    element_bytes = context.plan.activation_bytes
    return Work(
        name=name,
        family=Family.GEMM,
        role=base.role,
        shape=GroupedGemmShape(format=context.plan.plain),
        count=base.count,
        flops=2.0 * m * n * k,
        weight_bytes=np.where(m > 0, distinct * n * k * element_bytes, 0.0),
        kv_bytes=np.zeros_like(m),
        activation_bytes=m * (n + k) * element_bytes,
        parameters=held * n * k,
        active_parameters=n * k,
        stored_bytes=held * n * k * element_bytes,
        executed=base.executed,
    )


def low_rank_rows(row: Work, *, spec: AdaptersSpec, distinct: Array, context: RowContext) -> tuple[Work, Work]:
    """Shrink to the rank and expand back, added to the base product's output [Hu2021], batched as in [Chen2023].

    Parts of a joined product have a pair of matrices each: k x r x parts, and r x n in all. Tensor-parallel ranks hold
    the same share of an adapter's outer side as of the weight.
    """
    shape = row.shape
    assert isinstance(shape, GemmShape), "targets are products"
    rank, parts = float(spec.rank or 0), SLICES.get(row.name, 1)
    shrink = _product(row, f"{row.name}_lora_shrink", m=shape.m, n=rank * parts, k=shape.k, held=spec.count,
                      distinct=distinct, context=context)  # fmt: skip
    expand = _product(row, f"{row.name}_lora_expand", m=shape.m, n=shape.n, k=rank, held=spec.count,
                      distinct=distinct, context=context)  # fmt: skip
    # The sum is read before it is written, and each part multiplies its own r columns.
    element_bytes = context.plan.activation_bytes
    extra = shape.m * (shape.n + rank * (parts - 1)) * element_bytes
    return shrink, replace(expand, activation_bytes=expand.activation_bytes + extra)


def bottleneck_rows(row: Work, *, spec: AdaptersSpec, distinct: Array, context: RowContext) -> tuple[Work, Work, Work]:
    """Down, non-linearity and residual, up after a sublayer [Houlsby2019]; every tensor-parallel rank holds it all."""
    shape = row.shape
    assert isinstance(shape, GemmShape), "sublayers end in products"
    width, hidden = float(spec.rank or 0), float(context.model.hidden_size)
    down = _product(row, f"{row.name}_adapter_down", m=shape.m, n=width, k=hidden, held=spec.count, distinct=distinct,
                    context=context)  # fmt: skip
    up = _product(row, f"{row.name}_adapter_up", m=shape.m, n=hidden, k=width, held=spec.count, distinct=distinct,
                  context=context)  # fmt: skip
    element_bytes = context.plan.activation_bytes
    moved = shape.m * (2.0 * width + 3.0 * hidden) * element_bytes
    between = _pass(row, f"{row.name}_adapter_residual", moved=moved, launches=2.0)
    biases = spec.count * (width + hidden)
    held = replace(between, parameters=biases, active_parameters=width + hidden, stored_bytes=biases * element_bytes)
    return down, held, up


def bias_row(row: Work, *, count: int, distinct: Array, context: RowContext) -> Work:
    """Each sequence's own bias added to a product's output [BenZaken2021]."""
    shape = row.shape
    assert isinstance(shape, GemmShape), "targets are products"
    element_bytes = context.plan.activation_bytes
    moved = (2.0 * shape.m * shape.n + np.where(shape.m > 0, distinct * shape.n, 0.0)) * element_bytes
    added = _pass(row, f"{row.name}_bias", moved=moved, launches=1.0)
    return replace(
        added, parameters=count * shape.n, active_parameters=shape.n, stored_bytes=count * shape.n * element_bytes
    )


def _pass(row: Work, name: str, *, moved: Array, launches: float) -> Work:
    nothing = np.zeros_like(moved)
    return Work(
        name=name,
        family=Family.ELEMENTWISE,
        role=row.role,
        shape=ElementwiseShape(bytes=moved, launches=launches),
        count=row.count,
        flops=nothing,
        weight_bytes=nothing,
        kv_bytes=nothing,
        activation_bytes=moved,
        executed=row.executed,
    )


def _prompt_row(row: Work, *, spec: AdaptersSpec, context: RowContext) -> Work:
    """Virtual tokens' keys and values of every adapter, held here, no time of their own [Lester2021]."""
    parallelism = context.parallelism
    tokens = float(spec.prompt_tokens or 0)
    each = kv_bytes_per_sequence(
        context.model,
        plan=context.plan,
        tp_size=parallelism.tp_size,
        pp_size=parallelism.pp_size,
        cp_size=parallelism.cp_size,
        context_tokens=tokens,
    )[0]
    held = _pass(row, "prompt_prefix", moved=np.zeros_like(row.flops), launches=0.0)
    return replace(held, count=1.0, stored_bytes=spec.count * float(each))


def _quantised_base(applied: AppliedTechniques) -> PrecisionPlan:
    """The plan with its weights in NF4; contradicted by any other narrow format."""
    plan = applied.plan
    named = precision_plan(applied.model, PrecisionSpec(scheme=BASE_SCHEME, kv_cache=plan.kv_dtype))
    if plan.linear.name not in (plan.plain.name, named.linear.name):
        raise contradiction(
            f"qlora keeps the base weights in {BASE_SCHEME}, but precision asks for {plan.linear.name}",
            field="techniques.adapters.method",
            hint="leave precision.weights and precision.scheme out, or take lora",
        )
    return named
