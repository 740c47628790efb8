"""DeepSeek-V4 configurations: sizes, layer kinds, quantization, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.errors import RoofcastError
from simulator.operators.model_counts import parameter_counts
from simulator.reports.words.fields import note_texts
from simulator.specs.huggingface.registry import read_config
from simulator.specs.model.architecture import CompressedAttentionSpec, ModelSpec, MoeSpec
from simulator.specs.model.loading import read_profile
from simulator.specs.model.precision import Dtype
from simulator.specs.profiles import profile_root

CONFIG = dict(read_profile(profile_root("model_profiles") / "deepseek-v4-flash.yaml").config)


def _read(**changes: Any) -> ModelSpec:
    config = {name: value for name, value in {**CONFIG, **changes}.items() if value is not None}
    return read_config(config, name="test")


def test_layers_take_the_ratio_of_their_depth_and_the_prediction_layer_none() -> None:
    model = _read()
    mixers = [model.layers[index].mixer for index in model.layer_order]
    ratios = [mixer.compress_ratio for mixer in mixers if isinstance(mixer, CompressedAttentionSpec)]
    assert ratios == [None, None, *([4, 128] * 20), 4]
    indexed = [mixer.compress_ratio for mixer in mixers if isinstance(mixer, CompressedAttentionSpec) and mixer.indexer]
    assert set(indexed) == {4}


def test_hash_layers_have_no_correction_bias() -> None:
    model = _read()
    blocks = [block for index in model.layer_order for block in model.layers[index].feed_forward]
    biased = [block.correction_bias for block in blocks if isinstance(block, MoeSpec)]
    assert biased == [False] * 3 + [True] * 40
    without = _read(num_hash_layers=0)
    assert without.extra_parameters == 0
    added = parameter_counts(without).total - parameter_counts(model).total
    assert added == 3 * 256 - 3 * 129280 * 6


def test_one_layer_by_hand() -> None:
    """Projections, pools, indexer, sinks, norms, experts, router and stream mixes of one ratio-4 layer of Flash."""
    deeper = _read(num_hidden_layers=44, compress_ratios=[*CONFIG["compress_ratios"][:43], 4, 0])
    added = parameter_counts(deeper).total - parameter_counts(_read()).total
    attention = 4096 * (1024 + 512) + 1024 * 64 * 512 + 8 * 1024 * 4096 + 8 * 1024 * 4096 + 1024 + 512 + 64
    pool = 4096 * 2 * 1024 + 4 * 1024 + 512
    index = 1024 * 64 * 128 + 4096 * 64 + 4096 * 2 * 256 + 4 * 256 + 128
    experts = 257 * 3 * 4096 * 2048 + 256 * 4096 + 256
    mixes = 2 * (24 * 4 * 4096 + 24 + 3)
    assert added == attention + pool + index + experts + mixes + 2 * 4096


def test_layer_names_mean_the_same_as_ratios() -> None:
    """The spelling that transformers writes."""
    words = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
    named = _read(
        compress_ratios=None,
        layer_types=[words[ratio] for ratio in CONFIG["compress_ratios"][:43]],
        compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 128},
        num_hash_layers=None,
        mlp_layer_types=["hash_moe"] * 3 + ["moe"] * 40,
    )
    assert named == _read()


def test_the_experts_dtype_may_stand_in_either_place() -> None:
    inside = {**CONFIG["quantization_config"], "expert_dtype": "fp4"}
    assert _read(expert_dtype=None, quantization_config=inside) == _read()


def test_fields_that_cost_nothing_change_nothing() -> None:
    same = _read(hc_eps=1e-3, compress_rope_theta=1, scoring_func="sigmoid", swiglu_limit=7.0)
    assert same == _read()


def test_experts_of_their_own_dtype() -> None:
    four = _read().quantization
    assert four is not None
    assert [(own.role, own.weights) for own in four.roles] == [("experts", Dtype.FP4)]
    eight = _read(expert_dtype="fp8").quantization
    assert eight is not None
    assert eight.roles == ()
    assert eight.weights is Dtype.FP8
    assert eight.kv_cache is Dtype.FP8
    plain = _read(quantization_config=None, expert_dtype=None)
    assert plain.quantization is None
    assert not any("keys and values in" in note for note in note_texts(plain.notes))
    assert any("keys and values in fp8" in note for note in note_texts(_read().notes))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"compress_ratios": None}, "compress_ratios"),
        ({"compress_ratios": [4, 128]}, "compress_ratios"),
        ({"compress_ratios": [1] * 44}, "compress_ratios"),
        ({"num_key_value_heads": 8}, "num_key_value_heads"),
        ({"o_groups": 7}, "o_groups"),
        ({"qk_rope_head_dim": 1024}, "qk_rope_head_dim"),
        ({"num_hash_layers": 99}, "num_hash_layers"),
        ({"num_hash_layers": None}, "num_hash_layers"),
        ({"mlp_layer_types": ["moe"] * 43}, "mlp_layer_types"),
        ({"layer_types": ["sliding_attention"] * 43}, "layer_types"),
        ({"compress_rates": {"compressed_sparse_attention": 8}}, "compress_rates.compressed_sparse_attention"),
        ({"expert_dtype": "int3"}, "expert_dtype"),
        ({"quantization_config": None}, "expert_dtype"),
        ({"attention_bias": True}, "attention_bias"),
        ({"hc_mult": None}, "hc_mult"),
        ({"index_topk": None}, "index_topk"),
        ({"sliding_window": None}, "sliding_window"),
        ({"o_lora_rank": 0}, "o_lora_rank"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_what_is_missing_or_contradicts_is_refused_by_name(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(RoofcastError) as refusal:
        _read(**changes)
    assert refusal.value.field == field
