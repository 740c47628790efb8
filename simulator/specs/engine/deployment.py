"""How a model is spread over devices.

Prefill and decode on replicas of their own.
"""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from simulator.specs.base import Spec


class ParallelismSpec(Spec):
    """Degrees of tensor, pipeline, expert and data (attention) parallelism of one replica.

    ``ep_size`` spreads the experts over devices that tensor and data parallelism already brought
    (ep_size <= tp_size * dp_size); ``dp_size`` replicates attention. A replica uses tp * pp * dp devices.
    """

    tp_size: PositiveInt = 1
    pp_size: PositiveInt = 1
    ep_size: PositiveInt = 1
    dp_size: PositiveInt = 1

    @property
    def devices(self) -> int:
        """Accelerators of one replica."""
        return self.tp_size * self.pp_size * self.dp_size


class DisaggregationSpec(Spec):
    """Pools of a disaggregated deployment (kinds serve and closed_loop).

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
