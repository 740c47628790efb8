"""MPT and the first StarCoders: what their configurations make, and what they may not say."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.errors import RoofcastError
from simulator.specs.huggingface.registry import read_config
from simulator.specs.model.architecture import AttentionSpec, MlpSpec, ModelSpec
from simulator.specs.model.loading import read_profile
from simulator.specs.profiles import profile_root


def _read(profile: str, **changes: Any) -> ModelSpec:
    config = {**read_profile(profile_root("model_profiles") / f"{profile}.yaml").config, **changes}
    return read_config(config, name="test")


def test_a_starcoder_shares_one_key_value_head() -> None:
    layer = _read("starcoder-15b").layers[0]
    assert isinstance(layer.mixer, AttentionSpec)
    assert (layer.mixer.num_attention_heads, layer.mixer.num_key_value_heads) == (48, 1)
    many = _read("starcoder-15b", multi_query=False).layers[0].mixer
    assert isinstance(many, AttentionSpec)
    assert many.num_key_value_heads == 48


def test_an_mpt_has_no_biases_and_four_times_its_width() -> None:
    layer = _read("mpt-30b").layers[0]
    assert layer.feed_forward == (MlpSpec(intermediate_size=4 * 7168, gated=False),)
    assert isinstance(layer.mixer, AttentionSpec)
    assert (layer.mixer.qkv_bias, layer.mixer.o_bias, layer.mixer.rotary) == (False, False, False)
    assert _read("mpt-30b").tie_word_embeddings


@pytest.mark.parametrize(
    ("profile", "changes", "field"),
    [
        ("mpt-7b", {"no_bias": False}, "no_bias"),
        ("mpt-7b", {"attn_config": {"alibi": False}}, "attn_config.alibi"),
        ("mpt-7b", {"attn_config": {"qk_ln": True}}, "attn_config.qk_ln"),
        ("mpt-7b", {"attn_config": {"kv_n_heads": 8}}, "attn_config.kv_n_heads"),
        ("mpt-7b", {"n_heads": 33}, "n_heads"),
        ("starcoder-15b", {"num_key_value_heads": 8}, "num_key_value_heads"),
        ("starcoder-15b", {"n_positions": None}, "n_positions"),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(profile: str, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(RoofcastError) as refusal:
        _read(profile, **changes)
    assert refusal.value.field == field
