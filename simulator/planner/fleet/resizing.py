"""A sized fleet at other rates: replicas, devices and cost as arrays, without evaluating a deployment again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.planner.fleet.fleet import Sized
from simulator.planner.fleet.records import fill_servers
from simulator.planner.serving.shapes import ROUNDING, operating_steps
from simulator.records import dataclass

Array = NDArray[np.float64]


def _carrying(rate_per_s: ArrayLike, capacity_per_s: ArrayLike) -> Array:
    needed = np.asarray(rate_per_s, dtype=np.float64) / np.asarray(capacity_per_s, dtype=np.float64)
    return np.maximum(np.ceil(needed * (1 - ROUNDING)), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizedPart:
    """Replicas of one part of a fleet.

    capacity_per_s, devices : of one replica; server_devices : of the server that it is bought in, 0 for single devices
    per_replica : planned replicas of this part for each replica of the last part
    """

    capacity_per_s: float
    devices: int
    spares: int
    hardware: str = ""
    server_devices: int = 0
    per_replica: float = 1.0

    def beside(self, replicas: ArrayLike) -> Array:
        """Replicas, without spares, that go with ``replicas`` of the last part in the planned proportion."""
        return np.ceil(np.asarray(replicas, dtype=np.float64) * self.per_replica * (1 - ROUNDING))

    def alone(self, total: Array) -> Array:
        """Devices of so many replicas in servers of their own."""
        if not self.server_devices:
            return total * self.devices
        per_server = max(1, self.server_devices // self.devices)
        servers: Array = np.ceil(total / per_server) * -(-self.devices // self.server_devices)
        return servers * self.server_devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Resizer:
    """Numbers of a sized fleet from which its devices and cost follow at any rate.

    price_per_hour : of an accelerator, on average where they are of two kinds
    log_sigma : standard deviation of log(step time); step_margin : planned over predicted step time
    """

    parts: tuple[ResizedPart, ...]
    price_per_hour: float | None
    log_sigma: float
    step_margin: float = 1.0

    @property
    def capacity_per_s(self) -> float:
        """Rate of a replica of the last part [1/s]."""
        return self.parts[-1].capacity_per_s

    def pace(self, deviates: Array) -> Array:
        """Capacity over the planned one where steps take ``deviates`` standard deviations longer than predicted."""
        return self.step_margin * np.exp(-self.log_sigma * deviates)

    def spare_devices(self, hardware: str) -> int:
        """Devices of the spares of the last part on a kind of accelerator."""
        last = [part for part in self.parts if part.hardware == hardware][-1]
        return last.spares * last.devices

    def replicas(self, rate_per_s: ArrayLike, *, capacity_factor: ArrayLike = 1.0) -> Array:
        """Replicas of the last part that carry each rate, at least one, without spares."""
        return _carrying(rate_per_s, self.capacity_per_s * np.asarray(capacity_factor))

    def devices_for(
        self, rate_per_s: ArrayLike, *, capacity_factor: ArrayLike = 1.0, prefill_factor: ArrayLike | None = None
    ) -> Array:
        """Devices that carry each rate with their spares; each part is sized for it on its own.

        capacity_factor : of what a replica carries; prefill_factor : of a pool for prompts, where it is not the same
        """
        before = capacity_factor if prefill_factor is None else prefill_factor
        factors = [*[before] * (len(self.parts) - 1), capacity_factor]
        counts = [
            _carrying(rate_per_s, part.capacity_per_s * np.asarray(factor))
            for part, factor in zip(self.parts, factors, strict=True)
        ]
        return self.housed(counts)

    def carried(self, rate_per_s: ArrayLike, *, capacity_factor: ArrayLike, replicas: int) -> NDArray[np.bool_]:
        """Whether the planned replicas, ``replicas`` of the last part, carry each rate without their spares."""
        enough = [
            _carrying(rate_per_s, part.capacity_per_s * np.asarray(capacity_factor)) <= part.beside(replicas)
            for part in self.parts
        ]
        every: NDArray[np.bool_] = np.logical_and.reduce(enough)
        return every

    def slacks(self, rate_per_s: float, *, replicas: int) -> tuple[float, ...]:
        """Capacity of the planned replicas over a rate, of the last part first."""
        return tuple(float(part.beside(replicas)) * part.capacity_per_s / rate_per_s for part in reversed(self.parts))

    def devices(self, replicas: ArrayLike) -> Array:
        """Devices of that many replicas of the last part and of what stands beside them, with their spares."""
        return self.housed([part.beside(replicas) for part in self.parts])

    def housed(self, counts: Sequence[Array]) -> Array:
        """Devices of so many replicas of each part with their spares, in whole servers where those are bought."""
        every: Array = np.sum(list(self.housed_by_kind(counts).values()), axis=0)
        return every

    def housed_by_kind(self, counts: Sequence[Array]) -> dict[str, Array]:
        """``housed`` of each kind of accelerator: parts on one kind share servers where they fill them."""
        kinds: dict[str, list[tuple[ResizedPart, Array]]] = {}
        for part, count in zip(self.parts, counts, strict=True):
            kinds.setdefault(part.hardware, []).append((part, count + part.spares))
        return {hardware: _in_servers(members) for hardware, members in kinds.items()}

    def devices_by_kind(self, rate_per_s: ArrayLike) -> dict[str, Array]:
        """``devices_for`` of each kind of accelerator."""
        return self.housed_by_kind([_carrying(rate_per_s, part.capacity_per_s) for part in self.parts])


def _in_servers(members: Sequence[tuple[ResizedPart, Array]]) -> Array:
    """Devices of parts on one kind of accelerator, each with its replicas."""
    parts, size = [part for part, _ in members], members[0][0].server_devices
    if not size or not fill_servers([part.devices for part in parts], devices_per_server=size):
        alone: Array = np.sum([part.alone(total) for part, total in members], axis=0)
        return alone
    busy = np.sum([total * part.devices for part, total in members], axis=0)
    together: Array = np.ceil(busy / size) * size
    return together


def resizer(sized: Sized) -> Resizer:
    """The numbers of a sized fleet that do not depend on its demand."""
    servers = {
        item.hardware: item.server.accelerators_per_server if item.server and item.servers is not None else 0
        for item in sized.housing
    }
    parts = []
    for part, count, spares in zip(sized.evaluated.parts, sized.counts, sized.spare, strict=True):
        hardware = part.candidate.hardware
        parts.append(
            ResizedPart(
                capacity_per_s=part.replica.capacity_per_s,
                devices=part.replica.devices,
                spares=spares,
                hardware=hardware,
                server_devices=servers[hardware],
                per_replica=count / sized.replicas,
            )
        )
    return Resizer(
        parts=tuple(parts),
        price_per_hour=sized.cost.per_device_hour,
        log_sigma=operating_steps(sized.evaluated.parts[-1]).log_sigma,
        step_margin=sized.evaluated.replica.step_margin,
    )
