"""Linear attention and state-space updates: a short convolution, then a scan over chunks of tokens per value head.

The chunked form of the delta rule [Yang2024] keeps a state of key width x value width per head: prefill
walks the chunks of a sequence one after another, decode reads and writes the state once per token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from simulator.kernels.attention.cases import ACTIVATION_BYTES, AttentionMachine, attention_machine, kernel_dtype
from simulator.kernels.fits import FitSet
from simulator.kernels.timing import (
    Lattice,
    Provenance,
    Terms,
    Timing,
    corrected_timing,
    l2_hit_share,
    log2_coordinates,
    smooth_maximum,
)
from simulator.operators.work import Array, RecurrentShape, Work
from simulator.records import dataclass
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.hardware.calibration import KernelFit
from simulator.specs.model.precision import BITS
from simulator.units import BITS_PER_BYTE

RECURRENT_AXES = ("tiles", "tokens")

CHUNK_TOKENS = 64.0
"""Tokens that a scan takes at once [Yang2024]."""

SHARED: dict[str, float] = {"start_cycles": 0.0, "scratch": 4.0, "l2_speedup": 2.0, "overlap": 1.5}
LEAST_CHUNK, WAVE_QUANTISATION = 0.5, 0.3
"""What tables do not tell: the first two of a step of one token, the others of prompts, and of both how full a scan's
last wave and last chunk are. Medians of fits that had them free, half of which stood at a bound. With them fixed, and
one scan a unit, accelerators left out err less than before (validation/fit/kernels/recurrent.py)."""

VARIANT_LOG_SIGMA = 0.35
"""Added spread where the fit of another kind of recurrence is used instead (Mamba's scan is not measured); an
estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentCases:
    """Calls as arrays of equal length; ``heads`` value heads of ``value_width``, states ``key_width`` deep."""

    sequences: Array
    tokens: Array
    heads: Array
    key_heads: Array
    value_width: Array
    key_width: Array
    state_element_bytes: Array

    @property
    def tiles(self) -> Array:
        """Independent scans."""
        return self.sequences * self.heads

    @property
    def channels(self) -> Array:
        """Numbers per token that enter the convolution: queries, keys and values."""
        return 2.0 * self.key_heads * self.key_width + self.heads * self.value_width


def recurrent_cases(shape: RecurrentShape) -> RecurrentCases:
    """The cases of one operator row, its scalars broadcast over its arrays; an empty case stands for one sequence."""
    sequences, tokens = np.broadcast_arrays(shape.sequences, shape.tokens)
    ones = np.ones(len(sequences))
    return RecurrentCases(
        sequences=np.where(sequences > 0, sequences, 1.0),
        tokens=np.where(tokens > 0, tokens, 1.0),
        heads=ones * shape.num_heads,
        key_heads=ones * shape.num_groups,
        value_width=ones * shape.head_dim,
        key_width=ones * shape.state_size,
        state_element_bytes=ones * (BITS[shape.state_dtype] / BITS_PER_BYTE),
    )


def convolution_seconds(cases: RecurrentCases, *, machine: AttentionMachine, parameters: Mapping[str, float]) -> Array:
    """The short causal convolution over the channels of every token [s]: launch, then read and write once. Runs at
    conv_fraction of the bandwidth, l2_speedup times that while the tokens stay in L2."""
    moved = cases.sequences * cases.tokens * cases.channels * 2.0 * ACTIVATION_BYTES
    hot = l2_hit_share(moved, l2_bytes=machine.l2_bytes)
    rate = (
        parameters["conv_fraction"] * machine.memory_bytes_per_s * (1.0 + (parameters["conv_l2_speedup"] - 1.0) * hot)
    )
    return parameters["conv_launch_s"] + moved / rate


def scan_seconds(
    cases: RecurrentCases, *, machine: AttentionMachine, parameters: Mapping[str, float], cold: bool = False
) -> tuple[Array, Array, Array]:
    """Total, compute and memory time of the scan [s].

    t = launch_s + smooth_max(waves x (start_cycles + chunks x chunk_cycles), bytes / bandwidth)

    A chunk costs ``chunk_cycles`` at a state of 128 x 128 and in proportion to the state otherwise, one that is not
    full at least LEAST_CHUNK of it; waves lie between x and ceil(x) of x = sequences x heads / compute units, at least
    1. The bytes are the state, read and written, and the tokens, with ``scratch`` numbers per value that pass between
    the kernels of a chunk; ``cold`` denies the state the L2, as in a serving step. Valid for positive sizes.
    parameters : of the fit; of what its phase does not tell SHARED
    """
    p = {**SHARED, **parameters}
    state = cases.key_width * cases.value_width
    filled = cases.tiles / machine.compute_units
    waves = np.maximum(filled + WAVE_QUANTISATION * (np.ceil(filled) - filled), 1.0)
    chunks = np.maximum(cases.tokens / CHUNK_TOKENS, LEAST_CHUNK)
    cycles = p["start_cycles"] + chunks * p["chunk_cycles"] * state / REFERENCE_STATE
    compute = waves * cycles / machine.clock_hz
    states = 2.0 * cases.tiles * state * cases.state_element_bytes
    outputs = cases.heads * cases.value_width * (1.0 + p["scratch"])
    through = cases.sequences * cases.tokens * (cases.channels + outputs) * ACTIVATION_BYTES
    hot = l2_hit_share(states + through, l2_bytes=machine.l2_bytes)
    slow = p["memory_fraction"] * machine.memory_bytes_per_s
    fast = slow * (1.0 + (p["l2_speedup"] - 1.0) * hot)
    memory = states / (slow if cold else fast) + through / fast
    return p["launch_s"] + smooth_maximum(compute, memory, sharpness=p["overlap"]), compute, memory


REFERENCE_STATE = 128.0 * 128.0
"""State of one head in every model that was measured."""


def recurrent_points(cases: RecurrentCases) -> Array:
    """Coordinates of the correction, RECURRENT_AXES in octaves, shape (cases, 2)."""
    return log2_coordinates(cases.tiles, cases.tokens)


def recurrent_variant(shape: RecurrentShape) -> str:
    """Variant of the fit that prices the shape exactly: the kind of recurrence and its phase."""
    return f"{shape.variant}_{'decode' if shape.is_decode else 'prefill'}"


def choose_recurrent_fit(fits: tuple[KernelFit, ...], *, shape: RecurrentShape) -> KernelFit | None:
    """The fit of the shape's recurrence and phase, otherwise that of the gated delta rule, or None."""
    phase = "decode" if shape.is_decode else "prefill"
    for variant in (recurrent_variant(shape), f"gated_delta_{phase}"):
        for fit in fits:
            if fit.family == "recurrent" and fit.variant == variant:
                return fit
    return None


def measured_timing(
    work: Work, shape: RecurrentShape, *, hardware: AcceleratorSpec, tables: Callable[..., FitSet | None]
) -> Timing | None:
    """Price by the nearest fits that have the phase; None where nobody measured it. A100's tables hold no prompts: its
    chunks took 6.5 times H100's by the roofline, where Hopper's and Blackwell's carry to each other within 7 to 40 %.

    tables : fits, but for accelerators that it is told are ``lacking`` the kernel
    """
    lacking: tuple[str, ...] = ()
    while (fits := tables(lacking=lacking)) is not None:
        fit = choose_recurrent_fit(fits.fits, shape=shape)
        if fit is not None:
            timing = recurrent_timing(shape, hardware=hardware, fit=fit, lattice=fits.lattice(fit))
            return at_most_peak(fits.transferred(timing), work, hardware=hardware, fit=fit)
        lacking = (*lacking, fits.relative.name)
    return None


def recurrent_timing(
    shape: RecurrentShape, *, hardware: AcceleratorSpec, fit: KernelFit, lattice: Lattice | None, cold: bool = True
) -> Timing:
    """Price one layer's convolution and scan, vectorised over sequences and tokens. A recurrence that nobody measured
    takes the fit of another kind with its own bytes: assumed, and wider."""
    cases = recurrent_cases(shape)
    machine = attention_machine(hardware, kernel_dtype(fit, hardware))
    scan, compute, memory = scan_seconds(cases, machine=machine, parameters=fit.parameters, cold=cold)
    before = convolution_seconds(cases, machine=machine, parameters=fit.parameters)
    points = recurrent_points(cases)
    terms = Terms(seconds=scan, compute_s=compute, memory_s=memory + before)
    timing = corrected_timing(terms, points, fit=fit, lattice=lattice, axes=RECURRENT_AXES)
    timing = replace(timing, seconds=timing.seconds + before)
    if fit.variant == recurrent_variant(shape):
        return timing
    return replace(
        timing,
        log_sigma=np.hypot(timing.log_sigma, VARIANT_LOG_SIGMA),
        provenance=np.full(len(points), float(Provenance.ASSUMED)),
    )


def at_most_peak(timing: Timing, work: Work, *, hardware: AcceleratorSpec, fit: KernelFit) -> Timing:
    """``timing``, which is not faster than the matrix units, nor than memory with what the L2 does not hold: fits know
    chunks and convolutions as long as models have them, and a configuration may have far longer ones."""
    compute_s = np.maximum(timing.compute_s, work.flops / hardware.peak_flops_per_s[kernel_dtype(fit, hardware)])
    missed = 1.0 - l2_hit_share(work.bytes, l2_bytes=hardware.l2_bytes)
    memory_s = np.maximum(timing.memory_s, missed * work.bytes / hardware.memory_bytes_per_s)
    seconds = np.maximum(timing.seconds, np.maximum(compute_s, memory_s))
    return replace(timing, seconds=seconds, compute_s=compute_s, memory_s=memory_s)
