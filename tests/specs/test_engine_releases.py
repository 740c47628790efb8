"""Earlier versions of an engine: which ones a release covers, and that it says what changed."""

from __future__ import annotations

import pytest

from simulator.engine.runs.answers import answer
from simulator.reports.words.fields import assumption_texts
from simulator.specs.engine.engine import EngineProfile, EngineSpec, load_engine, with_feature, with_model
from simulator.specs.engine.releases import release_number
from simulator.specs.question.scenario import ScenarioSpec
from tests.for_every import for_every


@pytest.mark.parametrize("version", ["0.5", "0.5.4", "v0.4.2", "0.5.3.post1", "0"])
def test_versions_before(version: str) -> None:
    assert load_engine("vllm").release(version) == "0.6"


@for_every(["0.6", "0.6.0", "0.10.2", "v0.15.1", "1.0", "main", "nightly", "", None])
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


def test_a_model_that_came_later_takes_the_first_release_that_knows_it() -> None:
    open_, named = EngineSpec(name="sglang"), EngineSpec(name="sglang", version="0.5.6")
    later = with_model(open_, "qwen3_5_moe")
    assert (later.version, later.version_for) == ("0.5.9", "model")
    assert with_model(named, "qwen3_5_moe") is named
    assert with_model(open_, "llama") is open_
    # Of two reasons the later release counts, whichever is asked first.
    asked = with_feature(with_model(open_, "deepseek_v4"), "speculation", vendor="amd")
    assert (asked.version, asked.version_for) == ("0.5.12", "model")
    asked = with_model(with_feature(open_, "speculation", vendor="amd"), "mimo_v2_flash")
    assert (asked.version, asked.version_for) == ("0.5.9", "speculation")


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_first_releases_are_in_order_and_name_each_model_once(engine: str) -> None:
    releases = load_engine(engine).first_releases_of_models
    numbers = [release_number(release) for release in releases]
    assert numbers == sorted(numbers)
    named = [model_type for known in releases.values() for model_type in known]
    assert len(named) == len(set(named))


def test_a_first_release_is_later_than_the_profiles_own() -> None:
    facts = load_engine("sglang").model_dump(by_alias=True)
    with pytest.raises(ValueError, match=r"0\.5\.6 is not later than version 0\.5\.6"):
        EngineProfile.model_validate({**facts, "first_releases_of_models": {"0.5.6": ["llama"]}})


@pytest.mark.parametrize("place", ["profile", "release", "vendor"])
def test_heads_without_a_matrix_kernel_need_a_rate_of_the_vector_units(place: str) -> None:
    engine = load_engine("tensorrt-llm")
    EngineProfile.model_validate(engine.model_dump(by_alias=True))
    facts = engine.model_dump(by_alias=True)
    lacking = facts["overheads"] | {"vector_elements_per_clock": 0.0}
    if place == "profile":
        facts |= {"matrix_groups": [8], "overheads": lacking}
    elif place == "release":
        (release,) = (one for one in facts["releases"].values() if one["matrix_groups"])
        release["overheads"] = lacking
    else:
        known = lacking | {"vector_elements_per_clock": 17.5}
        fit = {"overheads": lacking, "spread": facts["spread"], "sources": facts["sources"]}
        facts |= {"matrix_groups": [8], "overheads": known, "vendors": {"amd": fit}}
    with pytest.raises(ValueError, match="matrix_groups needs vector_elements_per_clock"):
        EngineProfile.model_validate(facts)


def test_an_answer_names_the_release_that_a_feature_asked_for() -> None:
    asked = {"id": 1, "model": "deepseek-r1", "hardware": "mi355x", "tp_size": 8, "batch_size": 1, "isl_tokens": 64}
    guessing = {**asked, "techniques": {"speculation": "mtp"}, "osl_tokens": 8, "kind": "batch"}
    result = answer(ScenarioSpec.model_validate({**guessing, "engine": {"name": "sglang"}}))
    (text,) = [said for said in assumption_texts(result.assumptions) if said.startswith("engine.version")]
    assert text == "engine.version = 0.5.9 (the first release that runs speculation on these accelerators)"


@pytest.mark.parametrize(
    ("hardware", "version", "says"), [("mi355x", None, True), ("mi355x", "0.5.6", False), ("h200", None, False)]
)
def test_an_answer_says_that_its_default_release_is_an_early_one(
    hardware: str, version: str | None, says: bool
) -> None:
    """On AMD later releases take half the time of a step: one guess alone is not worth that."""
    asked = {"id": 1, "model": "deepseek-r1", "hardware": hardware, "tp_size": 8, "batch_size": 1, "isl_tokens": 64}
    engine = {"name": "sglang"} if version is None else {"name": "sglang", "version": version}
    result = answer(ScenarioSpec.model_validate({**asked, "osl_tokens": 8, "kind": "batch", "engine": engine}))
    found = [said for said in assumption_texts(result.assumptions) if said.startswith("engine.version")]
    assert found == ["engine.version = 0.5.6 (default; from 0.5.9 on, steps were measured apart here)"] * says


@pytest.mark.parametrize(("version", "sorts"), [(None, True), ("0.16.0", True), ("0.17.0", False), ("0.24", False)])
def test_vllm_sorts_a_nucleus_until_its_own_kernel(version: str | None, sorts: bool) -> None:
    assert load_engine("vllm").sorts_nucleus(version) is sorts


@pytest.mark.parametrize(
    ("engine", "version", "follows"),
    [
        ("vllm", None, True),
        ("vllm", "0.14.0", True),
        ("vllm", "0.13.0", False),
        ("sglang", None, True),
        ("sglang", "0.5.2", False),
        ("tensorrt-llm", None, True),
        ("llama.cpp", None, False),
        ("torch", None, False),
    ],
)
def test_a_cache_that_nobody_named_follows_the_checkpoint_where_the_engine_reads_it(
    engine: str, version: str | None, follows: bool
) -> None:
    assert load_engine(engine).follows_checkpoint_cache(version) is follows
    spec = ScenarioSpec.model_validate(
        {
            "id": "x",
            "kind": "batch",
            "model": "nvidia/Llama-3.1-8B-Instruct-FP8",
            "hardware": "h100",
            "batch_size": 1,
            "isl_tokens": 128,
            "osl_tokens": 16,
            "engine": {"name": engine, "version": version},
        }
    )
    result = answer(spec)
    said = [text for text in assumption_texts(result.assumptions) if "kv cache" in text]
    assert [("fp8" in text) for text in said] == [follows]
