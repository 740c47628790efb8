"""Quantized checkpoints: what their Hub names stand for, and those that somebody has published.

Publishers write the format behind the name of the base model: ``nvidia/Llama-3.1-8B-Instruct-FP8``,
``RedHatAI/Qwen2.5-7B-Instruct-quantized.w4a16``, ``Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4``. A checkpoint with a profile
of its own is read from that; of all others the name says the format and nothing says which layers were left out.
"""

import re
from functools import lru_cache
from operator import attrgetter
from typing import Literal

from pydantic import PositiveFloat, PositiveInt

from simulator.errors import plain_word
from simulator.records import dataclass
from simulator.specs.base import Note, Source, Spec
from simulator.specs.model.architecture import ModelSpec, QuantizationSpec
from simulator.specs.model.precision import GGUF_MIXES, Dtype
from simulator.specs.profiles import load_file, profile_root

FP8_BLOCK, NVFP4_GROUP, MX_GROUP, INT4_GROUP = 128, 16, 32, 128


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFormat:
    """What a suffix stands for; ``activations`` None are those of the base model."""

    method: str
    weights: Dtype
    activations: Dtype | None = None
    group_size: int | None = None
    kv_cache: Dtype | None = None


_FP8 = CheckpointFormat(method="fp8", weights=Dtype.FP8, activations=Dtype.FP8)
_FP8_CACHED = CheckpointFormat(method="fp8", weights=Dtype.FP8, activations=Dtype.FP8, kv_cache=Dtype.FP8)
_BLOCK = CheckpointFormat(method="fp8_block", weights=Dtype.FP8, activations=Dtype.FP8, group_size=FP8_BLOCK)
_NVFP4 = CheckpointFormat(method="nvfp4", weights=Dtype.FP4, activations=Dtype.FP4, group_size=NVFP4_GROUP)
_NVFP4_WEIGHTS = CheckpointFormat(method="nvfp4", weights=Dtype.FP4, group_size=NVFP4_GROUP)
_MXFP4 = CheckpointFormat(method="mxfp4", weights=Dtype.FP4, group_size=MX_GROUP)
_MXFP4_BOTH = CheckpointFormat(method="mxfp4", weights=Dtype.FP4, activations=Dtype.FP4, group_size=MX_GROUP)
_W4A16 = CheckpointFormat(method="int4", weights=Dtype.INT4, group_size=INT4_GROUP)
_W8A16 = CheckpointFormat(method="int8", weights=Dtype.INT8)
_W8A8 = CheckpointFormat(method="int8", weights=Dtype.INT8, activations=Dtype.INT8)
_AWQ = CheckpointFormat(method="awq", weights=Dtype.INT4, group_size=INT4_GROUP)
_GPTQ = CheckpointFormat(method="gptq", weights=Dtype.INT4, group_size=INT4_GROUP)
_GPTQ_8 = CheckpointFormat(method="gptq", weights=Dtype.INT8, group_size=INT4_GROUP)
_NF4 = CheckpointFormat(method="bnb-nf4", weights=Dtype.INT4, group_size=64)

GGUF_DEFAULT = "q4-k-m"
"""What llama.cpp takes from a repository where nobody says (-hf, ggml-org/llama.cpp common/arg.cpp, 0c1e5709)."""


def _gguf(mix: str) -> CheckpointFormat:
    return CheckpointFormat(method=mix, weights=Dtype.INT8 if mix == "q8-0" else Dtype.INT4)


# The last words of a name, the longer spelling first; tried in this order. A GGUF repository holds several files, of
# which the part behind a colon names one.
_SUFFIXES: tuple[tuple[str, CheckpointFormat], ...] = (
    *((rf"gguf:{mix}|(qat-)?{mix}-gguf", _gguf(mix)) for mix in GGUF_MIXES),
    ("gguf", _gguf(GGUF_DEFAULT)),
    (r"gptq-(int8|8bit)", _GPTQ_8),
    (r"gptq(-(int4|4bit|4b))?(-(128g|g128))?|int4-gptq|int4-autoround|autoround-int4", _GPTQ),
    (r"awq(-(int4|4bit))?(-(128g|g128))?|int4-awq", _AWQ),
    (r"quantized\.w8a8|w8a8(-int8)?|int8-w8a8|smoothquant|int8", _W8A8),
    (r"quantized\.w4a16|w4a16(-g128|-gptq|-awq)?|int4-w4a16|int4", _W4A16),
    (r"quantized\.w8a16|w8a16", _W8A16),
    (r"nvfp4a16|nvfp4-(w4)?a16|w4a16-nvfp4", _NVFP4_WEIGHTS),
    (r"nvfp4|fp4|modelopt-fp4", _NVFP4),
    (r"mxfp4", _MXFP4),
    (r"fp8-block|block-fp8|fp8-blockwise", _BLOCK),
    (r"fp8-kv", _FP8_CACHED),
    (r"fp8-dynamic|fp8-static(-pertensor)?|fp8", _FP8),
    (r"(unsloth-)?bnb-4bit", _NF4),
    ("bf16", CheckpointFormat(method="bf16", weights=Dtype.BF16)),
)
_WORDS = ("gguf", "gptq", "awq", "int4", "int8", "w4a", "w8a", "smoothquant", "fp4", "fp8", "bnb", "bf16")
"""One of which each suffix holds: patterns are compiled for names that have one."""
_EDITION = r"(-preview|-v\d+)?"
"""What publishers put behind the format when they quantize a model again."""


@lru_cache(maxsize=1)
def _names() -> tuple[tuple[re.Pattern[str], CheckpointFormat], ...]:
    """Suffixes as they are looked for: most questions name no checkpoint by its format."""
    return tuple((re.compile(rf"(?P<base>.+?)-({words}){_EDITION}"), found) for words, found in _SUFFIXES)


BLOCK_PUBLISHERS = ("qwen", "zai-org", "stepfun-ai", "deepseek-ai", "minimaxai")
"""Their checkpoints named FP8 hold blocks of 128 x 128, as those do that have a profile here."""

FP8_CACHE_PUBLISHERS = ("nvidia",)
"""All ModelOpt checkpoints of this publisher whose hf_quant_config.json was read, but for DeepSeek-V4, cache FP8."""

MXFP4_BOTH_PUBLISHERS = ("amd",)
"""Quark's MXFP4 checkpoints quantize the activations too, as AMD's recipes run them (from memory)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCheckpoint:
    """A Hub name taken apart: ``name`` as written; ``bases``: what its base may be known as, likeliest first."""

    name: str
    publisher: str
    bases: tuple[str, ...]
    format: CheckpointFormat


def named_checkpoint(text: str) -> NamedCheckpoint | None:
    """A name that ends in a format, or None."""
    publisher, _, tail = plain_word(text).rpartition("/")
    if not any(word in tail for word in _WORDS):
        return None
    for pattern, found in _names():
        match = pattern.fullmatch(tail)
        if match is not None:
            base = match["base"]
            # NVIDIA's own models name their 16-bit weights.
            owned = (f"{publisher}/{base}", f"{publisher}/{base}-bf16") if publisher else ()
            return NamedCheckpoint(
                name=text.strip(), publisher=publisher, bases=(*owned, base), format=_of_publisher(found, publisher)
            )
    return None


def _of_publisher(found: CheckpointFormat, publisher: str) -> CheckpointFormat:
    """What the publisher means by a suffix that several use."""
    if found is _FP8 and publisher in BLOCK_PUBLISHERS:
        return _BLOCK
    return _MXFP4_BOTH if found is _MXFP4 and publisher in MXFP4_BOTH_PUBLISHERS else found


def quantized_as_named(base: ModelSpec, *, checkpoint: NamedCheckpoint) -> ModelSpec:
    """The base model with the format of the name, and the assumption in its notes."""
    chosen = checkpoint.format
    inputs = chosen.activations or (base.dtype if base.dtype in (Dtype.BF16, Dtype.FP16) else Dtype.BF16)
    mixed = chosen.method in GGUF_MIXES
    caches = chosen.method in ("fp8", "nvfp4") and checkpoint.publisher in FP8_CACHE_PUBLISHERS
    quantization = QuantizationSpec(
        method=chosen.method,
        weights=chosen.weights,
        activations=inputs,
        kv_cache=Dtype.FP8 if caches else chosen.kv_cache,
        group_size=chosen.group_size,
        unquantized=() if mixed else ("lm_head",),
    )
    said = {"checkpoint": checkpoint, "base": base.name, "activations": inputs, "mixed": mixed, "caches": caches}
    note = Note("named_checkpoint", said)
    return base.model_copy(
        update={
            "name": checkpoint.name,
            "checkpoint": checkpoint.name,
            "quantization": None if chosen.weights is Dtype.BF16 else quantization,
            "notes": (*base.notes, note),
            "assumption": note,
        }
    )


CheckpointKind = Literal["modelopt", "compressed-tensors", "fp8_block", "mxfp4", "awq", "gptq", "quark", "gguf"]
"""How the files of a quantized checkpoint are laid out: by the tool that writes them."""


class PublishedCheckpoint(Spec):
    """A checkpoint by its Hub id, the id of its base model, and the layout of its files; ``source`` names one of the
    list's sources."""

    id: str
    kind: CheckpointKind
    base: str
    source: str

    @property
    def format(self) -> CheckpointFormat:
        """What its name stands for."""
        found = named_checkpoint(self.id)
        if found is None:
            raise ValueError(f"{self.id} does not end in a format")
        return found.format


class _PublishedList(Spec):
    published: tuple[PublishedCheckpoint, ...]
    sources: dict[str, Source]


@lru_cache(maxsize=1)
def published_checkpoints() -> tuple[PublishedCheckpoint, ...]:
    """All of the list, in its order."""
    return load_file(_PublishedList, profile_root("model_profiles") / "checkpoints" / "published.yaml").published


def published_checkpoint(
    model_id: str, *, weights: Dtype, activations: Dtype, scheme: str | None, kinds: tuple[CheckpointKind, ...]
) -> PublishedCheckpoint | None:
    """The first checkpoint of ``model_id`` in these formats and of ``kinds``; scheme : the method asked for."""
    wanted = plain_word(model_id)
    for item in published_checkpoints():
        if plain_word(item.base) != wanted or item.kind not in kinds or item.format.weights is not weights:
            continue
        if scheme is not None and not scheme.startswith(item.format.method.partition("_")[0]):
            continue
        # Weights alone in few bits leave the products to the model's own format.
        if scheme is not None or (item.format.activations or activations) is activations:
            return item
    return None


@lru_cache(maxsize=1024)
def published_in_blocks(model_id: str) -> bool:
    """Whether FP8 weights of a model are stored in blocks of 128 x 128: those of the first listed FP8 checkpoint that
    was made of it, where there is none those of its publisher's other models."""
    wanted = plain_word(model_id)
    listed = (item.format for item in published_checkpoints() if plain_word(item.base) == wanted)
    first = next((found for found in listed if found.weights is Dtype.FP8), None)
    return wanted.partition("/")[0] in BLOCK_PUBLISHERS if first is None else first is _BLOCK


@lru_cache(maxsize=1024)
def published_fp8_cache(model_id: str, *, method: str) -> Note | None:
    """What says that a model's weights in ``method`` ("fp8", "nvfp4") come with keys and values in FP8; None: nothing.

    That is the first listed checkpoint of those weights; where none is listed, for NVFP4 the others of
    ``FP8_CACHE_PUBLISHERS``. What was not read of the checkpoint itself is called assumed."""
    weights = Dtype.FP4 if method == _NVFP4.method else Dtype.FP8
    wanted = plain_word(model_id)
    same = (item for item in published_checkpoints() if plain_word(item.base) == wanted)
    first = next((item for item in same if item.format.weights is weights), None)
    if first is None:
        return Note("cache_of_others", {"method": method}) if method == _NVFP4.method else None
    owned = plain_word(first.id).partition("/")[0] in FP8_CACHE_PUBLISHERS
    if first.format.method != method or not (owned or first.format.kv_cache is Dtype.FP8):
        return None
    key = "cache_read" if first.source == "profile" else "cache_assumed"
    return Note(key, {"checkpoint": first.id})


DENSE = "dense"


class QualityRow(Spec):
    """One published figure: ``value`` of ``metric`` for ``model`` under ``method`` (dense: uncompressed).

    source : key of REFERENCES.md; recalled : written from memory of the source and not checked against it
    """

    source: str
    model: str
    metric: str
    method: str
    weight_bits: PositiveInt | None = None
    activation_bits: PositiveInt | None = None
    group_size: PositiveInt | None = None
    sparsity: str | None = None
    value: PositiveFloat
    recalled: bool = False
    note: str = ""


class PreparationRow(Spec):
    """What preparing a model with a method takes."""

    method: str
    kind: str
    cost: str
    data: str
    source: str = ""


class QualityTable(Spec):
    """All published rows, and what each method costs to prepare."""

    date: str
    rows: tuple[QualityRow, ...]
    preparation: tuple[PreparationRow, ...]

    def dense(self, row: QualityRow) -> QualityRow:
        """The uncompressed model's row of the same source and metric."""
        return next(
            other
            for other in self.rows
            if (other.source, other.model, other.metric, other.method) == (row.source, row.model, row.metric, DENSE)
        )

    def as_fast(self, row: QualityRow) -> tuple[QualityRow, ...]:
        """Other methods that leave the same model in the same format, by the same source and metric."""
        format_of = attrgetter("source", "model", "metric", "weight_bits", "activation_bits", "group_size", "sparsity")
        same = (other for other in self.rows if other.method != row.method and format_of(other) == format_of(row))
        return tuple({other.method: other for other in same}.values())


@lru_cache(maxsize=1)
def load_quality_table() -> QualityTable:
    """The table shipped with the package (model_profiles/quality/published.yaml)."""
    return load_file(QualityTable, profile_root("model_profiles") / "quality" / "published.yaml")
