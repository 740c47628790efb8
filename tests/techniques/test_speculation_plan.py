"""What a scenario's speculation becomes, and what is refused of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulator.errors import RoofcastError
from simulator.phases.deployment import Deployment, deploy
from simulator.reports.words.fields import assumption_texts, note_texts
from simulator.specs.engine.engine import EngineName, EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.fitted import speculation_table
from simulator.specs.model.loading import load_model
from simulator.specs.question.techniques import SpeculationSpec, TechniquesSpec
from simulator.techniques.speculation.scenario import SpeculationPlan, speculation_plan, with_run_length
from tests.for_every import for_every

VICUNA = load_model("lmsys/vicuna-7b-v1.3")
DEEPSEEK = load_model("deepseek-v3")

METHODS = speculation_table().methods


def plan(framework: bool = True, **fields: Any) -> SpeculationPlan:
    model = DEEPSEEK if fields["method"] == "mtp" else VICUNA
    return speculation_plan(SpeculationSpec(**fields), model=model, framework=framework)


def deployed(*, model: str = "vicuna-7b", engine: EngineName = "torch-eager", **fields: Any) -> Deployment:
    return deploy(
        model=load_model(model),
        hardware=load_hardware("a100"),
        engine=EngineSpec(name=engine),
        techniques=TechniquesSpec(speculation=SpeculationSpec(**fields)),
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("framework", [True, False])
def test_a_method_s_name_alone_is_enough(method: Any, framework: bool) -> None:
    made = plan(framework, method=method)
    assert made.k >= 1
    assert made.verify_tokens >= made.k + 1
    assert len(made.acceptance) == made.k
    assert 1 < made.mean_tokens < made.k + 1
    assert any(item.key == "speculation.acceptance" for item in made.assumptions)


@for_every(METHODS)
def test_accepted_tokens_are_what_a_round_yields(method: Any) -> None:
    assert plan(method=method, accepted_tokens=2.3).mean_tokens == pytest.approx(2.3)
    assert plan(method=method, accepted_tokens=12.5).mean_tokens == pytest.approx(12.5)


def test_prediction_layers_are_those_of_the_checkpoint() -> None:
    with pytest.raises(RoofcastError, match="has none") as caught:
        speculation_plan(SpeculationSpec(method="mtp"), model=VICUNA, framework=False)
    assert caught.value.field == "techniques.speculation.method"


def test_the_first_pass_over_features_takes_in_all_that_was_verified() -> None:
    mtp, draft = plan(method="mtp", k=3), plan(False, method="draft", k=3)
    assert (mtp.first_width, mtp.draft_width) == (4.0, 1.0)
    assert (draft.first_width, draft.draft_width) == (1.0, 1.0)
    assert with_run_length(mtp, k=1).first_width == 2.0


def test_acceptance_of_a_kind_of_text() -> None:
    code, finance, any_text = (plan(False, method="eagle3", k=9, task=task) for task in ("code", "finance", None))
    assert finance.mean_tokens < any_text.mean_tokens < code.mean_tokens
    assert len(code.acceptance) == 9
    assert code.acceptance[8] == code.acceptance[6]
    with pytest.raises(RoofcastError, match="belongs to eagle3") as caught:
        plan(method="eagle", task="code")
    assert caught.value.field == "techniques.speculation.task"


def test_frameworks_verify_trees_and_serving_engines_chains() -> None:
    assert plan(True, method="medusa").verify_tokens == 64
    assert plan(True, method="eagle2").verify_tokens == 60
    assert plan(False, method="eagle", k=4).verify_tokens == 5
    assert plan(False, method="eagle", k=4, tree=20).verify_tokens == 21
    assert plan(True, method="ngram").verify_tokens == 11


def test_lookahead_verifies_its_windows() -> None:
    assert plan(method="lookahead").verify_tokens == 1 + (7 + 7) * 4
    assert plan(method="lookahead", window=15, guesses=15, k=4).verify_tokens == 121


def test_paths_of_a_tree_are_counted_by_depth() -> None:
    spec = SpeculationSpec.model_validate({"method": "medusa", "tree": [[0], [1], [0, 0], [0, 1], [0, 0, 0]]})
    assert spec.tree == (2, 2, 1)
    made = speculation_plan(spec, model=VICUNA, framework=True)
    assert (made.k, made.verify_tokens) == (3, 6)


def test_short_spellings() -> None:
    assert TechniquesSpec.model_validate({"speculation": "eagle"}).speculation == SpeculationSpec(method="eagle")
    spec = SpeculationSpec.model_validate({"method": "eagle", "acceptance": "0.8/0.6", "tree": "2/4"})
    assert (spec.acceptance, spec.tree) == ((0.8, 0.6), (2, 4))
    with pytest.raises(ValueError, match="a number of guesses"):
        SpeculationSpec.model_validate({"method": "eagle", "tree": True})


def test_several_guesses_for_a_position_raise_its_chance() -> None:
    chain = plan(method="eagle", tree=(1, 1, 1), acceptance=0.6)
    wide = plan(method="eagle", tree=(4, 8, 8), acceptance=0.6)
    assert chain.acceptance == pytest.approx((0.6,) * 3)
    assert wide.acceptance == pytest.approx((1 - 0.4**4, 1 - 0.4**2, 0.6))


def test_a_list_of_acceptances_sets_the_length() -> None:
    made = plan(method="draft", acceptance=(0.9, 0.8, 0.7))
    assert (made.k, made.verify_tokens) == (3, 4)
    assert made.mean_tokens == pytest.approx(1 + 0.9 + 0.72 + 0.504)


def test_shorter_and_longer_chains() -> None:
    made = plan(method="draft", acceptance=(0.9, 0.8, 0.7))
    assert with_run_length(made, k=1).acceptance == (0.9,)
    assert with_run_length(made, k=5).acceptance == (0.9, 0.8, 0.7, 0.7, 0.7)
    assert with_run_length(made, k=5).verify_tokens == 6


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"method": "ngram", "draft_model": "vicuna-68m"}, "draft_model", "no effect with method ngram"),
        ({"method": "draft", "tree": (4, 4)}, "tree", "no effect with method draft"),
        ({"method": "ngram", "tree": 8}, "tree", "no effect with method ngram"),
        ({"method": "medusa", "draft_device": "cpu"}, "draft_device", "no effect with method medusa"),
        ({"method": "draft", "draft_hardware": "l4"}, "draft_hardware", "device other"),
        ({"method": "eagle", "window": 7}, "window", "belongs to lookahead"),
        ({"method": "eagle", "acceptance": 0.7, "accepted_tokens": 3.0}, "accepted_tokens", "beside acceptance 0.7"),
        ({"method": "draft", "k": 3, "accepted_tokens": 4.5}, "accepted_tokens", "allow 1 to 4"),
        ({"method": "draft", "k": 3, "accepted_tokens": 0.5}, "accepted_tokens", "allow 1 to 4"),
        ({"method": "draft", "k": 3, "acceptance": (0.5, 0.4)}, "acceptance", "k goes 3"),
        ({"method": "medusa", "k": 3, "tree": (4, 4)}, "tree", "k goes 3"),
        ({"method": "eagle", "k": 8, "tree": 5}, "tree", "cannot hold a run of k = 8"),
        ({"method": "draft", "acceptance": ()}, "acceptance", "is empty"),
    ],
)
def test_contradictions_are_refused_by_field(fields: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(RoofcastError) as caught:
        plan(**fields)
    assert caught.value.field == f"techniques.speculation.{field}"
    assert words in caught.value.message


def test_models_that_do_not_fit_together_are_refused_naming_both() -> None:
    with pytest.raises(RoofcastError, match=r"qwen2.5-0.5b has 151936 tokens and vicuna-7b 32000"):
        deployed(method="draft", draft_model="qwen2.5-0.5b")
    with pytest.raises(RoofcastError, match="bert-base is an encoder"):
        deployed(model="bert-base", method="ngram")
    with pytest.raises(RoofcastError, match="no usual draft model"):
        deployed(model="mamba-2.8b", method="draft")
    with pytest.raises(RoofcastError, match="has an encoder too"):
        deployed(model="t5-large", method="eagle")


def test_an_unknown_draft_is_refused_by_its_own_field() -> None:
    with pytest.raises(RoofcastError) as caught:
        deployed(method="draft", draft_model="no-such-model")
    assert caught.value.field == "techniques.speculation.draft_model"


def test_what_is_odd_but_possible_is_noted() -> None:
    larger = deployed(method="draft", draft_model="llama-13b").speculation
    assert larger is not None
    assert any("no smaller" in note for note in note_texts(larger.notes))
    padded = deployed(model="qwen2.5-72b", method="draft", draft_model="qwen2.5-0.5b").speculation
    assert padded is not None
    assert any("pad their vocabularies" in note for note in note_texts(padded.notes))
    recurrent = deployed(model="mamba-2.8b", method="ngram").speculation
    assert recurrent is not None
    assert any("recurrent states" in note for note in note_texts(recurrent.notes))


def test_defaults_are_said_and_given_values_are_not() -> None:
    silent = deployed(method="draft", k=4, acceptance=0.7, draft_model="vicuna-68m", engine="vllm")
    assert not [item for item in silent.assumptions if item.key.startswith("speculation")]
    chain = assumption_texts(deployed(method="eagle", engine="vllm").assumptions)
    assert any("as serving engines verify them" in text for text in chain)
    assert any("a chain yields less" in text for text in chain)
    said = assumption_texts(deployed(method="medusa").assumptions)
    for name in ("speculation.k = 4", "speculation.tree = 63 guesses", "speculation.acceptance = "):
        assert any(text.startswith(name) for text in said), name


def test_the_framework_s_schedule_drafts_what_pays() -> None:
    assert plan(True, method="draft", accepted_tokens=2.29).k == 3
    assert plan(True, method="draft", accepted_tokens=4.0).k > plan(True, method="draft", accepted_tokens=2.0).k
    assert plan(False, method="draft", accepted_tokens=2.29).k == 5


def test_mean_tokens_of_every_default_is_spec_benchs() -> None:
    for method, traits in METHODS.items():
        if traits.tokens is None:
            continue
        made = plan(False, method=method)
        assert made.mean_tokens == pytest.approx(traits.tokens), method
        assert np.ptp(made.acceptance) == 0
