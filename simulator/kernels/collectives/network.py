"""Time of collectives: the engine's choice of algorithm, its law, and the path across servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simulator.errors import RoofcastError
from simulator.kernels.collectives.laws import (
    CollectiveModel,
    Law,
    fastest_seconds,
    fitted_model,
    model_seconds,
    wire_factor,
)
from simulator.kernels.timing import Provenance, Timing
from simulator.kernels.transfer import Relative
from simulator.operators.work import Array, Collective, CollectiveShape
from simulator.records import dataclass
from simulator.specs.base import Same
from simulator.specs.hardware.accelerator import AcceleratorSpec, LinkSpec
from simulator.specs.hardware.calibration import KernelFit
from simulator.units import MICRO

LIBRARY_WIDE = "nccl"
EAGER_SUFFIX = "_eager"

# Between servers: NCCL's own tuning model assumes 2.7 us (LL) and 14 us (Simple) per network step of a ring, and LL
# carries as many flag bytes as data [NCCL2025]. The NIC is taken at its full rate: an upper bound, hence the sigma.
NETWORK_LAWS = (
    Law(algorithm="ring_ll", launch_s=0.0, hop_s=2.7 * MICRO, fraction=0.5),
    Law(algorithm="ring_simple", launch_s=0.0, hop_s=14 * MICRO, fraction=1.0),
)
EXCHANGE_LAWS = tuple(replace(law, algorithm="one_shot", launch_s=law.hop_s, hop_s=0.0) for law in NETWORK_LAWS)
"""All-to-all between servers: everybody sends to all others at once, so that there is one step and no ring."""
NETWORK_LOG_SIGMA = 0.4
"""Assumed: no multi-server collective was measured; published NCCL runs on one fabric differ by as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PricedCollective:
    """Of each message: its time [s], how far off it may be, and what it is known from."""

    seconds: Array
    log_sigma: Array
    provenance: Array


def collective_timing(
    shape: CollectiveShape,
    *,
    hardware: AcceleratorSpec,
    fits: Sequence[KernelFit],
    graph: bool = True,
    one_shot_bytes: float | None = None,
    network: LinkSpec | None = None,
    relative: Relative | None = None,
) -> Timing:
    """Time of one collective on devices of one kind [s].

    fits : collective fits of the engine's library (all-reduce variants with ``from_bytes``) and NCCL's
    graph : inside a CUDA graph, or launched eagerly by the host
    one_shot_bytes : set where the engine runs its own all-reduce: in larger groups of the domain than were measured, by
        the same laws, and up to that message in one shot, whatever its table found faster
    network : one device's share of the NICs, needed where ``participants`` exceed the scale-up domain
    relative : set where ``fits`` come from another accelerator

    Notes
    -----
    One participant or an empty message takes no time. Within the scale-up domain a fit applies as measured; beyond
    it the ring of the domain, then of the servers, then of the domain again. Leaves out contention between
    collectives and overlap with computation.

    References
    ----------
    [Hockney1994], [Thakur2005], [AIC2026]
    """
    message = np.atleast_1d(np.asarray(shape.message_bytes, dtype=np.float64))
    busy = (message > 0) & (shape.participants > 1)
    floor_bytes = np.where(busy, message, 1.0)
    link = hardware.scale_up
    if shape.participants == 1:
        zeros = np.zeros_like(message)
        priced, wire_s = _PricedCollective(seconds=zeros, log_sigma=zeros, provenance=zeros), zeros
    elif shape.span <= link.domain_size:
        priced = _within_domain(
            shape.operation,
            floor_bytes,
            participants=shape.participants,
            link=link,
            fits=fits,
            graph=graph,
            one_shot_bytes=one_shot_bytes,
        )
        wire_s = _wire_s(shape.operation, floor_bytes, participants=shape.participants, link=link)
    else:
        outer = _network_of(network, hardware=hardware, participants=shape.span)
        priced, wire_s = _across_servers(
            shape,
            floor_bytes,
            together=max(1, link.domain_size // shape.spacing),
            link=link,
            network=outer,
            fits=fits,
            graph=graph,
        )
    return _timing(priced, busy=busy, wire_s=wire_s, relative=relative)


def _timing(priced: _PricedCollective, *, busy: NDArray[np.bool_], wire_s: Array, relative: Relative | None) -> Timing:
    log_sigma, provenance = priced.log_sigma, priced.provenance
    if relative is not None and relative.log_sigma_extra > 0:
        log_sigma = np.hypot(log_sigma, relative.log_sigma_extra)
        provenance = np.maximum(provenance, float(relative.known))
    zeros = np.zeros_like(priced.seconds)
    return Timing(
        seconds=np.where(busy, priced.seconds, 0.0),
        compute_s=zeros,
        memory_s=zeros,
        network_s=np.where(busy, wire_s, 0.0),
        tensor_s=zeros,
        log_sigma=np.where(busy, log_sigma, 0.0),
        provenance=np.where(busy, provenance, float(Provenance.MEASURED)),
    )


def _wire_s(operation: Collective, message: Array, *, participants: int, link: LinkSpec) -> Array:
    """The floor: a ring's traffic at the link's full bandwidth [s]."""
    wire = wire_factor("ring_simple", operation=operation, participants=participants)
    return wire * message / link.reached_bytes_per_s(participants)


def _network_of(network: LinkSpec | None, *, hardware: AcceleratorSpec, participants: int) -> LinkSpec:
    if network is None:
        raise RoofcastError(
            f"{participants} devices exceed the scale-up domain of {hardware.name} "
            f"({hardware.scale_up.domain_size}) and no network is given",
            field="interconnect",
            hint="name a server with a NIC, or keep the group inside one domain",
        )
    return network


def _within_domain(
    operation: Collective,
    message: Array,
    *,
    participants: int,
    link: LinkSpec,
    fits: Sequence[KernelFit],
    graph: bool,
    one_shot_bytes: float | None = None,
) -> _PricedCollective:
    if operation is Collective.P2P:
        # Two devices that exchange all of 2 n by all-to-all send n each: the measured stand-in for a send of n.
        priced = _within_domain(Collective.ALL_TO_ALL, 2 * message, participants=2, link=link, fits=fits, graph=graph)
        borrowed = np.maximum(priced.provenance, float(Provenance.EXTRAPOLATED))
        return _PricedCollective(seconds=priced.seconds, log_sigma=priced.log_sigma, provenance=borrowed)
    served = _served(Same(tuple(fits)), operation, participants, graph, one_shot_bytes is not None)
    ends = [start for start, _, _ in served[1:]] + [np.inf]
    seconds, log_sigma, provenance = (np.zeros_like(message) for _ in range(3))
    for place, ((start, fit, model), end) in enumerate(zip(served, ends, strict=True)):
        chosen = np.flatnonzero((message < end) & ((message >= start) | (place == 0)))
        if not len(chosen):
            continue
        seconds[chosen] = model_seconds(
            model,
            operation=operation,
            message_bytes=message[chosen],
            participants=participants,
            bytes_per_s=link.reached_bytes_per_s(participants),
            one_shot_bytes=one_shot_bytes or 0.0,
        )
        beyond = _octaves_beyond(fit, message=message[chosen], participants=participants)
        log_sigma[chosen] = fit.error.log_sigma * (1 + beyond)
        provenance[chosen] = np.where(beyond > 0, Provenance.EXTRAPOLATED, Provenance.CALIBRATED)
    return _PricedCollective(seconds=seconds, log_sigma=log_sigma, provenance=provenance)


def _runs_in(fit: KernelFit, *, graph: bool) -> bool:
    """Engine fits exist for either mode; NCCL's tables know one."""
    return fit.variant == LIBRARY_WIDE or fit.variant.endswith(EAGER_SUFFIX) != graph


def _octaves_beyond(fit: KernelFit, *, message: Array, participants: int) -> Array:
    """Octaves above the fitted box; smaller messages stay at the measured latency."""
    largest = fit.box["message_bytes"][1]
    fewest, most = fit.box["participants"]
    outside = max(0.0, float(np.log2(participants / most)), float(np.log2(fewest / participants)))
    return np.maximum(np.log2(message / largest), 0.0) + outside


@lru_cache(maxsize=512)
def _served(
    fits: Same[tuple[KernelFit, ...]], operation: Collective, participants: int, graph: bool, extends: bool
) -> tuple[tuple[float, KernelFit, CollectiveModel], ...]:
    """Which fit prices messages from which size [bytes] on: the engine's algorithms, otherwise NCCL. Engines bring
    their own all-reduce to even groups only, up to the largest measured one, beyond where it ``extends``; an unmeasured
    even group takes the thresholds of the next larger measured one."""
    known = [fit for fit in fits.held if fit.family == operation.value and _runs_in(fit, graph=graph)]
    if not known:
        raise RoofcastError(
            f"no fit of {operation.value} among the given calibrations",
            field="fits",
            hint="add the NCCL fits of this accelerator or of its nearest relative",
        )
    models = [(fit, fitted_model(fit)) for fit in known]
    measured = sorted({devices for _, model in models for devices, _ in model.from_bytes})
    at_least = [devices for devices in measured if devices >= participants] or measured[-1:] * extends
    served = (
        []
        if participants % 2 or not at_least
        else [
            (start, fit, model)
            for fit, model in models
            for devices, start in model.from_bytes
            if devices == at_least[0]
        ]
    )
    if not served:
        served = [(0.0, fit, model) for fit, model in models if fit.variant == LIBRARY_WIDE]
    if not served:
        raise RoofcastError(
            f"no fit of {known[0].family} serves {participants} participants (measured: {measured})",
            field="fits",
            hint="add the NCCL fits of this accelerator or of its nearest relative",
        )
    return tuple(sorted(served, key=lambda choice: choice[0]))


def _across_servers(
    shape: CollectiveShape,
    message: Array,
    *,
    together: int,
    link: LinkSpec,
    network: LinkSpec,
    fits: Sequence[KernelFit],
    graph: bool,
) -> tuple[_PricedCollective, Array]:
    """Inside each domain, which holds ``together`` of them, between domains over the NICs (every device its share), and
    inside again. In messages above ``apart_bytes`` tokens with several copies go once to a server, which hands them on
    while others arrive, where that is faster; no such message is faster than one of that size.

    Reference: [Thakur2005], [NCCL2025], [DeepEP2025]
    """
    operation, participants = shape.operation, shape.participants
    servers = -(-participants // together)
    local = -(-participants // servers)

    def between_s(size: Array) -> Array:
        return fastest_seconds(
            EXCHANGE_LAWS if operation is Collective.ALL_TO_ALL else NETWORK_LAWS,
            operation=operation,
            message_bytes=size,
            participants=servers,
            bytes_per_s=network.bytes_per_s_per_direction,
        )

    def inside(part: Collective, size: Array) -> _PricedCollective:
        return _within_domain(part, size, participants=local, link=link, fits=fits, graph=graph)

    def apart(size: Array) -> tuple[Array, Array, Array]:
        """Seconds, spread of what is inside, bytes between servers."""
        inner, outer = _inner_parts(operation, size, participants=participants, local=local)
        parts = [inside(part, each) for part, each in inner if local > 1]
        total = between_s(outer) + sum((part.seconds for part in parts), np.zeros_like(size))
        return total, np.max(np.stack([np.zeros_like(size), *(part.log_sigma for part in parts)]), axis=0), outer

    seconds, sigma, outer_bytes = apart(message)
    if operation is Collective.ALL_TO_ALL and local == 1:
        # No part inside a domain brings the kernel's launch: the laws between servers have none.
        near = _within_domain(operation, message, participants=participants, link=link, fits=fits, graph=graph)
        seconds = np.maximum(seconds, near.seconds)
    if shape.apart_bytes is not None and local > 1:
        limit = np.maximum(np.broadcast_to(shape.apart_bytes, message.shape), 1.0)
        once = message * servers * (1.0 - (1.0 - 1.0 / servers) ** shape.copies) / shape.copies
        handed_on_s = np.maximum(between_s(once), inside(operation, message).seconds)
        shared_s = np.minimum(seconds, np.maximum(handed_on_s, apart(limit)[0]))
        outer_bytes = np.where(message > limit, once, outer_bytes)
        seconds = np.where(message > limit, shared_s, seconds)
    wire_s = _wire_s(operation, outer_bytes, participants=servers, link=network)
    return (
        _PricedCollective(
            seconds=seconds,
            log_sigma=np.hypot(sigma, NETWORK_LOG_SIGMA),
            provenance=np.full_like(message, float(Provenance.ASSUMED)),
        ),
        wire_s,
    )


def _inner_parts(
    operation: Collective, message: Array, *, participants: int, local: int
) -> tuple[list[tuple[Collective, Array]], Array]:
    """Collectives inside a domain, and the message that each device takes part in between domains [bytes]."""
    match operation:
        case Collective.ALL_REDUCE:
            return [(Collective.REDUCE_SCATTER, message), (Collective.ALL_GATHER, message)], message / local
        case Collective.ALL_TO_ALL:
            # Every device keeps local / participants of its buffer inside its domain and sends the rest out.
            return [(operation, message * local / participants)], message
        case Collective.P2P:
            return [], message
        case _:
            return [(operation, message)], message / local
