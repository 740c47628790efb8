"""Number formats: what a weight, an activation and a cached key or value is stored and multiplied in, and what kernels
of quantised and sparse formats add to the 16-bit product of the same device."""

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from simulator.errors import RoofcastError, did_you_mean, plain_word
from simulator.specs.base import LogSigma, Spec, open_field
from simulator.specs.profiles import load_file, profile_root


def _by_spelling(spellings: Mapping[str, str]) -> Mapping[str, str]:
    """What each of the words means that stand for one word."""
    return {spelling: word for word, others in spellings.items() for spelling in others.split()}


DTYPES = _by_spelling(
    {
        "fp64": "float64 double",
        "fp32": "float32 float",
        "tf32": "tensorfloat32",
        "bf16": "bfloat16",
        "fp16": "float16 half",
        "fp8": "float8 e4m3 fp8-e4m3 float8-e4m3fn",
        "fp4": "float4 e2m1 fp4-e2m1",
    }
)
"""As torch, vLLM and checkpoints write number formats."""

E5M2 = ("e5m2", "fp8-e5m2", "float8-e5m2")
"""The format of gradients: caches are kept in it, in the bytes of E4M3, but no serving engine multiplies it."""

BLOCK_DTYPES: Mapping[str, str] = {"nvfp4": "fp4", "mxfp4": "fp4", "fp8-block": "fp8", "mxfp8": "fp8"}
"""Formats with a scale per block, which stand wherever a dtype does: the dtype of their numbers."""

BLOCK_SCHEMES: Mapping[str, str] = {"nvfp4": "nvfp4", "mxfp4": "mxfp4-w4a4", "fp8-block": "fp8-block", "mxfp8": "mxfp8"}
"""The scheme whose weights and activations are both in the format."""

NOT_GIVEN = ("auto", "none", "default")
"""Words by which engines say that the checkpoint decides."""

SCHEMES = _by_spelling(
    {
        "w8a8": "int8 w8a8-int8 int8-w8a8 int8dq",
        "fp8": "fp8-dynamic fp8-w8a8 w8a8-fp8 fp8-e4m3",
        "fp8-static": "fp8-static-pertensor fp8-per-tensor",
        "mxfp4-w4a4": "mxfp4-mxfp4",
        "nvfp4-w4a16": "nvfp4a16 w4a16-nvfp4",
        "fp8-block": "fp8-blockwise block-fp8",
        "rtn-8bit": "w8a16 int8wo int8-wo int8-weight-only",
        "rtn-3bit": "int3",
        "rtn-2bit": "int2",
        "rtn-g128": "w4a16 int4 int4wo int4-wo int4-weight-only",
        "gptq-g128": "gptq-int4 gptq-4bit",
        "awq": "awq-int4 awq-4bit",
        "smoothquant-o3": "smoothquant smooth-quant sq",
        "llm.int8": "llm.int8() llm-int8 llm-int8() bnb-int8 bnb-8bit bitsandbytes-int8 bitsandbytes-8bit",
        "nf4": "bnb-nf4 bnb-4bit bitsandbytes bitsandbytes-nf4 bitsandbytes-4bit",
        "nvfp4": "fp4",
        "bitnet": "bitnet-b1.58 bitnet-1.58",
    }
)
"""Other names of ``precision.scheme``."""

GGUF_MIXES = ("q2-k", "q3-k-m", "q4-0", "q4-k-m", "q5-k-m", "q6-k", "q8-0", "mxfp4-moe")
"""llama.cpp's mixes of blocks, as schemes."""

METHODS = frozenset(
    {"mxfp4", "mxfp8", "gptq", "w4a8", *GGUF_MIXES, *SCHEMES, *SCHEMES.values()}
    - {"fp8", "fp4", "int8", "int4", *DTYPES}
)
"""Words that are no dtype, given as that of the weights. Weights of 2 or 3 bits have none but a scheme's."""


def dtype_word(text: str) -> str | None:
    """A number format as the contract writes it; None where the word leaves the choice to the checkpoint."""
    word = plain_word(text)
    return None if word in NOT_GIVEN else DTYPES.get(word, word)


def number_word(text: str) -> str | None:
    """The dtype of the numbers of a format: ``nvfp4`` is ``fp4``."""
    word = dtype_word(text)
    return word if word is None else BLOCK_DTYPES.get(word, word)


def scheme_word(text: str) -> str:
    """A scheme as it is known here; an unknown word comes back in lower case."""
    word = plain_word(text)
    return SCHEMES.get(word, word)


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


BITS = {dtype: int("".join(filter(str.isdigit, dtype))) for dtype in Dtype}
"""Of a number, as its format says itself."""


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
    def _missing_(cls, value: object) -> Self | None:
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


class IntegerBlocks(Spec):
    """Blocks of weights that matrix units multiply as 8-bit integers, and vector units convert and scale sum by sum.

    elements : of the inner size that share a scale; scale_ops : instructions of one lane for each sum of a block
    converted_per_clock : sums that a compute unit turns into floats
    rate_shares : architectures that run them so -> share of the 8-bit peak that their instructions issue at
    """

    elements: PositiveInt
    scale_ops: PositiveFloat
    converted_per_clock: PositiveFloat
    rate_shares: dict[str, PositiveFloat]


class FormatKernelSpec(Spec):
    """One family of kernels, relative to the 16-bit kernel of the same device and library.

    formats : names of the formats it multiplies
    memory_share, compute_share : of the bandwidth and the matrix rate that the 16-bit kernel reaches
    launch_s : on top of its fixed time [s]
    dequantise_ops : instructions of one lane per weight that a tile reads (0: the matrix units read the weights as
        they are stored)
    fused_rows : most tokens that the fused kernel takes; above it the weights are written out in 16 bit first.
        Absent: any number
    vector_rows : most tokens that may take a matrix-vector kernel, which fills no tile, where that is faster
    integer_blocks : how integers multiply the blocks of a weight-only format (None: in 16 bit)
    paper_of : schemes whose own paper was measured with it
    fitted_on, scored_on : rows behind the parameters and rows that they were tested on, with the mean error there
    """

    name: str
    formats: tuple[str, ...] = Field(min_length=1)
    paper_of: tuple[str, ...] = ()
    memory_share: PositiveFloat = 1.0
    compute_share: PositiveFloat = 1.0
    launch_s: NonNegativeFloat = 0.0
    dequantise_ops: NonNegativeFloat = 0.0
    fused_rows: PositiveInt | None = None
    vector_rows: NonNegativeInt = 0
    integer_blocks: IntegerBlocks | None = None
    log_sigma: LogSigma
    known_as: Literal["fitted", "assumed"]
    source: str
    fitted_on: str = ""
    scored_on: str = ""


class FormatKernelTable(Spec):
    """All families, and which one each kernel library runs by default: library -> format -> family."""

    date: str
    families: tuple[FormatKernelSpec, ...] = Field(min_length=1)
    defaults: dict[str, dict[str, str]]

    @field_validator("families")
    @classmethod
    def _names_once(cls, families: tuple[FormatKernelSpec, ...]) -> tuple[FormatKernelSpec, ...]:
        names = [family.name for family in families]
        if len(names) != len(set(names)):
            raise ValueError("a family stands twice")
        return families

    def family(self, name: str) -> FormatKernelSpec:
        """The family of that name; an unknown one is refused."""
        for family in self.families:
            if family.name == name:
                return family
        names = [family.name for family in self.families]
        raise RoofcastError(
            f"unknown kernel family {name!r}",
            field="precision.kernel",
            code="unknown_kernel",
            hint=did_you_mean(name, names),
        )

    def default(self, *, library: str, fmt: str) -> FormatKernelSpec | None:
        """The family that a kernel library runs for a format, or None where none is listed."""
        for scope in (library, "any"):
            name = self.defaults.get(scope, {}).get(fmt)
            if name is not None:
                return self.family(name)
        return None

    def families_for(self, fmt: str) -> tuple[str, ...]:
        """Names of the families that multiply a format."""
        return tuple(family.name for family in self.families if fmt in family.formats)

    def of_paper(self, scheme: str) -> str | None:
        """The family that the paper of a scheme was measured with; None where none is known."""
        return next((family.name for family in self.families if scheme in family.paper_of), None)


@lru_cache(maxsize=1)
def load_format_kernels() -> FormatKernelTable:
    """The table shipped with the package (hardware_profiles/calibration/format_kernels.yaml)."""
    return load_file(FormatKernelTable, profile_root("hardware_profiles") / "calibration" / "format_kernels.yaml")
