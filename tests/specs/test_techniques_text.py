"""Techniques from a command line: every field of a scenario can be said, mistakes name the option."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.specs.question.techniques import TechniquesSpec
from simulator.specs.question.techniques_text import TechniquesText, mixed_schemes, technique_value, techniques_spec


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("sparsity", "2:4", {"pattern": "2:4"}),
        ("sparsity", "2:4:method=wanda", {"pattern": "2:4", "method": "wanda"}),
        ("sparsity", "2:4,method=wanda", {"pattern": "2:4", "method": "wanda"}),
        (
            "sparsity",
            "unstructured:0.6,compressed=true",
            {"pattern": "unstructured", "fraction": 0.6, "compressed": True},
        ),
        ("speculation", "eagle:k=4,acceptance=0.7", {"method": "eagle", "k": 4, "acceptance": 0.7}),
        ("speculation", "draft:5,acceptance=0.8|0.6", {"method": "draft", "k": 5, "acceptance": [0.8, 0.6]}),
        ("attention", "standard", "standard"),
        ("kv_policy", "h2o:1024", {"method": "h2o", "budget_tokens": 1024}),
        ("adapters", "lora:rank=16,count=8", {"method": "lora", "rank": 16, "count": 8}),
        ("contextual_sparsity", "attention=0.5,mlp=.2", {"attention_fraction": 0.5, "mlp_fraction": 0.2}),
        ("structure", "moe.num_experts=8", {"moe": {"num_experts": 8}}),
        ("fusion", "false", False),
        ("adapters", '{"method": "lora", "rank": 4}', {"method": "lora", "rank": 4}),
    ],
)
def test_text_becomes_what_a_scenario_would_say(field: str, text: str, value: object) -> None:
    assert technique_value(field, text) == value


def test_options_become_one_spec_and_absent_ones_nothing() -> None:
    spec = techniques_spec(TechniquesText(sparsity="2:4", kv_policy="h2o:1024", fusion=True))
    assert spec == TechniquesSpec.model_validate(
        {"sparsity": "2:4", "kv_policy": {"method": "h2o", "budget_tokens": 1024}, "fusion": True}
    )
    assert techniques_spec(TechniquesText()) == TechniquesSpec()


@pytest.mark.parametrize(
    ("text", "field", "match"),
    [
        (TechniquesText(sparsity=""), "sparsity", "is empty"),
        (TechniquesText(sparsity="3of4"), "sparsity", "not known"),
        (TechniquesText(speculation="eagle:acceptance"), "speculation", "key=value"),
        (TechniquesText(speculation="eagle:k=4,k=5"), "speculation", "twice"),
        (TechniquesText(speculation="egale:k=4"), "speculation", "did you mean eagle"),
        (TechniquesText(adapters="lora:rank=16,cuont=2"), "adapters", "did you mean count"),
        (TechniquesText(kv_policy="h2o"), "kv_policy", "budget_tokens"),
        (TechniquesText(attention="fast"), "attention", "allowed: flash"),
        (TechniquesText(structure="moe=1,moe.num_experts=2"), "structure", "as a part"),
        (TechniquesText(structure="{x"), "structure", "not JSON"),
        (TechniquesText(contextual_sparsity="0.5"), "contextual_sparsity", "key=value"),
    ],
)
def test_mistakes_name_the_option(text: TechniquesText, field: str, match: str) -> None:
    with pytest.raises(RoofcastError) as refusal:
        techniques_spec(text)
    assert refusal.value.field == field
    assert match in str(refusal.value)


def test_an_unknown_technique_is_refused() -> None:
    with pytest.raises(RoofcastError, match="did you mean sparsity"):
        technique_value("sparsty", "2:4")


def test_roles_and_their_schemes() -> None:
    assert mixed_schemes(["lm_head=fp8", "attention=awq"]) == (("attention", "awq"), ("lm_head", "fp8"))
    assert mixed_schemes([]) is None
    for pairs in (["lm_head"], ["=fp8"], ["mlp=fp8", "mlp=awq"]):
        with pytest.raises(RoofcastError, match="ROLE=SCHEME"):
            mixed_schemes(pairs)
