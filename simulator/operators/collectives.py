"""Communication between the devices of a replica."""

from __future__ import annotations

from simulator.operators.share import DeviceShare
from simulator.operators.step_shape import Array
from simulator.operators.work import Collective, CollectiveShape, Family, Work


def collective(
    name: str,
    *,
    share: DeviceShare,
    operation: Collective,
    message_bytes: Array,
    participants: int,
    count: float,
    role: str,
) -> Work:
    """Row of ``count`` collectives; ``message_bytes`` as nccl-tests counts it (see ``CollectiveShape``)."""
    return Work(
        name=name,
        family=Family.COLLECTIVE,
        role=role,
        shape=CollectiveShape(operation=operation, message_bytes=message_bytes, participants=participants),
        count=count,
        flops=share.zeros,
        weight_bytes=share.zeros,
        kv_bytes=share.zeros,
        activation_bytes=share.zeros,
    )


def all_reduce_after(block: str, *, share: DeviceShare, count: float, tokens: Array | None = None) -> tuple[Work, ...]:
    """Sum of the tensor-parallel partial results of a block: tokens x hidden_size; nothing on one device."""
    if share.tp_size == 1:
        return ()
    rows = share.tokens if tokens is None else tokens
    return (
        collective(
            f"{block}_all_reduce",
            share=share,
            operation=Collective.ALL_REDUCE,
            message_bytes=rows * share.hidden_size * share.element_bytes,
            participants=share.tp_size,
            count=count,
            role=block,
        ),
    )
