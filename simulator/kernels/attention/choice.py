"""Which fit prices an attention call: same number formats, head width and mask, or the nearest that was measured."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from math import log2
from typing import NamedTuple

from simulator.kernels.attention.cases import MULTIPLIES_FP8
from simulator.operators.work import AttentionShape
from simulator.records import dataclass
from simulator.specs.base import Same
from simulator.specs.hardware.calibration import KernelFit
from simulator.specs.model.precision import Dtype

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
