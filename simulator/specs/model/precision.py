"""Number formats: what a weight, an activation and a cached key or value is stored and multiplied in."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import field_validator, model_validator

from simulator.errors import RoofcastError
from simulator.specs.base import Spec, open_field
from simulator.specs.spellings import (
    BLOCK_DTYPES,
    BLOCK_SCHEMES,
    E5M2,
    METHODS,
    NOT_GIVEN,
    dtype_word,
    number_word,
    plain_word,
)


class Dtype(StrEnum):
    """Number formats. ``fp4`` is the E2M1 element of nvfp4 and mxfp4, whose scales are counted by the format."""

    FP64 = "fp64"
    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    FP6 = "fp6"
    FP4 = "fp4"
    INT8 = "int8"
    INT4 = "int4"
    INT1 = "int1"


BITS: dict[Dtype, int] = {
    Dtype.FP64: 64,
    Dtype.FP32: 32,
    Dtype.TF32: 32,
    Dtype.BF16: 16,
    Dtype.FP16: 16,
    Dtype.FP8: 8,
    Dtype.FP6: 6,
    Dtype.FP4: 4,
    Dtype.INT8: 8,
    Dtype.INT4: 4,
    Dtype.INT1: 1,
}


class PrecisionSpec(Spec):
    """The contract's ``precision`` object.

    ``None`` means: what the checkpoint's own quantization_config says, otherwise bf16; the result lists
    the resolved value under ``assumptions``. ``scheme`` names a method (gptq-g128, nvfp4, fp8-block, ...), ``kernel``
    the implementation family that multiplies it (marlin, tinygemm, bitsandbytes, ...; by default the engine's own).
    ``nvfp4``, ``mxfp4``, ``mxfp8`` and ``fp8_block`` stand wherever a dtype does: as weights they are the scheme of
    that name, as activations the scheme with both sides in it, as cache the dtype of their numbers.
    ``mixed`` gives roles (attention, mlp, experts, shared_expert, mixer, lm_head) schemes of their own.
    """

    weights: Dtype | None = open_field("Number format of the weights.")
    activations: Dtype | None = open_field("Number format of the products.")
    kv_cache: Dtype | None = open_field("Number format of the KV cache.")
    scheme: str | None = open_field("Quantization method: gptq-g128, awq, w8a8, smoothquant-o3, nf4, q4-k-m...")
    kernel: str | None = open_field("Kernels of quantized products: marlin, tinygemm, bitsandbytes...")
    mixed: tuple[tuple[str, str], ...] | None = open_field("A role's own scheme: attention=fp8.")

    @model_validator(mode="before")
    @classmethod
    def _words(cls, data: Any) -> Any:
        """Dtypes in any usual spelling; a word alone, and a method given as the dtype of the weights, is the scheme."""
        if isinstance(data, str):
            data = {"scheme": data}
        if not isinstance(data, dict):
            return data
        given = _with_blocks(dict(data))
        weights, scheme = given.get("weights"), given.get("scheme")
        if isinstance(weights, str) and plain_word(weights) in METHODS:
            given["weights"] = None
            given["scheme"] = weights if scheme is None else scheme
        for field in ("weights", "activations", "kv_cache"):
            if isinstance(given.get(field), str) and plain_word(given[field]) in E5M2:
                if field != "kv_cache":
                    raise RoofcastError(
                        f"no serving engine multiplies {given[field]}, a format of gradients and caches",
                        field=f"precision.{field}",
                        hint="fp8, which is E4M3",
                    )
                given[field] = "fp8"
            if isinstance(given.get(field), str):
                given[field] = dtype_word(given[field])
        scheme = given.get("scheme")
        if isinstance(scheme, str) and plain_word(scheme) in NOT_GIVEN:
            given["scheme"] = None
        return given

    @field_validator("mixed", mode="before")
    @classmethod
    def _mapping(cls, value: Any) -> Any:
        """``{"attention": "fp8"}`` as pairs, so that a precision can be compared and kept as a key."""
        return tuple(sorted(value.items())) if isinstance(value, dict) else value


class NumberFormat(StrEnum):
    """What may be given as the format of weights or activations: a dtype, or a format with a scale per block."""

    FP64 = "fp64"
    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    FP8_BLOCK = "fp8-block"
    MXFP8 = "mxfp8"
    FP6 = "fp6"
    FP4 = "fp4"
    NVFP4 = "nvfp4"
    MXFP4 = "mxfp4"
    INT8 = "int8"
    INT4 = "int4"
    INT1 = "int1"

    @classmethod
    def _missing_(cls, value: object) -> NumberFormat | None:
        """Any usual spelling: ``fp8_block``, ``bfloat16``."""
        word = dtype_word(value) if isinstance(value, str) else None
        return next((item for item in cls if item.value == word), None)


def _with_blocks(given: dict[str, Any]) -> dict[str, Any]:
    """Block formats of activations and of the cache in the words of dtypes and schemes."""
    cache, inputs = given.get("kv_cache"), given.get("activations")
    if isinstance(cache, str):
        given["kv_cache"] = number_word(cache)
    if not isinstance(inputs, str):
        return given
    word = plain_word(inputs)
    words = {plain_word(named) for named in (given.get("weights"), given.get("scheme")) if isinstance(named, str)}
    stored = words - {*NOT_GIVEN}
    if word in BLOCK_SCHEMES and stored <= {word, BLOCK_DTYPES[word], BLOCK_SCHEMES[word]}:
        return {**given, "weights": None, "activations": None, "scheme": BLOCK_SCHEMES[word]}
    if word in BLOCK_DTYPES:
        given["activations"] = BLOCK_DTYPES[word]
    if stored == {"mxfp4"} and given["activations"] in ("fp8", "int8"):
        return {**given, "weights": "fp4", "scheme": None}
    if stored == {"nvfp4"} and not given.get("scheme") and dtype_word(inputs) in ("bf16", "fp16"):
        return {**given, "weights": None, "scheme": "nvfp4-w4a16"}
    return given
