"""One forward pass: the operator list, priced and summed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from simulator.kernels.format_choice import SPARSE_ON_TENSOR_CORES
from simulator.kernels.library import KernelLibrary
from simulator.kernels.roofline import BOUNDS, HOST, bound_indices, floor_seconds
from simulator.kernels.step_rows import launches_of
from simulator.kernels.timing import Provenance, Timing
from simulator.operators.transformer import MadeRows
from simulator.operators.work import Array, CollectiveShape, Family, HostTransferShape, StepShape, Work
from simulator.phases.deployment import Deployment
from simulator.records import dataclass
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.architecture import ModelSpec
from simulator.techniques.applied import device_rows

# A part below this share of a step cannot make the whole less well known than its main parts.
PROVENANCE_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One row of the operator list of a pipeline ``stage`` with the price of one execution, and the ``seconds`` that
    all its executions in the step are expected to take [s]."""

    stage: int
    work: Work
    timing: Timing
    seconds: Array = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", self.work.count * self.work.executed * self.timing.seconds)

    @property
    def flops(self) -> Array:
        """FLOPs of all executions, as priced [FLOPs]."""
        return self.work.count * self.work.flops

    @property
    def bytes(self) -> Array:
        """Bytes that all executions move over device memory, or as messages [bytes]."""
        return self.work.count * self.work.bytes

    def floor_s(self, hardware: AcceleratorSpec) -> Array | None:
        """The roofline's time of all executions; None of what moves over links [s]."""
        if isinstance(self.work.shape, CollectiveShape | HostTransferShape):
            return None
        return self.work.count * floor_seconds(self.work, hardware=hardware)

    def working_s(self, part_s: Array) -> Array:
        """Time of all executions in which a unit works ``part_s`` of each, at most the whole of it [s]."""
        return self.work.count * self.work.executed * np.minimum(part_s, self.timing.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEstimate:
    """A priced step; every array has one entry per case of the StepShape.

    rows : operator rows of all pipeline stages; their seconds and ``host_s`` add up to ``step_s``
    stage_s : time of each pipeline stage [stages, cases] [s]
    host_s : engine time that the device waits for [s]
    outrun : whether the device finished before the host had issued the step, whose pace is then the host's
    model, step, replicas : what was computed, by as many attention ranks; ranks_in_step : of them that share experts
    draft_s : time of a round of speculation outside this step [s]; None where the step is all there is
    """

    rows: tuple[StepRow, ...]
    stage_s: Array
    host_s: Array
    outrun: NDArray[np.bool_]
    model: ModelSpec
    step: StepShape
    replicas: int
    ranks_in_step: int
    devices: int
    hardware: AcceleratorSpec
    peak_flops_per_s: float
    peak_bytes_per_s: float
    draft_s: Array | None = None

    @property
    def step_s(self) -> Array:
        """Latency of one step through all stages, drafting included [s]."""
        total: Array = self.stage_s.sum(axis=0) + self.host_s
        return total if self.draft_s is None else total + self.draft_s

    @property
    def interval_s(self) -> Array:
        """Time between steps when every pipeline stage is kept busy [s]."""
        slowest: Array = self.stage_s.max(axis=0) + self.host_s
        return slowest if self.draft_s is None else slowest + self.draft_s

    @property
    def breakdown_s(self) -> Mapping[str, Array]:
        """Seconds by operator family, "host" and, with speculation, "draft"; they add up to ``step_s``."""
        parts: dict[str, Array] = {}
        for row in self.rows:
            family = row.work.family.value
            parts[family] = parts.get(family, np.zeros_like(self.host_s)) + row.seconds
        parts["host"] = self.host_s
        if self.draft_s is not None:
            parts["draft"] = self.draft_s
        return parts

    @property
    def model_flops(self) -> Array:
        """Useful FLOPs of the step over all devices, worked out when asked for: the model's, or what runs of them where
        a technique leaves work out."""
        from simulator.operators.model_counts import model_flops

        on_device = sum(row.work.count * row.work.executed * row.work.flops for row in self.rows)
        run: Array = np.asarray(on_device * (self.devices / len(self.stage_s)))
        return np.minimum(model_flops(self.model, self.step) * self.replicas, run)

    @property
    def mfu(self) -> Array:
        """Model FLOPs utilisation: useful FLOPs over what the devices could do in the step [-].

        Equation
        --------
        MFU = model FLOPs / (t x devices x P)

        Parameters
        ----------
        self : model_flops of the step [FLOP], step_s t [s], devices [-], peak_flops_per_s P of one device [FLOP/s]

        Range of validity
        -----------------
        Dense peak of the layers' products. Model FLOPs count no recomputation, no padding, no rejected guess and
        nothing that a technique leaves out.

        References
        ----------
        [Chowdhery2022]

        Examples
        --------
        1 TFLOP in 10 ms on two devices of 1 PFLOP/s.

        >>> from types import SimpleNamespace as Record
        >>> StepEstimate.mfu.fget(Record(model_flops=1e12, step_s=0.01, devices=2, peak_flops_per_s=1e15))
        0.05
        """
        return self.model_flops / (self.step_s * self.devices * self.peak_flops_per_s)

    @property
    def read_bytes(self) -> Array:
        """Weight and KV bytes that the devices of one tensor-parallel rank read in the step [bytes]."""
        total = np.zeros_like(self.host_s)
        for row in self.rows:
            total = total + row.work.count * row.work.executed * (row.work.weight_bytes + row.work.kv_bytes)
        return total

    @property
    def mbu(self) -> Array:
        """Memory bandwidth utilisation: weights and cache read over what the memory could deliver in the step [-].

        Equation
        --------
        MBU = (weight bytes + KV bytes) / (t x W)

        Parameters
        ----------
        self : read_bytes of the step [bytes], step_s t [s], peak_bytes_per_s W [bytes/s]

        Range of validity
        -----------------
        Datasheet bandwidth. Leaves out activations, temporaries and repeated reads, which are not useful.

        References
        ----------
        [Databricks2023]

        Examples
        --------
        16 GB in 10 ms at 3.2 TB/s.

        >>> from types import SimpleNamespace as Record
        >>> StepEstimate.mbu.fget(Record(read_bytes=16e9, step_s=0.01, peak_bytes_per_s=3.2e12))
        0.5
        """
        return self.read_bytes / (self.step_s * self.peak_bytes_per_s)

    @property
    def tensor_share(self) -> Array:
        """Share of the tensor units' peak that a device's products take, the padding of tiles too [-]."""
        return sum((row.working_s(row.timing.tensor_s) for row in self.rows), 0 * self.host_s) / self.step_s

    @property
    def memory_share(self) -> Array:
        """Share of the step in which a device's memory works, at the rate that its kernels reach [-]."""
        return sum((row.working_s(row.timing.memory_s) for row in self.rows), 0 * self.host_s) / self.step_s

    @property
    def bound(self) -> tuple[str, ...]:
        """What most of each case's time waits for: one of BOUNDS."""
        waits = bound_indices([(row.work, row.timing) for row in self.rows], hardware=self.hardware)
        seconds = np.array([row.seconds for row in self.rows])
        shares = np.array([np.where(waits == place, seconds, 0.0).sum(axis=0) for place in range(len(BOUNDS))])
        shares[BOUNDS.index(HOST)] += self.host_s
        shares[BOUNDS.index(HOST), self.outrun] = np.inf
        return tuple(map(BOUNDS.__getitem__, np.argmax(shares, axis=0)))

    @property
    def log_sigma(self) -> Array:
        """Standard deviation of log(measured / predicted) of the step. Errors within an operator family are taken as
        common to its rows, those of families as independent."""
        by_family: dict[Family, Array | float] = {}
        for row in self.rows:
            by_family[row.work.family] = by_family.get(row.work.family, 0.0) + row.seconds * row.timing.log_sigma
        return np.sqrt(sum((spread**2 for spread in by_family.values()), 0 * self.host_s)) / self.step_s

    @property
    def provenance(self) -> Array:
        """Worst provenance among the operators that matter (at least 5 % of the step, over all stages)."""
        seconds, known = dict[str, Array | float](), dict[str, Array]()
        for row in self.rows:
            name = row.work.name
            seconds[name] = seconds.get(name, 0.0) + row.seconds
            of_row = np.where(row.seconds > 0, row.timing.provenance, 0.0)
            known[name] = np.maximum(known[name], of_row) if name in known else of_row
        matters = np.array(list(seconds.values())) >= PROVENANCE_SHARE * self.step_s
        worst: Array = np.where(matters, list(known.values()), 0.0).max(axis=0)
        return np.maximum(worst, float(Provenance.CALIBRATED))


def mfu_peak_flops_per_s(deployment: Deployment) -> float:
    """The peak that MFU refers to: of the layers' matrix products, whose FLOPs count dense. Sparse units, which skip
    half of them, have a peak of their own."""
    product, hardware = deployment.plan.format_for("mlp"), deployment.hardware
    dense = hardware.peak_flops_per_s[product.math]
    if product.sparsity == SPARSE_ON_TENSOR_CORES:
        return hardware.sparse_peak_flops_per_s.get(product.math, dense)
    return dense


def scheduling_s(deployment: Deployment, step: StepShape) -> Array:
    """Engine time of a step whatever it launches [s]."""
    overheads = deployment.engine.overheads
    sequences = step.prefill_sequences + step.decode_sequences
    host_s = overheads.step_s + overheads.step_per_sequence_s * sequences
    return host_s + overheads.step_per_prompt_s * step.prefill_sequences + sampling_s(deployment, step.logits_tokens)


SORTED_ONE_BY_ONE = 128
"""Rows up to which PyTorch sorts each by kernels of its own [VllmSampler2026] (from memory, verify)."""


def sampling_s(deployment: Deployment, rows: Array) -> Array:
    """What drawing tokens from a nucleus adds to a step whose LM head has that many rows [s].

    Notes
    -----
    V x max(t min(n, 128), n min(t, b / B)) with V logits, n rows; t : sampled_logit_s, launches and short kernels,
    which no device shortens; b : sampled_bytes_per_logit at the memory's B. Greedy tokens cost nothing beside the LM
    head. Rows that are sorted together take no less than 128 of them alone. Left out: a limit to the k likeliest alone.

    References
    ----------
    [VllmSampler2026]
    """
    engine = deployment.engine
    alone_s = engine.overheads.sampled_logit_s
    together_s = min(alone_s, engine.overheads.sampled_bytes_per_logit / deployment.hardware.memory_bytes_per_s)
    longest: Array = np.maximum(alone_s * np.minimum(rows, SORTED_ONE_BY_ONE), together_s * rows)
    return engine.sampled_logits * longest


def issuing_s(deployment: Deployment, *, works: Iterable[Work], device_s: Array) -> Array:
    """What issuing the kernels of a step takes beyond the device's own time [s].

    Equation
    --------
    t = max(0, launches x eager_launch_s - device time), nothing where a graph holds the launches

    Parameters
    ----------
    deployment : the engine's fitted overheads [s]
    works, device_s : rows whose kernels the host launches, and what the device takes for them [s]

    Range of validity
    -----------------
    Engines without CUDA graphs: the host runs ahead, so that only what exceeds the device's own time shows. Leaves out
    work of the host that overlaps with the device.

    References
    ----------
    [Ansel2024]

    Examples
    --------
    32 launches of 10 us beside 0.2 ms of the device.

    >>> from types import SimpleNamespace as Record
    >>> engine = Record(issues_kernels=True, overheads=Record(eager_launch_s=1e-5))
    >>> rows = [Record(count=32, shape=None, executed=1.0)]
    >>> round(float(issuing_s(Record(engine=engine), works=rows, device_s=np.array(2e-4))), 6)
    0.00012
    """
    if not deployment.engine.issues_kernels:
        return np.zeros_like(device_s)
    launches = sum(work.count * launches_of(work) * work.executed for work in works)
    return np.maximum(deployment.engine.overheads.eager_launch_s * launches - device_s, 0.0)


def estimate_step(deployment: Deployment, step: StepShape) -> StepEstimate:
    """Price ``step`` on every pipeline stage of ``deployment``. Stages run one after another for one step (a pipeline
    overlaps different steps, not one with itself)."""
    (estimate,) = estimate_steps(((deployment, step),))
    return estimate


def estimate_steps(asked: Sequence[tuple[Deployment, StepShape]]) -> tuple[StepEstimate, ...]:
    """``estimate_step`` of several deployments; those that share kernels are priced together."""
    works = [stage_rows(deployment, step, stages=range(deployment.parallelism.pp_size)) for deployment, step in asked]
    timings = _timings_of([deployment.kernels for deployment, _ in asked], works)
    return tuple(
        _estimate(deployment, step, works=placed, timings=priced)
        for (deployment, step), placed, priced in zip(asked, works, timings, strict=True)
    )


def stage_rows(deployment: Deployment, step: StepShape, *, stages: Iterable[int]) -> list[tuple[int, Work]]:
    """Rows of one device of each of these pipeline stages, with the stage; as many equal layers are the same rows."""
    made: MadeRows = {}
    return [
        (stage, work)
        for stage in stages
        for work in device_rows(
            deployment.techniques,
            parallelism=deployment.parallelism,
            step=step,
            stage=stage,
            fused=not deployment.engine.eager,
            made=made,
        )
    ]


def _timings_of(
    kernels: Sequence[KernelLibrary], works: Sequence[Sequence[tuple[int, Work]]]
) -> list[tuple[Timing, ...]]:
    """Prices of each list of rows under its kernels, in one call for all that have the same. A row that several stages
    share is priced once."""
    timings: list[tuple[Timing, ...]] = [()] * len(works)
    left = list(range(len(works)))
    while left:
        same = [place for place in left if kernels[place] == kernels[left[0]]]
        together = {id(work): work for place in same for _, work in works[place]}
        priced = dict(zip(together, kernels[left[0]].price_all(list(together.values())), strict=True))
        for place in same:
            timings[place] = tuple(priced[id(work)] for _, work in works[place])
        left = [place for place in left if place not in same]
    return timings


def _estimate(
    deployment: Deployment, step: StepShape, *, works: Sequence[tuple[int, Work]], timings: Sequence[Timing]
) -> StepEstimate:
    rows = tuple(
        StepRow(stage=stage, work=work, timing=timing) for (stage, work), timing in zip(works, timings, strict=True)
    )
    stage_s = np.zeros((deployment.parallelism.pp_size, len(step.new_tokens)))
    for row in rows:
        stage_s[row.stage] += row.seconds
    waiting_s = issuing_s(deployment, works=(row.work for row in rows), device_s=stage_s.sum(axis=0))
    return StepEstimate(
        rows=rows,
        stage_s=stage_s,
        host_s=scheduling_s(deployment, step) + waiting_s,
        outrun=waiting_s > 0,
        model=deployment.model,
        step=step,
        replicas=deployment.parallelism.dp_size,
        ranks_in_step=deployment.parallelism.ranks_in_step if deployment.parallelism.pp_size == 1 else 1,
        devices=deployment.parallelism.devices,
        hardware=deployment.hardware,
        peak_flops_per_s=mfu_peak_flops_per_s(deployment),
        peak_bytes_per_s=deployment.hardware.memory_bytes_per_s,
    )


GRAPH_STEPS = ((0, 1), (2, 2), (4, 8), (256, 16))
"""Sizes at which vLLM captures CUDA graphs by default (its cudagraph_capture_sizes): above each first number multiples
of the second. Other engines are taken to do likewise."""


def graph_tokens(tokens: Array, *, largest: int, steps: Sequence[tuple[int, int]] = GRAPH_STEPS) -> Array:
    """Tokens that are computed: those of the smallest CUDA graph that holds the step; its own beyond the largest."""
    padded = tokens
    for above, step in steps:
        padded = np.where(tokens > above, np.ceil(tokens / step) * step, padded)
    return np.where((tokens > 0) & (padded <= largest), padded, tokens)
