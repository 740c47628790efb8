"""What adapters cannot be, or would not change."""

from __future__ import annotations

from typing import NoReturn

from simulator.errors import RoofcastError
from simulator.specs.adapters import AdaptersSpec
from simulator.specs.model import MlpSpec, ModelSpec

NEEDS = {
    "lora": ("rank",),
    "qlora": ("rank",),
    "adapter": ("rank",),
    "prompt_tuning": ("prompt_tokens",),
    "bitfit": (),
}
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
