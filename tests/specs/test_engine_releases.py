"""Earlier versions of an engine: which ones a release covers, and that it says what changed."""

from __future__ import annotations

import pytest

from simulator.engine.runs.answers import answer
from simulator.reports.words.fields import assumption_texts
from simulator.specs.engine.engine import EngineSpec, load_engine, with_feature
from simulator.specs.question.scenario import ScenarioSpec


@pytest.mark.parametrize("version", ["0.5", "0.5.4", "v0.4.2", "0.5.3.post1", "0"])
def test_versions_before(version: str) -> None:
    assert load_engine("vllm").release(version) == "0.6"


@pytest.mark.parametrize("version", ["0.6", "0.6.0", "0.10.2", "v0.15.1", "1.0", "main", "nightly", "", None])
def test_versions_since_and_versions_without_a_number(version: str | None) -> None:
    assert load_engine("vllm").release(version) is None


def test_a_profile_of_an_earlier_version_differs_in_overheads_and_what_it_lacked_only() -> None:
    now, then = load_engine("vllm"), load_engine("vllm").at("0.5.4")
    assert then.overheads.step_per_sequence_s > now.overheads.step_per_sequence_s
    assert now.async_scheduling
    assert not then.async_scheduling
    assert now.side_stream_tokens > then.side_stream_tokens == 0
    changed = {"overheads", "async_scheduling", "spread", "side_stream_tokens", "recipe", "vendors"}
    assert now.model_dump(exclude=changed) == then.model_dump(exclude=changed)
    assert load_engine("vllm").at("0.15.1") == load_engine("vllm").at(None) == now


def test_a_feature_that_came_later_takes_its_first_release_where_none_is_named() -> None:
    """SGLang speculates on AMD since 0.5.9: what it adds to a step there is that release's, and the answer says so."""
    open_, named = EngineSpec(name="sglang"), EngineSpec(name="sglang", version="0.5.6")
    later = with_feature(open_, "speculation", vendor="amd")
    assert (later.version, later.version_for) == ("0.5.9", "speculation")
    assert with_feature(named, "speculation", vendor="amd") is named
    assert with_feature(open_, "speculation", vendor="nvidia") is open_
    profile = load_engine("sglang")
    before, after = (profile.on_vendor("amd", version=version).overheads for version in ("0.5.6", "0.5.9"))
    assert before == profile.on_vendor("amd").overheads == profile.vendors["amd"].releases["0.5.9"].overheads
    assert after == profile.vendors["amd"].overheads != before


def test_an_answer_names_the_release_that_a_feature_asked_for() -> None:
    asked = {"id": 1, "model": "deepseek-r1", "hardware": "mi355x", "tp_size": 8, "batch_size": 1, "isl_tokens": 64}
    guessing = {**asked, "techniques": {"speculation": "mtp"}, "osl_tokens": 8, "kind": "batch"}
    result = answer(ScenarioSpec.model_validate({**guessing, "engine": {"name": "sglang"}}))
    (text,) = [said for said in assumption_texts(result.assumptions) if said.startswith("engine.version")]
    assert text == "engine.version = 0.5.9 (the first release that runs speculation on these accelerators)"


@pytest.mark.parametrize(("version", "sorts"), [(None, True), ("0.16.0", True), ("0.17.0", False), ("0.24", False)])
def test_vllm_sorts_a_nucleus_until_its_own_kernel(version: str | None, sorts: bool) -> None:
    assert load_engine("vllm").sorts_nucleus(version) is sorts
