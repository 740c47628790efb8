"""Bounded KV caches as a scenario gives them."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from simulator.specs.base import Spec


class KvPolicySpec(Spec):
    """Keep at most ``budget_tokens`` of each sequence: heavy hitters and recent ones (h2o), the first ones and recent
    ones (streaming), recent ones only (window)."""

    method: Literal["h2o", "streaming", "window"]
    budget_tokens: PositiveInt
