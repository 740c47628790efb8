"""Parameter-efficient adapters as a scenario gives them."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from simulator.specs.base import Spec


class AdaptersSpec(Spec):
    """``count`` adapters of ``rank``, merged into the weights or applied beside them to each batch."""

    method: Literal["lora", "adapter", "prompt_tuning", "bitfit", "qlora"] = "lora"
    rank: PositiveInt | None = None
    count: PositiveInt = 1
    merged: bool = False
