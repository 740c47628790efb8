"""Mixtures of experts with their router, shared experts and dispatch."""

from __future__ import annotations

from math import ceil
from statistics import NormalDist

import numpy as np

from simulator.operators.device_share import TOP_K, DeviceShare, dense_block
from simulator.operators.work import Array, Collective, Family, MoeShape, Work
from simulator.records import dataclass
from simulator.specs.model.architecture import MoeSpec
from simulator.specs.model.fitted import routing_skew
from simulator.units import BITS_PER_BYTE

LOW_LATENCY_TOKENS = 256
"""Of a rank, up to which it sends a token to every expert of its own: the room of DeepEP's low-latency kernels in
SGLang's recipes and the chunks of vLLM [DeepEP2025]; from memory, verify."""


def distinct_experts(
    *, tokens: Array, num_experts: float, num_experts_per_tok: float, local_experts: float, skew: float = 0.0
) -> Array:
    """Expected local experts that at least one token of a step reaches [-].

    Equation
    --------
    d = local x (1 - m(t)), m(t) = (1 - k / E)^min(t, 1) x (1 - s^2 ln(1 - k / E) max(t - 1, 0))^(-1 / s^2)

    Parameters
    ----------
    tokens : tokens t of the step [-]
    num_experts, num_experts_per_tok : experts E of the layer, k of them chosen by each token [-]
    local_experts : experts that this rank holds [-]
    skew : coefficient of variation s of how often experts are chosen, over the step's tokens [-]

    Range of validity
    -----------------
    Independent tokens that share one gamma-distributed popularity of experts: 0 for no tokens, k of all experts for
    one, all for many; s = 0 is uniform routing, m = (1 - k / E)^t. What tokens of one topic have in common is in s.
    Leaves out experts that are chosen together.

    References
    ----------
    [Shazeer2017], [Greenwood1920]

    Examples
    --------
    Mixtral, 8 experts of which 2: two tokens reach 8 (1 - 0.75^2) of them, fewer where some experts are popular.

    >>> float(distinct_experts(tokens=np.array(2.0), num_experts=8, num_experts_per_tok=2, local_experts=8))
    3.5
    >>> uneven = distinct_experts(
    ...     tokens=np.array(2.0), num_experts=8, num_experts_per_tok=2, local_experts=8, skew=1.0
    ... )
    >>> round(float(uneven), 2)
    3.34
    """
    chance = num_experts_per_tok / num_experts
    if chance >= 1.0 or not (skew**2):
        return local_experts * (1.0 - (1.0 - chance) ** tokens)
    others = -np.log1p(-chance) * np.maximum(tokens - 1.0, 0.0)
    missed: Array = (1.0 - chance) ** np.minimum(tokens, 1.0) * np.exp(-np.log1p(skew**2 * others) / skew**2)
    return local_experts * (1.0 - missed)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLoad:
    """Distinct experts and (token, expert) pairs of one expert-parallel rank in a step, expected (arrays)."""

    distinct_experts: Array
    assignments: Array


def busiest_rank(
    *,
    tokens: Array,
    num_experts: float,
    num_experts_per_tok: float,
    local_experts: float,
    skew: float = 0.0,
    placed_evenly: bool = False,
) -> RankLoad:
    """Expected load of the busiest of the ranks that share a layer's experts: all others wait for it [-].

    Equation
    --------
    d' = min(local, d + z sqrt(d (1 - d / local)))
    a' = min(t min(k, local), a + z sqrt(a (1 - 1 / R) + a^2 s^2 / local))

    Parameters
    ----------
    tokens : tokens t of the step over all ranks [-]
    num_experts, num_experts_per_tok : experts E of the layer, k of them chosen by each token [-]
    local_experts : experts that each of the R = E / local ranks holds [-]
    skew : coefficient of variation s of how often experts are chosen [-]
    placed_evenly : placement balances the experts of the ranks (EPLB): s = 0 in a', chance alone is left

    Range of validity
    -----------------
    d and a = t k / R of a mean rank; z is the mean of the largest of R standard normals (Blom's approximation). One
    rank carries everything. Leaves out the copies of experts that placement may need, and that routing drifts from
    what it was placed for.

    References
    ----------
    [Blom1958]

    Examples
    --------
    >>> load = busiest_rank(tokens=np.array(64.0), num_experts=256, num_experts_per_tok=8, local_experts=32)
    >>> round(float(load.assignments), 1)
    74.7
    """
    reached = distinct_experts(
        tokens=tokens,
        num_experts=num_experts,
        num_experts_per_tok=num_experts_per_tok,
        local_experts=local_experts,
        skew=skew,
    )
    ranks = num_experts / local_experts
    mean = tokens * num_experts_per_tok / ranks
    if ranks < 2:
        return RankLoad(distinct_experts=reached, assignments=mean)
    blom = 3.0 / 8.0
    z = NormalDist().inv_cdf((ranks - blom) / (ranks - 2.0 * blom + 1.0))
    most = np.minimum(local_experts, reached + z * np.sqrt(reached * np.maximum(1.0 - reached / local_experts, 0.0)))
    uneven = 0.0 if placed_evenly else mean**2 * skew**2 / local_experts
    scatter = np.sqrt(mean * (1.0 - 1.0 / ranks) + uneven)
    pairs = np.minimum(tokens * min(num_experts_per_tok, local_experts), mean + z * scatter)
    return RankLoad(distinct_experts=np.minimum(most, pairs), assignments=pairs)


def moe_rows(spec: MoeSpec, *, share: DeviceShare, count: float) -> tuple[Work, ...]:
    """Sparse block of ``count`` equal layers: router, shared expert, dispatch, experts, combine."""
    shared: tuple[Work, ...] = ()
    if spec.shared_expert_intermediate_size:
        shared = _shared_expert(spec, share=share, count=count)
    dispatch, combine = _communication(spec, share=share, count=count)
    return (
        *_router(spec, share=share, count=count),
        *shared,
        *_latent(spec, share=share, count=count, enters=True),
        *dispatch,
        experts_work(spec, share=share, count=count),
        *combine,
        *_latent(spec, share=share, count=count, enters=False),
    )


def experts_work(spec: MoeSpec, *, share: DeviceShare, count: float) -> Work:
    """Grouped products of the routed experts on this device: weights of the distinct experts, 2 FLOPs a weight used.

    Activation bytes: gathered inputs, intermediate written and read around the activation, outputs written, and the
    weighted sum back to one row a token. The row counts the work of a mean rank, its shape the load of the busiest
    one, for which the others wait. Every rank stores whole experts: copies fill the places that are left over.
    """
    product = share.plan.format_for("experts")
    local = spec.num_experts / share.ep_size
    width = spec.moe_intermediate_size * share.ep_size / expert_devices(share)
    hidden = float(spec.latent_size or share.hidden_size)
    tokens = share.tokens * (share.dp_size if share.ep_size > 1 else 1)
    matrices = 3 if spec.gated else 2
    bias = (width * (matrices - 1) + hidden) if spec.expert_bias else 0.0
    weight = matrices * hidden * width
    one_expert = (
        weight * product.weight_bits / BITS_PER_BYTE + bias * share.element_bytes + matrices * product.codebook_bytes
    )
    reached = distinct_experts(
        tokens=tokens,
        num_experts=spec.num_experts,
        num_experts_per_tok=spec.num_experts_per_tok,
        local_experts=local,
        skew=routing_skew(spec),
    )
    busiest = rank_load(spec, tokens=tokens, local_experts=local)
    assignments = tokens * spec.num_experts_per_tok * local / spec.num_experts
    inputs = hidden * product.activation_bits / BITS_PER_BYTE
    middle = (2 * (matrices - 1) + 1) * width + width * product.activation_bits / BITS_PER_BYTE / share.element_bytes
    outputs = 2 * hidden
    shape = MoeShape(
        tokens=tokens,
        hidden_size=hidden,
        intermediate_size=width,
        num_experts=spec.num_experts,
        num_experts_per_tok=spec.num_experts_per_tok,
        local_experts=local,
        gated=spec.gated,
        distinct_experts=busiest.distinct_experts,
        local_assignments=busiest.assignments,
        format=product,
        exchanged=is_exchanged(share),
    )
    parameters = local * (weight + bias)
    return Work(
        name="experts",
        family=Family.MOE,
        role="experts",
        shape=shape,
        count=count,
        flops=2.0 * assignments * weight,
        weight_bytes=reached * one_expert,
        kv_bytes=share.zeros,
        activation_bytes=assignments * (inputs + (middle + outputs) * share.element_bytes)
        + share.tokens * hidden * share.element_bytes,
        parameters=parameters,
        active_parameters=parameters * spec.num_experts_per_tok / spec.num_experts,
        stored_bytes=ceil(local) * one_expert,
    )


def rank_load(spec: MoeSpec, *, tokens: Array, local_experts: float) -> RankLoad:
    """`busiest_rank` of a layer under its routing."""
    return busiest_rank(
        tokens=tokens,
        num_experts=spec.num_experts,
        num_experts_per_tok=spec.num_experts_per_tok,
        local_experts=local_experts,
        skew=routing_skew(spec),
        placed_evenly=bool(spec.placed_evenly),
    )


def is_exchanged(share: DeviceShare) -> bool:
    """Whether all-to-all takes tokens to their experts and back: attention is data parallel, experts are spread."""
    return share.dp_size > 1 and share.ep_size > 1


def expert_devices(share: DeviceShare) -> int:
    """Devices that hold one layer's experts together: all of the replica's stage under expert parallelism."""
    return share.tp_size * share.dp_size if share.ep_size > 1 else share.tp_size


def _router(spec: MoeSpec, *, share: DeviceShare, count: float) -> tuple[Work, Work]:
    held = spec.router_parameters_extra + (spec.num_experts if spec.correction_bias else 0)
    scores = share.linear(
        "router",
        role="router",
        n=spec.num_experts,
        k=share.hidden_size,
        bias=spec.num_experts if spec.router_bias else 0.0,
        count=count,
    )
    top_k = share.elementwise(
        "router_top_k", cost=TOP_K, width=spec.num_experts, count=count, role="router", parameters=float(held)
    )
    return scores, top_k


def _shared_expert(spec: MoeSpec, *, share: DeviceShare, count: float) -> tuple[Work, ...]:
    rows = dense_block(
        "shared_",
        share=share,
        role="shared_expert",
        intermediate=spec.shared_expert_intermediate_size,
        gated=spec.gated,
        bias=False,
        count=count,
    )
    if not spec.shared_expert_gate:
        return rows
    gate = share.linear(
        "shared_expert_gate", role="shared_expert", n=1.0, k=share.hidden_size, count=count, product=share.plan.plain
    )
    return (*rows, gate)


def _latent(spec: MoeSpec, *, share: DeviceShare, count: float, enters: bool) -> tuple[Work, ...]:
    """Into or out of the narrower space of latent experts; every rank holds these small projections."""
    if spec.latent_size is None:
        return ()
    hidden, latent = share.hidden_size, spec.latent_size
    return (
        share.linear(
            "latent_in_proj" if enters else "latent_out_proj",
            role="mlp",
            n=latent if enters else hidden,
            k=hidden if enters else latent,
            count=count,
        ),
    )


def _communication(spec: MoeSpec, *, share: DeviceShare, count: float) -> tuple[tuple[Work, ...], tuple[Work, ...]]:
    """Dispatch and combine: all-to-all when attention is data parallel, otherwise one sum over the ranks. The busiest
    rank takes in more than the others send: its link sets the time. Few tokens go to each of their experts."""
    if not is_exchanged(share):
        return (), share.all_reduce_after("experts", count=count)
    width = float(spec.latent_size or share.hidden_size)
    product = share.plan.format_for("experts")
    dispatched = product.activation_bits / BITS_PER_BYTE

    def sent(tokens: Array) -> Array:
        """Elements of the busiest rank, each having so many tokens."""
        load = rank_load(spec, tokens=tokens * share.dp_size, local_experts=spec.num_experts / share.ep_size)
        return load.assignments * share.ep_size / (share.dp_size * share.tp_size) * width

    apart = sent(share.zeros + LOW_LATENCY_TOKENS)
    rows = [
        share.collective(
            name,
            operation=Collective.ALL_TO_ALL,
            message_bytes=sent(share.tokens) * element_bytes,
            participants=share.ep_size,
            copies=float(spec.num_experts_per_tok),
            apart_bytes=apart * element_bytes,
            count=count,
            role="experts",
        )
        for name, element_bytes in (("experts_dispatch", dispatched), ("experts_combine", share.element_bytes))
    ]
    gather: tuple[Work, ...] = ()
    if share.tp_size > 1:
        gather = (
            share.collective(
                "experts_all_gather",
                operation=Collective.ALL_GATHER,
                message_bytes=np.asarray(share.tokens * share.hidden_size * share.element_bytes),
                participants=share.tp_size,
                count=count,
                role="experts",
            ),
        )
    return (rows[0],), (rows[1], *gather)
