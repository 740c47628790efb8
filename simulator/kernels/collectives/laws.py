"""Latency-bandwidth laws of the algorithms that move a message between devices over one kind of link."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache, partial, reduce
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from simulator.errors import RoofcastError, did_you_mean
from simulator.kernels.timing import Lattice, log2_coordinates, log_correction
from simulator.operators.work import Array, Collective
from simulator.records import dataclass
from simulator.specs.base import Same
from simulator.specs.hardware.calibration import KernelFit

ALGORITHMS = ("one_shot", "two_shot", "multimem", "ring_ll", "ring_ll128", "ring_simple")
"""one_shot: every device reads all the others' messages and adds them up; two_shot: reduce-scatter and all-gather
by direct peer reads; multimem: the switch adds and multicasts; ring_*: NCCL's protocols, ring or direct exchange."""

RESIDUAL = "residual"
FROM_BYTES = "from_bytes"
_SIZES = re.compile(rf"{RESIDUAL}\.p([1-9][0-9]*)\.([0-9]+)|{FROM_BYTES}\.p([1-9][0-9]*)")

RESIDUAL_REACH = 4.0
"""Octaves over which the residual fades outside the measured sizes: at the ends it is the level of the asymptotes
(latency of this group, bandwidth of this group), which stays; held-out points at the edges of a regime confirm it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """t = launch_s + hop_s * hops + wire bytes / (fraction * link bandwidth).

    launch_s, hop_s : fixed time of the kernel, and of each dependent step between devices [s]
    fraction : reached share of the link's datasheet bandwidth per device and direction
    """

    algorithm: str
    launch_s: float
    hop_s: float
    fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveModel:
    """The laws among which the library takes the fastest, and the residual log(measured / law).

    residual : lattice over log2(participants) and log2(message bytes), or None
    from_bytes : per measured number of participants, the message from which the engine picks this model
    """

    laws: tuple[Law, ...]
    residual: Lattice | None
    from_bytes: tuple[tuple[int, float], ...]


def wire_factor(algorithm: str, *, operation: Collective, participants: ArrayLike) -> Array:
    """Bytes that cross a device's link in its busier direction, per message byte [-].

    Equation
    --------
    all-reduce: ring and two-shot 2 (p - 1) / p, one-shot p - 1, in-switch (multimem) 1 + 1 / p
    all-gather, reduce-scatter, all-to-all: (p - 1) / p; point to point: 1

    Parameters
    ----------
    algorithm : one of ALGORITHMS
    operation : which collective
    participants : devices p [-]

    Range of validity
    -----------------
    p >= 2 on links of equal bandwidth. In the switch a device sends its message once, receives the result once and
    forwards its share of 1 / p. Leaves out protocol headers and flags.

    References
    ----------
    [Thakur2005], [NCCLTests2025]

    Examples
    --------
    >>> float(wire_factor("ring_simple", operation=Collective.ALL_REDUCE, participants=8))
    1.75
    >>> float(wire_factor("one_shot", operation=Collective.ALL_REDUCE, participants=4))
    3.0
    """
    p = np.asarray(participants, dtype=np.float64)
    if operation is Collective.P2P:
        return np.ones_like(p)
    if operation is not Collective.ALL_REDUCE:
        return (p - 1) / p
    if algorithm == "one_shot":
        return p - 1
    if algorithm == "multimem":
        return 1 + 1 / p
    return 2 * (p - 1) / p


def hop_count(algorithm: str, *, operation: Collective, participants: ArrayLike) -> Array:
    """Dependent steps between devices [-].

    Equation
    --------
    2 (p - 1) for a ring or two-shot all-reduce, p - 1 otherwise, 1 for point to point

    Parameters
    ----------
    algorithm : one of ALGORITHMS
    operation : which collective
    participants : devices p [-]

    Range of validity
    -----------------
    p >= 2. Leaves out trees, whose depth grows with log2 p.

    References
    ----------
    [Thakur2005]

    Examples
    --------
    >>> int(hop_count("ring_ll", operation=Collective.ALL_REDUCE, participants=8))
    14
    """
    p = np.asarray(participants, dtype=np.float64)
    if operation is Collective.P2P:
        return np.ones_like(p)
    twice = operation is Collective.ALL_REDUCE and algorithm not in ("one_shot", "multimem")
    return 2 * (p - 1) if twice else p - 1


def law_seconds(
    law: Law, *, operation: Collective, message_bytes: ArrayLike, participants: ArrayLike, bytes_per_s: float
) -> Array:
    """Time of one collective under one latency-bandwidth law [s].

    Equation
    --------
    t = launch + hop x hops(p) + wire(p) x b / (fraction x bandwidth)

    Parameters
    ----------
    law : launch and hop time [s], reached fraction of the bandwidth [-], algorithm
    operation : which collective
    message_bytes : message b, as ``CollectiveShape`` counts it [bytes]
    participants : devices p [-]
    bytes_per_s : link bandwidth per device and direction [bytes/s]

    Range of validity
    -----------------
    Devices of one scale-up domain. Leaves out congestion by other traffic and waiting for late participants.

    References
    ----------
    [Hockney1994], [Thakur2005]

    Examples
    --------
    1 MiB over 8 devices, 450 GB/s each: 3 + 14 x 1 us, and 1.75 MiB at 80 % of the link.

    >>> law = Law(algorithm="ring_simple", launch_s=3e-6, hop_s=1e-6, fraction=0.8)
    >>> t = law_seconds(
    ...     law, operation=Collective.ALL_REDUCE, message_bytes=2**20, participants=8, bytes_per_s=450e9
    ... )
    >>> round(float(t) * 1e6, 2)
    22.1
    """
    hops = hop_count(law.algorithm, operation=operation, participants=participants)
    wire = wire_factor(law.algorithm, operation=operation, participants=participants)
    moved_s = wire * np.asarray(message_bytes, dtype=np.float64) / (law.fraction * bytes_per_s)
    return law.launch_s + law.hop_s * hops + moved_s


def fastest_seconds(
    laws: tuple[Law, ...],
    *,
    operation: Collective,
    message_bytes: ArrayLike,
    participants: ArrayLike,
    bytes_per_s: float,
) -> Array:
    """Time under the fastest of ``laws`` [s]: what a tuner that knows them picks. Reference: [Hockney1994]"""
    times = [
        law_seconds(
            law, operation=operation, message_bytes=message_bytes, participants=participants, bytes_per_s=bytes_per_s
        )
        for law in laws
    ]
    return reduce(np.minimum, times)


def model_seconds(
    model: CollectiveModel,
    *,
    operation: Collective,
    message_bytes: Array,
    participants: int,
    bytes_per_s: float,
    one_shot_bytes: float = 0.0,
) -> Array:
    """Laws times the residual [s], for positive ``message_bytes``; up to ``one_shot_bytes`` one shot's alone, where the
    smallest messages take it: elsewhere it may never have been the fastest, and its law says nothing.
    Reference: [Hockney1994]"""
    fastest_s = partial(fastest_seconds, operation=operation, participants=participants, bytes_per_s=bytes_per_s)
    law_s = fastest_s(model.laws, message_bytes=message_bytes)
    if one_shot_bytes > 0:
        first = min(model.laws, key=lambda law: float(fastest_s((law,), message_bytes=1.0)))
        if first.algorithm == "one_shot":
            law_s = np.where(message_bytes <= one_shot_bytes, fastest_s((first,), message_bytes=message_bytes), law_s)
    if model.residual is None:
        return law_s
    points = log2_coordinates(participants, message_bytes)
    return law_s * np.exp(log_correction(model.residual, points))


@lru_cache(maxsize=256)
def _fitted(fit: Same[KernelFit]) -> CollectiveModel:
    return read_model(fit.held.parameters)


def fitted_model(fit: KernelFit) -> CollectiveModel:
    """`read_model` of a calibration's fit, read once: calibrations are frozen, and every step asks again."""
    return _fitted(Same(fit))


def read_model(parameters: Mapping[str, float]) -> CollectiveModel:
    """The model that a calibration file's flat parameters describe. Names: ``<algorithm>.launch_s``, ``.hop_s``,
    ``.fraction``; ``residual.p<participants>.<log2 bytes>``; ``from_bytes.p<participants>``."""
    names = {key.split(".")[0] for key in parameters} - {RESIDUAL, FROM_BYTES}
    unknown = sorted(names - set(ALGORITHMS))
    if unknown:
        raise _unreadable(f"unknown collective algorithm {unknown[0]!r}", hint=did_you_mean(unknown[0], ALGORITHMS))
    laws = tuple(
        Law(
            algorithm=name,
            launch_s=parameters[f"{name}.launch_s"],
            hop_s=parameters[f"{name}.hop_s"],
            fraction=parameters[f"{name}.fraction"],
        )
        for name in ALGORITHMS
        if name in names
    )
    starts = sorted((_sizes_of(key)[0], value) for key, value in parameters.items() if key.startswith(FROM_BYTES))
    return CollectiveModel(laws=laws, residual=_read_residual(parameters), from_bytes=tuple(starts))


def _unreadable(message: str, *, hint: str = "") -> RoofcastError:
    return RoofcastError(message, field="calibration.parameters", hint=hint)


def _sizes_of(key: str) -> tuple[int, ...]:
    """Participants, and of a residual the octave, that a parameter's name holds."""
    found = _SIZES.fullmatch(key)
    if found is None:
        raise _unreadable(f"{key!r} names no size", hint="residual.p8.20 is that of 8 devices at 2^20 bytes")
    return tuple(map(int, filter(None, found.groups())))


def _read_residual(parameters: Mapping[str, float]) -> Lattice | None:
    cells = {}
    for key, value in parameters.items():
        if key.startswith(RESIDUAL):
            devices, octave = _sizes_of(key)
            cells[devices, octave] = value
    if not cells:
        return None
    devices_axis = sorted({devices for devices, _ in cells})
    octave_axis = sorted({octave for _, octave in cells})
    missing = next((size for size in product(devices_axis, octave_axis) if size not in cells), None)
    if missing is not None:
        raise _unreadable(f"a residual lacks {RESIDUAL}.p{missing[0]}.{missing[1]}, which its other sizes need")
    return Lattice(
        axes=("participants", "message_bytes"),
        nodes=(np.log2(np.array(devices_axis, dtype=np.float64)), np.array(octave_axis, dtype=np.float64)),
        values=np.array([[cells[devices, octave] for octave in octave_axis] for devices in devices_axis]),
        reach=RESIDUAL_REACH,
    )
