"""model_type -> the reader of its family, and the one entry: a configuration becomes a ModelSpec or is refused."""

from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from simulator.errors import RoofcastError, did_you_mean
from simulator.specs.base import Note, Spec, read_yaml, validate
from simulator.specs.huggingface.fields import Fields
from simulator.specs.model.architecture import ModelSpec, QuantizationSpec, VisionSpec
from simulator.specs.model.precision import Dtype
from simulator.specs.profiles import profile_root

_DTYPES = {"bfloat16": Dtype.BF16, "float16": Dtype.FP16, "float32": Dtype.FP32, "half": Dtype.FP16, "auto": Dtype.BF16}


class ModelFamily(Spec):
    """How one model_type is read; the fields stand in model_profiles/families/huggingface.yaml."""

    read: str = ""
    config_class: str
    tower: str | None = None
    flat: bool = False
    audio: str = ""
    tie_default: bool | None = None
    kv_cache: Dtype | None = None


class OnlyValue(Spec):
    """What a field may be where nothing else is published or modelled, and why."""

    value: Any
    why: str


class ReaderFields(Spec):
    """Fields that a reader understands without taking anything from them; ``layout`` in place of a function."""

    layout: dict[str, Any] | None = None
    costless: tuple[str, ...] = ()
    only: dict[str, OnlyValue] = Field(default_factory=dict)


class FieldTable(NamedTuple):
    """The families and their readers as the file has them, each checked when it is asked for."""

    costless: frozenset[str]
    families: Mapping[str, Mapping[str, object]]
    readers: Mapping[str, Mapping[str, object]]


@cache
def field_table() -> FieldTable:
    """The table that ships with the package."""
    data = read_yaml(profile_root("model_profiles") / "families" / "huggingface.yaml")
    words = frozenset(word for group in data["costless"].values() for word in group.split())
    return FieldTable(words, data["families"], data["readers"])


@lru_cache(maxsize=1024)
def _family(model_type: str) -> ModelFamily | None:
    given = field_table().families.get(model_type)
    return None if given is None else validate(ModelFamily, given, where=f"the family {model_type}", profile=True)


def read_with(place: str, fields: Fields) -> Any:
    """What a reader makes of ``fields``: its layout, or ``module.function`` of this folder, imported when needed."""
    given = field_table().readers.get(place)
    if given is not None:
        known = validate(ReaderFields, given, where=f"the reader {place}", profile=True)
        fields.costless(*known.costless)
        for name, only in known.only.items():
            fields.expect(name, value=only.value, why=only.why)
        if known.layout is not None:
            from simulator.specs.huggingface.layers import read_layout

            return read_layout(fields, known.layout, where=f"the layout {place}")
    module, _, function = place.rpartition(".")
    return getattr(import_module(f"simulator.specs.huggingface.{module}"), function)(fields)


def read_config(config: Mapping[str, object], *, name: str) -> ModelSpec:
    """Turn the content of a config.json into a model.

    Raises RoofcastError: unknown model_type or field, a missing, negative or zero size, or a kind of layer that is not
    modelled; code ``invalid_model_config`` or ``unknown_architecture``.
    """
    try:
        return _read(config, name=name)
    except ValidationError as error:  # sizes that are integers each and cannot all be meant
        from simulator.specs.refusals import refused

        field, message, hint = refused(ModelSpec, error)
        raise RoofcastError(message, field=field, code="invalid_model_config", hint=hint) from None


def _read(config: Mapping[str, object], *, name: str) -> ModelSpec:
    thinker = config.get("thinker_config")
    if isinstance(thinker, Mapping):
        spec = _read({"dtype": config.get("dtype") or config.get("torch_dtype"), **thinker}, name=name)
        return spec.model_copy(update={"notes": (*spec.notes, Note("talker_left_out"))})
    family = _family_of(config)
    fields = Fields(config, config_class=family.config_class)
    spec, text = _read_parts(fields, family)
    for part in (fields, text):
        if part is not None:
            part.expect("add_cross_attention", value=False, why="cross attention belongs to encoder-decoder models")
    holder = text if text is not None and text.has("quantization_config") else fields
    dtype, notes = _dtype(fields, text)
    quantization = _quantization(holder, dtype=dtype, model=spec)
    if quantization is not None and quantization.kv_cache is None and family.kv_cache is not None:
        quantization = quantization.model_copy(update={"kv_cache": family.kv_cache})
        notes = (*notes, Note("cache_of_kernels", {"dtype": family.kv_cache}))
    said = holder.peek("quantization_config", "note")
    if said is not None:
        notes = (*notes, Note("note_unread", {"note": said}))
    fields.costless("dtype", "torch_dtype", "model_type")
    fields.finish(field_table().costless)
    filled = fields.filled()
    if filled:
        notes = (*notes, Note("filled_in", {"config_class": family.config_class, "fields": filled}))
    return spec.model_copy(
        update={
            "name": name,
            "model_type": str(config["model_type"]),
            "dtype": dtype,
            "quantization": quantization,
            "notes": (*spec.notes, *notes),
        }
    )


def _quantization(holder: Fields, *, dtype: Dtype, model: ModelSpec) -> QuantizationSpec | None:
    """What the checkpoint says about its own weights; its readers are imported where it says anything."""
    if not holder.has("quantization_config"):
        holder.costless("quantization_config")
        holder.expect("expert_dtype", value=None, why="a quantization_config has to say what the other weights are")
        return None
    from simulator.specs.huggingface.quantized.quantization import read_quantization

    return read_quantization(holder, dtype=dtype, model=model)


def _family_of(config: Mapping[str, object]) -> ModelFamily:
    model_type = config.get("model_type")
    if model_type is None:
        raise RoofcastError(
            "is missing, so the architecture is unknown",
            field="model_type",
            code="invalid_model_config",
            hint="a Hugging Face config.json names it; llama, qwen3_moe, deepseek_v3, ...",
        )
    family = _family(model_type) if isinstance(model_type, str) else None
    if family is None:
        raise RoofcastError(
            f"{model_type!r} is not an architecture that is modelled",
            field="model_type",
            code="unknown_architecture",
            hint=did_you_mean(str(model_type), field_table().families),
        )
    return family


def _read_parts(fields: Fields, family: ModelFamily) -> tuple[ModelSpec, Fields | None]:
    """The language model, and the section that held it where it was nested."""
    if family.tower is None:
        return read_with(family.read, fields), None
    fields.expect("language_model_only", value=False, why="take the text configuration where the tower is left out")
    flat = family.flat and not fields.has("text_config")
    if not flat and not fields.has("text_config"):
        raise fields.refusal("text_config", f"is missing: {family.config_class} nests the language model there")
    vision: VisionSpec | None = None
    if fields.has("vision_config"):
        vision = read_with(f"vision.{family.tower}", fields)
        fields.costless_rest("vision_config")
    text = None if flat else fields.section("text_config")
    inner = fields if text is None else text
    spec: ModelSpec = read_with(family.read or _text_family(fields).read, inner)
    tied = fields.flag("tie_word_embeddings", default=spec.tie_word_embeddings)
    given = fields.has("tie_word_embeddings") or inner.has("tie_word_embeddings")
    if not given and family.tie_default is not None:
        tied = family.tie_default
    notes = () if vision is not None or flat else (Note("tower_uncounted"),)
    stored = 0
    if family.audio and fields.has("audio_config"):
        stored = read_with(family.audio, fields)
        fields.costless_rest("audio_config")
        notes = (*notes, Note("audio_stored"))
    changes = {
        "tie_word_embeddings": tied,
        "vision": vision,
        "extra_parameters": spec.extra_parameters + stored,
        "notes": (*spec.notes, *notes),
    }
    return spec.model_copy(update=changes), text


def _text_family(fields: Fields) -> ModelFamily:
    """How the nested language model is read, by its own model_type."""
    model_type = fields.peek("text_config", "model_type")
    family = _family(model_type) if isinstance(model_type, str) else None
    if family is None or not family.read:
        raise fields.refusal(
            "text_config.model_type",
            f"is {model_type!r}, which is not an architecture that is modelled",
            hint=did_you_mean(str(model_type), field_table().families),
        )
    return family


def _dtype(fields: Fields, text: Fields | None) -> tuple[Dtype, tuple[Note, ...]]:
    """Dtype of unquantized tensors, from whichever place names it."""
    for holder in (fields, text):
        for name in ("dtype", "torch_dtype"):
            if holder is not None and holder.has(name):
                return _DTYPES[holder.text(name, allowed=_DTYPES)], ()
    return Dtype.BF16, (Note("dtype_assumed"),)
