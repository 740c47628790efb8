"""Pools of replicas, and the link between two of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.errors import RoofcastError
from simulator.phases.deployment import Deployment
from simulator.records import dataclass
from simulator.specs.hardware.accelerator import LinkSpec, ServerSpec
from simulator.specs.spellings import link_word

if TYPE_CHECKING:
    from simulator.engine.uniform.steps import PhaseEstimate
    from simulator.phases.compiled import StepTables


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Replicas of one deployment; ``tables`` of its steps, where the caller has them already."""

    deployment: Deployment
    replicas: int
    tables: tuple[StepTables, ...] | None = None

    @property
    def devices(self) -> int:
        """Accelerators of the pool."""
        return self.replicas * self.deployment.parallelism.devices

    def power_w(self, phase: PhaseEstimate, *, busy_fraction: float) -> float:
        """Mean power of all devices while they run the steps of ``phase`` for that share of the time [W]."""
        from simulator.phases.power import average_power_w

        steps = ((phase.weights, phase.estimate),)
        return self.replicas * average_power_w(self.deployment, phases=steps, busy_fraction=busy_fraction)


def _link_place(link: str | None, *, scale_up: LinkSpec, server: ServerSpec | None) -> str | None:
    """``scale_up`` or ``nic`` for a link by its place or its own name, refused where the servers have no such link."""
    if link is None or link in ("scale_up", "nic"):
        return link
    kinds = {link_word(scale_up.kind): "scale_up"} | ({} if server is None else {link_word(server.nic.kind): "nic"})
    place = kinds.get(link_word(link))
    if place is None:
        raise RoofcastError(
            f"{link!r} does not join these pools; their servers have {' and '.join(kinds)}",
            field="disaggregation.link",
            code="unsupported_option",
            hint=f"scale_up, nic, {', '.join(kinds)}, or leave it out for the faster one that reaches",
        )
    return place


def transfer_link(prefill: Pool, decode: Pool, *, link: str | None, server: ServerSpec | None) -> tuple[str, float]:
    """Name and bandwidth per device and direction [bytes/s] of the link between the pools."""
    scale_up = prefill.deployment.hardware.scale_up
    link = _link_place(link, scale_up=scale_up, server=server)
    inside = prefill.devices + decode.devices <= scale_up.domain_size
    if link == "scale_up" and not inside:
        raise RoofcastError(
            f"{prefill.devices + decode.devices} devices do not fit a {scale_up.kind} domain of {scale_up.domain_size}",
            field="disaggregation.link",
            hint="nic, or fewer replicas",
        )
    if link == "scale_up" or (link is None and inside):
        return scale_up.kind, scale_up.bytes_per_s_per_direction
    if server is None:
        raise RoofcastError(
            f"no server profile for {prefill.deployment.hardware.name} says what network it has",
            field="disaggregation.link",
            hint="scale_up within one domain, or a server profile",
        )
    share = server.nics_per_server / server.accelerators_per_server
    return server.nic.kind, server.nic.bytes_per_s_per_direction * min(share, 1.0)
