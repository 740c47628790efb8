"""model_type -> the reader of its family, and the one entry: a configuration becomes a ModelSpec or is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cache
from importlib import import_module
from typing import Any

from pydantic import ValidationError

from simulator.errors import RoofcastError, did_you_mean
from simulator.specs.documents import refused
from simulator.specs.huggingface.fields import Fields
from simulator.specs.model.architecture import ModelSpec, QuantizationSpec, VisionSpec
from simulator.specs.model.precision import Dtype

_DTYPES = {"bfloat16": Dtype.BF16, "float16": Dtype.FP16, "float32": Dtype.FP32, "half": Dtype.FP16, "auto": Dtype.BF16}


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """How one model_type is read; ``config_class`` is where its defaults are documented.

    Readers stand as ``module.function`` of this folder, towers of its folder ``vision``; they are imported when a
    configuration needs them.
    ``tower`` reads the vision part of a configuration that nests its text part, or keeps it at the top (``flat``);
    without ``read`` the text part's own model_type says how it is read. ``audio`` counts the weights of an audio part,
    which is stored and never run. ``kv_cache`` is what the released kernels of a
    quantized checkpoint cache where its configuration does not say.
    """

    read: str
    config_class: str
    _: KW_ONLY
    tower: str | None = None
    flat: bool = False
    audio: str = ""
    tie_default: bool | None = None
    kv_cache: Dtype | None = None


@cache
def _function_at(place: str) -> Any:
    """The reader at ``module.function`` of this folder."""
    module, _, function = place.rpartition(".")
    return getattr(import_module(f"simulator.specs.huggingface.{module}"), function)


def _tower(name: str, config_class: str) -> ModelFamily:
    """A configuration around a tower whose text part says itself how it is read."""
    return ModelFamily("", config_class, tower=name)


FAMILIES: Mapping[str, ModelFamily] = {
    "cohere2_moe": ModelFamily("moe_variants.read_cohere2_moe", "Cohere2MoeConfig"),
    "ernie4_5_moe": ModelFamily("moe_variants.read_ernie_moe", "Ernie4_5_MoeConfig"),
    "exaone_moe": ModelFamily("moe_variants.read_exaone_moe", "ExaoneMoeConfig"),
    "glm4_moe_lite": ModelFamily("deepseek.read_deepseek", "Glm4MoeLiteConfig"),
    "hunyuan_v1_moe": ModelFamily("moe_variants.read_hunyuan_moe", "HunYuanMoEV1Config"),
    "longcat_flash": ModelFamily("deepseek.read_longcat", "LongcatFlashConfig"),
    "seed_oss": ModelFamily("dense_variants.read_seed_oss", "SeedOssConfig"),
    "smollm3": ModelFamily("dense_variants.read_smollm3", "SmolLM3Config"),
    "solar_open": ModelFamily("moe_variants.read_solar_open", "SolarOpenConfig"),
    "bailing_hybrid": ModelFamily("linear_attention.read_bailing_hybrid", "BailingHybridConfig"),
    "lfm2_moe": ModelFamily("recurrent.read_lfm2_moe", "Lfm2MoeConfig"),
    "minimax": ModelFamily("linear_attention.read_minimax", "MiniMaxConfig"),
    "minimax_m1": ModelFamily("linear_attention.read_minimax", "MiniMaxM1Config"),
    "exaone4": ModelFamily("dense_variants.read_exaone4", "Exaone4Config"),
    "olmo3": ModelFamily("dense_variants.read_olmo3", "Olmo3Config"),
    "arcee": ModelFamily("dense_variants.read_arcee", "ArceeConfig"),
    "apertus": ModelFamily("dense_variants.read_apertus", "ApertusConfig"),
    "hunyuan_v1_dense": ModelFamily("dense_variants.read_hunyuan_dense", "HunYuanDenseV1Config"),
    "ministral3": ModelFamily("dense_variants.read_ministral3", "Ministral3Config"),
    "cohere2": ModelFamily("dense_variants.read_cohere2", "Cohere2Config"),
    "chatglm": ModelFamily("dense_variants.read_chatglm", "ChatGLMConfig"),
    "granite": ModelFamily("llama_like.read_llama", "GraniteConfig"),
    "granitemoe": ModelFamily("moe_variants.read_granite_moe", "GraniteMoeConfig"),
    "granitemoehybrid": ModelFamily("moe_variants.read_granite_hybrid", "GraniteMoeHybridConfig"),
    "dots1": ModelFamily("moe_variants.read_dots1", "Dots1Config"),
    "hy_v3": ModelFamily("moe_variants.read_hunyuan3", "HYV3Config"),
    "hy_v4": ModelFamily("deepseek.read_hunyuan4", "HYV4Config"),
    "afmoe": ModelFamily("moe_variants.read_afmoe", "AfmoeConfig"),
    "laguna": ModelFamily("moe_variants.read_laguna", "LagunaConfig"),
    "bitnet": ModelFamily("dense_variants.read_bitnet", "BitNetConfig"),
    "bert": ModelFamily("encoder.read_bert", "BertConfig"),
    "bloom": ModelFamily("classic.read_bloom", "BloomConfig"),
    "cohere": ModelFamily("llama_like.read_cohere", "CohereConfig"),
    "dbrx": ModelFamily("moe.read_dbrx", "DbrxConfig"),
    "deepseek_ref": ModelFamily("deepseek.read_deepseek_v4", "DeepseekV4Config", kv_cache=Dtype.FP8),
    "deepseek_v2": ModelFamily("deepseek.read_deepseek", "DeepseekV2Config"),
    "deepseek_v3": ModelFamily("deepseek.read_deepseek", "DeepseekV3Config"),
    "deepseek_v32": ModelFamily("deepseek.read_deepseek_sparse", "DeepseekV32Config"),
    "deepseek_v4": ModelFamily("deepseek.read_deepseek_v4", "DeepseekV4Config", kv_cache=Dtype.FP8),
    "falcon": ModelFamily("classic.read_falcon", "FalconConfig"),
    "falcon_h1": ModelFamily("recurrent.read_falcon_h1", "FalconH1Config"),
    "falcon_mamba": ModelFamily("recurrent.read_falcon_mamba", "FalconMambaConfig"),
    "gemma": ModelFamily("gemma.read_gemma", "GemmaConfig"),
    "gemma2": ModelFamily("gemma.read_gemma2", "Gemma2Config"),
    "gemma3_text": ModelFamily("gemma.read_gemma3", "Gemma3TextConfig"),
    "gemma3n": ModelFamily("gemma.refuse_gemma3n", "Gemma3nConfig"),
    "gemma3n_text": ModelFamily("gemma.refuse_gemma3n", "Gemma3nTextConfig"),
    "gemma4_text": ModelFamily("gemma.read_gemma4", "Gemma4TextConfig"),
    "glm": ModelFamily("llama_like.read_glm", "GlmConfig"),
    "glm4": ModelFamily("llama_like.read_glm4", "Glm4Config"),
    "glm4_moe": ModelFamily("moe_mixed.read_glm4_moe", "Glm4MoeConfig"),
    "glm_moe_dsa": ModelFamily("deepseek.read_deepseek_sparse", "GlmMoeDsaConfig"),
    "gpt2": ModelFamily("classic.read_gpt2", "GPT2Config"),
    "gpt_bigcode": ModelFamily("classic.read_gpt_bigcode", "GPTBigCodeConfig"),
    "gpt_neox": ModelFamily("classic.read_gpt_neox", "GPTNeoXConfig"),
    "gpt_oss": ModelFamily("moe.read_gpt_oss", "GptOssConfig"),
    "gptj": ModelFamily("classic.read_gptj", "GPTJConfig"),
    "jamba": ModelFamily("recurrent.read_jamba", "JambaConfig"),
    "kimi_k2": ModelFamily("deepseek.read_deepseek", "DeepseekV3Config"),
    "kimi_linear": ModelFamily("linear_attention.read_kimi_linear", "KimiLinearConfig"),
    "llama": ModelFamily("llama_like.read_llama", "LlamaConfig"),
    "llama4_text": ModelFamily("moe_mixed.read_llama4", "Llama4TextConfig"),
    "mamba": ModelFamily("recurrent.read_mamba", "MambaConfig"),
    "mamba2": ModelFamily("recurrent.read_mamba2", "Mamba2Config"),
    "mimo": ModelFamily("llama_like.read_mimo", "MiMoConfig"),
    "mimo_v2_flash": ModelFamily("moe_mixed.read_mimo_v2", "MiMoV2FlashConfig"),
    "minimax_m2": ModelFamily("moe_mixed.read_minimax_m2", "MiniMaxM2Config"),
    "minimax_m3": ModelFamily("moe_mixed.read_minimax_m3", "MiniMaxM3VLTextConfig"),
    "mllama": ModelFamily("llama_like.read_mllama", "MllamaConfig"),
    "modernbert": ModelFamily("encoder.read_modernbert", "ModernBertConfig"),
    "nomic_bert": ModelFamily("encoder.read_nomic_bert", "NomicBertConfig"),
    "muse_glimmer_text": ModelFamily("dense_variants.read_muse_glimmer", "MuseGlimmerTextConfig"),
    "mistral": ModelFamily("llama_like.read_mistral", "MistralConfig"),
    "mistral4": ModelFamily("deepseek.read_mistral4", "Mistral4Config"),
    "mixtral": ModelFamily("moe.read_mixtral", "MixtralConfig"),
    "mpt": ModelFamily("classic.read_mpt", "MptConfig"),
    "nemotron-nas": ModelFamily("llama_like.read_nemotron_nas", "DeciLMConfig"),
    "nemotron_h": ModelFamily("recurrent.read_nemotron_h", "NemotronHConfig"),
    "olmo2": ModelFamily("llama_like.read_olmo2", "Olmo2Config"),
    "opt": ModelFamily("classic.read_opt", "OPTConfig"),
    "phi": ModelFamily("classic.read_phi", "PhiConfig"),
    "phi3": ModelFamily("llama_like.read_phi3", "Phi3Config"),
    "phimoe": ModelFamily("moe.read_phimoe", "PhimoeConfig"),
    "qwen2": ModelFamily("llama_like.read_qwen2", "Qwen2Config"),
    "qwen2_moe": ModelFamily("moe.read_qwen2_moe", "Qwen2MoeConfig"),
    "qwen3": ModelFamily("llama_like.read_qwen3", "Qwen3Config"),
    "qwen3_5_moe_text": ModelFamily("linear_attention.read_qwen_hybrid", "Qwen3_5MoeTextConfig"),
    "qwen3_5_text": ModelFamily("linear_attention.read_qwen_hybrid", "Qwen3_5TextConfig"),
    "qwen3_moe": ModelFamily("moe.read_qwen3_moe", "Qwen3MoeConfig"),
    "qwen3_next": ModelFamily("linear_attention.read_qwen_hybrid", "Qwen3NextConfig"),
    "qwen3_vl_moe_text": ModelFamily("moe.read_qwen3_moe", "Qwen3VLMoeTextConfig"),
    "qwen3_vl_text": ModelFamily("llama_like.read_qwen3", "Qwen3VLTextConfig"),
    "starcoder2": ModelFamily("classic.read_starcoder2", "Starcoder2Config"),
    "step3p5": ModelFamily("moe_mixed.read_step3p7", "Step3p7TextConfig"),
    "step3p7": ModelFamily("moe_mixed.read_step3p7", "Step3p7TextConfig"),
    "t5": ModelFamily("encoder.read_t5", "T5Config"),
    "exaone4_5_text": ModelFamily("dense_variants.read_exaone4", "Exaone4Config"),
    "glm4v_text": ModelFamily("llama_like.read_glm4", "Glm4vTextConfig"),
    "glm4v_moe_text": ModelFamily("moe_mixed.read_glm4_moe", "Glm4vMoeTextConfig"),
    "mimo_v2": ModelFamily("moe_mixed.read_mimo_v2", "MiMoV2Config", tower="any_size.windowed_tower", flat=True),
    "xlm-roberta": ModelFamily("encoder.read_bert", "XLMRobertaConfig"),
    # A text part inside a multimodal configuration: the reader is chosen by the nested model_type.
    "exaone4_5": _tower("any_size.windowed_tower", "Exaone4_5_Config"),
    "glm4v": _tower("any_size.glm_tower", "Glm4vConfig"),
    "glm4v_moe": _tower("any_size.glm_tower", "Glm4vMoeConfig"),
    "internvl": _tower("fixed_size.internvl_tower", "InternVLConfig"),
    "llava": _tower("any_size.llava_tower", "LlavaConfig"),
    "muse_glimmer": _tower("any_size.muse_tower", "MuseGlimmerConfig"),
    "mistral3": _tower("any_size.mistral3_tower", "Mistral3Config"),
    "mistral_large3": ModelFamily(
        "deepseek.read_mistral4", "MistralLarge3Config", tower="any_size.mistral_large3_tower", flat=True
    ),
    "qwen2_5_vl": ModelFamily(
        "llama_like.read_qwen2", "Qwen2_5_VLConfig", tower="any_size.windowed_tower", flat=True, tie_default=False
    ),
    "qwen2_5_omni_thinker": ModelFamily(
        "llama_like.read_qwen2",
        "Qwen2_5OmniThinkerConfig",
        tower="any_size.windowed_tower",
        audio="audio.qwen25_audio",
        tie_default=False,
    ),
    "qwen3_omni_moe_thinker": ModelFamily(
        "moe.read_qwen3_moe",
        "Qwen3OmniMoeThinkerConfig",
        tower="any_size.qwen_tower",
        audio="audio.qwen3_audio",
        tie_default=False,
    ),
    "gemma3": ModelFamily("gemma.read_gemma3", "Gemma3Config", tower="fixed_size.siglip_tower", tie_default=True),
    "gemma4": ModelFamily(
        "gemma.read_gemma4",
        "Gemma4Config",
        tower="fixed_size.gemma4_tower",
        audio="audio.gemma4_audio",
        tie_default=True,
    ),
    "gemma4_unified": ModelFamily(
        "gemma.read_gemma4",
        "Gemma4UnifiedConfig",
        tower="fixed_size.gemma4_patches",
        audio="audio.gemma4_audio",
        tie_default=True,
    ),
    "kimi_k25": ModelFamily("deepseek.read_deepseek", "Kimi_K25Config", tower="any_size.kimi_tower"),
    "kimi_k3": ModelFamily("linear_attention.read_kimi_linear", "KimiK3Config", tower="any_size.uncounted_tower"),
    "llama4": ModelFamily("moe_mixed.read_llama4", "Llama4Config", tower="fixed_size.llama4_tower"),
    "qwen3_5": ModelFamily(
        "linear_attention.read_qwen_hybrid", "Qwen3_5Config", tower="any_size.qwen_tower", tie_default=False
    ),
    "qwen3_5_moe": ModelFamily(
        "linear_attention.read_qwen_hybrid", "Qwen3_5MoeConfig", tower="any_size.qwen_tower", tie_default=False
    ),
    "qwen3_vl": ModelFamily("llama_like.read_qwen3", "Qwen3VLConfig", tower="any_size.qwen_tower", tie_default=False),
    "qwen3_vl_moe": ModelFamily(
        "moe.read_qwen3_moe", "Qwen3VLMoeConfig", tower="any_size.qwen_tower", tie_default=False
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
        return _function_at(family.read)(fields), None
    fields.expect("language_model_only", value=False, why="take the text configuration where the tower is left out")
    flat = family.flat and not fields.has("text_config")
    if not flat and not fields.has("text_config"):
        raise fields.refusal("text_config", f"is missing: {family.config_class} nests the language model there")
    vision: VisionSpec | None = _function_at(f"vision.{family.tower}")(fields) if fields.has("vision_config") else None
    text = None if flat else fields.section("text_config")
    inner = fields if text is None else text
    spec: ModelSpec = _function_at(family.read or _text_family(fields).read)(inner)
    tied = fields.flag("tie_word_embeddings", default=spec.tie_word_embeddings)
    given = fields.has("tie_word_embeddings") or inner.has("tie_word_embeddings")
    if not given and family.tie_default is not None:
        tied = family.tie_default
    notes = () if vision is not None or flat else ("vision tower not simulated and not counted",)
    stored: int = _function_at(family.audio)(fields) if family.audio and fields.has("audio_config") else 0
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
