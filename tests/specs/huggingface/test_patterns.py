"""Patterns of quantized checkpoints match as Python's own do, and never take longer than their length allows."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import RoofcastError
from simulator.specs.huggingface.quantized.module_roles import pattern_matcher
from simulator.specs.huggingface.registry import read_config
from tests.for_every import for_every

_PARTS = st.recursive(
    st.sampled_from(["a", "b", ".", r"\.", r"\d", "[ab]", "[^a]", r"\w", "_", "layers", "$"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{1,}", "*?"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
    ),
    max_leaves=6,
)


@given(pattern=_PARTS, name=st.text("ab.1_layers", max_size=10))
def test_it_matches_what_python_matches(pattern: str, name: str) -> None:
    assert pattern_matcher(pattern)(name) == bool(re.match(pattern, name))


@pytest.mark.parametrize(
    "pattern", [".*self_attn.*", r"^model\.layers\.(0|1|23)\.mlp\.(gate|up)_proj$", r".*layers\.\d+\..*[qkvo]_proj.*"]
)
@pytest.mark.parametrize("name", ["model.layers.23.mlp.up_proj", "model.layers.3.self_attn.o_proj", "lm_head"])
def test_what_tools_write_is_understood(pattern: str, name: str) -> None:
    assert pattern_matcher(pattern)(name) == bool(re.match(pattern, name))


def test_what_keeps_python_busy_for_ever_is_answered() -> None:
    assert not pattern_matcher(r"(\w*\.?)*!")("model.layers.3.self_attn.o_proj" * 20)
    assert not pattern_matcher(r"(a|a|aa)+$")("a" * 1000 + "b")


@for_every(
    ["(((", "a)", "a)|(b", "[z-a]", "(?!x)", "*a", "(" * 400, "a{5,2}", "a" * 501, "((a{99}){99}){99}", "[", "\\"]
)
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"pattern .*(: .*[a-z]|has)"):
        pattern_matcher(text)


def test_a_configuration_with_such_a_pattern_is_refused_by_its_field() -> None:
    config = {
        "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
        "intermediate_size": 128, "vocab_size": 1000,
        "quantization_config": {"quant_method": "fp8", "ignored_layers": ["re:((("]},
    }  # fmt: skip
    with pytest.raises(RoofcastError, match="pattern") as caught:
        read_config(config, name="hostile")
    assert caught.value.field == "quantization_config.modules_to_not_convert"
