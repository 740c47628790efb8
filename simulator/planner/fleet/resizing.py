"""Devices of a fleet whose replicas stay what they are while demand, step times or spares change; all as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.planner.fleet.fleet import Sized, fill_servers, pack
from simulator.planner.serving.limits import operating_steps

Array = NDArray[np.float64]
# As in ``replicas_for``: exact multiples need no extra replica.
_ROUNDING = float(np.sqrt(np.finfo(np.float64).eps))


def _carrying(rate_per_s: ArrayLike, capacity_per_s: ArrayLike) -> Array:
    needed = np.asarray(rate_per_s, dtype=np.float64) / np.asarray(capacity_per_s, dtype=np.float64)
    whole: Array = np.maximum(np.ceil(needed * (1 - _ROUNDING)), 1.0)
    return whole


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondPool:
    """Replicas of a prefill pool beside those of the decode pool; ``devices`` of one of them.

    capacity_per_s : of one of its replicas; per_replica : as planned, beside each replica of the decode pool
    shares_servers : whether both kinds fill common servers without gaps, server_devices : of one server
    """

    capacity_per_s: float
    per_replica: float
    devices: int
    spares: int
    shares_servers: bool
    server_devices: int

    def planned_beside(self, replicas: Array) -> Array:
        """Replicas without spares beside so many of the decode pool, in the planned proportion."""
        planned: Array = np.ceil(replicas * self.per_replica * (1 - _ROUNDING))
        return planned

    def beside(self, replicas: Array, own_devices: Array) -> Array:
        """Devices of both pools, given this pool's replicas without spares and the decode pool's devices."""
        devices: Array = (replicas + self.spares) * self.devices
        if not self.server_devices:
            return own_devices + devices
        if self.shares_servers:
            both: Array = np.ceil((own_devices + devices) / self.server_devices) * self.server_devices
            return both
        apart: Array = np.ceil(devices / self.server_devices) * self.server_devices
        return own_devices + apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Resizer:
    """What turns rates into devices and money for one kind of replica.

    per_server : replicas that share a server, 0 where single devices are bought; server_devices : of one server,
    or of the servers that one replica spans; log_sigma : spread of its step times
    """

    capacity_per_s: float
    devices_per_replica: int
    spares: int
    per_server: int
    server_devices: int
    price_per_hour: float | None
    log_sigma: float
    prefill: SecondPool | None = None

    def replicas(self, rate_per_s: ArrayLike, *, capacity_factor: ArrayLike = 1.0) -> Array:
        """Replicas that carry each rate, at least one, without spares."""
        return _carrying(rate_per_s, self.capacity_per_s * np.asarray(capacity_factor))

    def devices_for(
        self, rate_per_s: ArrayLike, *, capacity_factor: ArrayLike = 1.0, prefill_factor: ArrayLike | None = None
    ) -> Array:
        """Devices that carry each rate with their spares; each of two pools is sized for it on its own.

        capacity_factor : of what a replica carries; prefill_factor : of the other pool, where it is not the same
        """
        replicas = self.replicas(rate_per_s, capacity_factor=capacity_factor)
        if self.prefill is None:
            return self.devices(replicas)
        factor = np.asarray(capacity_factor if prefill_factor is None else prefill_factor)
        first = _carrying(rate_per_s, self.prefill.capacity_per_s * factor)
        return self._with_prefill(replicas + self.spares, first, pool=self.prefill)

    def carried(self, rate_per_s: ArrayLike, *, capacity_factor: ArrayLike, replicas: int) -> NDArray[np.bool_]:
        """Whether the planned replicas, ``replicas`` of the decode pool, carry each rate without their spares."""
        enough: NDArray[np.bool_] = self.replicas(rate_per_s, capacity_factor=capacity_factor) <= replicas
        if self.prefill is None:
            return enough
        first = _carrying(rate_per_s, self.prefill.capacity_per_s * np.asarray(capacity_factor))
        return enough & (first <= self.prefill.planned_beside(np.asarray(replicas, dtype=np.float64)))

    def slacks(self, rate_per_s: float, *, replicas: int) -> tuple[float, ...]:
        """Capacity of the planned replicas over a rate, of the decode pool first where there are two."""
        own = replicas * self.capacity_per_s / rate_per_s
        if self.prefill is None:
            return (own,)
        first = float(self.prefill.planned_beside(np.asarray(replicas, dtype=np.float64)))
        return (own, first * self.prefill.capacity_per_s / rate_per_s)

    def _with_prefill(self, total: Array, first: Array, *, pool: SecondPool) -> Array:
        own: Array = total * self.devices_per_replica
        if not pool.shares_servers and self.per_server:
            own = np.ceil(total / self.per_server) * self.server_devices
        return pool.beside(first, own)

    def devices(self, replicas: ArrayLike, *, spares: int | None = None) -> Array:
        """Devices of that many replicas with their spares, in whole servers where those are bought."""
        total = np.asarray(replicas, dtype=np.float64) + (self.spares if spares is None else spares)
        if self.prefill is not None:
            first = self.prefill.planned_beside(np.asarray(replicas, dtype=np.float64))
            return self._with_prefill(total, first, pool=self.prefill)
        if not self.per_server:
            return total * self.devices_per_replica
        return np.ceil(total / self.per_server) * self.server_devices


def _second_pool(sized: Sized) -> SecondPool | None:
    pool, first = sized.prefill, sized.evaluated.prefill
    if pool is None or first is None:
        return None
    devices = (first.replica.devices, sized.evaluated.replica.devices)
    in_server = 0
    if sized.packing.servers is not None and sized.server is not None:
        in_server = sized.server.accelerators_per_server
    return SecondPool(
        capacity_per_s=first.replica.capacity_per_s,
        per_replica=pool.replicas / sized.replicas,
        devices=devices[0],
        spares=pool.spares,
        shares_servers=bool(in_server) and fill_servers(devices, devices_per_server=in_server),
        server_devices=in_server,
    )


def resizer(sized: Sized) -> Resizer:
    """The numbers of a sized fleet that stay when its demand changes."""
    replica = sized.evaluated.replica
    per_server, server_devices = 0, 0
    if sized.packing.servers is not None and sized.server is not None:
        in_server = sized.server.accelerators_per_server
        per_server = max(1, in_server // replica.devices)
        one = pack(replicas=1, devices_per_replica=replica.devices, devices_per_server=in_server)
        server_devices = (one.servers or 1) * in_server
    return Resizer(
        capacity_per_s=replica.capacity_per_s,
        devices_per_replica=replica.devices,
        spares=sized.spares,
        per_server=per_server,
        server_devices=server_devices,
        price_per_hour=sized.cost.per_device_hour,
        log_sigma=operating_steps(sized.evaluated).log_sigma,
        prefill=_second_pool(sized),
    )
