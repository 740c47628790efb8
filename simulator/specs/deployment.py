"""How a model is spread over devices."""

from __future__ import annotations

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
