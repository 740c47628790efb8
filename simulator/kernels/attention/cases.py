"""Attention calls: their cases as arrays, the machine's facts, and the fit that prices them.

That is the one of the same number formats, head width and mask, or the nearest that was measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf, log2
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from simulator.errors import ProfileError, did_you_mean
from simulator.operators.work import Array, AttentionShape
from simulator.records import dataclass
from simulator.specs.base import Same
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.hardware.calibration import KernelFit
from simulator.specs.model.precision import BITS, Dtype
from simulator.units import BITS_PER_BYTE

KEY_BLOCK = 128.0
"""Keys that a tile advances by [Dao2023]."""

ACTIVATION_BYTES = 2.0
"""Queries, new keys and values and the output are 16-bit numbers."""

EXPONENTIALS_PER_CLOCK = 16.0
"""Results per clock and SM of the special function units, compute capabilities 8.0 to 10.0 [CudaGuide2025]."""

DOUBLED_EXPONENTIALS = ("blackwell-ultra",)
"""Architectures with twice those units: 10.7 against 5 tera-exponentials/s (NVIDIA, "Inside NVIDIA Blackwell Ultra",
2025-08; from memory, verify)."""

WIDTH_LOG_SIGMA = 0.15
"""Added spread per octave where another head width stands in, and its least: over nine accelerators the vLLM fits of
64, 128 and 256 price each other's rows with a median spread of 0.08 to 0.18 an octave away, 0.12 to 0.26 two away."""

UNEVEN_BETWEEN, UNEVEN_LOG_SIGMA = (128.0, 256.0), 0.7
"""Least added spread where either width lies between these: 192 runs on kernels of its own on some accelerators (to and
from 192 the median spread is 0.22 to 0.53 under vLLM, 0.25 to 0.97 under SGLang)."""

WIDEST_SHARED = 256.0
"""Flash-attention's widest head; wider ones run on other kernels [Dao2023]."""

OTHER_KERNEL_LOG_SIGMA = {"prefill_attention": 0.5, "decode_attention": 0.65}
"""Least added spread from one side of WIDEST_SHARED to the other: fits of 128 and 256 price heads of 512 with a spread
of 0.27 to 0.36 (the reverse up to 0.47) in prefill, of 0.14 on Blackwell and 1.4 on Hopper (0.65 is their root mean
square) in decode."""

FORMAT_LOG_SIGMA = 0.2
"""Added spread where another number format stands in, with this format's bytes: the bf16 fits price calls with an
8-bit cache with a spread of 0.07 to 0.24 there."""

QUERY_LOG_SIGMA = 0.05
"""Added spread where the fit reads the same 8-bit cache, but its queries stay in 16 bits, or the other way round."""

LATENT_LOG_SIGMA = 0.1
"""Spread of dense heads of 192 standing in for expanded latent attention (keys of 192, values of 128): the same kernel
with a third less to multiply. vLLM's whole MLA modules, which ran it, grow with the square of the prompt as these fits
say to within 5 to 15 % (0.80 to 0.95 of the peak on Hopper, 0.55 on L40S, 0.66 on RTX PRO 6000)."""

FORM_LOG_SIGMA = 0.5
"""Spread of the expanded kernel standing in for the absorbed one in prefill, or the other way round: where both were
measured they reach 0.60 and 0.65 of the peak on Hopper, 0.20 and 0.54 on L40S."""

EIGHT_BIT = (Dtype.FP8, Dtype.INT8)
# A 4-bit cache is widened on the way into the product, as an 8-bit one is; its kernels were not measured.
FOUR_BIT = (Dtype.INT4, Dtype.FP4)
NARROW_CACHE = (*EIGHT_BIT, *FOUR_BIT)

WIDE_MATH = (Dtype.FP32, Dtype.TF32)
"""Products whose factors have 32 bits: no table timed attention in them."""

LATENT_VARIANTS = ("mla", "mla_absorbed")
"""Fits of latent attention: in prefill expanded and absorbed, in decode always absorbed."""

_WIDTH = re.compile(r"d(\d+)(_window|_encoder)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCases:
    """Attention calls as arrays of equal length; ``group`` is query heads per KV head, ``window`` inf without one."""

    sequences: Array
    query_tokens: Array
    context_tokens: Array
    num_kv_heads: Array
    group: Array
    head_dim: Array
    v_head_dim: Array
    window: Array
    kv_element_bytes: Array
    causal: bool = True
    shared_kv: bool = False

    @property
    def key_tokens(self) -> Array:
        """Keys of one sequence, cached and new."""
        return self.context_tokens + self.query_tokens

    @property
    def kv_width(self) -> Array:
        """Stored numbers per key and KV head."""
        return self.head_dim if self.shared_kv else self.head_dim + self.v_head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionMachine:
    """Datasheet rates that the physics needs; cap_flops_per_s as a `GemmMachine` has it."""

    peak_flops_per_s: float
    exponentials_per_s: float
    memory_bytes_per_s: float
    l2_bytes: float
    compute_units: float
    clock_hz: float
    cap_flops_per_s: float = inf

    def unit_flops_per_s(self, fraction: float) -> float:
        """Rate of one compute unit of a kernel that reaches ``fraction`` of the peak [FLOP/s]."""
        return min(fraction * self.peak_flops_per_s, self.cap_flops_per_s) / self.compute_units


def attention_machine(hardware: AcceleratorSpec, compute_dtype: Dtype) -> AttentionMachine:
    """Facts of ``hardware``; refuses a number format that its matrix units lack."""
    peak = hardware.peak_flops_per_s.get(compute_dtype)
    if peak is None:
        raise ProfileError(
            f"{hardware.name} has no {compute_dtype.value} matrix rate for attention",
            field="precision",
            code="unsupported_dtype",
            hint=did_you_mean(compute_dtype.value, [dtype.value for dtype in hardware.peak_flops_per_s]),
        )
    per_clock = EXPONENTIALS_PER_CLOCK * (2.0 if hardware.architecture in DOUBLED_EXPONENTIALS else 1.0)
    return AttentionMachine(
        peak_flops_per_s=hardware.uncapped_flops_per_s.get(compute_dtype, peak),
        cap_flops_per_s=peak if compute_dtype in hardware.uncapped_flops_per_s else inf,
        exponentials_per_s=per_clock * hardware.parallel_units * hardware.boost_clock_hz,
        memory_bytes_per_s=hardware.memory_bytes_per_s,
        l2_bytes=hardware.l2_bytes,
        compute_units=float(hardware.parallel_units),
        clock_hz=hardware.boost_clock_hz,
    )


def kernel_dtype(fit: KernelFit, hardware: AcceleratorSpec) -> Dtype:
    """Number format in which the kernel of a fit multiplies: what the fit says, whatever the GEMMs beside it use."""
    if fit.format == "fp8" or MULTIPLIES_FP8 in fit.parameters:
        return Dtype.FP8
    return Dtype.BF16 if Dtype.BF16 in hardware.peak_flops_per_s else Dtype.FP16


MULTIPLIES_FP8 = "multiplies_fp8"
"""Trait of kernels that narrow 16-bit queries to the format of their 8-bit cache."""


def attention_cases(shape: AttentionShape) -> AttentionCases:
    """The cases of one operator row, its scalars broadcast over its arrays. A case without sequences or queries takes
    no time, which its caller knows; here it stands for one of each."""
    sequences, query, context = np.broadcast_arrays(shape.sequences, shape.query_tokens, shape.context_tokens)
    ones = np.ones(len(sequences))
    return AttentionCases(
        sequences=np.where(sequences > 0, sequences, 1.0),
        query_tokens=np.where(query > 0, query, 1.0),
        context_tokens=np.asarray(context, dtype=np.float64),
        num_kv_heads=ones * shape.num_kv_heads,
        group=ones * (shape.num_heads / shape.num_kv_heads),
        head_dim=ones * shape.head_dim,
        v_head_dim=ones * shape.v_head_dim,
        window=ones * (np.inf if shape.window is None else shape.window),
        kv_element_bytes=ones * (BITS[shape.kv_dtype] / BITS_PER_BYTE),
        causal=shape.causal,
        shared_kv=shape.shared_kv,
    )


def append_seconds(
    cases: AttentionCases, *, machine: AttentionMachine, token_cycles: float, bytes_per_s: Array | float
) -> Array:
    """Writing the new keys and values into the paged cache [s].

    One thread block per token, as wide as its keys but at most THREADS_PER_TOKEN numbers, costs ``token_cycles`` of
    one compute unit at full width; never faster than reading and writing the bytes.
    """
    tokens = cases.sequences * cases.query_tokens
    width = cases.num_kv_heads * cases.head_dim
    issue = (
        tokens * np.minimum(width / THREADS_PER_TOKEN, 1.0) * token_cycles / (machine.clock_hz * machine.compute_units)
    )
    numbers = tokens * cases.num_kv_heads * cases.kv_width
    moved = numbers * (ACTIVATION_BYTES + cases.kv_element_bytes) / bytes_per_s
    return np.hypot(issue, moved)


THREADS_PER_TOKEN = 512.0
"""Widest thread block of the cache-append kernel, one number a thread (vLLM csrc/cache_kernels.cu)."""


# vLLM's decode tables stop at this many KV heads. SGLang runs the same kernel on some architectures and was measured on
# more, so that multi-head attention need not be extrapolated.
MEASURED_KV_HEADS = 8


_OF_A_KERNEL = attrgetter(
    *("is_decode", "head_dim", "v_head_dim", "window", "causal", "shared_kv", "splits_keys"),
    *("compute_dtype", "kv_dtype", "expanded_widths"),
)


def attention_kernel(shape: AttentionShape) -> tuple[object, ...]:
    """What of a call its company has to share: its kernel, and whether another library's tables may price it."""
    return (*_OF_A_KERNEL(shape), shape.num_kv_heads > MEASURED_KV_HEADS)


def join_attention(shapes: Sequence[AttentionShape]) -> AttentionShape:
    """The cases of calls of one kernel, end to end."""
    sizes = [np.size(shape.sequences) for shape in shapes]

    def over_cases(values: Sequence[ArrayLike]) -> Array:
        return np.concatenate([np.broadcast_to(value, (size,)) for value, size in zip(values, sizes, strict=True)])

    # Prices broadcast heads just as sizes, although a row of the operator list has one number of them.
    heads: Any = over_cases([shape.num_heads for shape in shapes])
    kv_heads: Any = over_cases([shape.num_kv_heads for shape in shapes])
    return replace(
        shapes[0],
        sequences=over_cases([shape.sequences for shape in shapes]),
        query_tokens=over_cases([shape.query_tokens for shape in shapes]),
        context_tokens=over_cases([shape.context_tokens for shape in shapes]),
        num_heads=heads,
        num_kv_heads=kv_heads,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionChoice:
    """A fit, and the spread that it adds because it is not quite the kernel asked for (0 when it is)."""

    fit: KernelFit
    log_sigma_extra: float


class _Kernel(NamedTuple):
    """What of a call decides which kernel runs it; its sizes do not."""

    is_decode: bool
    head_dim: float
    v_head_dim: float
    shared_kv: bool
    windowed: bool
    encodes: bool
    compute_dtype: Dtype
    kv_dtype: Dtype
    has_fp8: bool

    @property
    def is_expanded(self) -> bool:
        """Heads of latent attention, multiplied out: values narrower than keys."""
        return not self.shared_kv and self.v_head_dim != self.head_dim

    @property
    def format(self) -> str:
        """Name of the number formats as the fits spell it; 16-bit floats share their kernels' speed."""
        if self.kv_dtype not in NARROW_CACHE:
            return "bf16"
        return "fp8" if self.compute_dtype in EIGHT_BIT else "bf16_kvfp8"


def attention_family(shape: AttentionShape) -> str:
    """The family of kernels that a call belongs to."""
    return "decode_attention" if shape.is_decode else "prefill_attention"


def choose_attention_fit(
    fits: Iterable[KernelFit], *, shape: AttentionShape, has_fp8: bool = True
) -> AttentionChoice | None:
    """The nearest fit of the call's family, or None where the family was not measured.

    Kernels pad a head to the next width that they were built for, so the next larger measured width stands in
    before a smaller one; one on the same side of WIDEST_SHARED before either. Absorbed latent attention (values inside
    the keys) is its own kernel; expanded (values narrower than keys) runs the dense one unless its own was measured;
    scores without values (a sparse-attention indexer) were not measured, nor was any kernel that multiplies in 32
    bits, at a fraction of the others' rate. has_fp8 : the accelerator multiplies FP8
    """
    kernel = _Kernel(
        is_decode=shape.is_decode,
        head_dim=shape.head_dim,
        v_head_dim=shape.v_head_dim,
        shared_kv=shape.shared_kv,
        windowed=shape.window is not None,
        encodes=not shape.causal and not shape.is_decode,
        compute_dtype=shape.compute_dtype,
        kv_dtype=shape.kv_dtype,
        has_fp8=has_fp8,
    )
    return _chosen(Same(tuple(fits)), kernel)


@lru_cache(maxsize=1024)
def _chosen(fits: Same[tuple[KernelFit, ...]], kernel: _Kernel) -> AttentionChoice | None:
    """The same kernels are asked for at every batch and degree."""
    family = "decode_attention" if kernel.is_decode else "prefill_attention"
    choices = [_choice(fit, kernel=kernel) for fit in fits.held if fit.family == family]
    nearest = min((choice for choice in choices if choice is not None), key=lambda pair: pair[0], default=None)
    return nearest[1] if nearest else None


def _format_distance(fitted: str, asked: str) -> float:
    """Added spread of one number format standing in for another."""
    if fitted == asked:
        return 0.0
    return FORMAT_LOG_SIGMA if "bf16" in (fitted, asked) else QUERY_LOG_SIGMA


def _choice(fit: KernelFit, *, kernel: _Kernel) -> tuple[tuple[float, ...], AttentionChoice] | None:
    """How far ``fit`` is from the call, as a key to sort by; None where it is another kind of kernel."""
    if kernel.v_head_dim == 0 or kernel.compute_dtype in WIDE_MATH:
        return None
    if not kernel.has_fp8 and (fit.format == "fp8" or MULTIPLIES_FP8 in fit.parameters):
        return None
    extra = _format_distance(fit.format, kernel.format)
    if kernel.kv_dtype in FOUR_BIT:
        extra = max(extra, FORMAT_LOG_SIGMA)
    if fit.variant in LATENT_VARIANTS:
        return _latent_choice(fit, kernel=kernel, extra=extra)
    if kernel.is_expanded:
        extra = LATENT_LOG_SIGMA + (extra if kernel.is_decode else _format_distance(fit.format, "bf16"))
    found = _WIDTH.match(fit.variant)
    if found is None or kernel.shared_kv:
        return None
    width = float(found[1])
    masked, encodes = found[2] == "_window", found[2] == "_encoder"
    if (masked and not kernel.windowed) or (encodes and not kernel.encodes):
        return None
    distance = width - kernel.head_dim if width >= kernel.head_dim else 2.0 * max(width, kernel.head_dim) - width
    foreign = (width > WIDEST_SHARED) != (kernel.head_dim > WIDEST_SHARED)
    spread = extra + _width_spread(width, asked=kernel.head_dim, family=fit.family)
    unlike = float(kernel.windowed and not masked) + float(kernel.encodes and not encodes)
    return (1.0, float(foreign), distance, extra, unlike), AttentionChoice(fit=fit, log_sigma_extra=spread)


def _latent_choice(
    fit: KernelFit, *, kernel: _Kernel, extra: float
) -> tuple[tuple[float, ...], AttentionChoice] | None:
    """A latent fit: absorbed kernels share one vector among heads, expanded ones have keys wider than values. An 8-bit
    cache brings its own queries, whatever the products beside it; expanded keys and values were written by
    ``kv_b_proj`` in 16 bit unless the library has a kernel that narrows them."""
    if not kernel.shared_kv and not kernel.is_expanded:
        return None
    absorbed = kernel.is_decode or fit.variant == "mla_absorbed"
    narrow = fit.format != "bf16" and kernel.format != "bf16"
    spread = 0.0 if narrow or (fit.format == "bf16" and kernel.is_expanded) else extra
    other_form = absorbed != kernel.shared_kv
    if other_form:
        spread = max(spread, FORM_LOG_SIGMA)
    # Dense heads of the same width run the expanded kernel itself: only they go before the other form.
    rank = (2.0 if other_form else 0.0, 0.0, 0.0, 0.0 if narrow else extra, 0.0)
    return rank, AttentionChoice(fit=fit, log_sigma_extra=spread)


def _width_spread(fitted: float, *, asked: float, family: str) -> float:
    """Added spread of one head width standing in for another."""
    if fitted == asked:
        return 0.0
    spread = WIDTH_LOG_SIGMA * max(abs(log2(fitted / asked)), 1.0)
    if any(UNEVEN_BETWEEN[0] < width < UNEVEN_BETWEEN[1] for width in (fitted, asked)):
        spread = max(spread, UNEVEN_LOG_SIGMA)
    if (fitted > WIDEST_SHARED) != (asked > WIDEST_SHARED):
        spread = max(spread, OTHER_KERNEL_LOG_SIGMA[family])
    return spread
