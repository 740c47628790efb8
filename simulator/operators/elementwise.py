"""Passes bound by memory: norms, residuals, rotary, activations, gathers, sampling.

Each pass is priced by how often it reads or writes one element of its tensor. The fused figures are one read of every
input and one write of every output in one kernel, which compiled engines reach; the unfused ones follow the eager
operator sequence of the transformers reference modules, one kernel and one round trip an operator.

Hyper-connections: the residual as parallel streams that every sublayer reads and writes through small mixes.

One product per sublayer turns a token's streams into the weights that gather the sublayer's input, spread its output
and mix the streams; the mix is made doubly stochastic by a few Sinkhorn steps [Zhu2024] [Xie2025].
"""

from __future__ import annotations

from simulator.operators.linear import DeviceShare, linear
from simulator.operators.work import Array, ElementwiseShape, Family, Work
from simulator.records import dataclass
from simulator.specs.model.architecture import HyperConnectionSpec
from simulator.units import BITS_PER_BYTE


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCost:
    """Reads plus writes of 16-bit elements per element, and kernels, fused and not."""

    fused_passes: float
    fused_launches: float
    unfused_passes: float
    unfused_launches: float


# Residual add and RMS norm. Unfused: add 3, to fp32 1 + 2, square 4, mean 2, scale 4, to bf16 3, weight 2.
RESIDUAL_NORM = PassCost(fused_passes=4, fused_launches=1, unfused_passes=21, unfused_launches=9)
# A norm alone (query and key heads, latents, before the head): the same without the add.
NORM = PassCost(fused_passes=2, fused_launches=1, unfused_passes=18, unfused_launches=8)
# A norm over vectors that ranks hold in parts: their sums of squares, and after those were added up the norm.
SPLIT_NORM = PassCost(fused_passes=3, fused_launches=2, unfused_passes=18, unfused_launches=8)
# q cos + rotate_half(q) sin. Unfused: negate (1), concatenate (2), two products (2 + 2), sum (3).
ROTARY = PassCost(fused_passes=2, fused_launches=1, unfused_passes=10, unfused_launches=10)
# act(gate) * up, per element of the intermediate. Unfused: activation (2), product (3).
GATED_ACTIVATION = PassCost(fused_passes=3, fused_launches=1, unfused_passes=5, unfused_launches=2)
ACTIVATION = PassCost(fused_passes=2, fused_launches=1, unfused_passes=2, unfused_launches=1)
# Tokens gathered from a table: read a row, write it.
GATHER = PassCost(fused_passes=2, fused_launches=1, unfused_passes=2, unfused_launches=1)
# Greedy sampling: logits to fp32 (read 2, write 4 bytes), then argmax (4 bytes): 5 passes of two bytes.
SAMPLE = PassCost(fused_passes=5, fused_launches=2, unfused_passes=5, unfused_launches=2)
# Depthwise convolution over the sequence: read, write. Unfused adds the activation.
CONVOLUTION = PassCost(fused_passes=2, fused_launches=1, unfused_passes=4, unfused_launches=2)
# Router scores: softmax and top-k in one kernel, then the sort of tokens by expert.
TOP_K = PassCost(fused_passes=2, fused_launches=2, unfused_passes=6, unfused_launches=4)


def elementwise(
    name: str,
    *,
    share: DeviceShare,
    cost: PassCost,
    rows: Array,
    width: float,
    count: float,
    role: str,
    parameters: float = 0.0,
    kv_bytes: Array | None = None,
    extra_launches: float = 0.0,
    family: Family = Family.ELEMENTWISE,
) -> Work:
    """Row of passes over ``rows`` x ``width`` elements; FLOPs are not counted (below 0.1 % of a layer's).

    parameters : small weights held here (at the residual stream's dtype, embeddings in their format); their read is
        part of weight_bytes
    kv_bytes : cache written beside
    """
    passes, launches = (
        (cost.fused_passes, cost.fused_launches) if share.fused else (cost.unfused_passes, cost.unfused_launches)
    )
    activation_bytes = rows * width * passes * share.element_bytes
    stored = parameters * share.element_bytes
    if family is Family.EMBEDDING:
        stored = parameters * (share.plan.format_for("embedding").weight_bits / BITS_PER_BYTE)
    read = 0.0 if family is Family.EMBEDDING else stored
    written = share.zeros if kv_bytes is None else kv_bytes
    weight_bytes = share.zeros + read
    return Work(
        name=name,
        family=family,
        role=role,
        shape=ElementwiseShape(bytes=activation_bytes + weight_bytes + written, launches=launches + extra_launches),
        count=count,
        flops=share.zeros,
        weight_bytes=weight_bytes,
        kv_bytes=written,
        activation_bytes=activation_bytes,
        parameters=parameters,
        active_parameters=parameters,
        stored_bytes=stored,
    )


def held_only(name: str, *, share: DeviceShare, role: str, parameters: float, active: bool = False) -> Work:
    """Weights that take memory and no time of their own; with ``active``, small ones used in another row."""
    return Work(
        name=name,
        family=Family.ELEMENTWISE,
        role=role,
        shape=ElementwiseShape(bytes=share.zeros, launches=0.0),
        count=1.0,
        flops=share.zeros,
        weight_bytes=share.zeros,
        kv_bytes=share.zeros,
        activation_bytes=share.zeros,
        parameters=parameters,
        active_parameters=parameters if active else 0.0,
        stored_bytes=parameters * share.element_bytes,
    )


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
        linear("hyper_weights", share=share, role="router", m=share.tokens, n=numbers, k=streams * width, count=sites,
               bias=numbers + SCALES + spec.mix),
        elementwise("hyper_gather", share=share, cost=gather, rows=share.tokens, width=width, count=sites, role="norm"),
        elementwise("hyper_spread", share=share, cost=spread, rows=share.tokens, width=width, count=sites, role="norm"),
    )  # fmt: skip


def hyper_expand(spec: HyperConnectionSpec, *, share: DeviceShare) -> Work:
    """The embedding copied into every stream."""
    copies = PassCost(
        fused_passes=spec.streams + 1, fused_launches=1, unfused_passes=spec.streams + 1, unfused_launches=1
    )
    return elementwise(
        "hyper_expand", share=share, cost=copies, rows=share.tokens, width=share.hidden_size, count=1.0, role="norm"
    )


def hyper_head(spec: HyperConnectionSpec, *, share: DeviceShare) -> tuple[Work, Work]:
    """The streams gathered into one before the last norm."""
    streams = spec.streams
    gather = PassCost(fused_passes=streams + 1, fused_launches=1, unfused_passes=15 * streams + 5, unfused_launches=12)
    return (
        linear("hyper_head_weights", share=share, role="router", m=share.tokens, n=streams,
               k=streams * share.hidden_size, count=1.0, bias=streams + 1),
        elementwise("hyper_head_gather", share=share, cost=gather, rows=share.tokens, width=share.hidden_size,
                    count=1.0, role="norm"),
    )  # fmt: skip
