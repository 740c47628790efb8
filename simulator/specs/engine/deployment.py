"""How a model is spread over devices: degrees of parallelism, and prefill and decode on replicas of their own."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from simulator.specs.base import Spec


class ParallelismSpec(Spec):
    """Degrees of tensor, pipeline, expert, data (attention) and context parallelism of one replica.

    ``ep_size`` spreads the experts over devices that tensor and data parallelism already brought
    (ep_size <= tp_size * dp_size); ``dp_size`` replicates attention; ``cp_size`` divides the tokens of each prompt and
    the cache of each sequence over ranks that all hold the weights. A replica uses tp * pp * dp * cp devices.
    """

    tp_size: PositiveInt = 1
    pp_size: PositiveInt = 1
    ep_size: PositiveInt = 1
    dp_size: PositiveInt = 1
    cp_size: PositiveInt = 1

    @property
    def devices(self) -> int:
        """Accelerators of one replica."""
        return self.tp_size * self.pp_size * self.dp_size * self.cp_size


PoolName = Literal["prefill", "decode"]
TransferOrder = Literal["after_prefill", "layer_wise"]


class DisaggregationSpec(Spec):
    """Pools of a disaggregated deployment (kinds serve and closed_loop).

    A prompt is computed by one of ``prefill_replicas``, its KV cache moves over ``link``, and one of
    ``decode_replicas`` goes on. ``link`` is "scale_up" (NVLink and the like: all pools inside one domain), "nic" (the
    server's network cards, shared evenly by its accelerators) or the name of one of the two (nvlink, infiniband, ...);
    by default the faster one that reaches. ``transfer`` says when a cache sets out: when its prompt is done, or layer
    by layer beside the prompt's computation. ``prefill_tp_size`` and the like replace the scenario's degree in that
    pool, ``prefill_max_num_batched_tokens`` its engine's limit. ``devices`` are the accelerators that there are; pools
    that need more would share some and are refused.
    """

    prefill_replicas: PositiveInt
    decode_replicas: PositiveInt
    link: str | None = None
    transfer: TransferOrder = "after_prefill"
    devices: PositiveInt | None = None
    prefill_tp_size: PositiveInt | None = None
    prefill_pp_size: PositiveInt | None = None
    prefill_ep_size: PositiveInt | None = None
    prefill_dp_size: PositiveInt | None = None
    prefill_cp_size: PositiveInt | None = None
    prefill_max_num_batched_tokens: PositiveInt | None = None
    decode_tp_size: PositiveInt | None = None
    decode_pp_size: PositiveInt | None = None
    decode_ep_size: PositiveInt | None = None
    decode_dp_size: PositiveInt | None = None
    decode_cp_size: PositiveInt | None = None

    def degrees(self, pool: PoolName) -> dict[str, int]:
        """Degrees of parallelism that one pool has of its own, by the scenario's names."""
        own = {degree: getattr(self, f"{pool}_{degree}") for degree in ParallelismSpec.model_fields}
        return {degree: size for degree, size in own.items() if size is not None}
