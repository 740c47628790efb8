"""Dense feed-forward blocks, of a layer's own or shared by all tokens beside its experts."""

from __future__ import annotations

from simulator.operators.elementwise import ACTIVATION, GATED_ACTIVATION, elementwise
from simulator.operators.linear import DeviceShare, all_reduce_after, linear
from simulator.operators.work import Work
from simulator.specs.model.architecture import MlpSpec


def mlp_rows(spec: MlpSpec, *, share: DeviceShare, count: float) -> tuple[Work, ...]:
    """Dense block of ``count`` equal layers: columns split, then rows, then a sum over the ranks."""
    rows = dense_block(
        "", share=share, role="mlp", intermediate=spec.intermediate_size, gated=spec.gated, bias=spec.bias, count=count
    )
    return (*rows, *all_reduce_after("mlp", share=share, count=count))


def dense_block(
    prefix: str, *, share: DeviceShare, role: str, intermediate: float, gated: bool, bias: bool, count: float
) -> tuple[Work, Work, Work]:
    """Up (and gate) product, activation, down product."""
    width = intermediate / share.tp_size
    up_width = width * (2 if gated else 1)
    up = linear(
        f"{prefix}gate_up_proj" if gated else f"{prefix}up_proj",
        share=share,
        role=role,
        m=share.tokens,
        n=up_width,
        k=share.hidden_size,
        bias=up_width if bias else 0.0,
        count=count,
    )
    activation = elementwise(
        f"{prefix}activation",
        share=share,
        cost=GATED_ACTIVATION if gated else ACTIVATION,
        rows=share.tokens,
        width=width,
        count=count,
        role=role,
    )
    down = linear(
        f"{prefix}down_proj",
        share=share,
        role=role,
        m=share.tokens,
        n=share.hidden_size,
        k=width,
        bias=share.hidden_size if bias else 0.0,
        count=count,
    )
    return (up, activation, down)
