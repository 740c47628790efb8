"""Prefill and decode on replicas of their own."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from simulator.specs.base import Spec


class DisaggregationSpec(Spec):
    """Pools of a disaggregated deployment (kind serve).

    A prompt is computed by one of ``prefill_replicas``, its KV cache moves over ``link``, and one of
    ``decode_replicas`` goes on. ``link`` is "scale_up" (NVLink and the like: all pools inside one domain) or "nic" (the
    server's network cards, shared evenly by its accelerators); by default the faster one that reaches.
    ``prefill_tp_size`` and ``decode_tp_size`` replace the scenario's ``tp_size`` for one pool.
    """

    prefill_replicas: PositiveInt
    decode_replicas: PositiveInt
    link: Literal["scale_up", "nic"] | None = None
    prefill_tp_size: PositiveInt | None = None
    decode_tp_size: PositiveInt | None = None
