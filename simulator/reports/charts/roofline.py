"""The roofline: every operator of a step, its shape in words, against the ceilings of its device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log10

from simulator.kernels.roofline import math_dtype, ridge_point
from simulator.kernels.sustained import cache_rate
from simulator.operators.work import Array, AttentionShape, GemmShape, MoeShape, RecurrentShape, Work
from simulator.phases.deployment import Deployment
from simulator.phases.one_step import RooflinePoint, reached_share, roofline_points
from simulator.phases.step import StepEstimate
from simulator.reports.charts.chart import Annotation, Axis, Chart, Series, SeriesKind, apart, marks
from simulator.reports.content.quantities import bytes_text, percent_text, seconds_text
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.precision import Dtype
from simulator.units import TERA, format_si


def _first(values: Array) -> str:
    return f"{float(values[0]):,.0f}"


def shape_text(work: Work) -> str:
    """Shape of the first case on one device: ``m 32, n 8,192, k 28,672, bf16``; empty where only bytes matter."""
    match work.shape:
        case GemmShape(m=m, n=n, k=k, format=fmt, batch=batch):
            many = f"{batch:.0f} x " if batch > 1 else ""
            return f"{many}m {_first(m)}, n {n:,.0f}, k {k:,.0f}, {fmt.name}"
        case AttentionShape() as shape:
            queries = f"{_first(shape.sequences)} x {_first(shape.query_tokens)} queries"
            heads = f"{shape.num_heads:.3g} heads, {shape.num_kv_heads:.3g} KV heads of {shape.head_dim:.0f}"
            return f"{queries} on {_first(shape.context_tokens)} cached tokens, {heads}, {shape.kv_dtype.value} cache"
        case MoeShape() as shape:
            experts = f"{shape.num_experts_per_tok:.0f} of {shape.num_experts:.0f} experts"
            widths = f"{shape.hidden_size:,.0f} x {shape.intermediate_size:,.0f}"
            return f"{_first(shape.tokens)} tokens, {experts}, {widths}, {shape.format.name}"
        case RecurrentShape() as shape:
            sizes = f"{shape.num_heads:.0f} heads of {shape.head_dim:.0f}, state {shape.state_size:.0f}"
            return f"{shape.variant}, {_first(shape.sequences)} x {_first(shape.tokens)} tokens, {sizes}"
    return ""


_NAMED_SHARE = 0.05
"""Of the step, from which on an operator is named in the chart."""
_BELOW = 1.5
"""How far under its point a name stands, as a factor, on its right: above it and on its left are the ceilings."""
_MARGIN, _NAMED_MARGIN = 2.0, 4.0
"""How far the ceilings reach beyond the outermost points, as a factor; on the right, where names stand."""


def point_label(point: RooflinePoint) -> str:
    """What a point says when somebody points at it."""
    shape = shape_text(point.work)
    return (
        f"{point.title}: {point.count:.0f} x {f'[{shape}]' if shape else ''}, "
        f"{format_si(point.flops, 'FLOP')}, "
        f"{bytes_text(point.bytes)}, {seconds_text(point.seconds)} ({percent_text(point.share)} of the step), "
        f"roofline {seconds_text(point.floor_s)}, {point.provenance}"
    )


def _cache_ceiling(deployment: Deployment, *, low: float, peak_flops_per_s: float) -> Series:
    """What passes reach whose operands stay in the last-level cache."""
    rate = cache_rate(deployment.kernels)
    ridge = peak_flops_per_s / rate.bytes_per_s
    return Series(
        name=f"L2 cache {format_si(rate.bytes_per_s, 'B/s')} ({rate.provenance.label})",
        kind=SeriesKind.CEILING,
        x=(low, ridge),
        y=(low * rate.bytes_per_s / TERA, peak_flops_per_s / TERA),
        color=6,
        dashed=True,
    )


def _unused_ceilings(hardware: AcceleratorSpec, *, used: Sequence[Dtype], high: float) -> list[Series]:
    """The flat roofs of the other formats of the matrix units, one per rate."""
    taken = {hardware.peak_flops_per_s[dtype] for dtype in used}
    rates: dict[float, list[str]] = {}
    for dtype, peak in hardware.peak_flops_per_s.items():
        if peak not in taken and dtype not in (Dtype.FP64, Dtype.FP32):
            rates.setdefault(peak, []).append(dtype.value)
    return [
        Series(
            name=f"{', '.join(names)} peak {peak / TERA:,.0f} TFLOP/s",
            kind=SeriesKind.CEILING,
            x=(peak / hardware.memory_bytes_per_s, max(high, peak / hardware.memory_bytes_per_s * _MARGIN)),
            y=(peak / TERA, peak / TERA),
            color=4,
            dashed=True,
        )
        for peak, names in sorted(rates.items())
    ]


def _used_formats(estimates: Sequence[StepEstimate], hardware: AcceleratorSpec) -> list[Dtype]:
    """Number formats that the operators multiply in, slowest first."""
    formats = {math_dtype(row.work) for estimate in estimates for row in estimate.rows}
    known = [dtype for dtype in formats if dtype is not None and dtype in hardware.peak_flops_per_s]
    return sorted(known, key=lambda dtype: hardware.peak_flops_per_s[dtype])


def _ceilings(used: Sequence[Dtype], *, deployment: Deployment, low: float, high: float) -> list[Series]:
    """A roof per number format that the operators multiply in."""
    hardware = deployment.hardware
    roofs = []
    for dtype in used:
        ridge = ridge_point(hardware, dtype=dtype)
        end = max(high, ridge * _MARGIN)
        peak = hardware.peak_flops_per_s[dtype]
        memory = f"memory {format_si(hardware.memory_bytes_per_s, 'B/s')}, " if dtype is used[-1] else ""
        roofs.append(
            Series(
                name=f"{memory}{dtype.value} peak {peak / TERA:,.0f} TFLOP/s",
                kind=SeriesKind.CEILING,
                x=(low, ridge, end),
                y=(low * hardware.memory_bytes_per_s / TERA, peak / TERA, peak / TERA),
                color=7,
                dashed=dtype is not used[-1],
            )
        )
    return roofs


def roofline_chart(
    estimates: Sequence[tuple[str, StepEstimate]], *, deployment: Deployment, all_ceilings: bool = False
) -> Chart:
    """Operators of each (phase, step estimate) under the ceilings of one device, log-log.

    all_ceilings : also those of the cache, and of number formats that the operators do not use

    Passes without FLOPs have no place here: :func:`passes_chart` has them.

    Reference: [Williams2009]
    """
    phases = [(phase, roofline_points(phase, item, deployment=deployment)) for phase, item in estimates]
    intensities = [point.arithmetic_intensity for _, points in phases for point in points]
    low, high = min(intensities) / _MARGIN, max(intensities) * _NAMED_MARGIN
    used = _used_formats([item for _, item in estimates], deployment.hardware)
    series = _ceilings(used, deployment=deployment, low=low, high=high)
    if all_ceilings and used:
        fastest = deployment.hardware.peak_flops_per_s[used[-1]]
        series.append(_cache_ceiling(deployment, low=low, peak_flops_per_s=fastest))
        series.extend(_unused_ceilings(deployment.hardware, used=used, high=high))
    for place, (phase, points) in enumerate(phases):
        at = [(point.arithmetic_intensity, point.flops_per_s / TERA, point_label(point)) for point in points]
        series.append(marks(phase, at, color=place))
    return Chart(
        key="roofline",
        title=_title(phases),
        x=Axis(title="Arithmetic intensity", unit="FLOP/byte", log=True),
        y=Axis(title="Reached rate", unit="TFLOP/s", log=True),
        series=tuple(series),
        annotations=_operator_names([point for _, points in phases for point in points]),
        caption=f"One {deployment.hardware.name}; dense peaks and memory bandwidth of its datasheet.",
    )


def passes_chart(estimates: Sequence[tuple[str, StepEstimate]], *, deployment: Deployment) -> Chart | None:
    """Passes of each (phase, step estimate) that only move memory: the bandwidth that each reaches, the longest first.

    None where every operator computes.
    """
    hardware = deployment.hardware
    found = [
        point
        for phase, item in estimates
        for point in roofline_points(phase, item, deployment=deployment, every=True)
        if not point.flops and point.bytes and point.floor_s > 0
    ]
    if not found:
        return None
    names = tuple(dict.fromkeys(point.name for point in sorted(found, key=lambda point: -point.share)))
    series = []
    for place, (phase, _) in enumerate(estimates):
        mine = [point for point in found if point.phase == phase]
        at = [(float(names.index(point.name)), point.bytes_per_s / TERA, point_label(point)) for point in mine]
        series.append(marks(phase, at, color=place))
    shares = ", ".join(
        f"{percent_text(sum(point.share for point in found if point.phase == phase))} of {phase}"
        for phase, _ in estimates
    )
    memory = hardware.memory_bytes_per_s
    return Chart(
        key="passes",
        title=f"Passes without FLOPs take {shares}",
        x=Axis(title="", categories=names),
        y=Axis(title="Reached bandwidth", unit="TB/s"),
        series=tuple(series),
        annotations=(Annotation(text="", y=memory / TERA),),
        caption=f"They multiply nothing: a roofline has no place for them. Dashed: the {format_si(memory, 'B/s')} of "
        "device memory; beyond it the L2 cache is read.",
    )


def _operator_names(points: Sequence[RooflinePoint]) -> tuple[Annotation, ...]:
    """Names of the operators that take most of a step, where they do not cover each other."""
    notes = {
        Annotation(text=point.name, x=log10(point.arithmetic_intensity), y=log10(point.flops_per_s / TERA)): point
        for point in sorted(points, key=lambda point: -point.share)
        if point.share >= _NAMED_SHARE
    }
    if not notes:
        return ()
    across = [log10(point.arithmetic_intensity) for point in points]
    upward = [log10(point.flops_per_s / TERA) for point in points]
    kept = apart(list(notes), x=(min(across), max(across)), y=(min(upward), max(upward)))
    return tuple(
        replace(note, x=notes[note].arithmetic_intensity, y=notes[note].flops_per_s / TERA / _BELOW, of_mark=True)
        for note in kept
    )


def _title(phases: Sequence[tuple[str, tuple[RooflinePoint, ...]]]) -> str:
    joined = ", ".join(f"{phase} reaches {percent_text(reached_share(points))}" for phase, points in phases)
    return f"{joined[:1].upper()}{joined[1:]} of its roofline"
