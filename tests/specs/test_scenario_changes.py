"""Changes as a person writes them become fields of a scenario, or a refusal that names the word."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.specs.base import validate
from simulator.specs.model.precision import Dtype
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.scenario_file import changed_scenario, parse_change

BASE = validate(
    ScenarioSpec,
    {
        "id": "base",
        "kind": "batch",
        "model": "llama-3.1-8b",
        "hardware": "h100",
        "batch_size": 8,
        "isl_tokens": 512,
        "osl_tokens": 64,
        "precision": {"weights": "fp8"},
        "techniques": {"sparsity": "2:4"},
    },
    where="",
)


def changed(text: str) -> ScenarioSpec:
    return changed_scenario(BASE, parse_change(text))


def test_a_bare_name_finds_its_object() -> None:
    assert changed("kv_cache=fp8").precision.kv_cache is Dtype.FP8
    assert changed("kv-cache=fp8").precision.kv_cache is Dtype.FP8
    assert changed("attention=standard").techniques.attention == "standard"
    assert changed("max_num_seqs=4").engine.max_num_seqs == 4
    assert changed("engine=sglang").engine.name == changed("engine.name=sglang").engine.name == "sglang"
    assert changed("hardware=l40s").hardware == "l40s"
    assert changed("tp=2").tp_size == changed("tp_size=2").tp_size == 2
    assert changed("mixed=attention=fp8,mlp=int4").precision.mixed == (("attention", "fp8"), ("mlp", "int4"))


def test_what_is_not_named_stays() -> None:
    found = changed("kv_cache=fp8")
    assert found.precision.weights is Dtype.FP8
    assert found.techniques == BASE.techniques
    assert changed("tp=2").model_copy(update={"tp_size": 1}).model_dump() == BASE.model_dump()


def test_words_in_one_change_go_together() -> None:
    change = parse_change("  weights=int4   scheme=gptq-g128 ")
    assert change.text == "weights=int4 scheme=gptq-g128"
    found = changed_scenario(BASE, change)
    assert (found.precision.weights, found.precision.scheme) == (Dtype.INT4, "gptq-g128")


@pytest.mark.parametrize("word", ["none", "null", "None"])
def test_none_takes_a_field_back_to_its_default(word: str) -> None:
    assert changed(f"sparsity={word}").techniques.sparsity is None
    assert changed(f"weights={word}").precision.weights is None
    assert "weights" not in changed(f"weights={word}").precision.model_fields_set


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "empty"),
        ("weights", "FIELD=VALUE is needed"),
        ("weights=", "FIELD=VALUE is needed"),
        ("wights=fp8", "did you mean weights"),
        ("precision.sparsity=2:4", "no field 'precision.sparsity'"),
        ("techniques=none", "no field 'techniques'"),
        ("isl_tokens=200", "no field 'isl_tokens'"),
        ("kv_cache={", "is no value for kv_cache"),
        ("mixed=attention", "ROLE=SCHEME"),
    ],
)
def test_a_word_that_says_nothing_is_refused(text: str, part: str) -> None:
    with pytest.raises(RoofcastError) as refusal:
        parse_change(text)
    assert refusal.value.field == "with"
    assert part in str(refusal.value)


@pytest.mark.parametrize(("text", "field"), [("weights=fp7", "precision.weights"), ("tp=0", "tp_size")])
def test_a_value_that_is_not_allowed_names_its_field(text: str, field: str) -> None:
    with pytest.raises(RoofcastError) as refusal:
        changed(text)
    assert refusal.value.field == field
