"""The tiers of a deployment with the rates of their links, which profiles know where nobody gave them."""

from __future__ import annotations

from simulator.errors import RoofcastError
from simulator.records import dataclass
from simulator.specs.base import Assumption, Note, ValueOrigin
from simulator.specs.engine.deployment import KvTierSpec, Medium, ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import AcceleratorSpec, default_server_for
from simulator.units import counted_text


@dataclass(frozen=True, slots=True, kw_only=True)
class KvTier:
    """capacity_bytes : of a replica; device_bytes_per_s : what one accelerator gets of it [bytes/s]; latency_s : before
    the first block comes [s]; link : what its rate is that of, where nobody gave it"""

    medium: Medium
    capacity_bytes: float
    device_bytes_per_s: float
    latency_s: float
    link: str | None = None


def kv_tiers(
    spec: EngineSpec,
    prefix_caching: bool,
    *,
    hardware: AcceleratorSpec,
    parallelism: ParallelismSpec,
    profiles: str | None = None,
) -> tuple[KvTier, ...]:
    """The tiers of ``engine.kv_tiers``, refused where prompts look for nothing in a cache. Every device moves its own
    part of a block, all at once. What lies below host memory passes the host link too, so that no tier is faster than
    that."""
    _check(spec, prefix_caching=prefix_caching)
    tiers, devices = spec.kv_tiers or (), parallelism.devices
    return tuple(_tier(tier, hardware=hardware, devices=devices, profiles=profiles) for tier in tiers)


def _tier(spec: KvTierSpec, *, hardware: AcceleratorSpec, devices: int, profiles: str | None) -> KvTier:
    host = hardware.host_link
    rate, link = host.bytes_per_s_per_direction, host.kind
    if spec.bytes_per_s is not None:
        rate, link = spec.bytes_per_s / devices, ""
    elif spec.medium == "remote":
        nic = default_server_for(hardware.name, profiles=profiles).network
        if nic.bytes_per_s_per_direction < rate:
            rate, link = nic.bytes_per_s_per_direction, nic.kind
    if rate > host.bytes_per_s_per_direction:
        most = host.bytes_per_s_per_direction * devices
        omit = "" if spec.medium == "nvme" else ", or leave it out for the rate of the links"
        raise RoofcastError(
            f"{spec.medium} with bytes_per_s={spec.bytes_per_s:.3g} into {counted_text(devices, 'device')}, whose host "
            f"links ({host.kind}), which every tier passes, carry {most:.3g}",
            field="engine.kv_tiers",
            code="out_of_range",
            hint=f"bytes_per_s of at most {most:.3g}{omit}",
        )
    return KvTier(
        medium=spec.medium,
        capacity_bytes=spec.capacity_bytes,
        device_bytes_per_s=rate,
        latency_s=spec.latency_s,
        link=link or None,
    )


def _check(spec: EngineSpec, *, prefix_caching: bool) -> None:
    """Refuse host memory that is given twice, a size of none, and tiers whose blocks no prompt looks for."""
    if spec.cpu_kv_offload_bytes is not None and not spec.cpu_kv_offload:
        raise RoofcastError(
            "has no effect without engine.cpu_kv_offload", field="engine.cpu_kv_offload_bytes", code="ignored_option"
        )
    if spec.cpu_kv_offload and spec.kv_tiers:
        raise RoofcastError(
            "host memory is a tier of engine.kv_tiers, or cpu_kv_offload alone",
            field="engine.cpu_kv_offload",
            code="contradiction",
            hint="leave it out and write kv_tiers=host:BYTES",
        )
    if not prefix_caching:
        raise RoofcastError(
            "has no effect without engine.prefix_caching",
            field="engine.kv_tiers" if spec.kv_tiers else "engine.cpu_kv_offload",
            code="ignored_option",
            hint="leave it out, or turn prefix_caching on where the model and engine have it",
        )


def tier_assumptions(spec: EngineSpec, tiers: tuple[KvTier, ...]) -> tuple[Assumption, ...]:
    """The size of host memory where nobody gave it, and rates that were taken from profiles."""
    if spec.cpu_kv_offload and spec.cpu_kv_offload_bytes is None:
        return (Assumption(key="engine.cpu_kv_offload_bytes"),)
    return tuple(
        Assumption(
            key=f"engine.kv_tiers.{tier.medium}.bytes_per_s",
            value=f"{tier.device_bytes_per_s:.3g}",
            origin=ValueOrigin.RULE,
            detail=Note("over_link", {"link": tier.link}),
        )
        for tier in tiers
        if tier.link is not None
    )
