"""Hyper-connections: the residual as parallel streams that every sublayer reads and writes through small mixes.

One product per sublayer turns a token's streams into the weights that gather the sublayer's input, spread its output
and mix the streams; the mix is made doubly stochastic by a few Sinkhorn steps [Zhu2024] [Xie2025].
"""

from __future__ import annotations

from simulator.operators.device_share import DeviceShare, PassCost
from simulator.operators.work import Work
from simulator.specs.model.architecture import HyperConnectionSpec

SCALES = 2  # one learned scale each for gathering and spreading; mixing has a third
SINKHORN_LAUNCHES = 4  # two sums and two divisions an iteration, where nothing is fused


def mixing_numbers(spec: HyperConnectionSpec) -> int:
    """Weights that one site gives a token: one per stream to gather, one to spread, a square matrix where they mix."""
    return (2 + (spec.streams if spec.mix else 0)) * spec.streams


def hyper_rows(spec: HyperConnectionSpec, *, share: DeviceShare, sites: float) -> tuple[Work, Work, Work]:
    """Rows of ``sites`` sublayers: the weights' product, gathering with Sinkhorn, spreading.

    The product is over the normed streams together; the streams are read by it, again by gathering, and read and
    written by spreading, as the fused kernels of serving engines do.
    """
    streams, numbers = spec.streams, mixing_numbers(spec)
    sinkhorn = float(SINKHORN_LAUNCHES * spec.sinkhorn_iterations)
    # Unfused, in 32 bit: widen (3), square (4) and mean (2) of the streams; weigh (4) and sum (2); narrow the result.
    gather = PassCost(
        fused_passes=streams + 1, fused_launches=2, unfused_passes=15 * streams + 5, unfused_launches=12 + sinkhorn
    )
    # Unfused: the outer product, streams x streams weighed copies written, read and summed, the sum of both.
    spread = PassCost(
        fused_passes=2 * streams + 1,
        fused_launches=1,
        unfused_passes=(4 * streams**2 if spec.mix else 0) + 12 * streams + 1,
        unfused_launches=6,
    )
    width = share.hidden_size
    return (
        share.linear("hyper_weights", role="router", n=numbers, k=streams * width, count=sites,
                     bias=numbers + SCALES + spec.mix),
        share.elementwise("hyper_gather", cost=gather, width=width, count=sites, role="norm"),
        share.elementwise("hyper_spread", cost=spread, width=width, count=sites, role="norm"),
    )  # fmt: skip


def hyper_expand(spec: HyperConnectionSpec, *, share: DeviceShare) -> Work:
    """The embedding copied into every stream."""
    copies = PassCost(
        fused_passes=spec.streams + 1, fused_launches=1, unfused_passes=spec.streams + 1, unfused_launches=1
    )
    return share.elementwise("hyper_expand", cost=copies, width=share.hidden_size, role="norm")


def hyper_head(spec: HyperConnectionSpec, *, share: DeviceShare) -> tuple[Work, Work]:
    """The streams gathered into one before the last norm."""
    streams = spec.streams
    gather = PassCost(fused_passes=streams + 1, fused_launches=1, unfused_passes=15 * streams + 5, unfused_launches=12)
    return (
        share.linear("hyper_head_weights", role="router", n=streams, k=streams * share.hidden_size, bias=streams + 1),
        share.elementwise("hyper_head_gather", cost=gather, width=share.hidden_size, role="norm"),
    )  # fmt: skip
