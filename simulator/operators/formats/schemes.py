"""Quantised matrix formats by name and by pair of dtypes: stored bits with their scales and tables, multiplying rate,
and the passes that each needs.

Bits per weight count scales and zero points: a group of g weights with a 16-bit scale and a 4-bit zero point takes
4 + 20/g bits [Frantar2022] [Lin2023].
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from simulator.errors import RoofcastError, contradiction, did_you_mean
from simulator.operators.work import ActivationPasses, MatmulFormat
from simulator.records import dataclass
from simulator.specs.base import Note, Spec, read_yaml, validate
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.architecture import MlaSpec, ModelSpec, QuantizationSpec
from simulator.specs.model.precision import BITS, GGUF_MIXES, Dtype, PrecisionSpec, scheme_word

DEFAULT_GROUP_SIZE = 128  # of GPTQ and AWQ checkpoints in the wild, and AWQ's paper
AQLM_GROUP = 8
SCHEME_NAMES = (
    "fp32", "tf32", "bf16", "fp16", "fp8", "fp8-static", "fp8-block", "gptq", "gptq-g128", "gptq-3bit", "gptq-g1024",
    "gptq-8bit", "awq", "awq-g128", "rtn", "rtn-g128", "tinygemm-g64", "nvfp4", "nvfp4-w4a16", "mxfp4", "mxfp4-w4a4",
    "mxfp8", "w8a8", "w4a8", "w4a4",
    "smoothquant-o1", "smoothquant-o2", "smoothquant-o3", "llm.int8", "nf4", "qlora", "bitnet", "aqlm-1x16", "aqlm-2x8",
    "kmeans-3bit", "kmeans-4bit", *GGUF_MIXES,
)  # fmt: skip
_GROUPED = re.compile(r"(gptq|awq|rtn)(?:-([2348])-?bit)?(?:-g(\d+))?")
_TINYGEMM = re.compile(r"tinygemm(?:-g(\d+))?")
_AQLM = re.compile(r"aqlm-(\d)x(\d{1,2})(?:-g(\d+))?")
_KMEANS = re.compile(r"kmeans-([2-8])-?bit")
PLAIN_SCHEMES = ("fp32", "tf32", "bf16", "fp16")
NVFP4, MXFP4 = "nvfp4", "mxfp4"
NVFP4_FORMATS = ("nvfp4", "nvfp4_w4a16")
"""Products of the same stored weights: with activations in four bits, and widened where a device has no such units."""

MXFP4_FORMATS = ("mxfp4", "mxfp4_w4a4")
WIDE_BESIDE_EXPERTS = ("attention", "mixer")
"""What makers leave in 16 bits where they narrow experts to MXFP4 [AMDAITER2025]: AITER tunes products of DeepSeek's,
Kimi's and Qwen3.5's attention in 16 bits or FP8 per token (``qwen3_5_397b_a17b_mxfp4_attnfp8``) beside experts and
dense layers in MXFP4, and gpt-oss names its own; of dense models (Llama, Qwen) it tunes attention in MXFP4."""

LATENTS_READ = ("nvidia/DeepSeek-V3.1-NVFP4", "nvidia/DeepSeek-V3.2-NVFP4")
"""Checkpoints whose hf_quant_config.json leaves out q_a_proj, q_b_proj, kv_a_proj_with_mqa and kv_b_proj, and o_proj
not; those of GLM-5 and Kimi-K2 leave out the whole attention."""

SCALE_BITS = ACTIVATION_BITS = 16
FP8_BLOCK = 128
VECTOR_BYTES = 2.0
"""An entry of a codebook is a 16-bit number."""

SHARED_MEMORY_BYTES = 100.0 * 1024
"""Tables beyond this do not stay in a compute unit's own memory (164 KiB on A100, 99 KiB a block on Ada)
[CudaGuide2025] and are gathered from the L2."""

KMEANS_TABLE_WEIGHTS = 4096
"""One table per output row, as SqueezeLLM stores them; 4,096 is the row of a 7B model [Kim2023]."""


class FixedFormat(Spec):
    """A row of ``fixed_formats.yaml``, which says what its fields are."""

    name: str
    weights: Dtype
    bits: float
    scales: tuple[tuple[int, float], ...] = ()
    math: Dtype | None = None
    activation_scales: tuple[tuple[int, float], ...] = ()
    quantises_activations: bool = False
    passes: ActivationPasses | None = None
    outlier_fraction: float = 0.0

    def product(self, plain: Dtype) -> MatmulFormat:
        """The format with its activations, of dtype ``plain`` where they stay wide."""
        activation_bits = BITS[self.math] if self.math else ACTIVATION_BITS
        return MatmulFormat(
            name=self.name,
            weight_bits=self.bits + sum(bits / numbers for numbers, bits in self.scales),
            activation_bits=activation_bits + sum(bits / numbers for numbers, bits in self.activation_scales),
            math=self.math or plain,
            quantises_activations=self.quantises_activations,
            passes=self.passes,
            outlier_fraction=self.outlier_fraction,
        )


@cache
def fixed_formats() -> Mapping[str, FixedFormat]:
    """Every scheme whose format is one thing.

    Reference: [DeepSeek2024b], [Dettmers2022], [Dettmers2023], [Ma2024], [NVIDIA2025], [OCP2023], [Xiao2022]
    """
    file = Path(__file__).with_name("fixed_formats.yaml")
    rows = read_yaml(file).items()
    return {name: validate(FixedFormat, row, where=f"{file}: {name}", profile=True) for name, row in rows}


def fixed_format(scheme: str, *, plain: Dtype = Dtype.BF16) -> MatmulFormat:
    """The format of one of them; ``plain`` : dtype of 16-bit activations."""
    return fixed_formats()[scheme].product(plain)


def weight_only(bits: int, *, group: int | None, plain: Dtype, zero_point: bool) -> MatmulFormat:
    """Integer weights in groups with a 16-bit scale each, and a zero point of as many bits [Frantar2022] [Lin2023]."""
    overhead = (SCALE_BITS + (bits if zero_point else 0)) / group if group else 0.0
    return MatmulFormat(name=f"w{bits}a16", weight_bits=bits + overhead, activation_bits=ACTIVATION_BITS, math=plain)


def tinygemm(group: int, *, plain: Dtype) -> MatmulFormat:
    """4-bit weights with a 16-bit scale and zero point per group, as PyTorch stores them [Ansel2024]."""
    bits = 4 + 2 * SCALE_BITS / group
    return MatmulFormat(name="w4a16", weight_bits=bits, activation_bits=ACTIVATION_BITS, math=plain)


def codebooks(count: int, *, bits: int, group: int, plain: Dtype) -> MatmulFormat:
    """AQLM: ``group`` weights are the sum of one vector out of each of ``count`` books of 2**bits [Egiazarian2024].
    Left out: one 16-bit scale per output row."""
    table_bytes = count * 2.0**bits * group * VECTOR_BYTES
    gathered = count * VECTOR_BYTES if table_bytes > SHARED_MEMORY_BYTES else 0.0
    return MatmulFormat(
        name="aqlm",
        weight_bits=count * bits / group,
        activation_bits=ACTIVATION_BITS,
        math=plain,
        codebook_bytes=table_bytes,
        lookup_bytes=gathered,
    )


def kmeans(bits: int, *, plain: Dtype) -> MatmulFormat:
    """Non-uniform levels: each output row has a table of 2**bits 16-bit values [Kim2023]."""
    table_bits = 2.0**bits * SCALE_BITS / KMEANS_TABLE_WEIGHTS
    return MatmulFormat(name="kmeans", weight_bits=bits + table_bits, activation_bits=ACTIVATION_BITS, math=plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """A way to quantise: dtypes, the product format, and roles that a checkpoint keeps unquantised (None: unsaid).

    roles : formats of the roles that differ from ``format``
    """

    weights: Dtype
    activations: Dtype
    format: MatmulFormat
    unquantised: tuple[str, ...] | None = None
    roles: tuple[tuple[str, MatmulFormat], ...] = ()


def as_published(scheme: Scheme, model: ModelSpec, notes: list[Note]) -> Scheme:
    """NVFP4 with the roles that the model's published checkpoint keeps wide, where it says so: few make NVFP4 weights
    themselves, and most makers leave attention out, which they do of models with experts in MXFP4 too. What is stored
    is the same whatever a device multiplies."""
    if scheme.format.name in MXFP4_FORMATS:
        return _wide_beside_experts(scheme, model, notes)
    if scheme.format.name not in NVFP4_FORMATS:
        return scheme
    checkpoint, kept = _nvfp4_checkpoint(model)
    if scheme.unquantised is None and not scheme.roles:
        if kept is None:
            notes.append(Note("formats_by_role", {"checkpoint": checkpoint}))
        elif kept:
            notes.append(Note("roles_unquantised", {"roles": kept, "checkpoint": checkpoint}))
            scheme = replace(scheme, unquantised=kept)
    if _narrows_latents(scheme, model):
        said = "latents_read" if checkpoint in LATENTS_READ else "latents_assumed"
        notes.append(Note(said, {"checkpoint": checkpoint}))
    return scheme


def _wide_beside_experts(scheme: Scheme, model: ModelSpec, notes: list[Note]) -> Scheme:
    """MXFP4 as makers store a model with experts: attention, and what its own quantised checkpoint keeps, wide."""
    if not model.has_experts or scheme.unquantised is not None or scheme.roles:
        return scheme
    own = model.quantization.unquantized if model.quantization is not None else ()
    kept = (*WIDE_BESIDE_EXPERTS, *(role for role in own if role not in WIDE_BESIDE_EXPERTS))
    notes.append(Note("attention_unquantised"))
    return replace(scheme, unquantised=tuple(dict.fromkeys((*kept, "lm_head"))))


def _nvfp4_checkpoint(model: ModelSpec) -> tuple[str, tuple[str, ...] | None]:
    """The checkpoint in NVFP4 that the model is, or that is published of it, and the roles that it keeps wide."""
    name, own = model.checkpoint or model.name, model.quantization
    if own is not None and own.method.lower() == NVFP4_FORMATS[0]:
        return name, None if own.roles else own.unquantized
    from simulator.specs.model.loading import published_unquantized

    return published_unquantized(name, method=NVFP4_FORMATS[0])


def _narrows_latents(scheme: Scheme, model: ModelSpec) -> bool:
    """Whether latent attention is in NVFP4, of which the projections of latents stay wide."""
    attention = dict(scheme.roles).get("attention", scheme.format)
    narrow = attention.name in NVFP4_FORMATS and "attention" not in (scheme.unquantised or ())
    return narrow and any(isinstance(layer.mixer, MlaSpec) for layer in model.layers)


def scheme_named(name: str, *, plain: Dtype, model: ModelSpec | None = None) -> Scheme:
    """Scheme of ``precision.scheme``; ``plain`` is the 16-bit dtype of unquantised activations.

    model : whose tensors the mixes of GGUF weigh; without it they count as their base block
    """
    key = scheme_word(name)
    scheme = _patterned(key, plain) or _fixed(key, plain)
    if scheme is None and key in GGUF_MIXES:
        scheme = _gguf(key.replace("-", "_"), plain, model)
    if scheme is None:
        raise RoofcastError(
            f"unknown scheme {name!r}",
            field="precision.scheme",
            code="unknown_scheme",
            hint=did_you_mean(key, SCHEME_NAMES),
        )
    return scheme


def _patterned(key: str, plain: Dtype) -> Scheme | None:
    """Schemes whose name carries numbers."""
    if (grouped := _GROUPED.fullmatch(key)) is not None:
        method, bits_text, group_text = grouped.groups()
        bits = int(bits_text or 4)
        group = _group(group_text, default=DEFAULT_GROUP_SIZE if method == "awq" else None)
        product = weight_only(bits, group=group, plain=plain, zero_point=method == "awq")
        return Scheme(weights=_integer(bits), activations=plain, format=product)
    if (tiny := _TINYGEMM.fullmatch(key)) is not None:
        group = _group(tiny[1], default=DEFAULT_GROUP_SIZE) or DEFAULT_GROUP_SIZE
        return Scheme(weights=Dtype.INT4, activations=plain, format=tinygemm(group, plain=plain))
    if (books := _AQLM.fullmatch(key)) is not None:
        count, bits = int(books[1]), int(books[2])
        group = _group(books[3], default=AQLM_GROUP) or AQLM_GROUP
        if not 1 <= count <= 8 or not 4 <= bits <= 16:
            raise RoofcastError("takes 1 to 8 codebooks of 4 to 16 bits", field="precision.scheme", hint="aqlm-2x8")
        product = codebooks(count, bits=bits, group=group, plain=plain)
        return Scheme(weights=Dtype.INT4, activations=plain, format=product)
    if (clusters := _KMEANS.fullmatch(key)) is not None:
        bits = int(clusters[1])
        return Scheme(weights=_integer(bits), activations=plain, format=kmeans(bits, plain=plain))
    return None


def _fixed(key: str, plain: Dtype) -> Scheme | None:
    """Schemes that are one thing."""
    if (row := fixed_formats().get(key)) is not None:
        return Scheme(weights=row.weights, activations=row.math or plain, format=row.product(plain))
    if key in PLAIN_SCHEMES:
        wide = Dtype(key)
        return Scheme(weights=wide, activations=wide, format=format_of_pair(wide, None, plain=wide))
    if key in ("w4a8", "w4a4"):
        narrow = Dtype.INT8 if key == "w4a8" else Dtype.INT4
        product = format_of_pair(Dtype.INT4, narrow, plain=plain)
        return Scheme(weights=Dtype.INT4, activations=narrow, format=product)
    return None


def _gguf(name: str, plain: Dtype, model: ModelSpec | None) -> Scheme:
    # Few deployments load GGUF files: others do without.
    from simulator.operators.formats.gguf_formats import BLOCK_BITS, MIXES, block_format, role_formats

    roles = () if model is None else role_formats(name, model=model, plain=plain)
    product = dict(roles)["mlp"] if roles else block_format(BLOCK_BITS[MIXES[name].base], plain=plain)
    weights = {"q8_0": Dtype.INT8, "mxfp4_moe": Dtype.FP4}.get(name, Dtype.INT4)
    return Scheme(weights=weights, activations=plain, format=product, roles=roles)


def _group(text: str | None, *, default: int | None) -> int | None:
    group = int(text) if text else default
    if group == 0:
        raise RoofcastError("a group holds at least one weight", field="precision.scheme", hint="gptq-g128")
    return group


def _integer(bits: int) -> Dtype:
    return Dtype.INT8 if bits == BITS[Dtype.INT8] else Dtype.INT4


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
            if method == "mxfp8":
                return fixed_format("mxfp8")
            block = group_size == FP8_BLOCK
            return fixed_format("fp8-block" if block else "fp8")
        case Dtype.INT8 if activations in (None, Dtype.INT8):
            return fixed_format("w8a8")
        case Dtype.FP8 | Dtype.INT8 if wide:
            return weight_only(8, group=group_size, plain=plain, zero_point=False)
        case Dtype.INT4 if wide or activations is None:
            group = group_size if method else DEFAULT_GROUP_SIZE
            return weight_only(4, group=group, plain=plain, zero_point=method == "awq")
        case Dtype.INT4 | Dtype.FP4 if activations in (Dtype.FP8, Dtype.INT8):
            scale = SCALE_BITS / (group_size or DEFAULT_GROUP_SIZE)
            product = MatmulFormat(
                name="w4a8", weight_bits=4.0, activation_bits=8, math=activations, quantises_activations=True
            )
            return replace(product, weight_bits=4 + (scale if weights is Dtype.INT4 else 8 / 32))
        case Dtype.INT4 if activations is Dtype.INT4:
            return MatmulFormat(
                name="int4", weight_bits=4, activation_bits=4, math=Dtype.INT4, quantises_activations=True
            )
        case Dtype.FP4 if activations is Dtype.FP4 or (activations is None and method != "mxfp4"):
            return fixed_format("mxfp4-w4a4" if method == "mxfp4" else "nvfp4")
        case Dtype.FP4 if activations is None or wide:
            return fixed_format("nvfp4-w4a16" if method == "nvfp4" else "mxfp4", plain=plain)
    raise _contradiction(weights, activations)


def _contradiction(weights: Dtype, activations: Dtype | None) -> RoofcastError:
    if activations is None:
        return RoofcastError(
            f"{weights} weights have no kernel that serving engines run",
            field="precision.weights",
            code="no_kernel",
            hint="the fewest bits: the schemes bitnet (1.58 bits), rtn-2bit and aqlm-2x8",
        )
    return contradiction(
        f"{weights} weights with {activations} activations have no kernel",
        field="precision.activations",
        hint="leave it out to take what engines run for these weights",
    )


def fp4_scheme(hardware: AcceleratorSpec) -> str | None:
    """The scheme of four-bit products that a chip multiplies: NVFP4 is NVIDIA's, others follow [OCP2023]."""
    if Dtype.FP4 not in hardware.peak_flops_per_s:
        return None
    return NVFP4 if hardware.vendor == "nvidia" else "mxfp4-w4a4"


def holds_nvfp4(kept: QuantizationSpec | None) -> bool:
    """Whether a checkpoint's weights, or those of a role, are in NVFP4."""
    return kept is not None and NVFP4 in {kept.method.lower(), *(role.method.lower() for role in kept.roles)}


def multiplied_dtypes(model: ModelSpec, hardware: AcceleratorSpec) -> frozenset[Dtype]:
    """What a chip multiplies of a checkpoint: its four-bit floats with scales of 8-bit floats on NVIDIA's alone, as
    those of [OCP2023], which others follow, are powers of two."""
    lacks = {Dtype.FP4} if fp4_scheme(hardware) != NVFP4 and holds_nvfp4(model.quantization) else frozenset()
    return frozenset(hardware.peak_flops_per_s) - lacks


def on_chip(precision: PrecisionSpec, *, model: ModelSpec, hardware: AcceleratorSpec) -> PrecisionSpec:
    """Four-bit floats in the format of the chip, as checkpoints that are made for it hold them, activations too. What
    names 16- or 8-bit activations or a kernel keeps it; a checkpoint that is in four bits already is run as it is."""
    own, kept = fp4_scheme(hardware), model.quantization
    if own in (None, NVFP4) or precision.kernel or precision.activations not in (None, Dtype.FP4):
        return precision
    asked = scheme_word(precision.scheme) in (NVFP4, MXFP4) if precision.scheme else precision.weights is Dtype.FP4
    if not asked:
        return precision
    if kept is None or kept.weights is not Dtype.FP4:
        return precision.model_copy(update={"weights": None, "activations": None, "scheme": own})
    return PrecisionSpec(kv_cache=precision.kv_cache) if holds_nvfp4(kept) and precision.mixed is None else precision
