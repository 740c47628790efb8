"""Parameter-efficient adapters as a scenario gives them."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from simulator.specs.base import Spec

AdapterMethod = Literal["lora", "adapter", "prompt_tuning", "bitfit", "qlora"]


class AdaptersSpec(Spec):
    """``count`` adapters held at once, merged into the weights or applied beside them to each batch.

    ``rank``: of the low-rank products (lora, qlora), or the width of the bottleneck (adapter).
    ``targets``: the linear layers that low-rank products stand beside; "all" is every one in the blocks but routed
    experts. ``prompt_tokens``: virtual tokens before every prompt (prompt_tuning).
    """

    method: AdapterMethod = "lora"
    rank: PositiveInt | None = None
    count: PositiveInt = 1
    merged: bool = False
    targets: Literal["all", "attention", "mlp"] | None = None
    prompt_tokens: PositiveInt | None = None
