"""Which drafter a replica gets, where it runs, and what is refused."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.kernels.library import kernel_library
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.model_counts import parameter_counts
from simulator.phases.speculation import Draft, draft_of, prediction_heads, speculation_notes
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.techniques import SpeculationSpec
from simulator.techniques.speculation.scenario import speculation_plan

TARGET = load_model("vicuna-7b")
H100 = load_hardware("h100")


def draft(spec: SpeculationSpec, *, tp_size: int = 1) -> Draft | None:
    return draft_of(
        spec,
        speculation_plan(spec, model=TARGET, framework=False),
        model=TARGET,
        formats=precision_plan(TARGET, PrecisionSpec()),
        hardware=H100,
        kernels=kernel_library(H100, library="vllm"),
        parallelism=ParallelismSpec(tp_size=tp_size),
        profiles=None,
    )


def test_a_named_draft_holds_all_its_weights_and_a_layer_shares_the_vocabulary() -> None:
    small = draft(SpeculationSpec(method="draft", draft_model="vicuna-68m"))
    assert small is not None
    plan = speculation_plan(small_spec(), model=TARGET, framework=False)
    assert small.weights_bytes(plan) == pytest.approx(2 * parameter_counts(small.model).total)
    eagle_spec = SpeculationSpec(method="eagle")
    eagle = draft(eagle_spec)
    assert eagle is not None
    eagle_plan = speculation_plan(eagle_spec, model=TARGET, framework=False)
    assert eagle.weights_bytes(eagle_plan) < 2 * parameter_counts(eagle.model).total


@pytest.mark.parametrize(("weights", "each"), [("fp8", 1.0), ("nvfp4", 2.0)])
def test_a_prediction_layer_is_spread_as_the_target_is_and_nvfp4_keeps_it_in_16_bit(weights: str, each: float) -> None:
    target = load_model("deepseek-v3")
    spec = SpeculationSpec(method="mtp")
    plan = speculation_plan(spec, model=target, framework=False)
    found = draft_of(
        spec,
        plan,
        model=target,
        formats=precision_plan(target, PrecisionSpec.model_validate({"weights": weights})),
        hardware=H100,
        kernels=kernel_library(H100, library="vllm"),
        parallelism=ParallelismSpec(dp_size=8, ep_size=8, pp_size=2),
        profiles=None,
    )
    assert found is not None
    assert found.parallelism == ParallelismSpec(dp_size=8, ep_size=8)
    # 11.5 thousand million parameters of the layer, its 256 experts in eight parts, attention whole on each rank.
    experts = 3 * 7168 * 2048 * 256 / 8 * each
    assert 1.0 < found.weights_bytes(plan) / experts < 1.4


def small_spec() -> SpeculationSpec:
    return SpeculationSpec(method="draft", draft_model="vicuna-68m")


def test_a_draft_spreads_over_the_ranks_that_its_heads_allow() -> None:
    for degree, wanted in ((1, 1), (4, 4), (8, 1)):
        found = draft(small_spec(), tp_size=degree)
        assert found is not None
        assert found.parallelism.tp_size == wanted


def test_other_vocabularies_are_refused() -> None:
    with pytest.raises(RoofcastError, match="guesses must be tokens of the target"):
        draft(SpeculationSpec(method="draft", draft_model="qwen3-0.6b"))


def test_methods_without_a_drafter_have_none() -> None:
    spec = SpeculationSpec(method="ngram")
    assert draft(spec) is None
    plan = speculation_plan(spec, model=TARGET, framework=False)
    assert prediction_heads(plan, runs_published_code=False) is None
    medusa = speculation_plan(SpeculationSpec(method="medusa"), model=TARGET, framework=False)
    heads = prediction_heads(medusa, runs_published_code=True)
    assert heads is not None
    assert (heads.count, heads.own_vocabulary, heads.every_token) == (medusa.k, True, True)


def test_recurrent_states_go_back_unpriced() -> None:
    assert speculation_notes(TARGET) == ()
    assert len(speculation_notes(load_model("mamba-2.8b"))) == 1
