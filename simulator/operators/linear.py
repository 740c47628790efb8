"""Matrix products: 2 m n k FLOPs; weights [n, k] read once, inputs [m, k] read and outputs [m, n] written."""

from __future__ import annotations

import numpy as np

from simulator.operators.share import DeviceShare
from simulator.operators.step_shape import Array
from simulator.operators.work import Family, GemmShape, MatmulFormat, Work
from simulator.units import BITS_PER_BYTE


def linear(
    name: str,
    *,
    share: DeviceShare,
    role: str,
    m: Array,
    n: float,
    k: float,
    count: float,
    bias: float = 0.0,
    batch: float = 1.0,
    held: bool = True,
    product: MatmulFormat | None = None,
    family: Family = Family.GEMM,
) -> Work:
    """Row of ``count`` products (m, k) x (k, n) on this device, ``batch`` independent ones in each.

    bias : elements added to the product and held beside the weights; held : False where another row holds the weights
    Arithmetic intensity of a linear layer at 16 bit is 2 h n b FLOPs over 2 (h n + b n + b h) bytes [Williams2009].
    Left out: reads of the same tile by several blocks, which the kernel layer prices.
    """
    chosen = share.plan.format_for(role) if product is None else product
    weight = n * k * batch
    stored = weight * chosen.weight_bits / BITS_PER_BYTE + bias * share.element_bytes + batch * chosen.codebook_bytes
    moved = m * batch * (k * chosen.activation_bits / BITS_PER_BYTE + n * share.element_bytes)
    parameters = weight + bias if held else 0.0
    return Work(
        name=name,
        family=family,
        role=role,
        shape=GemmShape(m=m, n=n, k=k, format=chosen, batch=batch),
        count=count,
        flops=2.0 * m * weight,
        weight_bytes=np.where(m > 0, stored, 0.0),
        kv_bytes=share.zeros,
        activation_bytes=moved,
        parameters=parameters,
        active_parameters=parameters,
        stored_bytes=stored if held else 0.0,
    )
