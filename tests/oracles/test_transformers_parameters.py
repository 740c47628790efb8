"""Parameter counts against the real modules: transformers builds each model on the meta device, without weights.

Both sides read the same configuration, cut to a few layers; the counts must agree to the last parameter.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from simulator.operators.model_counts import parameter_counts
from simulator.specs.huggingface.registry import field_table, read_config
from simulator.specs.model.loading import read_profile
from simulator.specs.model.precision import Dtype
from simulator.specs.profiles import profile_root
from tests.for_every import for_every

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.oracle

DEPTH_FIELDS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers")
TOWER_DEPTH_FIELDS = ("depth", "num_hidden_layers", "vt_num_hidden_layers")

# profile, layers that show every kind of layer the family has
CASES = (
    ("llama-3.1-8b", 2),
    ("llama-3.2-1b", 2),
    ("mistral-7b-v0.1", 2),
    ("mixtral-8x7b", 2),
    ("qwen2.5-7b", 2),
    ("qwen1.5-moe-a2.7b", 2),
    ("qwen3-8b", 2),
    ("qwen3-30b-a3b", 2),
    ("qwen3-next-80b-a3b", 4),
    ("qwen3.5-27b", 4),
    ("qwen3.5-35b-a3b", 4),
    ("qwen3-vl-4b", 2),
    ("qwen3-vl-30b-a3b", 2),
    ("qwen2.5-vl-7b", 2),
    ("qwen2.5-vl-32b", 2),
    ("internvl3-8b", 2),
    ("internvl3-38b", 2),
    ("mistral-small-3.1-24b", 2),
    ("ministral-3-8b", 2),
    ("mistral-medium-3.5-128b", 2),
    ("mistral-small-4-119b", 2),
    ("pixtral-12b", 2),
    ("pixtral-large", 2),
    ("glm-4.1v-9b", 2),
    ("glm-4.6v", 3),
    ("exaone-4.5-33b", 4),
    ("gemma-7b", 2),
    ("gemma-2-9b", 2),
    ("gemma-3-1b", 6),
    ("gemma-3-4b", 6),
    ("gemma-4-26b-a4b", 6),
    ("gemma-4-31b", 6),
    ("gemma-4-e2b", 35),
    ("gemma-4-12b", 6),
    ("llama-3.2-90b-vision", 100),
    ("muse-glimmer-30b", 4),
    ("falcon-h1-34b", 2),
    ("hy4-preview", 6),
    ("modernbert-large", 4),
    ("nomic-embed-text-v1.5", 2),
    ("qwen2.5-omni-7b", 2),
    ("qwen3-omni-30b-a3b", 2),
    ("qwen3.6-27b", 4),
    ("phi-2", 2),
    ("phi-3-mini", 2),
    ("phi-3.5-moe", 2),
    ("gpt2", 3),
    ("starcoder-15b", 2),
    ("mpt-7b", 2),
    ("gpt-j-6b", 2),
    ("gpt-neox-20b", 2),
    ("opt-125m", 3),
    ("bloom-7b1", 2),
    ("falcon-7b", 2),
    ("falcon-40b", 2),
    ("dbrx", 2),
    ("deepseek-v2", 3),
    ("deepseek-v2-lite", 3),
    ("deepseek-v3", 5),
    ("deepseek-v3.2", 5),
    ("deepseek-v4-flash", 5),
    ("deepseek-v4-pro", 5),
    ("glm-5", 5),
    ("glm-5.2", 8),
    ("kimi-k2.5", 3),
    ("kimi-linear-48b-a3b", 4),
    ("gpt-oss-20b", 2),
    ("llama-4-scout", 4),
    ("llama-4-maverick", 4),
    ("minimax-m2.5", 2),
    ("mimo-v2-flash", 6),
    ("command-r-35b", 2),
    ("olmo-2-7b", 2),
    ("starcoder2-7b", 2),
    ("glm-4-9b", 2),
    ("glm-4.5", 5),
    ("glm-4.5-air", 3),
    ("mamba-130m", 3),
    ("falcon-mamba-7b", 2),
    ("mamba2-2.7b", 2),
    ("jamba-v0.1", 8),
    ("nemotron-h-56b", 12),
    ("nemotron-3-nano-30b-a3b", 12),
    ("nemotron-3-ultra-550b-a55b", 12),
    ("exaone-4.0-32b", 4),
    ("olmo-3-7b", 4),
    ("afm-4.5b", 2),
    ("apertus-8b-2509", 2),
    ("hunyuan-4b", 2),
    ("devstral-2-123b", 2),
    ("command-a-03-2025", 4),
    ("granite-3.3-8b", 2),
    ("granite-3.1-3b-a800m", 2),
    ("granite-4.0-h-small", 6),
    ("granite-4.0-h-1b", 6),
    ("dots.llm1", 3),
    ("hy3-preview", 3),
    ("trinity-mini", 4),
    ("laguna-xs.2", 4),
    ("bitnet-b1.58-2b-4t", 2),
    ("xlm-roberta-large", 3),
    ("bert-base", 3),
    ("seed-oss-36b", 2),
    ("smollm3-3b", 2),
    ("k-exaone-236b-a23b", 4),
    ("ernie-4.5-21b-a3b", 3),
    ("ernie-4.5-300b-a47b", 5),
    ("hunyuan-a13b", 2),
    ("solar-open-100b", 2),
    ("glm-4.7-flash", 3),
    ("command-a-plus-05-2026", 4),
    ("lfm2-8b-a1b", 4),
    ("minimax-text-01", 8),
    ("t5-small", 3),
    ("t5-3b", 2),
)

# Families that no profile has: small configurations with the fields of published ones.
_SIGLIP = {
    "hidden_size": 96, "intermediate_size": 200, "num_attention_heads": 4, "num_hidden_layers": 2, "patch_size": 14,
    "image_size": 84,
}  # fmt: skip
_LLAMA = {
    "hidden_size": 128, "intermediate_size": 320, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "num_hidden_layers": 3, "vocab_size": 1000,
}  # fmt: skip
_BERT = {
    "hidden_size": 128, "intermediate_size": 320, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 1000,
    "max_position_embeddings": 66, "type_vocab_size": 1,
}  # fmt: skip
_SPLIT = {name: value for name, value in _LLAMA.items() if name != "head_dim"}
_CLIP = {**_SIGLIP, "model_type": "clip_vision_model"}
_LATENT = {
    "hidden_size": 128, "intermediate_size": 320, "num_attention_heads": 4, "num_key_value_heads": 4,
    "num_hidden_layers": 2, "vocab_size": 1000, "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
}  # fmt: skip
INLINE: dict[str, dict[str, Any]] = {
    "cohere2_vision": {
        "text_config": {**_LLAMA, "model_type": "cohere2", "sliding_window": 64},
        "vision_config": {**_SIGLIP, "model_type": "siglip_vision_model", "vision_use_head": False},
        "downsample_factor": 2,
    },
    "glm_ocr": {
        "text_config": {**_LLAMA, "model_type": "glm_ocr_text", "attention_bias": False, "tie_word_embeddings": False},
        "vision_config": {
            "model_type": "glm_ocr_vision", "hidden_size": 96, "depth": 2, "num_heads": 4, "intermediate_size": 200,
            "out_hidden_size": 128, "patch_size": 14, "image_size": 84, "spatial_merge_size": 2,
            "temporal_patch_size": 2, "attention_bias": True,
        },
        "tie_word_embeddings": False,
    },
    "idefics3": {
        "text_config": {**_LLAMA, "model_type": "llama"},
        "vision_config": {**_SIGLIP, "model_type": "idefics3_vision"},
        "scale_factor": 2, "tie_word_embeddings": False,
    },
    "smolvlm": {
        "text_config": {**_LLAMA, "model_type": "llama"},
        "vision_config": {**_SIGLIP, "model_type": "smolvlm_vision"},
        "scale_factor": 3, "tie_word_embeddings": False,
    },
    "camembert": _BERT, "roberta": _BERT,
    "cwm": {**_LLAMA, "num_hidden_layers": 5}, "cohere": {**_LLAMA, "use_qk_norm": True},
    "ernie4_5": {**_LLAMA, "use_bias": True},
    "ernie4_5_vl_moe": {
        "text_config": {
            **_LLAMA, "model_type": "ernie4_5_vl_moe_text", "moe_num_experts": 6, "moe_k": 2,
            "moe_intermediate_size": [48, 16], "moe_num_shared_experts": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0, "mrope_section": [4, 4, 8]},
        },
        "vision_config": {
            "model_type": "ernie4_5_vl_moe_vision", "hidden_size": 96, "depth": 2, "num_heads": 4,
            "intermediate_size": 200, "patch_size": 14, "spatial_merge_size": 2,
        },
    },
    "glm46v": {
        "text_config": {**_LLAMA, "model_type": "glm4v_text", "attention_bias": True},
        "vision_config": {
            "model_type": "glm4v_vision", "hidden_size": 96, "depth": 2, "num_heads": 4, "intermediate_size": 200,
            "out_hidden_size": 128, "patch_size": 14, "image_size": 84, "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
    },
    "granite_swa": _LLAMA, "helium": {**_LLAMA, "attention_bias": True, "mlp_bias": True},
    "granitemoeshared": {**_LLAMA, "num_local_experts": 6, "shared_intermediate_size": 48},
    "hyperclovax": {**_LLAMA, "use_post_norm": True},
    "lfm2": {**_LLAMA, "full_attn_idxs": [1], "block_ffn_dim_multiplier": 1.2},
    "lfm2_vl": {
        "text_config": {**_LLAMA, "model_type": "lfm2", "layer_types": ["conv", "full_attention", "conv"]},
        "vision_config": {
            "model_type": "siglip2_vision_model", "hidden_size": 96, "intermediate_size": 200,
            "num_attention_heads": 4, "num_hidden_layers": 2, "patch_size": 16, "num_patches": 64,
            "vision_use_head": False,
        },
        "projector_hidden_size": 72,
    },
    "llava": {"text_config": {**_LLAMA, "model_type": "llama"}, "vision_config": _CLIP},
    "llava_next": {"text_config": {**_LLAMA, "model_type": "mistral"}, "vision_config": _CLIP},
    "mellum": {
        **_LLAMA, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "sliding_window": 64,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    },
    "minicpm3": {**_LATENT, "head_dim": 16}, "youtu": {**_LATENT, "v_head_dim": 32},
    "minimax_m3_vl": {
        "text_config": {
            **_LLAMA, "model_type": "minimax_m3_vl_text", "num_local_experts": 6, "num_experts_per_tok": 2,
            "intermediate_size": 48, "dense_intermediate_size": 200, "shared_intermediate_size": 48,
            "moe_layer_freq": [0, 1, 1],
            "sparse_attention_config": {"use_sparse_attention": True, "sparse_attention_freq": [0, 0, 0]},
        },
        "vision_config": {
            "hidden_size": 96, "intermediate_size": 200, "num_attention_heads": 4, "num_hidden_layers": 2,
            "patch_size": 14, "image_size": 84, "spatial_merge_size": 2, "temporal_patch_size": 2,
        },
        "projector_hidden_size": 72,
    },
    "ministral": {**_LLAMA, "sliding_window": 64},
    "nemotron": {**_LLAMA, "mlp_bias": True}, "olmo": _LLAMA,
    "olmoe": {**_SPLIT, "num_experts": 6, "num_experts_per_tok": 2},
    "paligemma": {
        "text_config": {**_LLAMA, "model_type": "gemma"},
        "vision_config": {**_SIGLIP, "model_type": "siglip_vision_model", "vision_use_head": False},
        "projection_dim": 128,
    },
    "qwen2_vl": {
        "text_config": {**_SPLIT, "model_type": "qwen2_vl_text"},
        "vision_config": {
            "model_type": "qwen2_vl_vision", "embed_dim": 96, "hidden_size": 128, "depth": 2, "num_heads": 4,
            "mlp_ratio": 3, "patch_size": 14,
        },
    },
    "stablelm": {**_LLAMA, "use_qkv_bias": True, "qk_layernorm": True, "use_parallel_residual": True},
    "vaultgemma": _LLAMA,
}  # fmt: skip

# The same architecture under the name that transformers knows.
RENAMED = {"kimi_k2": "deepseek_v3"}
# These say nothing about the head, which their checkpoints store; transformers 5 ties it where nothing is said.
UNTIED = ("internvl", "mistral3")


def _cut(config: dict[str, Any], depth: int) -> dict[str, Any]:
    """The configuration with ``depth`` layers and the lists that name a layer each cut to them."""
    if "text_config" in config:
        text = _cut(config["text_config"], depth)
        tower = {name: 2 if name in TOWER_DEPTH_FIELDS else value for name, value in config["vision_config"].items()}
        return {**config, "text_config": text, "vision_config": tower}
    pattern = config.get("hybrid_override_pattern") or config.get("layers_block_type")
    full = next((config[name] for name in DEPTH_FIELDS if name in config), len(pattern or ()))
    cut: dict[str, Any] = {}
    if "linear_attn_config" in config:
        linear = dict(config["linear_attn_config"])
        for kind in ("full_attn_layers", "kda_layers"):
            linear[kind] = [layer for layer in linear[kind] if layer <= depth]
        config = {**config, "linear_attn_config": linear}
    for name, value in config.items():
        whole = isinstance(value, list | str) and len(value) == full and name != "block_configs"
        whole = whole or name == "compress_ratios"  # one more, for the prediction layer
        cut[name] = depth if name in DEPTH_FIELDS else value[:depth] if whole else value
    return cut


def _settings(config: dict[str, Any]) -> Any:
    """The transformers configuration of the same model."""
    plain = {key: value for key, value in config.items() if key not in ("quantization_config", "expert_dtype", "dtype")}
    model_type = RENAMED.get(plain.pop("model_type"), config["model_type"])
    if "text_config" in plain:
        text = dict(plain["text_config"])
        text.pop("quantization_config", None)
        plain["text_config"] = {**text, "model_type": RENAMED.get(text["model_type"], text["model_type"])}
    if model_type in UNTIED:
        plain.setdefault("tie_word_embeddings", False)
    if model_type == "kimi_k25":
        tower = plain["vision_config"]
        plain["vision_config"] = {re.sub("^(vt|init)_", "", name): value for name, value in tower.items()}
    if model_type == "exaone_moe":
        plain["sliding_window_pattern"] = len(plain["sliding_window_pattern"])
    if "attn_config" in plain:
        plain["attn_config"] = {**plain["attn_config"], "rope_theta": 10000.0}
    return transformers.AutoConfig.for_model(model_type, **plain)


def _reference(config: dict[str, Any]) -> int:
    """Parameters of the real modules, plus the routers' biases and tables, which checkpoints store as well."""
    with torch.device("meta"):
        model = _build(_settings(config))
    return sum(parameter.numel() for parameter in model.parameters()) + sum(_correction_biases(model))


def _build(settings: Any) -> Any:
    if settings.model_type in ("xlm-roberta", "modernbert"):
        return transformers.AutoModelForMaskedLM.from_config(settings)
    if settings.model_type.endswith("_thinker"):
        return getattr(transformers, type(settings).__name__.replace("Config", "ForConditionalGeneration"))(settings)
    if settings.model_type in ("bert", "camembert", "nomic_bert", "roberta"):
        return transformers.AutoModel.from_config(settings)
    for builder in (
        transformers.AutoModelForImageTextToText,
        transformers.AutoModelForCausalLM,
        transformers.AutoModelForSeq2SeqLM,
    ):
        if type(settings) in builder._model_mapping:
            return builder.from_config(settings)
    raise AssertionError(f"transformers has no language model for {settings.model_type}")


def _correction_biases(model: Any) -> Iterator[int]:
    for name, buffer in model.named_buffers():
        if name.endswith(("e_score_correction_bias", "expert_bias", "tid2eid")):
            yield buffer.numel()


@for_every(CASES)
def test_counts_agree_exactly(case: tuple[str, int]) -> None:
    name, depth = case
    profile = read_profile(profile_root("model_profiles") / f"{name}.yaml")
    config = _cut(dict(profile.config), depth)
    ours = parameter_counts(read_config(config, name=name)).total
    assert ours == _reference(config)


@for_every(INLINE)
def test_counts_of_a_family_without_a_profile_agree_exactly(model_type: str) -> None:
    config = {"model_type": model_type, **INLINE[model_type]}
    assert parameter_counts(read_config(config, name=model_type)).total == _reference(config)


@for_every(CASES)
def test_what_transformers_writes_is_read_as_the_same_model(case: tuple[str, int]) -> None:
    name, depth = case
    profile = read_profile(profile_root("model_profiles") / f"{name}.yaml")
    config = _cut(dict(profile.config), depth)
    written = json.loads(_settings(config).to_json_string(use_diff=False))
    blank = {"name": "", "model_type": "", "notes": (), "dtype": Dtype.BF16, "quantization": None}
    ours, theirs = read_config(config, name=name), read_config(written, name=name)
    assert theirs.model_copy(update=blank) == ours.model_copy(update=blank)


def test_masked_language_model_head_agrees() -> None:
    profile = read_profile(profile_root("model_profiles") / "bert-base.yaml")
    config = {**profile.config, "architectures": ["BertForMaskedLM"], "num_hidden_layers": 2}
    settings = transformers.BertConfig(**{k: v for k, v in config.items() if k not in ("model_type", "dtype")})
    with torch.device("meta"):
        model = transformers.BertForMaskedLM(settings)
    expected = sum(parameter.numel() for parameter in model.parameters())
    assert parameter_counts(read_config(config, name="bert")).total == expected


def test_opt_with_a_narrow_embedding_agrees() -> None:
    config = {
        "model_type": "opt", "hidden_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 16, "ffn_dim": 4096,
        "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 512,
        "do_layer_norm_before": False,
    }  # fmt: skip
    assert parameter_counts(read_config(config, name="opt-350m")).total == _reference(config)


def test_minimax_m3_agrees_but_for_the_indexer_s_norms() -> None:
    """Its block indexer norms queries and keys and has no head weights; ours is DeepSeek's."""
    config = _cut(dict(read_profile(profile_root("model_profiles") / "minimax-m3.yaml").config), 60)
    settings = {name: value for name, value in config.items() if name not in ("model_type", "dtype")}
    with torch.device("meta"):
        model = transformers.MiniMaxM3VLForCausalLM(transformers.MiniMaxM3VLTextConfig(**settings))
    reference = sum(parameter.numel() for parameter in model.parameters()) + sum(_correction_biases(model))
    heads, sparse_layers = 4, 57
    assert parameter_counts(read_config(config, name="m3")).total - reference == sparse_layers * heads * 6144


def test_step_3_7_agrees() -> None:
    modeling_step3p7 = pytest.importorskip("transformers.models.step3p7.modeling_step3p7")
    config = _cut(dict(read_profile(profile_root("model_profiles") / "step-3.7-flash.yaml").config), 8)
    renamed = {"num_experts": "n_routed_experts"}
    settings = {
        renamed.get(name, name): value
        for name, value in config.items()
        if name not in ("model_type", "dtype", "num_nextn_predict_layers", "first_k_dense_replace", "n_shared_experts")
    }
    with torch.device("meta"):
        model = modeling_step3p7.Step3p7TextModel(modeling_step3p7.Step3p7TextConfig(**settings))
    reference = sum(parameter.numel() for parameter in model.parameters()) + sum(_correction_biases(model))
    reference += config["vocab_size"] * config["hidden_size"]  # that class has no LM head
    assert parameter_counts(read_config(config, name="step")).total == reference


def test_longcat_agrees_but_for_experts_that_do_nothing() -> None:
    """The module allocates gate and up projections for them as well; checkpoints hold none."""
    config = _cut(dict(read_profile(profile_root("model_profiles") / "longcat-flash-chat.yaml").config), 2)
    gate_and_up = config["zero_expert_num"] * 2 * config["expert_ffn_hidden_size"] * config["hidden_size"]
    ours = parameter_counts(read_config(config, name="longcat")).total
    assert ours == _reference(config) - config["num_layers"] * gate_and_up


def test_ling_3_agrees() -> None:
    config = _cut(dict(read_profile(profile_root("model_profiles") / "ling-3.0-flash.yaml").config), 6)
    assert parameter_counts(read_config(config, name="ling")).total == _reference(config)


def test_glm_agrees() -> None:
    config = {
        "model_type": "glm", "hidden_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 32,
        "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 13696, "vocab_size": 151552,
        "attention_bias": True,
    }  # fmt: skip
    assert parameter_counts(read_config(config, name="glm-4-9b")).total == _reference(config)


def test_every_family_that_transformers_has_is_compared() -> None:
    covered = set()
    profiles = [read_profile(profile_root("model_profiles") / f"{name}.yaml").config for name, _ in CASES]
    for config in [*profiles, *({"model_type": name, **INLINE[name]} for name in INLINE)]:
        covered |= {config["model_type"], config.get("text_config", {}).get("model_type", "")}
    # Not in transformers, or published under another layout of fields than transformers reads.
    without_oracle = {
        "bailing_hybrid", "chatglm", "deepseek_ref", "ernie4_5_moe_vl", "gemma3n", "gemma3n_text", "glm", "kimi_k3",
        "kimi_linear", "longcat_flash", "mimo", "mimo_v2", "minimax_m1", "minimax_m3", "mistral_large3", "nemotron-nas",
        "step3p5", "step3p7",
    }  # fmt: skip
    assert set(field_table().families) - covered - without_oracle == set()
