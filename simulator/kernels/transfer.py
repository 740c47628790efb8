"""Which calibrated accelerator replaces one without measurements, how its fits change and its interval widens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from functools import lru_cache
from itertools import takewhile
from math import sqrt

import numpy as np

from simulator.errors import ProfileError
from simulator.kernels.timing import Provenance
from simulator.records import dataclass
from simulator.specs.base import Note, Same, first_day
from simulator.specs.hardware.accelerator import AcceleratorSpec, LinkSpec
from simulator.specs.hardware.calibration import KernelFit, load_transfer_table
from simulator.specs.model.precision import Dtype

GENERATION_YEARS = 2.0
"""Between the announcements of A100, H100 and B200: 2020-05, 2022-03 and 2024-03 (the profiles' release dates)."""

GENERATION_SINCE = {"ampere": "2020-05-14", "hopper": "2022-03-22", "ada": "2022-09-20", "blackwell": "2024-03-18"}
"""NVIDIA's announcements (GTC keynotes) of the generations that were measured, each by its first accelerator."""

DAYS_PER_YEAR = 365.25

VARIANT_DISTANCE = 0.1
"""Between architectures of one generation: B200 and B300 err by 6.6 % with each other's fits, as B200 and GB200 do,
B200 and H200 by 19; small, so that a part of the same architecture goes first."""

FOREIGN_DISTANCE = 2.5
"""Another vendor's kernels: as far as the farthest transfer that was measured, whatever the facts say."""

OTHER_MEMORY_DISTANCE = 1.0
"""HBM against GDDR: as far as one generation (an assumption; nothing measured)."""

OCTAVE_DISTANCE = 0.5
"""An octave of ridge point against a generation: H100 -> A100 (0.95 octaves) errs no more than H100 -> B200 (none)."""

# Links (validation/fit/links/collective_transfer.py): H100 -> H200 0.04 at distance 0, A100 -> H100 0.19 (NCCL 0.33) at
# 1.6, H100 -> B200 0.38 at 2, H100 -> RTX PRO 6000 0.8 at 5.8, B200 -> it 0.6 at 6.8. Other kinds are placed as PCIe.
LINK_DISTANCE = np.array([0.0, 1.6, 2.0, 3.0, 6.0])
LINK_LOG_SIGMA = np.array([0.04, 0.28, 0.38, 0.5, 0.8])
OTHER_LINK_DISTANCE = 3.0
HOST_LINK = "pcie"
HOST_LOG_SIGMA = 1.0
"""Over PCIe the host's switches decide: L40S and RTX PRO 6000 servers differ by 1.06 either way (same script)."""
HOST_SHARE_AN_OCTAVE = 1.6
"""A slower PCIe reaches a larger share of its lanes, for the host behind it is the same. NVIDIA's runs on eight L40S
need 19 GB/s a card of PCIe 4; the share of the RTX PRO 6000's PCIe 5 would give 12. Over one octave at most."""

OWN_CORRECTIONS = ("decode_attention",)
"""Families whose correction holds within a generation alone: how a cache is split over compute units is the kernel's.
Left out with their generation decode attention errs by 25.9 % with it and 22.1 without, products by 14.2 and 14.7."""

UNIT_RATE = "unit_bandwidth"
"""Parameter of products and experts: what a compute unit takes in, in even shares of the memory's rate."""

UNIT_TIMES = ("quantise_row_s", "part_cycles")
"""What a compute unit takes for a row of a pass and for a part of the cached keys that it attends to."""

WIDENING_EXPERTS = {("vllm", "w4a16"), ("trtllm", "mxfp4")}
"""Libraries' experts of four bits which one kernel widens in registers on every generation: no faster a unit and clock
where the peak is higher (Marlin 1,470 to 1,740 FLOP on Blackwell and Hopper [Luo2024]). Blackwell by Hopper's fits
50 -> 13 and 42 -> 23 %, all experts 25.7 -> 23.7. Others are written anew for a generation (with theirs 27.6)."""

TYPICAL: dict[str, dict[str, float]] = {
    "tiled_gemm": {"compute_fraction": 0.857},
    "grouped_gemm": {
        "compute_fraction": 0.668,
        "memory_fraction": 0.750,
        "unit_bandwidth": 9.38,
        "pass_speedup": 1.034,
        "launch_s": 2.37e-5,
    },
    "tiled_prefill_attention": {"tensor_fraction": 0.445, "exponential_rate": 0.657},
    "split_decode_attention": {"memory_fraction": 0.869, "part_cycles": 2793.0},
}
"""By model, what sets a kernel's pace: geometric means over kernels of three libraries, then over Ampere, Ada, Hopper
and both kinds of Blackwell [AIC2026], which agree to a factor of 1.4 (passes of experts 1.9)."""

GDDR_SHARE = 0.80
"""Of a memory's rate that products reach behind GDDR: vLLM's 16-bit ones 0.80 on L40S and 0.93 on RTX PRO 6000. HBM,
of which each unit takes in two to three times as much, is read at less (A100 0.70, MI300X 0.66)."""

DURATIONS = ("_s", "_cycles")


@dataclass(frozen=True, slots=True, kw_only=True)
class Relative:
    """The calibrated accelerator to borrow fits from.

    log_sigma_extra : standard deviation that the transfer adds to log(measured / predicted), in quadrature
    reason : why this one, in words for the report
    link_share : by what the reached share of the link's datasheet bandwidth is multiplied [-]
    known : how well its fits are known on the other: calibrated on a sibling too
    same_generation : of one generation's architectures, so that its kernels choose tiles and splits as the other's do
    port_share : by what a compute unit's rate, in even shares of the memory's, is multiplied (``port_share``) [-]
    unit_share : by what ``UNIT_TIMES`` are multiplied; another vendor's follow the memory, as its units are few [-]
    pace_share : of a unit's 16-bit peak a clock what the relative's has, at most 1 (``WIDENING_EXPERTS``) [-]
    least_share : of the memory's rate that 16-bit products reach at least where the relative has another kind [-]
    beside : others whose fits count as much: one of each further generation of a link that nobody measured
    """

    name: str
    log_sigma_extra: float
    reason: Note
    link_share: float = 1.0
    known: Provenance = Provenance.EXTRAPOLATED
    same_generation: bool = True
    port_share: float = 1.0
    unit_share: float = 1.0
    pace_share: float = 1.0
    least_share: float = 0.0
    beside: tuple[str, ...] = ()


def own_fits(name: str, *, by: str = "own_fits") -> Relative:
    """An accelerator with fits of its own; by : key of the note of whose they are."""
    return Relative(name=name, log_sigma_extra=0.0, reason=Note(by), known=Provenance.CALIBRATED)


def generation(hardware: AcceleratorSpec) -> str:
    """``blackwell-ultra`` and ``blackwell-rtx`` are blackwell."""
    return hardware.architecture.split("-")[0]


def _years_between(first: AcceleratorSpec, second: AcceleratorSpec) -> float:
    """Between their generations where one vendor made both: a late part of an old one runs its kernels."""
    since = GENERATION_SINCE if first.vendor == second.vendor else {}
    days = [first_day(since.get(generation(spec), spec.release_date)) for spec in (first, second)]
    return abs((date.fromisoformat(days[0]) - date.fromisoformat(days[1])).days) / DAYS_PER_YEAR


def _peak(spec: AcceleratorSpec) -> float:
    """Dense 16-bit peak [FLOP/s]."""
    peaks = spec.peak_flops_per_s
    return peaks.get(Dtype.BF16) or peaks.get(Dtype.FP16) or max(peaks.values())


def _pace_share(hardware: AcceleratorSpec, *, relative: AcceleratorSpec) -> float:
    """Of a unit's 16-bit peak a clock what the relative's has, between generations of one vendor; at most 1 [-]."""
    if generation(hardware) == generation(relative) or hardware.vendor != relative.vendor:
        return 1.0
    return min(1.0, _a_clock(relative, _peak(relative)) / _a_clock(hardware, _peak(hardware)))


def kernel_distance(hardware: AcceleratorSpec, *, relative: AcceleratorSpec) -> float:
    """How far a kernel fit is carried: generations + half the octaves of ridge point + memory class + vendor [-].

    Notes
    -----
    Generations are 0 within an architecture, ``VARIANT_DISTANCE`` between those of one generation with one kind of
    memory, and otherwise years between announcements over ``GENERATION_YEARS``, at least 1. The ridge point decides
    which kernels are bound by memory. Leaves out cache sizes and instruction sets.

    References
    ----------
    [Williams2009], [AIC2026]
    """
    return _kernel_distance(Same(hardware), Same(relative))


@lru_cache(maxsize=4096)
def _kernel_distance(facts: Same[AcceleratorSpec], others: Same[AcceleratorSpec]) -> float:
    """Every group of every library asks for the same pairs."""
    hardware, relative = facts.held, others.held
    ridge, theirs = (_peak(spec) / spec.memory_bytes_per_s for spec in (hardware, relative))
    octaves = abs(float(np.log2(ridge / theirs)))
    other_memory = hardware.memory_kind[:3].lower() != relative.memory_kind[:3].lower()
    if hardware.architecture.lower() == relative.architecture.lower():
        generations = 0.0
    elif generation(hardware) == generation(relative) and not other_memory:
        generations = VARIANT_DISTANCE
    else:
        generations = max(1.0, _years_between(hardware, relative) / GENERATION_YEARS)
    kinds = OTHER_MEMORY_DISTANCE * other_memory + FOREIGN_DISTANCE * (hardware.vendor != relative.vendor)
    return generations + OCTAVE_DISTANCE * octaves + kinds


def link_distance(hardware: AcceleratorSpec, *, relative: AcceleratorSpec) -> float:
    """How far a collective fit is carried: octaves of link bandwidth, plus 3 for another kind of link, 1 for a link of
    the same kind of another generation, whose steps take other times whatever its speed [-].

    Reference: [AIC2026]
    """
    ours, theirs = hardware.scale_up, relative.scale_up
    octaves = abs(float(np.log2(ours.bytes_per_s_per_direction / theirs.bytes_per_s_per_direction)))
    if _link_family(ours.kind) != _link_family(theirs.kind):
        return octaves + OTHER_LINK_DISTANCE
    return octaves + (generation(hardware) != generation(relative))


def _link_family(kind: str) -> str:
    """``nvlink4`` and ``nvlink-c2c`` are one family; so are ``pcie4-x16`` and ``pcie5-x16``."""
    return "".join(takewhile(str.isalpha, kind.lower().lstrip()))


def _nearest(
    hardware: AcceleratorSpec, available: Sequence[AcceleratorSpec], distance_to: Callable[[AcceleratorSpec], float]
) -> tuple[AcceleratorSpec, float]:
    if not available:
        raise ProfileError(
            f"nothing is calibrated that could stand in for {hardware.name}",
            field="hardware",
            hint="install calibrations or run validation/fit",
        )
    # Of links alike, that of the nearest chip.
    nearest = min(available, key=lambda spec: (distance_to(spec), kernel_distance(hardware, relative=spec), spec.name))
    return nearest, distance_to(nearest)


def transfer_log_sigma(distance: float) -> float:
    """Spread of log(measured / predicted) that a transfer over ``distance`` adds, in quadrature [-].

    Interpolated in the errors that were measured by leaving accelerators out (load_transfer_table: mean over products,
    prefill and decode attention); beyond the farthest measured pair it stays at that pair's.

    Reference: [AIC2026], [Barlow1972]
    """
    curve = load_transfer_table().curve
    return float(np.interp(distance, [point.distance for point in curve], [point.log_sigma_extra for point in curve]))


def calibrated_relative(hardware: AcceleratorSpec, *, available: Sequence[AcceleratorSpec]) -> Relative:
    """Nearest accelerator of ``available`` to borrow compute-kernel fits from, itself if it is among them.

    Reference: [AIC2026]
    """
    if any(spec.name == hardware.name for spec in available):
        return own_fits(hardware.name)
    facts = Same(hardware)
    chosen, distance = _nearest(hardware, available, lambda spec: _kernel_distance(facts, Same(spec)))
    ours, theirs = (spec.parallel_units / spec.memory_bytes_per_s for spec in (hardware, chosen))
    return Relative(
        name=chosen.name,
        log_sigma_extra=transfer_log_sigma(distance),
        reason=Note("fits_carried", {"chosen": chosen, "hardware": hardware, "distance": distance}),
        known=Provenance.CALIBRATED if are_siblings(hardware, chosen) else Provenance.EXTRAPOLATED,
        same_generation=generation(hardware) == generation(chosen),
        port_share=port_share(hardware, relative=chosen),
        unit_share=1.0 if hardware.vendor == chosen.vendor else ours / theirs,
        pace_share=_pace_share(hardware, relative=chosen),
        least_share=GDDR_SHARE if _has_hbm(chosen) and not _has_hbm(hardware) else 0.0,
    )


def _has_hbm(spec: AcceleratorSpec) -> bool:
    return spec.memory_kind.lower().startswith("hbm")


def of_each_generation(hardware: AcceleratorSpec, *, available: Sequence[AcceleratorSpec]) -> tuple[Relative, ...]:
    """The nearest calibrated accelerator, and where it is of another generation the nearest of each other one too.

    Reference: [AIC2026]
    """
    nearest = calibrated_relative(hardware, available=available)
    if nearest.same_generation:
        return (nearest,)
    known = {generation(spec): spec for spec in available}
    each = [calibrated_relative(hardware, available=[s for s in available if generation(s) == name]) for name in known]
    return (nearest, *(relative for relative in each if relative.name != nearest.name))


def _a_clock(spec: AcceleratorSpec, rate: float) -> float:
    """Of a rate, what one unit has a clock."""
    return rate / (spec.compute_units * spec.boost_clock_hz)


def port_share(hardware: AcceleratorSpec, *, relative: AcceleratorSpec) -> float:
    """How many more even shares of the memory's rate a compute unit takes in than the relative's does [-].

    Equation
    --------
    s = (B_r / (U_r f_r)) / (B / (U f))

    Parameters
    ----------
    hardware : memory rate B [bytes/s], compute units U [-], their clock f [Hz]
    relative : the same of the accelerator whose fits are carried: B_r, U_r, f_r

    Range of validity
    -----------------
    One architecture, whose units take in as many bytes a clock whatever memory lies behind: Triton's attention takes
    0.98 to 1.04 times as long on an H100 as on an H200, which has 1.43 times its rate. Products carried from one to the
    other err by 5.4 and 5.7 % (6.6 and 8.7 without). 1 between architectures, where it is no help. Leaves out caches.

    References
    ----------
    [AIC2026]

    Examples
    --------
    >>> from simulator.specs.hardware.accelerator import load_hardware
    >>> round(port_share(load_hardware("h200"), relative=load_hardware("h100")), 2)
    0.7
    """
    if hardware.architecture != relative.architecture:
        return 1.0
    return _a_clock(relative, relative.memory_bytes_per_s) / _a_clock(hardware, hardware.memory_bytes_per_s)


def are_siblings(hardware: AcceleratorSpec, other: AcceleratorSpec) -> bool:
    """Whether two accelerators are the same dies with other memory, links or clocks: as many compute units of one
    architecture, and ridge points no farther apart than of the pairs that were left out of each other's fits.

    Reference: [AIC2026]
    """
    if hardware.architecture != other.architecture or hardware.compute_units != other.compute_units:
        return False
    return round(kernel_distance(hardware, relative=other), 3) <= load_transfer_table().farthest_sibling


def _host_share(ours: LinkSpec, theirs: LinkSpec) -> float:
    """How much more of a slower PCIe is reached than of the measured one."""
    if {_link_family(ours.kind), _link_family(theirs.kind)} != {HOST_LINK}:
        return 1.0
    octaves = float(np.log2(theirs.bytes_per_s_per_direction / ours.bytes_per_s_per_direction))
    return float(HOST_SHARE_AN_OCTAVE ** min(1.0, max(0.0, octaves)))


def has_own_link(hardware: AcceleratorSpec, *, available: Sequence[AcceleratorSpec]) -> bool:
    """Whether collectives were measured on this accelerator, over the kind of link that it has here."""
    return any(spec.name == hardware.name and spec.scale_up.kind == hardware.scale_up.kind for spec in available)


def link_relative(hardware: AcceleratorSpec, *, available: Sequence[AcceleratorSpec]) -> Relative:
    """Nearest accelerator of ``available`` to borrow collective fits from, by kind and speed of its scale-up link.

    Of a generation whose link nobody measured, those of all others count alike, since steps between devices follow no
    speed of a datasheet: left out with their generation all-reduces err by 28.1 % with the nearest alone, 22.3 so.

    Reference: [AIC2026]
    """
    if has_own_link(hardware, available=available):
        return own_fits(hardware.name)

    def distance_to(spec: AcceleratorSpec) -> float:
        return link_distance(hardware, relative=spec)

    chosen, distance = _nearest(hardware, available, distance_to)
    log_sigma = float(np.interp(distance, LINK_DISTANCE, LINK_LOG_SIGMA))
    kind = _link_family(hardware.scale_up.kind)
    if kind == HOST_LINK:
        log_sigma = max(log_sigma, HOST_LOG_SIGMA)
    alike = [spec for spec in available if _link_family(spec.scale_up.kind) == kind]
    nearest = {}
    if chosen in alike and generation(chosen) != generation(hardware):
        farthest_first = sorted(alike, key=lambda spec: (distance_to(spec), spec.name), reverse=True)
        nearest = {generation(spec): spec.name for spec in farthest_first}
    beside = tuple(name for name in nearest.values() if name != chosen.name)
    return Relative(
        name=chosen.name,
        log_sigma_extra=log_sigma,
        reason=Note(
            "collectives_scaled",
            {"names": (chosen.name, *beside), "theirs": chosen.scale_up.kind, "ours": hardware.scale_up.kind},
        ),
        link_share=_host_share(hardware.scale_up, chosen.scale_up),
        known=Provenance.EXTRAPOLATED if distance or kind == HOST_LINK else Provenance.CALIBRATED,
        beside=beside,
    )


def carries_correction(family: str, relative: Relative) -> bool:
    """Whether the correction of a relative's fit says something of this accelerator."""
    return relative.same_generation or family not in OWN_CORRECTIONS


def carried_fit(fit: KernelFit, relative: Relative, *, library: str) -> KernelFit:
    """A relative's fit as it holds here: the rate of a compute unit in shares of this accelerator's memory, and from
    another generation what is slower than typical of its family half as far from it, in octaves.

    Fast kernels stay fast on another architecture, slow ones were often written for other units (Triton's, or none for
    that width). Generations left out (validation/fit/left_out.py), without and with: prefill attention 35.7 and 26.8 %,
    decode 28.0 and 25.3, experts 34.1 and 27.0. Experts of ``WIDENING_EXPERTS`` keep their rate a unit and clock.
    """
    known, moved = fit.parameters, {}
    for name, typical in () if relative.same_generation else TYPICAL.get(fit.model, {}).items():
        better = min if name.endswith(DURATIONS) else max
        moved[name] = better(known[name], sqrt(known[name] * typical))
    for name, share in ((UNIT_RATE, relative.port_share), *((name, relative.unit_share) for name in UNIT_TIMES)):
        if name in known and share != 1.0:
            moved[name] = share * moved.get(name, known[name])
    if fit.family == "moe" and relative.pace_share < 1.0 and (library, fit.format) in WIDENING_EXPERTS:
        moved["compute_fraction"] = relative.pace_share * known["compute_fraction"]
    if fit.model == "tiled_gemm" and fit.format == Dtype.BF16 and known["memory_fraction"] < relative.least_share:
        moved["memory_fraction"] = relative.least_share
    return fit.model_copy(update={"parameters": {**known, **moved}}) if moved else fit
