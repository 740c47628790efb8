"""Pools of replicas, and the link between two of them."""

from __future__ import annotations

from math import ceil, floor
from typing import TYPE_CHECKING

import numpy as np

from simulator.errors import RoofcastError
from simulator.operators.work import prefill_step
from simulator.phases.deployment import Deployment
from simulator.phases.memory import memory_plan
from simulator.phases.step import estimate_step
from simulator.records import dataclass
from simulator.specs.engine.deployment import TransferOrder
from simulator.specs.hardware.accelerator import AcceleratorSpec, LinkSpec, ServerSpec, link_word

if TYPE_CHECKING:
    from simulator.engine.uniform.steps import PhaseEstimate
    from simulator.phases.attention_ffn import AttentionFfn
    from simulator.phases.compiled import StepTables
    from simulator.traffic.requests import Floats, Ints


HAND_OVER_S = 0.15
"""From the end of a prompt to the decode pool's queue, beside its cache's way over the link: routing, agreeing on where
the cache goes, polling for it, the answer's way back through two servers. It holds up nothing but the request itself.
From InferenceX's disaggregated runs with up to 16 requests a decode replica: what latency has beyond TTFT and decoding
as predicted, 0.28 s at prompts of 1,024 (the median of 15 medians by accelerator, engine and guesses, 0.0 to 0.7), less
the 0.1 s that their runs of one pool show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Replicas of one deployment; ``tables`` of its steps, where the caller has them already.

    step_scale : how many times as long as the deployment's own those are
    attention_ffn : where the replicas are attention instances whose experts have devices of their own, what both are
    """

    deployment: Deployment
    replicas: int
    tables: tuple[StepTables, ...] | None = None
    step_scale: float = 1.0
    attention_ffn: AttentionFfn | None = None

    @property
    def devices(self) -> int:
        """Accelerators of the pool."""
        if self.attention_ffn is not None:
            return self.replicas // self.attention_ffn.ranks * self.attention_ffn.devices
        return self.replicas * self.deployment.parallelism.devices

    def power_w(self, phase: PhaseEstimate, *, busy_fraction: float) -> float:
        """Mean power of all devices while they run the steps of ``phase`` for that share of the time [W]."""
        from simulator.phases.power import average_power_w

        steps = ((phase.weights, phase.estimate),)
        alike = self.devices // self.deployment.parallelism.devices
        return alike * average_power_w(self.deployment, phases=steps, busy_fraction=busy_fraction)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUse:
    """Two pools of a run, and the shares of the time in which replicas of each compute.

    link, transfer_s : what carries a cache between them, and how long on average, waiting included [s]
    """

    prefill: Pool
    decode: Pool
    prefill_busy_fraction: float
    decode_busy_fraction: float
    link: str
    transfer_s: float

    def powers_w(self, prefill: PhaseEstimate, decode: PhaseEstimate) -> tuple[float, float]:
        """Mean power of all devices of each pool [W]."""
        return (
            self.prefill.power_w(prefill, busy_fraction=self.prefill_busy_fraction),
            self.decode.power_w(decode, busy_fraction=self.decode_busy_fraction),
        )


_ALIKE = 1.02
"""Ratio of two pools' sizes over the fleet's up to which a group stands for it."""


@dataclass(frozen=True, slots=True)
class PoolGroup:
    """Replicas of two pools that stand for larger ones; is_alike : their ratio is about that of those.

    share : of the fleet's rate that loads both at least as much as there; where the ratio is not quite the fleet's, one
        pool a little more
    """

    prefill: int
    decode: int
    share: float
    is_alike: bool


def small_group(counts: tuple[int, ...], *, least: int, most: int) -> PoolGroup:
    """The fewest (prefill, decode) replicas of about the ratio of ``counts``: ``least`` decode at least where there are
    as many, ``most`` both at most; where none have about the ratio, those nearest to it."""
    prefill, decode = counts

    def mismatch(pair: tuple[int, int]) -> float:
        ratio = pair[0] / pair[1] * decode / prefill
        return max(ratio, 1 / ratio, _ALIKE)

    pairs = []
    for second in range(min(least, decode, most - 1), min(decode, most - 1) + 1):
        even = second * prefill / decode
        # The fewest that are alike, and the nearest on either side.
        nearest = (ceil(even / _ALIKE), floor(even), ceil(even))
        pairs += [(max(1, min(first, prefill, most - second)), second) for first in nearest]
    found = min(pairs, key=lambda pair: (mismatch(pair), sum(pair)))
    share = max(part / whole for part, whole in zip(found, counts, strict=True))
    return PoolGroup(*found, share=share, is_alike=mismatch(found) == _ALIKE)


def transfer_ends_s(ready_s: Floats, duration_s: Floats, *, sender: Ints) -> Floats:
    """When each transfer ends if every sender sends one after the other, first ready first served [s]. ``end_i =
    max(end_before, ready_i) + duration_i``, as running maxima of ready times less the work before them."""
    ends_s = np.empty_like(ready_s)
    for one in np.unique(sender):
        own = np.flatnonzero(sender == one)
        own = own[np.argsort(ready_s[own], kind="stable")]
        work_s = np.cumsum(duration_s[own])
        ends_s[own] = work_s + np.maximum.accumulate(ready_s[own] - (work_s - duration_s[own]))
    return ends_s


def shown_transfer_s(transfer_s: float, *, prompt_s: float, layers: int) -> float:
    """What of a cache's transfer is left when its prompt is done, sent layer by layer [s].

    Equation
    --------
    s = max(t / L, t - p (L - 1) / L)

    Parameters
    ----------
    transfer_s : the whole cache over the link t [s]
    prompt_s : computation of the prompt p [s]
    layers : layers L of equal time and equal cache [-]

    Range of validity
    -----------------
    Each layer's cache sets out when the layer is done, so that the last one's is never hidden. Leaves out the set-up
    of each transfer (``HAND_OVER_S``).

    References
    ----------
    [Patel2024a] section 4.2, optimised KV-cache transfer.

    Examples
    --------
    >>> shown_transfer_s(0.2, prompt_s=1.0, layers=10)
    0.02
    """
    return max(transfer_s / layers, transfer_s - prompt_s * (layers - 1) / layers)


def token_transfer_s(
    prefill: Pool, decode: Pool, *, link_bytes_per_s: float, transfer: TransferOrder, prompt_tokens: int
) -> float:
    """Time that moving one token's KV cache adds to its prompt [s]: all devices at once, the side with more of it on
    each sets the pace. ``prompt_tokens`` is the length at which the time of a prompt is taken."""
    each = (memory_plan(pool.deployment).kv_bytes_per_token for pool in (prefill, decode))
    token_s = max(each) / link_bytes_per_s
    if transfer == "after_prefill":
        return token_s
    prompt = estimate_step(prefill.deployment, prefill_step(sequences=1, tokens=prompt_tokens))
    layers = prefill.deployment.model.num_hidden_layers
    return shown_transfer_s(token_s, prompt_s=float(prompt.step_s[0]) / prompt_tokens, layers=layers)


def _link_place(link: str | None, *, scale_up: LinkSpec, server: ServerSpec | None, field: str) -> str | None:
    """``scale_up`` or ``nic`` for a link by its place or its own name, refused where the servers have no such link."""
    if link is None or link in ("scale_up", "nic"):
        return link
    kinds = {link_word(scale_up.kind): "scale_up"} | ({} if server is None else {link_word(server.nic.kind): "nic"})
    place = kinds.get(link_word(link))
    if place is None:
        raise RoofcastError(
            f"{link!r} does not join these pools; their servers have {' and '.join(kinds)}",
            field=field,
            code="unsupported_option",
            hint=f"scale_up, nic, {', '.join(kinds)}, or leave it out for the faster one that reaches",
        )
    return place


def transfer_link(
    prefill: Pool, decode: Pool, *, link: str | None, server: ServerSpec | None, field: str = "disaggregation.link"
) -> tuple[str, float]:
    """Name and bandwidth per device and direction [bytes/s] of the link between the pools."""
    scale_up, ends = prefill.deployment.hardware.scale_up, [pool.deployment.hardware.name for pool in (prefill, decode)]
    link = _link_place(link, scale_up=scale_up, server=server, field=field)
    inside = ends[0] == ends[1] and prefill.devices + decode.devices <= scale_up.domain_size
    if link == "scale_up" and ends[0] != ends[1]:
        raise RoofcastError(
            f"{ends[0]} and {ends[1]} share no {scale_up.kind} domain",
            field=field,
            code="unsupported_option",
            hint="nic, where both are in servers with a profile",
        )
    if link == "scale_up" and not inside:
        raise RoofcastError(
            f"{prefill.devices + decode.devices} devices do not fit a {scale_up.kind} domain of {scale_up.domain_size}",
            field=field,
            hint="nic, or fewer replicas",
        )
    if link == "scale_up" or (link is None and inside):
        return scale_up.kind, scale_up.bytes_per_s_per_direction
    if server is None:
        raise RoofcastError(
            f"no server profile for {' or '.join(dict.fromkeys(ends))} says what network it has",
            field=field,
            hint="scale_up within one domain, or a server profile",
        )
    return server.nic.kind, _network_bytes_per_s(server)


def _network_bytes_per_s(server: ServerSpec) -> float:
    """What each accelerator has of its server's network cards, in either direction [bytes/s]."""
    share = server.nics_per_server / server.accelerators_per_server
    return server.nic.bytes_per_s_per_direction * min(share, 1.0)


def unlike_vendors(prefill: AcceleratorSpec, decode: AcceleratorSpec, *, sent: str = "KV caches") -> str:
    """Why nothing goes from one accelerator to another of another vendor; empty where both have the same."""
    if prefill.vendor == decode.vendor:
        return ""
    ends = f"{prefill.name} ({prefill.vendor}) to {decode.name} ({decode.vendor})"
    return f"no release of an engine is known to send {sent} from {ends}"


def slower_network(*servers: ServerSpec | None) -> ServerSpec | None:
    """The server that sets the pace of a transfer between both; None where one of them is not known."""
    known = [server for server in servers if server is not None]
    return min(known, key=_network_bytes_per_s) if len(known) == len(servers) else None
