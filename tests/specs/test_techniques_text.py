"""Techniques from a command line: every field of a scenario can be said, mistakes name the option."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.specs.base import validate
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.technique_words import OF_PARTS, technique_value
from simulator.specs.question.techniques import TechniquesSpec
from simulator.specs.question.techniques_text import mixed_schemes, techniques_spec


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
        ("kv_policy", "h2o:20%", {"method": "h2o", "budget_fraction": 0.2}),
        ("kv_policy", "h2o:budget=0.2", {"method": "h2o", "budget_fraction": 0.2}),
        ("speculation", "draft:llama-3.2-1b,k=4", {"method": "draft", "draft_model": "llama-3.2-1b", "k": 4}),
        ("adapters", "lora:rank=16,count=8", {"method": "lora", "rank": 16, "count": 8}),
        ("contextual_sparsity", "attention=0.5,mlp=.2", {"attention_fraction": 0.5, "mlp_fraction": 0.2}),
        ("structure", "moe.num_experts=8", {"moe": {"num_experts": 8}}),
        ("fusion", "false", False),
        ("early_exit", "0.6", {"mean_fraction": 0.6}),
        ("weight_offload", "50%", {"fraction": 0.5}),
        ("adapters", '{"method": "lora", "rank": 4}', {"method": "lora", "rank": 4}),
    ],
)
def test_text_becomes_what_a_scenario_would_say(field: str, text: str, value: object) -> None:
    assert technique_value(field, text) == value


def test_options_become_one_spec_and_absent_ones_nothing() -> None:
    spec = techniques_spec({"sparsity": "2:4", "kv_policy": "h2o:1024", "fusion": True})
    assert spec == TechniquesSpec.model_validate(
        {"sparsity": "2:4", "kv_policy": {"method": "h2o", "budget_tokens": 1024}, "fusion": True}
    )
    assert techniques_spec({}) == TechniquesSpec()


@pytest.mark.parametrize(
    ("text", "field", "match"),
    [
        ({"sparsity": ""}, "sparsity", "is empty"),
        ({"sparsity": "3of4"}, "sparsity", "not known"),
        ({"speculation": "eagle:acceptance"}, "speculation", "key=value"),
        ({"speculation": "eagle:k=4,k=5"}, "speculation", "twice"),
        ({"speculation": "egale:k=4"}, "speculation", "did you mean eagle"),
        ({"speculation": "mtp:acceptance=1.2"}, "speculation", "probabilities from 0 to 1 are allowed, got 1.2"),
        ({"speculation": "eagle:acceptance=0.5/1.1"}, "speculation", "probabilities from 0 to 1"),
        ({"adapters": "lora:rank=16,cuont=2"}, "adapters", "did you mean count"),
        ({"kv_policy": "h2o"}, "kv_policy", "budget_tokens"),
        ({"kv_policy": "h2o:1024,budget_fraction=0.2"}, "kv_policy", "one of them"),
        ({"kv_policy": "streaming:20%"}, "kv_policy", "keeps a number of tokens"),
        ({"kv_policy": "h2o:120%"}, "kv_policy", "less than 1"),
        ({"attention": "fast"}, "attention", "allowed: flash"),
        ({"structure": "moe=1,moe.num_experts=2"}, "structure", "as a part"),
        ({"structure": "{x"}, "structure", "not JSON"),
        ({"contextual_sparsity": "0.5"}, "contextual_sparsity", "key=value"),
    ],
)
def test_mistakes_name_the_option(text: dict[str, str | bool | None], field: str, match: str) -> None:
    with pytest.raises(RoofcastError) as refusal:
        techniques_spec(text)
    assert refusal.value.field == field
    assert match in str(refusal.value)


@pytest.mark.parametrize(("field", "text"), list(OF_PARTS.items()))
def test_a_scenario_may_say_it_as_a_command_line_does(field: str, text: str) -> None:
    spec = TechniquesSpec.model_validate({field: text})
    assert spec == TechniquesSpec.model_validate({field: technique_value(field, text)})
    assert spec == techniques_spec({field: text})
    assert getattr(spec, field) is not None


def test_a_mistake_in_a_scenario_names_its_field() -> None:
    with pytest.raises(RoofcastError) as refusal:
        validate(ScenarioSpec, {"id": 1, "techniques": {"kv_policy": "h2o:819:4"}}, where="line 1")
    assert refusal.value.field == "techniques.kv_policy"
    assert "such as h2o:1024" in str(refusal.value)


def test_an_unknown_technique_is_refused() -> None:
    with pytest.raises(RoofcastError, match="did you mean sparsity"):
        technique_value("sparsty", "2:4")


def test_roles_and_their_schemes() -> None:
    assert mixed_schemes(["lm_head=fp8", "attention=awq"]) == (("attention", "awq"), ("lm_head", "fp8"))
    assert mixed_schemes([]) is None
    for pairs in (["lm_head"], ["=fp8"], ["mlp=fp8", "mlp=awq"]):
        with pytest.raises(RoofcastError, match="ROLE=SCHEME"):
            mixed_schemes(pairs)
