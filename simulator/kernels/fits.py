"""The fits that price one accelerator: its own, or those of its nearest calibrated relative."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from zipfile import BadZipFile

import numpy as np

from simulator.errors import ProfileError, shown
from simulator.kernels import transfer
from simulator.kernels.collectives.laws import FROM_BYTES, fitted_model
from simulator.kernels.timing import Lattice, Timing, widened
from simulator.operators.work import Array
from simulator.records import dataclass
from simulator.specs.base import LARGEST_INTEGER, Same
from simulator.specs.hardware.accelerator import AcceleratorSpec, LinkSpec, ServerSpec, load_hardware
from simulator.specs.hardware.calibration import (
    LARGEST_CORRECTION,
    CalibrationGroup,
    CalibrationSpec,
    KernelFit,
    LatticeSpec,
    calibrated_hardware,
    calibration_name,
    calibrations_changed_ns,
    load_arrays,
    load_calibration,
)
from simulator.specs.profiles import list_profiles

_UNREADABLE = (KeyError, ValueError, TypeError, EOFError, OSError, RuntimeError, MemoryError, BadZipFile, zlib.error)
"""What reading an archive that somebody else wrote can end in; zlib's own error has no better base."""
# What a user's own measurements (roofcast calibrate) are filed under: the harness runs torch's kernels.
MEASURED_LIBRARY = "torch"
# Libraries to fall back on where the asked one was not measured: their kernels are the closest relatives.
# Every engine on AMD's accelerators takes most of its kernels from AITER, so that its tables are theirs; on Google's
# what XLA compiles; on Intel's graphics cards vLLM's kernels for them, which its Gaudi do not run.
LIBRARY_ORDER: dict[str, tuple[str, ...]] = {
    "vllm": ("vllm", "sglang", "trtllm", "aiter", "torch", "xla", "xpu"),
    "sglang": ("sglang", "vllm", "trtllm", "aiter", "torch", "xla", "xpu"),
    "trtllm": ("trtllm", "vllm", "sglang", "aiter", "torch", "xla", "xpu"),
    "aiter": ("aiter", "vllm", "sglang", "trtllm", "torch", "xla", "xpu"),
    "torch": ("torch", "vllm", "sglang", "aiter", "xla", "xpu"),
}
WRITTEN_FOR = {"xpu": "xe2"}
"""Architecture of a library whose kernels its vendor's other accelerators do not run, nor borrow."""


OF_EVERY_GENERATION = ("gemm", "moe")
"""Groups whose kernels a library has on every generation: of one that nobody measured each of the others says
something, the less the wider its fits spread. Left out with their generation, by the nearest alone and so: products
15.5 and 14.6 %, experts 27.0 and 26.4; attention, whose kernels are written anew, prefill 26.8 and 27.5."""
BEST_OF_A_TUNER = ("aiter",)
"""Libraries whose tables are not, and of two generations alone: 359 runs on MI250 err by 27 % with MI300X's fits, by 34
with those of both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSet:
    """Fits of one group, and whose they are: ``relative.name`` measured under ``library``. ``given`` holds fits that no
    file has yet; ``beside`` are of other generations, where nobody measured the accelerator's own."""

    group: CalibrationGroup
    library: str
    relative: transfer.Relative
    profiles: str | None = None
    given: tuple[KernelFit, ...] = ()
    beside: tuple[FitSet, ...] = ()

    @property
    def fits(self) -> tuple[KernelFit, ...]:
        """All fits of the group; their file is read when the first is asked for."""
        if self.given:
            return self.given
        found = load_calibration(self.relative.name, library=self.library, group=self.group, profiles=self.profiles)
        assert found is not None, "a set is made for a file that exists"
        return _carried(Same(found), self.relative)

    def lattice(self, fit: KernelFit) -> Lattice | None:
        """The correction of one of the fits; None where the physics stands alone."""
        if fit.correction is None or not transfer.carries_correction(fit.family, self.relative):
            return None
        return _lattice(self.relative.name, self.library, self.group, self.profiles, Same(fit.correction))

    def find(self, *, family: str, fmt: str, variant: str = "") -> KernelFit | None:
        """The fit of one family, number format and variant, or None."""
        named = (fit for fit in self.fits if fit.family == family and fit.format == fmt and fit.variant == variant)
        return next(named, None)

    def transferred(self, timing: Timing) -> Timing:
        """``timing`` as known on this accelerator: wider and less known where the fits are a relative's."""
        return widened(timing, log_sigma_extra=self.relative.log_sigma_extra, known=self.relative.known)

    def priced(self, fit: KernelFit, price: Callable[[KernelFit, Lattice | None], Timing]) -> Timing:
        """`transferred` time by ``fit``; where other generations have the kernel too, the geometric mean with weights
        in inverse proportion to the variance of each transfer [Cochran1954], as known as by the nearest."""
        nearest = self.transferred(price(fit, self.lattice(fit)))
        found = ((other, other.find(family=fit.family, fmt=fit.format, variant=fit.variant)) for other in self.beside)
        others = [(other, same) for other, same in found if same is not None]
        if not others:
            return nearest
        times = [nearest.seconds, *(price(same, other.lattice(same)).seconds for other, same in others)]
        weights = [whose.relative.log_sigma_extra**-2 for whose in (self, *(other for other, _ in others))]
        seconds = np.exp(np.average(np.log(times), axis=0, weights=weights))
        moved = seconds / nearest.seconds
        return replace(nearest, seconds=seconds, compute_s=moved * nearest.compute_s, memory_s=moved * nearest.memory_s)


@lru_cache(maxsize=256)
def _carried(calibration: Same[CalibrationSpec], relative: transfer.Relative) -> tuple[KernelFit, ...]:
    given = calibration.held
    return tuple(transfer.carried_fit(fit, relative, library=given.library) for fit in given.fits)


@lru_cache(maxsize=512)
def _lattice(
    hardware: str, library: str, group: CalibrationGroup, profiles: str | None, correction: Same[LatticeSpec]
) -> Lattice | None:
    try:
        return lattice_of(correction.held, load_arrays(hardware, library=library, group=group, profiles=profiles))
    except _UNREADABLE as error:
        name = calibration_name(hardware, library=library, group=group)
        raise ProfileError(
            f"the arrays of {name} cannot be read: {shown(str(error) or type(error).__name__)}",
            field="calibration",
            code="invalid_profile",
            hint="files of fits are written by commands (roofcast calibrate): fit it again",
        ) from None


@lru_cache(maxsize=64)
def _calibrated(library: str, group: CalibrationGroup, profiles: str | None) -> tuple[AcceleratorSpec, ...]:
    """Facts of the accelerators that have fits of this library and group."""
    names = calibrated_hardware(library, group=group, profiles=profiles)
    return tuple(load_hardware(name, profiles=profiles) for name in names)


@lru_cache(maxsize=16)
def _names(profiles: str | None, changed_ns: tuple[int, ...]) -> frozenset[str]:
    """Names of all calibrations, listed again when files come or go."""
    return frozenset(list_profiles("calibration", profiles=profiles))


def fit_set(
    hardware: AcceleratorSpec,
    *,
    library: str,
    group: CalibrationGroup,
    profiles: str | None = None,
    foreign: bool = False,
    lacking: tuple[str, ...] = (),
) -> FitSet | None:
    """Fits of ``group`` for this accelerator: its own under the nearest library, else its nearest relative's. None
    where no accelerator has fits of the group. foreign : another vendor's, for kernels that its own vendor's lack;
    lacking : accelerators whose fits are passed over"""
    return _fit_set(Same(hardware), library, group, profiles, foreign, lacking, calibrations_changed_ns(profiles))


@lru_cache(maxsize=1024)
def _fit_set(
    facts: Same[AcceleratorSpec],
    library: str,
    group: CalibrationGroup,
    profiles: str | None,
    foreign: bool,
    lacking: tuple[str, ...],
    changed_ns: tuple[int, ...],
) -> FitSet | None:
    """Replicas of one accelerator share the choice; ``changed_ns`` retires it when calibrations come or go."""
    hardware = facts.held
    known = _names(profiles, changed_ns)
    # A user's roofline file holds what was measured; the roofline that every family falls back on is a complete one.
    order = [name for name in LIBRARY_ORDER[library] if (name, group) != (MEASURED_LIBRARY, "roofline")]
    for candidate in order if hardware.name not in lacking else ():
        if not foreign and calibration_name(hardware.name, library=candidate, group=group) in known:
            return FitSet(group=group, library=candidate, relative=transfer.own_fits(hardware.name), profiles=profiles)
    order = [name for name in order if WRITTEN_FOR.get(name, hardware.architecture) == hardware.architecture]
    measured = [
        (candidate, [spec for spec in _calibrated(candidate, group, profiles) if spec.name not in lacking])
        for candidate in order
    ]
    # Another vendor's kernels are farther away than another library's.
    for candidate, specs in measured:
        available = tuple(spec for spec in specs if spec.vendor == hardware.vendor)
        if available and not foreign:
            alike = group in OF_EVERY_GENERATION and candidate not in BEST_OF_A_TUNER
            if not alike:
                nearest = transfer.calibrated_relative(hardware, available=available)
                return FitSet(group=group, library=candidate, relative=nearest, profiles=profiles)
            sets = [
                FitSet(group=group, library=candidate, relative=relative, profiles=profiles)
                for relative in transfer.of_each_generation(hardware, available=available)
            ]
            return replace(sets[0], beside=tuple(sets[1:]))
    for candidate, specs in measured:
        available = tuple(spec for spec in specs if spec.vendor != hardware.vendor)
        if available:
            nearest = transfer.calibrated_relative(
                _measured_kin(hardware, order=order, profiles=profiles), available=available
            )
            borrowed = tuple(spec for spec in available if spec.name == nearest.name)
            relative = transfer.calibrated_relative(hardware, available=borrowed)
            return FitSet(group=group, library=candidate, relative=relative, profiles=profiles)
    return None


def _measured_kin(hardware: AcceleratorSpec, *, order: Sequence[str], profiles: str | None) -> AcceleratorSpec:
    """The accelerator of the same architecture whose products were measured, or ``hardware`` where there is none.
    Siblings borrow another vendor's kernels from one and the same accelerator: whether a chip has faster memory than
    its sibling says nothing of which foreign one it is like."""
    kin = (
        spec
        for library in order
        for spec in _calibrated(library, "gemm", profiles)
        if (spec.vendor, spec.architecture) == (hardware.vendor, hardware.architecture)
    )
    return next(kin, hardware)


def measured_fits(hardware: AcceleratorSpec, *, profiles: str | None = None) -> FitSet | None:
    """A user's own roofline fits of this accelerator (``roofcast calibrate``), or None.

    Raises ProfileError: the file was made for other hardware or another library, or is older than the facts it was
    fitted against.
    """
    found = load_calibration(hardware.name, library=MEASURED_LIBRARY, group="roofline", profiles=profiles)
    if found is None:
        return None
    name = calibration_name(hardware.name, library=MEASURED_LIBRARY, group="roofline")
    for field, value, wanted in (
        ("hardware", found.hardware, hardware.name),
        ("library", found.library, MEASURED_LIBRARY),
    ):
        if value != wanted:
            raise ProfileError(f"{name} was made for {value!r}, not {wanted!r}", field=field, code="wrong_calibration")
    if found.date < hardware.rates_date:
        raise ProfileError(
            f"{name} is of {found.date}, older than the peaks and bandwidth of {hardware.name} ({hardware.rates_date})",
            field="date",
            code="outdated_calibration",
            hint="measure again, or fit the measurements again with roofcast calibrate",
        )
    return FitSet(group="roofline", library=MEASURED_LIBRARY, relative=_by_user(hardware.name), profiles=profiles)


def _by_user(hardware: str) -> transfer.Relative:
    return transfer.own_fits(hardware, by="user_fits")


def given_fits(hardware: str, *, group: CalibrationGroup, fits: tuple[KernelFit, ...]) -> FitSet:
    """A user's fits of an accelerator that are not in a file yet."""
    return FitSet(group=group, library=MEASURED_LIBRARY, relative=_by_user(hardware), given=fits)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveFits:
    """Collective fits of an engine's library and of NCCL, and whose they are; ``beside`` are of those beside it."""

    fits: tuple[KernelFit, ...]
    relative: transfer.Relative
    beside: tuple[tuple[KernelFit, ...], ...] = ()


def collective_fits(hardware: AcceleratorSpec, *, library: str, profiles: str | None = None) -> CollectiveFits:
    """Fits for the accelerator's scale-up link: its own, or those of the nearest link that was measured."""
    return _collective_fits(Same(hardware), library, profiles, calibrations_changed_ns(profiles))


@lru_cache(maxsize=256)
def _collective_fits(
    facts: Same[AcceleratorSpec], library: str, profiles: str | None, changed_ns: tuple[int, ...]
) -> CollectiveFits:
    hardware = facts.held
    # The facts of all others are read only for an accelerator that has no fits of its own.
    own = calibration_name(hardware.name, library="nccl", group="collective") in _names(profiles, changed_ns)
    available: Sequence[AcceleratorSpec] = (load_hardware(hardware.name, profiles=profiles),) if own else ()
    if not transfer.has_own_link(hardware, available=available):
        available = _calibrated("nccl", "collective", profiles)
    relative = transfer.link_relative(hardware, available=available)
    fits, *beside = (
        _link_fits(name, library=library, hardware=hardware, profiles=profiles)
        for name in (relative.name, *relative.beside)
    )
    shared = tuple(_at_share(fit, relative.link_share) for fit in fits)
    return CollectiveFits(fits=shared, relative=relative, beside=tuple(beside))


def _link_fits(name: str, *, library: str, hardware: AcceleratorSpec, profiles: str | None) -> tuple[KernelFit, ...]:
    """What was measured over the link of ``name``, as it prices ``hardware``."""
    fits: list[KernelFit] = []
    # A plain framework calls NCCL; only serving engines bring all-reduces of their own.
    engines = () if library == "torch" else LIBRARY_ORDER[library]
    for candidate in (*engines, "nccl"):
        if fits and candidate != "nccl":
            continue
        calibration = load_calibration(name, library=candidate, group="collective", profiles=profiles)
        if calibration is not None:
            fits += calibration.fits
            fits += _larger_groups(calibration, hardware=hardware, profiles=profiles)
    return tuple(fits)


def _at_share(fit: KernelFit, factor: float) -> KernelFit:
    """The fit of a link of which ``factor`` times as large a share is reached."""
    if factor == 1.0:
        return fit
    parameters = {key: value * (factor if key.endswith(".fraction") else 1.0) for key, value in fit.parameters.items()}
    return fit.model_copy(update={"parameters": parameters})


def _larger_groups(own: CalibrationSpec, *, hardware: AcceleratorSpec, profiles: str | None) -> tuple[KernelFit, ...]:
    """An engine's all-reduces in larger groups than ``own`` holds, where they were measured over the very same link.
    Across the trays of a rack engines run other kernels than inside one, which the laws of small groups do not tell."""
    most = max((devices for fit in own.fits for devices, _ in fitted_model(fit).from_bytes), default=0)
    found: list[KernelFit] = []
    larger = 0 < most < hardware.scale_up.domain_size
    for spec in _calibrated(own.library, "collective", profiles) if larger else ():
        if spec.name == own.hardware or spec.scale_up != hardware.scale_up:
            continue
        calibration = load_calibration(spec.name, library=own.library, group="collective", profiles=profiles)
        for fit in calibration.fits if calibration else ():
            starts = {key: value for key, value in fit.parameters.items() if key.startswith(FROM_BYTES)}
            small = [key for key in starts if int(key.rsplit(".p", maxsplit=1)[1]) <= most]
            if len(small) < len(starts):
                kept = {key: value for key, value in fit.parameters.items() if key not in small}
                found.append(fit.model_copy(update={"parameters": kept}))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeyondDomain:
    """How devices of different scale-up domains talk.

    hardware : the accelerator as seen over the link that joins domains inside a server, itself where there is none
    collectives : fits of that link, or of the nearest one that was measured; network : one device's share of the NICs
    """

    hardware: AcceleratorSpec
    collectives: CollectiveFits
    network: LinkSpec


def beyond_domain(
    hardware: AcceleratorSpec, server: ServerSpec | None, *, library: str, profiles: str | None
) -> BeyondDomain | None:
    """How ``hardware`` talks beyond its scale-up domain; None without a server. A ring over bridged pairs runs at the
    pace of the link between the pairs: the whole group is priced on it."""
    if server is None:
        return None
    seen = hardware
    if server.peer_link is not None:
        seen = hardware.model_copy(update={"scale_up": server.peer_link})
    fits = collective_fits(seen, library=library, profiles=profiles)
    return BeyondDomain(hardware=seen, collectives=fits, network=server.network)


def lattice_of(correction: LatticeSpec | None, arrays: Mapping[str, Array]) -> Lattice | None:
    """The lattice that ``correction`` names in the arrays beside its calibration; None without one.

    ``key`` holds the values and ``key.axis`` the sizes at the nodes of each axis (not their logarithms); lattices with
    the same nodes share those under ``axis``.

    Raises KeyError: an array is missing.
    Raises ValueError: nodes do not rise, or values are not one for every crossing, or no corrections.
    """
    if correction is None:
        return None
    own = ((f"{correction.key}.{axis}", axis) for axis in correction.axes)
    nodes = tuple(np.asarray(arrays[key if key in arrays else axis]) for key, axis in own)
    values = arrays[correction.key]
    for axis, sizes in zip(correction.axes, nodes, strict=True):
        rising = sizes.ndim == 1 and len(sizes) and np.all(np.diff(sizes, prepend=0.0) > 0)
        if not rising or sizes[-1] > LARGEST_INTEGER:
            raise ValueError(f"the nodes of {axis} are no sizes that rise from above 0")
    if values.shape != tuple(len(sizes) for sizes in nodes) or not np.all(np.abs(values) <= LARGEST_CORRECTION):
        raise ValueError(f"{correction.key} is not one correction within {LARGEST_CORRECTION:g} of 0 for every node")
    return Lattice(
        axes=correction.axes, nodes=tuple(np.log2(sizes) for sizes in nodes), values=values, reach=correction.reach
    )
