"""model_type -> the reader of its family, and the one entry: a configuration becomes a ModelSpec or is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from pydantic import ValidationError

from simulator.errors import RoofcastError, did_you_mean
from simulator.specs.documents import refused
from simulator.specs.huggingface.fields import Fields
from simulator.specs.model.architecture import ModelSpec, QuantizationSpec, VisionSpec
from simulator.specs.model.precision import Dtype

Reader = Callable[[Fields], ModelSpec]
Tower = Callable[[Fields], VisionSpec | None]

_DTYPES = {"bfloat16": Dtype.BF16, "float16": Dtype.FP16, "float32": Dtype.FP32, "half": Dtype.FP16, "auto": Dtype.BF16}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFamily:
    """How one model_type is read; ``config_class`` is where its defaults are documented.

    Readers and towers stand as ``module.function`` of this folder and are imported when a configuration needs them.
    ``tower`` reads the vision part of a configuration that nests its text part, or keeps it at the top (``flat``);
    without ``read`` the text part's own model_type says how it is read. ``audio`` counts the weights of an audio part,
    which is stored and never run. ``kv_cache`` is what the released kernels of a
    quantized checkpoint cache where its configuration does not say.
    """

    read: str = ""
    config_class: str
    tower: str | None = None
    flat: bool = False
    audio: str = ""
    tie_default: bool | None = None
    kv_cache: Dtype | None = None


@cache
def reader_at(place: str) -> Reader:
    """The reader at ``module.function``."""
    found: Reader = _function_at(place)
    return found


@cache
def tower_at(place: str) -> Tower:
    """The reader of a vision part at ``module.function``."""
    found: Tower = _function_at(place)
    return found


@cache
def audio_at(place: str) -> Callable[[Fields], int]:
    """The function that counts an audio part at ``module.function``."""
    found: Callable[[Fields], int] = _function_at(place)
    return found


def _function_at(place: str) -> Any:
    module, _, function = place.rpartition(".")
    return getattr(import_module(f"simulator.specs.huggingface.{module}"), function)


def _family(read: str, config_class: str) -> ModelFamily:
    return ModelFamily(read=read, config_class=config_class)


def _tower(name: str, config_class: str) -> ModelFamily:
    """A configuration around a tower whose text part says itself how it is read."""
    return ModelFamily(config_class=config_class, tower=f"vision.{name}")


FAMILIES: Mapping[str, ModelFamily] = {
    "cohere2_moe": _family("moe_variants.read_cohere2_moe", "Cohere2MoeConfig"),
    "ernie4_5_moe": _family("moe_variants.read_ernie_moe", "Ernie4_5_MoeConfig"),
    "exaone_moe": _family("moe_variants.read_exaone_moe", "ExaoneMoeConfig"),
    "glm4_moe_lite": _family("deepseek.read_deepseek", "Glm4MoeLiteConfig"),
    "hunyuan_v1_moe": _family("moe_variants.read_hunyuan_moe", "HunYuanMoEV1Config"),
    "longcat_flash": _family("deepseek.read_longcat", "LongcatFlashConfig"),
    "seed_oss": _family("dense_variants.read_seed_oss", "SeedOssConfig"),
    "smollm3": _family("dense_variants.read_smollm3", "SmolLM3Config"),
    "solar_open": _family("moe_variants.read_solar_open", "SolarOpenConfig"),
    "bailing_hybrid": _family("linear_attention.read_bailing_hybrid", "BailingHybridConfig"),
    "lfm2_moe": _family("recurrent.read_lfm2_moe", "Lfm2MoeConfig"),
    "minimax": _family("linear_attention.read_minimax", "MiniMaxConfig"),
    "minimax_m1": _family("linear_attention.read_minimax", "MiniMaxM1Config"),
    "exaone4": _family("dense_variants.read_exaone4", "Exaone4Config"),
    "olmo3": _family("dense_variants.read_olmo3", "Olmo3Config"),
    "arcee": _family("dense_variants.read_arcee", "ArceeConfig"),
    "apertus": _family("dense_variants.read_apertus", "ApertusConfig"),
    "hunyuan_v1_dense": _family("dense_variants.read_hunyuan_dense", "HunYuanDenseV1Config"),
    "ministral3": _family("dense_variants.read_ministral3", "Ministral3Config"),
    "cohere2": _family("dense_variants.read_cohere2", "Cohere2Config"),
    "chatglm": _family("dense_variants.read_chatglm", "ChatGLMConfig"),
    "granite": _family("llama_like.read_llama", "GraniteConfig"),
    "granitemoe": _family("moe_variants.read_granite_moe", "GraniteMoeConfig"),
    "granitemoehybrid": _family("moe_variants.read_granite_hybrid", "GraniteMoeHybridConfig"),
    "dots1": _family("moe_variants.read_dots1", "Dots1Config"),
    "hy_v3": _family("moe_variants.read_hunyuan3", "HYV3Config"),
    "hy_v4": _family("deepseek.read_hunyuan4", "HYV4Config"),
    "afmoe": _family("moe_variants.read_afmoe", "AfmoeConfig"),
    "laguna": _family("moe_variants.read_laguna", "LagunaConfig"),
    "bitnet": _family("dense_variants.read_bitnet", "BitNetConfig"),
    "bert": _family("encoder.read_bert", "BertConfig"),
    "bloom": _family("classic.read_bloom", "BloomConfig"),
    "cohere": _family("llama_like.read_cohere", "CohereConfig"),
    "dbrx": _family("moe.read_dbrx", "DbrxConfig"),
    "deepseek_ref": ModelFamily(read="deepseek.read_deepseek_v4", config_class="DeepseekV4Config", kv_cache=Dtype.FP8),
    "deepseek_v2": _family("deepseek.read_deepseek", "DeepseekV2Config"),
    "deepseek_v3": _family("deepseek.read_deepseek", "DeepseekV3Config"),
    "deepseek_v32": _family("deepseek.read_deepseek_sparse", "DeepseekV32Config"),
    "deepseek_v4": ModelFamily(read="deepseek.read_deepseek_v4", config_class="DeepseekV4Config", kv_cache=Dtype.FP8),
    "falcon": _family("classic.read_falcon", "FalconConfig"),
    "falcon_h1": _family("recurrent.read_falcon_h1", "FalconH1Config"),
    "falcon_mamba": _family("recurrent.read_falcon_mamba", "FalconMambaConfig"),
    "gemma": _family("gemma.read_gemma", "GemmaConfig"),
    "gemma2": _family("gemma.read_gemma2", "Gemma2Config"),
    "gemma3_text": _family("gemma.read_gemma3", "Gemma3TextConfig"),
    "gemma3n": _family("gemma.refuse_gemma3n", "Gemma3nConfig"),
    "gemma3n_text": _family("gemma.refuse_gemma3n", "Gemma3nTextConfig"),
    "gemma4_text": _family("gemma.read_gemma4", "Gemma4TextConfig"),
    "glm": _family("llama_like.read_glm", "GlmConfig"),
    "glm4": _family("llama_like.read_glm4", "Glm4Config"),
    "glm4_moe": _family("moe_mixed.read_glm4_moe", "Glm4MoeConfig"),
    "glm_moe_dsa": _family("deepseek.read_deepseek_sparse", "GlmMoeDsaConfig"),
    "gpt2": _family("classic.read_gpt2", "GPT2Config"),
    "gpt_bigcode": _family("classic.read_gpt_bigcode", "GPTBigCodeConfig"),
    "gpt_neox": _family("classic.read_gpt_neox", "GPTNeoXConfig"),
    "gpt_oss": _family("moe.read_gpt_oss", "GptOssConfig"),
    "gptj": _family("classic.read_gptj", "GPTJConfig"),
    "jamba": _family("recurrent.read_jamba", "JambaConfig"),
    "kimi_k2": _family("deepseek.read_deepseek", "DeepseekV3Config"),
    "kimi_linear": _family("linear_attention.read_kimi_linear", "KimiLinearConfig"),
    "llama": _family("llama_like.read_llama", "LlamaConfig"),
    "llama4_text": _family("moe_mixed.read_llama4", "Llama4TextConfig"),
    "mamba": _family("recurrent.read_mamba", "MambaConfig"),
    "mamba2": _family("recurrent.read_mamba2", "Mamba2Config"),
    "mimo": _family("llama_like.read_mimo", "MiMoConfig"),
    "mimo_v2_flash": _family("moe_mixed.read_mimo_v2", "MiMoV2FlashConfig"),
    "minimax_m2": _family("moe_mixed.read_minimax_m2", "MiniMaxM2Config"),
    "minimax_m3": _family("moe_mixed.read_minimax_m3", "MiniMaxM3VLTextConfig"),
    "mllama": _family("llama_like.read_mllama", "MllamaConfig"),
    "modernbert": _family("encoder.read_modernbert", "ModernBertConfig"),
    "nomic_bert": _family("encoder.read_nomic_bert", "NomicBertConfig"),
    "muse_glimmer_text": _family("dense_variants.read_muse_glimmer", "MuseGlimmerTextConfig"),
    "mistral": _family("llama_like.read_mistral", "MistralConfig"),
    "mistral4": _family("deepseek.read_mistral4", "Mistral4Config"),
    "mixtral": _family("moe.read_mixtral", "MixtralConfig"),
    "mpt": _family("classic.read_mpt", "MptConfig"),
    "nemotron-nas": _family("llama_like.read_nemotron_nas", "DeciLMConfig"),
    "nemotron_h": _family("recurrent.read_nemotron_h", "NemotronHConfig"),
    "olmo2": _family("llama_like.read_olmo2", "Olmo2Config"),
    "opt": _family("classic.read_opt", "OPTConfig"),
    "phi": _family("classic.read_phi", "PhiConfig"),
    "phi3": _family("llama_like.read_phi3", "Phi3Config"),
    "phimoe": _family("moe.read_phimoe", "PhimoeConfig"),
    "qwen2": _family("llama_like.read_qwen2", "Qwen2Config"),
    "qwen2_moe": _family("moe.read_qwen2_moe", "Qwen2MoeConfig"),
    "qwen3": _family("llama_like.read_qwen3", "Qwen3Config"),
    "qwen3_5_moe_text": _family("linear_attention.read_qwen_hybrid", "Qwen3_5MoeTextConfig"),
    "qwen3_5_text": _family("linear_attention.read_qwen_hybrid", "Qwen3_5TextConfig"),
    "qwen3_moe": _family("moe.read_qwen3_moe", "Qwen3MoeConfig"),
    "qwen3_next": _family("linear_attention.read_qwen_hybrid", "Qwen3NextConfig"),
    "qwen3_vl_moe_text": _family("moe.read_qwen3_moe", "Qwen3VLMoeTextConfig"),
    "qwen3_vl_text": _family("llama_like.read_qwen3", "Qwen3VLTextConfig"),
    "starcoder2": _family("classic.read_starcoder2", "Starcoder2Config"),
    "step3p5": _family("moe_mixed.read_step3p7", "Step3p7TextConfig"),
    "step3p7": _family("moe_mixed.read_step3p7", "Step3p7TextConfig"),
    "t5": _family("encoder.read_t5", "T5Config"),
    "exaone4_5_text": _family("dense_variants.read_exaone4", "Exaone4Config"),
    "glm4v_text": _family("llama_like.read_glm4", "Glm4vTextConfig"),
    "glm4v_moe_text": _family("moe_mixed.read_glm4_moe", "Glm4vMoeTextConfig"),
    "mimo_v2": ModelFamily(
        read="moe_mixed.read_mimo_v2", config_class="MiMoV2Config", tower="vision.any_size.windowed_tower", flat=True
    ),
    "xlm-roberta": _family("encoder.read_bert", "XLMRobertaConfig"),
    # A text part inside a multimodal configuration: the reader is chosen by the nested model_type.
    "exaone4_5": _tower("any_size.windowed_tower", "Exaone4_5_Config"),
    "glm4v": _tower("any_size.glm_tower", "Glm4vConfig"),
    "glm4v_moe": _tower("any_size.glm_tower", "Glm4vMoeConfig"),
    "internvl": _tower("fixed_size.internvl_tower", "InternVLConfig"),
    "llava": _tower("any_size.llava_tower", "LlavaConfig"),
    "muse_glimmer": _tower("any_size.muse_tower", "MuseGlimmerConfig"),
    "mistral3": _tower("any_size.mistral3_tower", "Mistral3Config"),
    "mistral_large3": ModelFamily(
        read="deepseek.read_mistral4",
        config_class="MistralLarge3Config",
        tower="vision.any_size.mistral_large3_tower",
        flat=True,
    ),
    "qwen2_5_vl": ModelFamily(
        read="llama_like.read_qwen2",
        config_class="Qwen2_5_VLConfig",
        tower="vision.any_size.windowed_tower",
        flat=True,
        tie_default=False,
    ),
    "qwen2_5_omni_thinker": ModelFamily(
        read="llama_like.read_qwen2",
        config_class="Qwen2_5OmniThinkerConfig",
        tower="vision.any_size.windowed_tower",
        audio="audio.qwen25_audio",
        tie_default=False,
    ),
    "qwen3_omni_moe_thinker": ModelFamily(
        read="moe.read_qwen3_moe",
        config_class="Qwen3OmniMoeThinkerConfig",
        tower="vision.any_size.qwen_tower",
        audio="audio.qwen3_audio",
        tie_default=False,
    ),
    "gemma3": ModelFamily(
        read="gemma.read_gemma3", config_class="Gemma3Config", tower="vision.fixed_size.siglip_tower", tie_default=True
    ),
    "gemma4": ModelFamily(
        read="gemma.read_gemma4",
        config_class="Gemma4Config",
        tower="vision.fixed_size.gemma4_tower",
        audio="audio.gemma4_audio",
        tie_default=True,
    ),
    "gemma4_unified": ModelFamily(
        read="gemma.read_gemma4",
        config_class="Gemma4UnifiedConfig",
        tower="vision.fixed_size.gemma4_patches",
        audio="audio.gemma4_audio",
        tie_default=True,
    ),
    "kimi_k25": ModelFamily(
        read="deepseek.read_deepseek", config_class="Kimi_K25Config", tower="vision.any_size.kimi_tower"
    ),
    "kimi_k3": ModelFamily(
        read="linear_attention.read_kimi_linear", config_class="KimiK3Config", tower="vision.any_size.uncounted_tower"
    ),
    "llama4": ModelFamily(
        read="moe_mixed.read_llama4", config_class="Llama4Config", tower="vision.fixed_size.llama4_tower"
    ),
    "qwen3_5": ModelFamily(
        read="linear_attention.read_qwen_hybrid",
        config_class="Qwen3_5Config",
        tower="vision.any_size.qwen_tower",
        tie_default=False,
    ),
    "qwen3_5_moe": ModelFamily(
        read="linear_attention.read_qwen_hybrid",
        config_class="Qwen3_5MoeConfig",
        tower="vision.any_size.qwen_tower",
        tie_default=False,
    ),
    "qwen3_vl": ModelFamily(
        read="llama_like.read_qwen3",
        config_class="Qwen3VLConfig",
        tower="vision.any_size.qwen_tower",
        tie_default=False,
    ),
    "qwen3_vl_moe": ModelFamily(
        read="moe.read_qwen3_moe",
        config_class="Qwen3VLMoeConfig",
        tower="vision.any_size.qwen_tower",
        tie_default=False,
    ),
}


def read_config(config: Mapping[str, object], *, name: str) -> ModelSpec:
    """Turn the content of a config.json into a model.

    Raises
    ------
    RoofcastError
        Unknown model_type or field, a missing, negative or zero size, or a kind of layer that is not modelled;
        code ``invalid_model_config`` or ``unknown_architecture``.
    """
    try:
        return _read(config, name=name)
    except ValidationError as error:  # sizes that are integers each and cannot all be meant
        field, message, hint = refused(ModelSpec, error)
        raise RoofcastError(message, field=field, code="invalid_model_config", hint=hint) from None


def _read(config: Mapping[str, object], *, name: str) -> ModelSpec:
    thinker = config.get("thinker_config")
    if isinstance(thinker, Mapping):
        spec = _read({"dtype": config.get("dtype") or config.get("torch_dtype"), **thinker}, name=name)
        return spec.model_copy(update={"notes": (*spec.notes, "what speaks (talker_config) is left out")})
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
        notes = (*notes, f"keys and values in {family.kv_cache}, as its released kernels do; config.json is silent")
    fields.costless("dtype", "torch_dtype", "model_type")
    fields.finish()
    filled = fields.filled()
    if filled:
        notes = (*notes, f"not given, filled from {family.config_class}: {', '.join(filled)}")
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
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        raise RoofcastError(
            f"{model_type!r} is not an architecture that is modelled",
            field="model_type",
            code="unknown_architecture",
            hint=did_you_mean(str(model_type), FAMILIES),
        )
    return family


def _read_parts(fields: Fields, family: ModelFamily) -> tuple[ModelSpec, Fields | None]:
    """The language model, and the section that held it where it was nested."""
    if family.tower is None:
        return reader_at(family.read)(fields), None
    fields.expect("language_model_only", value=False, why="take the text configuration where the tower is left out")
    flat = family.flat and not fields.has("text_config")
    if not flat and not fields.has("text_config"):
        raise fields.refusal("text_config", f"is missing: {family.config_class} nests the language model there")
    vision = tower_at(family.tower)(fields) if fields.has("vision_config") else None
    text = None if flat else fields.section("text_config")
    inner = fields if text is None else text
    spec = reader_at(family.read or _text_family(fields).read)(inner)
    tied = fields.flag("tie_word_embeddings", default=spec.tie_word_embeddings)
    given = fields.has("tie_word_embeddings") or inner.has("tie_word_embeddings")
    if not given and family.tie_default is not None:
        tied = family.tie_default
    notes = () if vision is not None or flat else ("vision tower not simulated and not counted",)
    stored = audio_at(family.audio)(fields) if family.audio and fields.has("audio_config") else 0
    if stored:
        notes = (*notes, "audio tower stored, not simulated")
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
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None or not family.read:
        raise fields.refusal(
            "text_config.model_type",
            f"is {model_type!r}, which is not an architecture that is modelled",
            hint=did_you_mean(str(model_type), FAMILIES),
        )
    return family


def _dtype(fields: Fields, text: Fields | None) -> tuple[Dtype, tuple[str, ...]]:
    """Dtype of unquantized tensors, from whichever place names it."""
    for holder in (fields, text):
        for name in ("dtype", "torch_dtype"):
            if holder is not None and holder.has(name):
                return _DTYPES[holder.text(name, allowed=_DTYPES)], ()
    return Dtype.BF16, ("checkpoint dtype not given, taken as bf16",)
