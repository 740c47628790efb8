"""A batch larger than what an engine runs at once: the rest waits, and the batch ends with its last answer."""

from __future__ import annotations

import pytest

from simulator.engine.runs.answers import answer
from simulator.engine.uniform.loop_requests import LoopLengths
from simulator.engine.uniform.loops import offline, static_batch
from simulator.engine.uniform.record import UniformRun
from simulator.phases.deployment import Deployment, deploy
from simulator.reports.words.fields import assumption_texts, note_texts
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.scenario import ScenarioSpec

LENGTHS = {"isl_tokens": 400, "osl_tokens": 200}


def replica(**engine: object) -> Deployment:
    return deploy(
        model=load_model("llama-3.1-8b"),
        hardware=load_hardware("h100"),
        engine=EngineSpec.model_validate({"name": "vllm", "max_num_seqs": 32, **engine}),
    )


def batch(deployment: Deployment, size: int) -> UniformRun:
    return static_batch(deployment, batch_size=size, limit_tokens=None, **LENGTHS)


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    return replica()


def test_a_queued_batch_ends_with_the_offline_run_of_its_requests(deployment: Deployment) -> None:
    run = batch(deployment, 100)
    whole = offline(deployment, num_requests=100, lengths=LoopLengths(**LENGTHS))
    assert run.requests_per_s == whole.requests_per_s
    assert run.e2e_s == pytest.approx(100 / run.requests_per_s)
    assert run.tpot_s == whole.tpot_s == pytest.approx((whole.e2e_s - whole.ttft_s) / 199)
    assert run.ttft_s == whole.ttft_s
    assert any("32 of 100 requests run at once" in note for note in note_texts(run.notes))


def test_only_a_batch_that_starts_together_is_said_to_prefill_in_one_pass() -> None:
    for size, together in ((32, True), (33, False)):
        fields = {"id": "x", "kind": "batch", "model": "llama-3.1-8b", "hardware": "h100", "batch_size": size}
        engine = {"name": "vllm", "max_num_seqs": 32}
        found = answer(ScenarioSpec.model_validate({**fields, **LENGTHS, "engine": engine})).assumptions
        assert any("in one pass" in line for line in assumption_texts(found)) is together


def test_waves_add_up(deployment: Deployment) -> None:
    one, three = batch(deployment, 32), batch(deployment, 96)
    assert three.e2e_s == pytest.approx(3 * one.e2e_s, rel=0.1)


def test_larger_batches_never_end_sooner(deployment: Deployment) -> None:
    ends = [batch(deployment, size).e2e_s for size in (8, 16, 32, 33, 40, 64, 65, 128)]
    assert ends == sorted(ends)


def test_engines_without_a_scheduler_run_what_they_are_given() -> None:
    run = batch(replica(name="torch-eager"), 48)
    assert run.sequences == 48


def test_room_in_the_cache_decides_too() -> None:
    small = replica(max_num_seqs=256, gpu_memory_utilization=0.3)
    run = batch(small, 200)
    assert run.sequences < 200
    assert run.e2e_s > batch(replica(max_num_seqs=256), 200).e2e_s
