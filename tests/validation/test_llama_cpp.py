"""llama.cpp against its own table, and what its releases have with and without CUDA graphs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simulator.engine.runs.answers import answer
from simulator.operators.work import decode_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.memory import memory_plan
from simulator.phases.step import estimate_step
from simulator.specs.base import validate
from simulator.specs.engine.engine import EngineSpec, load_engine
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.scenario import ScenarioSpec
from validation.end_to_end.measured.sources import argonne, argonne_llama_cpp, load_source
from validation.fit.runs.static_engines import QUESTIONS, cases, left_out_errors

RUNS = load_source("llama.cpp", Path())
BAR = 0.15


@pytest.mark.parametrize("run", RUNS, ids=lambda run: str(run.scenario["precision"]))
@pytest.mark.parametrize("version", ["b1800", None])
def test_a_token_on_rtx_4090_takes_what_its_table_says(run: object, version: str | None) -> None:
    assert run in RUNS
    measured = next(item for item in RUNS if item is run)
    engine = {"name": "llama.cpp", "version": version}
    scenario = validate(ScenarioSpec, {**measured.scenario, "engine": engine}, where="")
    assert answer(scenario).tpot_s == pytest.approx(measured.measured["tpot_s"], rel=BAR)


def test_each_row_is_predicted_from_the_other_one() -> None:
    (question,) = (item for item in QUESTIONS if item.engine == "llama.cpp")
    errors = left_out_errors(question, cases(question, Path()))
    assert len(errors) == len(RUNS)
    assert np.abs(np.expm1(errors)).max() < BAR


def test_later_releases_take_the_fitted_time_over() -> None:
    profile = load_engine("llama.cpp")
    assert profile.overheads == profile.releases["b2800"].overheads
    assert profile.cuda_graph_max_sequences == 1
    assert profile.at("b1800").cuda_graph_max_sequences == 0
    assert profile.at("b6000").cuda_graph_max_sequences == 1


def test_a_static_batch_takes_its_prompts_in_passes_of_n_ubatch() -> None:
    asked = {"id": "x", "kind": "batch", "model": "llama-3.1-8b", "hardware": "l40s", "batch_size": 1, "osl_tokens": 2}
    for engine, passes in (("llama.cpp", 4), ("vllm", 1)):
        scenario = validate(ScenarioSpec, {**asked, "isl_tokens": 2048, "engine": engine}, where="")
        assert answer(scenario).run.prefill.steps == passes


def test_mxfp4_experts_come_in_a_file_whose_other_weights_are_in_8_bits() -> None:
    """ggml-org/gpt-oss-20b-GGUF: 11.27 GiB, where the checkpoint in 4 and 16 bits has 12.8."""
    assert memory_plan(replica("gpt-oss-20b", "master")).weights_bytes == pytest.approx(11.27 * 2**30, rel=0.01)


@pytest.mark.parametrize("hardware", ["m2-ultra", "gb10", "strix-halo"])
def test_experts_of_one_token_fill_no_tile(hardware: str) -> None:
    one = replica("gpt-oss-20b", "master", hardware=hardware)
    found = estimate_step(one, decode_step(sequences=1, context=64))
    experts = next(row for row in found.rows if row.work.name == "experts")
    stream_s = experts.work.weight_bytes / one.hardware.memory_bytes_per_s
    assert np.all(experts.timing.seconds < 2 * stream_s)


def replica(model: str, version: str, *, hardware: str = "rtx-4090") -> Deployment:
    return deploy(
        model=load_model(model), hardware=load_hardware(hardware), engine=EngineSpec(name="llama.cpp", version=version)
    )


def test_without_graphs_a_step_lasts_as_long_as_its_launches() -> None:
    step = decode_step(sequences=1, context=64)

    def step_s(version: str, *, launch_s: float) -> float:
        one = replica("qwen3-0.6b", version)
        overheads = one.engine.overheads.model_copy(update={"eager_launch_s": launch_s})
        return float(estimate_step(replace(one, engine=replace(one.engine, overheads=overheads)), step).step_s[0])

    assert replica("qwen3-0.6b", "b1800").engine.issues_kernels
    assert not replica("qwen3-0.6b", "b6000").engine.issues_kernels
    assert step_s("b1800", launch_s=1e-7) == step_s("b6000", launch_s=1e-7), "hidden behind the device's own time"
    assert step_s("b1800", launch_s=2e-5) > step_s("b6000", launch_s=2e-5) == step_s("b6000", launch_s=1e-7)
    assert step_s("b1800", launch_s=4e-5) == pytest.approx(2 * step_s("b1800", launch_s=2e-5), rel=0.15)


ROW = {
    "model": "meta-llama/Llama-2-7b-hf", "hardware": "Nvidia A100 GPU", "tp": "", "n_gpus": "1", "isl": "128",
    "batch_or_concurrency": "1", "osl": "128", "metric": "latency_ms", "value": "4344.691", "weight_dtype": "",
    "notes": "",
}  # fmt: skip


def test_argonnes_runs_of_llama_cpp_are_a_source_of_their_own() -> None:
    rows = [{**ROW, "engine": "llama.cpp"}, {**ROW, "engine": "vLLM"}]
    assert [run.scenario["engine"]["name"] for run in argonne(rows)] == ["vllm"]
    (run,) = argonne_llama_cpp(rows)
    assert (run.source, run.scenario["engine"]["name"]) == ("argonne-llama.cpp", "llama.cpp")
