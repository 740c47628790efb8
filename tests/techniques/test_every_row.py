"""Every technique that the product promises can be switched on everywhere, and moves what it should.

The list is ``technique_rows.ROWS``: a switch that stops mattering, or is no longer understood, fails here by name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from simulator.cli.roofcast import app
from simulator.engine.runs.answers import answer
from simulator.errors import RoofcastError
from simulator.phases.deployment import deploy
from simulator.phases.draft_cost import decode_round
from simulator.phases.late_interaction import retrieval_cost
from simulator.phases.power import energy_prices
from simulator.reports.answer import result_object
from simulator.specs.base import validate
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype, PrecisionSpec
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.scenario_file import changed_scenario, parse_change
from simulator.specs.question.technique_words import technique_value
from simulator.specs.question.techniques import TechniquesSpec
from simulator.techniques.complexity import LayerKind, length_cost
from simulator.techniques.fine_tuning import fine_tuning_memory
from tests.for_every import for_every
from tests.techniques.technique_rows import OTHER, ROWS, USUAL, Row

STEP_FIELDS = tuple(TechniquesSpec.model_fields)


def scenario(row: Row, fields: dict[str, Any] | None = None) -> ScenarioSpec:
    return validate(ScenarioSpec, {**USUAL, **row.base, **(fields or {})}, where="test")


def figure(asked: ScenarioSpec, metric: str) -> float:
    value: Any = result_object(answer(asked))
    for part in metric.split("."):
        value = value[part]
    assert isinstance(value, float | int)
    return float(value)


def with_change(row: Row) -> ScenarioSpec:
    if row.fields:
        return scenario(row, dict(row.fields))
    return changed_scenario(scenario(row), parse_change(row.change))


@for_every(ROWS)
def test_the_switch_moves_its_figure(row: Row) -> None:
    ratio = figure(with_change(row), row.metric) / figure(scenario(row), row.metric)
    if row.bounds == OTHER:
        assert abs(ratio - 1) > 1e-4
    else:
        assert row.bounds[0] <= ratio <= row.bounds[1]


def test_no_bounds_hold_without_an_effect() -> None:
    for row in ROWS:
        low, high = row.bounds
        assert low == high or not low < 1.0 < high, row.name


def technique_options() -> list[tuple[str, str]]:
    """Every technique of the list once, as (option of ``roofcast step``, text)."""
    found = {}
    for row in ROWS:
        name, _, text = row.change.partition("=")
        if name in STEP_FIELDS:
            found[name, technique_word(text)] = text
    return [(name, text) for (name, _), text in found.items()]


def technique_word(text: str) -> str:
    return text.partition(":")[0].partition("=")[0]


@pytest.mark.parametrize(("name", "text"), technique_options(), ids=lambda value: str(value))
def test_file_and_option_mean_the_same(name: str, text: str) -> None:
    from_option = TechniquesSpec.model_validate({name: technique_value(name, text)})
    written = json.loads(json.dumps(from_option.model_dump(mode="json", exclude_unset=True)))
    assert TechniquesSpec.model_validate(written) == from_option
    assert getattr(from_option, name) is not None


def step_words(row: Row) -> list[str]:
    """Options of ``roofcast step`` for the deployment and the change of a row."""
    asked = {**USUAL, **row.base}
    words = ["--model", asked["model"], "--hardware", asked["hardware"], "--engine", asked["engine"]["name"]]
    words += ["--batch", str(asked["batch_size"]), "--context", str(asked["isl_tokens"])]
    words += ["--tp", str(asked.get("tp_size", 1))]
    given = [f"{name}={value}" for name, value in asked.get("precision", {}).items()]
    for change in [*given, *row.change.split()]:
        name, _, text = change.partition("=")
        if (name, text) == ("fusion", "false"):
            words.append("--no-fusion")
        elif name in ("sequence_parallel", "two_batch_overlap") and text == "true":
            words.append(f"--{name.replace('_', '-')}")
        elif f"--{name.replace('_', '-')}" not in words:
            words += [f"--{name.replace('_', '-')}", text]
        else:
            words[words.index(f"--{name.replace('_', '-')}") + 1] = text
    return words


def stands_in_a_step(row: Row) -> bool:
    """Whether the change is one of number formats or techniques of a plain deployment, in a decode step."""
    names = {change.partition("=")[0] for change in row.change.split()}
    plain = not {"techniques", "ep_size", "kind"} & set(row.base)
    return (
        bool(names) and names <= {*STEP_FIELDS, *PrecisionSpec.model_fields} and plain and "bert" not in str(row.base)
    )


@pytest.mark.slow
@for_every([row for row in ROWS if stands_in_a_step(row)])
def test_roofcast_step_takes_the_switch_and_prices_the_same_model(row: Row) -> None:
    done = CliRunner().invoke(app, ["step", *step_words(row), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    made = answer(with_change(row)).deployment
    said = {name: value for name, value in (document.get("techniques") or {}).items() if value is not None}
    assert bool(said) == any(change.partition("=")[0] in STEP_FIELDS for change in row.change.split())
    sequences, context = (
        row.base.get("batch_size", USUAL["batch_size"]),
        row.base.get("isl_tokens", USUAL["isl_tokens"]),
    )
    priced = float(decode_round(made, sequences=sequences, context=context).step_s[0])
    assert document["step_s"] == pytest.approx(priced, rel=1e-9)


def test_a_legal_combination_in_a_file_is_the_sum_of_its_options(tmp_path: Path) -> None:
    """The whole way: one line of JSON in, one out, with what the options of a command say."""
    line = {
        **USUAL,
        "batch_size": 1,
        "precision": {"scheme": "gptq-g128", "kv_cache": "fp8"},
        "techniques": {
            "sparsity": "2:4",
            "adapters": {"method": "lora", "rank": 16},
            "structure": {"layers_fraction": 0.5},
        },
    }
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(json.dumps(item) for item in (USUAL, line)) + "\n")
    done = CliRunner().invoke(app, ["simulate", str(source), "--output", str(target)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    plain, both = (json.loads(text) for text in target.read_text().splitlines())
    assert both["tpot_s"] < plain["tpot_s"] / 2
    texts = ["scheme=gptq-g128 kv_cache=fp8 sparsity=2:4 adapters=lora:16 structure=layers_fraction=0.5"]
    one = changed_scenario(validate(ScenarioSpec, {**USUAL, "batch_size": 1}, where="test"), parse_change(texts[0]))
    assert result_object(answer(one))["tpot_s"] == both["tpot_s"]


REFUSED: tuple[tuple[str, dict[str, Any], tuple[str, ...]], ...] = (
    ("weights=fp8", {"hardware": "a100"}, ("a100", "fp8")),
    ("scheme=nvfp4", {}, ("h100", "fp4")),
    ("scheme=w4a4", {}, ("h100", "int4")),
    ("sparsity=4:8", {}, ("4:8", "h100")),
    ("sparsity=unstructured:0.5", {}, ("unstructured", "h100")),
    ("sparsity=2:4", {"hardware": "v100-sxm-32gb"}, ("2:4", "v100")),
    ("speculation=draft:draft_model=llama-2-7b", {}, ("llama-2-7b", "llama-3.1-8b")),
    ("kv_policy=h2o:512", {"model": "mamba-1.4b"}, ("mamba",)),
    ("kv_policy=h2o:512", {"model": "deepseek-v2-lite"}, ("deepseek",)),
    ("structure=num_key_value_heads=3", {}, ("3", "32")),
    ("structure=mla.kv_lora_rank=512,num_key_value_heads=1", {}, ("latents", "num_key_value_heads")),
    ("structure=expert_imbalance=2", {}, ("llama-3.1-8b", "experts")),
    ("adapters=qlora:16 scheme=w8a8", {}, ("qlora", "int8")),
    ("early_exit=mean_fraction=0.5", {"model": "bert-base", "osl_tokens": 1}, ("bert-base", "encoder")),
    ("contextual_sparsity=mlp=0.2", {"model": "mixtral-8x7b", "tp_size": 4}, ("mixtral",)),
    ("attention=standard", {"model": "mamba-1.4b"}, ("standard", "mamba")),
    ("fusion=true", {}, ("vllm", "fused")),
    ("sequence_parallel=true", {}, ("sequence_parallel", "rank")),
    ("two_batch_overlap=true", {"model": "deepseek-r1", "tp_size": 8}, ("two_batch_overlap", "dp_size")),
    ("speculation=eagle", {"osl_tokens": 1}, ("eagle", "osl_tokens")),
    ("cpu_kv_offload=true", {}, ("batch",)),
    ("tp_size=3", {}, ("3",)),
    ("kv_allocation=max_length block_size_tokens=16", {}, ("max_length", "block_size_tokens")),
    ("weight_offload=0", {}, ("weight_offload", "0")),
)


@pytest.mark.parametrize(("change", "fields", "sides"), REFUSED, ids=lambda value: str(value))
def test_what_cannot_be_is_refused_naming_both_sides(
    change: str, fields: dict[str, Any], sides: tuple[str, ...]
) -> None:
    with pytest.raises(RoofcastError) as refused:
        answer(changed_scenario(validate(ScenarioSpec, {**USUAL, **fields}, where="test"), parse_change(change)))
    for side in sides:
        assert side.lower() in str(refused.value).lower()


# What is no scenario but a question of its own.
def test_late_interaction_stores_and_compares_less_or_more() -> None:
    encoder = deploy(model=load_model("bert-base"), hardware=load_hardware("a100"))
    costs = {
        kind: retrieval_cost(encoder, interaction=kind, documents=1000, candidates=100, document_tokens=128)
        for kind in ("single_vector", "colbert", "coil", "cross_encoder")
    }
    assert costs["single_vector"].index_bytes * 128 * 128 / 768 == costs["colbert"].index_bytes
    assert costs["coil"].scoring_flops < costs["colbert"].scoring_flops
    assert costs["colbert"].total_query_s < costs["cross_encoder"].total_query_s


@pytest.mark.parametrize(
    ("kind", "prefill", "token"),
    [("attention", 4.0, 2.0), ("recurrent", 2.0, 1.0), ("linear_attention", 2.0, 1.0), ("convolution_fft", 2.06, 2.0)],
)
def test_complexity_of_every_kind_of_layer(kind: LayerKind, prefill: float, token: float) -> None:
    cost = length_cost(kind, tokens=np.array([65536.0, 131072.0]), width=64.0)
    assert cost.prefill_flops[1] / cost.prefill_flops[0] == pytest.approx(prefill, rel=0.02)
    assert cost.decode_flops[1] / cost.decode_flops[0] == pytest.approx(token, rel=0.02)


def test_fine_tuning_takes_less_with_every_saving() -> None:
    model = load_model("llama-2-7b")
    taken = [
        fine_tuning_memory(model).total_bytes,
        fine_tuning_memory(model, method="lora", rank=16).total_bytes,
        fine_tuning_memory(model, method="qlora", rank=16).total_bytes,
    ]
    assert taken == sorted(taken, reverse=True)
    assert len(set(taken)) == 3


def test_moving_a_byte_takes_more_energy_than_a_flop() -> None:
    prices = energy_prices(load_hardware("h100"))
    assert prices.byte_j > 10 * prices.flop_j[Dtype.BF16] > 10 * prices.flop_j[Dtype.FP8]
