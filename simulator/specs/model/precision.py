"""Number formats: what a weight, an activation and a cached key or value is stored and multiplied in."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import field_validator, model_validator

from simulator.specs.base import Spec
from simulator.specs.spellings import METHODS, NOT_GIVEN, dtype_word, plain_word


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
    ``mixed`` gives roles (attention, mlp, experts, shared_expert, mixer, lm_head) schemes of their own.
    """

    weights: Dtype | None = None
    activations: Dtype | None = None
    kv_cache: Dtype | None = None
    scheme: str | None = None
    kernel: str | None = None
    mixed: tuple[tuple[str, str], ...] | None = None

    @model_validator(mode="before")
    @classmethod
    def _words(cls, data: Any) -> Any:
        """Dtypes in any usual spelling; a method given as the dtype of the weights is the scheme."""
        if not isinstance(data, dict):
            return data
        given = dict(data)
        weights, scheme = given.get("weights"), given.get("scheme")
        if isinstance(weights, str) and plain_word(weights) in METHODS:
            given["weights"] = None
            given["scheme"] = weights if scheme is None else scheme
        for field in ("weights", "activations", "kv_cache"):
            if isinstance(given.get(field), str):
                given[field] = dtype_word(given[field])
        if isinstance(scheme, str) and plain_word(scheme) in NOT_GIVEN:
            given["scheme"] = None
        return given

    @field_validator("mixed", mode="before")
    @classmethod
    def _mapping(cls, value: Any) -> Any:
        """``{"attention": "fp8"}`` as pairs, so that a precision can be compared and kept as a key."""
        return tuple(sorted(value.items())) if isinstance(value, dict) else value
