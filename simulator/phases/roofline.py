"""The roofline of a step: what each operator reaches of its device, and the least time that it could take."""

from __future__ import annotations

from collections.abc import Iterable
from math import nan

from simulator.kernels.roofline import floor_seconds
from simulator.kernels.timing import Provenance
from simulator.operators.work import CollectiveShape, HostTransferShape, Work
from simulator.phases.deployment import Deployment
from simulator.phases.step import StepEstimate
from simulator.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePoint:
    """One operator of one phase on one device: all its executions in a step.

    arithmetic_intensity : FLOPs per byte of device memory; flops_per_s : reached rate
    floor_s : the plain roofline, NaN for transfers between devices; share : of the step's time
    work : of one execution, the first of that name
    """

    phase: str
    name: str
    count: float
    flops: float
    bytes: float
    seconds: float
    floor_s: float
    share: float
    provenance: str
    work: Work

    @property
    def arithmetic_intensity(self) -> float:
        """FLOPs per byte; NaN for what moves no device memory."""
        return self.flops / self.bytes if self.bytes else nan

    @property
    def flops_per_s(self) -> float:
        """Reached rate [FLOP/s]."""
        return self.flops / self.seconds

    @property
    def bytes_per_s(self) -> float:
        """Reached rate of device memory [B/s]."""
        return self.bytes / self.seconds

    @property
    def title(self) -> str:
        """``gate_up_proj (decode)``: its name among all points."""
        return f"{self.name} ({self.phase})"


def roofline_points(
    phase: str, estimate: StepEstimate, *, deployment: Deployment, every: bool = False
) -> tuple[RooflinePoint, ...]:
    """Operators of the first case of ``estimate`` that compute and move memory, summed by name.

    every : also passes without FLOPs, and transfers between devices or with the host

    Reference: [Williams2009]
    """
    found: dict[str, RooflinePoint] = {}
    step_s = float(estimate.step_s[0])
    for row in estimate.rows:
        work = row.work
        transfer = isinstance(work.shape, CollectiveShape | HostTransferShape)
        if row.seconds[0] <= 0 or (not every and (transfer or work.flops[0] <= 0)):
            continue
        seconds, known = float(row.seconds[0]), found.get(work.name)
        floor_s = nan if transfer else work.count * float(floor_seconds(work, hardware=deployment.hardware)[0])
        found[work.name] = RooflinePoint(
            phase=phase,
            name=work.name,
            count=work.count + (known.count if known else 0.0),
            flops=work.count * float(work.flops[0]) + (known.flops if known else 0.0),
            bytes=work.count * float(work.bytes[0]) + (known.bytes if known else 0.0),
            seconds=seconds + (known.seconds if known else 0.0),
            floor_s=floor_s + (known.floor_s if known else 0.0),
            share=seconds / step_s + (known.share if known else 0.0),
            provenance=Provenance(int(row.timing.provenance[0])).label,
            work=known.work if known else work,
        )
    return tuple(sorted(found.values(), key=lambda point: -point.seconds))


def reached_share(points: Iterable[RooflinePoint]) -> float:
    """Time that the plain roofline of ``points`` allows over the time that they take; 1 is the roofline itself."""
    shown = tuple(points)
    return sum(point.floor_s for point in shown) / sum(point.seconds for point in shown)
