"""Quantised matrix formats by name and by pair of dtypes: stored bits, multiplying rate.

Bits per weight count scales and zero points: a group of g weights with a 16-bit scale and a 4-bit zero point takes
4 + 20/g bits [Frantar2022] [Lin2023]; fp8 blocks of 128 x 128 share a 32-bit scale [DeepSeek2024b]; nvfp4 has an 8-bit
scale per 16 weights [NVIDIA2025] and mxfp4 one per 32 [OCP2023].
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from simulator.errors import RoofcastError, did_you_mean
from simulator.operators.work import MatmulFormat
from simulator.specs.precision import BITS, Dtype

DEFAULT_GROUP_SIZE = 128  # of GPTQ and AWQ checkpoints in the wild, and AWQ's paper
FP8_BLOCK = 128
SCALE_BITS = 16
SCHEME_NAMES = (
    "fp8", "fp8-block", "gptq", "gptq-g128", "gptq-3bit", "gptq-g1024", "gptq-8bit", "awq", "awq-g128", "rtn",
    "rtn-g128", "nvfp4", "mxfp4", "smoothquant-o1", "smoothquant-o2", "smoothquant-o3", "llm.int8", "nf4", "bitnet",
)  # fmt: skip
_GROUPED = re.compile(r"(gptq|awq|rtn)(?:-([2348])-?bit)?(?:-g(\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """A way to quantise: dtypes, the product format, and roles that a checkpoint keeps unquantised (None: unsaid)."""

    weights: Dtype
    activations: Dtype
    format: MatmulFormat
    unquantised: tuple[str, ...] | None = None


def scheme_named(name: str, *, plain: Dtype) -> Scheme:
    """Scheme of ``precision.scheme``; ``plain`` is the 16-bit dtype of unquantised activations."""
    key = name.strip().lower().replace("_", "-")
    grouped = _GROUPED.fullmatch(key)
    if grouped is not None:
        return _weight_only(grouped, plain)
    if key in ("smoothquant-o1", "smoothquant-o2", "smoothquant-o3"):
        return Scheme(weights=Dtype.INT8, activations=Dtype.INT8, format=_int8())
    match key:
        case "fp8":
            return Scheme(weights=Dtype.FP8, activations=Dtype.FP8, format=_fp8())
        case "fp8-block":
            return Scheme(weights=Dtype.FP8, activations=Dtype.FP8, format=_fp8_block())
        case "nvfp4":
            return Scheme(weights=Dtype.FP4, activations=Dtype.FP4, format=_nvfp4())
        case "mxfp4":
            return Scheme(weights=Dtype.FP4, activations=plain, format=_mxfp4(plain))
        case "llm.int8":
            # [Dettmers2022]: 8-bit products plus a 16-bit product over the outlier columns.
            product = MatmulFormat(
                name="llm_int8", weight_bits=8, activation_bits=8, math=Dtype.INT8, quantises_activations=True
            )
            return Scheme(weights=Dtype.INT8, activations=Dtype.INT8, format=product)
        case "nf4":
            # [Dettmers2023]: blocks of 64 with an 8-bit scale, those in blocks of 256 with a 32-bit scale: 0.127 bit.
            bits = 4 + 8 / 64 + 32 / (64 * 256)
            product = MatmulFormat(name="nf4", weight_bits=bits, activation_bits=16, math=plain)
            return Scheme(weights=Dtype.INT4, activations=plain, format=product)
        case "bitnet":
            # [Ma2024]: ternary weights, stored by its released kernels as 2 bits, 8-bit activations.
            product = MatmulFormat(
                name="w1.58a8", weight_bits=2, activation_bits=8, math=Dtype.INT8, quantises_activations=True
            )
            return Scheme(weights=Dtype.INT1, activations=Dtype.INT8, format=product)
    raise RoofcastError(
        f"unknown scheme {name!r}",
        field="precision.scheme",
        code="unknown_scheme",
        hint=did_you_mean(key, SCHEME_NAMES),
    )


def format_of_pair(
    weights: Dtype, activations: Dtype | None, *, plain: Dtype, group_size: int | None = None, method: str = ""
) -> MatmulFormat:
    """Format of a pair of dtypes; ``activations`` None takes the pair that engines run for these weights."""
    wide = activations in (Dtype.BF16, Dtype.FP16, Dtype.FP32)
    if BITS[weights] >= BITS[Dtype.BF16]:
        if activations not in (None, weights):
            raise _contradiction(weights, activations)
        return MatmulFormat(name=weights.value, weight_bits=BITS[weights], activation_bits=BITS[weights], math=weights)
    match weights:
        case Dtype.FP8 if activations in (None, Dtype.FP8):
            return _fp8_block() if group_size == FP8_BLOCK else _fp8()
        case Dtype.INT8 if activations in (None, Dtype.INT8):
            return _int8()
        case Dtype.FP8 | Dtype.INT8 if wide:
            return _grouped("w8a16", 8, group_size, plain, zero_point=False)
        case Dtype.INT4 if wide or activations is None:
            group = group_size if method else DEFAULT_GROUP_SIZE
            return _grouped("w4a16", 4, group, plain, zero_point=method == "awq")
        case Dtype.INT4 | Dtype.FP4 if activations in (Dtype.FP8, Dtype.INT8):
            bits = 4 + SCALE_BITS / (group_size or DEFAULT_GROUP_SIZE) if weights is Dtype.INT4 else 4 + 8 / 32
            return MatmulFormat(
                name="w4a8", weight_bits=bits, activation_bits=8, math=activations, quantises_activations=True
            )
        case Dtype.INT4 if activations is Dtype.INT4:
            return MatmulFormat(
                name="int4", weight_bits=4, activation_bits=4, math=Dtype.INT4, quantises_activations=True
            )
        case Dtype.FP4 if method == "mxfp4" or wide:
            return _mxfp4(plain)
        case Dtype.FP4 if activations in (None, Dtype.FP4):
            return _nvfp4()
    raise _contradiction(weights, activations)


def _weight_only(match: re.Match[str], plain: Dtype) -> Scheme:
    method, bits_text, group_text = match.groups()
    bits = int(bits_text or 4)
    default = DEFAULT_GROUP_SIZE if method == "awq" else None
    group = int(group_text) if group_text else default
    if group == 0:
        raise RoofcastError("a group holds at least one weight", field="precision.scheme", hint="gptq-g128")
    product = _grouped(f"w{bits}a16", bits, group, plain, zero_point=method == "awq")
    weights = Dtype.INT8 if bits == BITS[Dtype.INT8] else Dtype.INT4
    return Scheme(weights=weights, activations=plain, format=product)


def _grouped(name: str, bits: int, group: int | None, plain: Dtype, *, zero_point: bool) -> MatmulFormat:
    overhead = (SCALE_BITS + (bits if zero_point else 0)) / group if group else 0.0
    return MatmulFormat(name=name, weight_bits=bits + overhead, activation_bits=16, math=plain)


def _fp8() -> MatmulFormat:
    return MatmulFormat(name="fp8", weight_bits=8, activation_bits=8, math=Dtype.FP8, quantises_activations=True)


def _fp8_block() -> MatmulFormat:
    return MatmulFormat(
        name="fp8_block",
        weight_bits=8 + 32 / FP8_BLOCK**2,
        activation_bits=8 + 32 / FP8_BLOCK,
        math=Dtype.FP8,
        quantises_activations=True,
    )


def _int8() -> MatmulFormat:
    return MatmulFormat(name="int8", weight_bits=8, activation_bits=8, math=Dtype.INT8, quantises_activations=True)


def _nvfp4() -> MatmulFormat:
    bits = 4 + 8 / 16
    return MatmulFormat(
        name="nvfp4", weight_bits=bits, activation_bits=bits, math=Dtype.FP4, quantises_activations=True
    )


def _mxfp4(plain: Dtype) -> MatmulFormat:
    return MatmulFormat(name="mxfp4", weight_bits=4 + 8 / 32, activation_bits=16, math=plain)


def _contradiction(weights: Dtype, activations: Dtype | None) -> RoofcastError:
    return RoofcastError(
        f"{weights} weights with {activations} activations have no kernel",
        field="precision.activations",
        code="contradiction",
        hint="leave precision.activations out to take what engines run for these weights",
    )
