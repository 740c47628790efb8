"""Laws of a pipeline's rounds, and the closed form that stands on them against the event simulation."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from simulator.engine.lanes.limits import slots_of
from simulator.engine.lanes.load_curve import lane_curve, lanes
from simulator.engine.lanes.occupancy import carrying_prompts
from simulator.engine.lanes.pipeline import PipelineRounds, pipeline, rounds_of
from simulator.engine.lanes.prompt_queue import side_by_side
from simulator.phases.deployment import deploy
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.traffic.lengths import Array, LengthDistribution, RequestMix
from tests.engine.lane_grid import agreement
from tests.engine.lanes.test_steady_agreement import BARS

PLAIN_S = 0.02


def even_stages(
    mix: RequestMix, *, stages: int, sequences: Array, step_s: Array, tokens: Array, added_s: Array
) -> PipelineRounds:
    """Stages that take equal parts of each step."""
    steps = SimpleNamespace(nodes=sequences, apart=False)
    alone, stage = (SimpleNamespace(steps=steps, plain_s=step_s / parts) for parts in (1, stages))
    own, ahead = (SimpleNamespace(tokens=tokens, together_s=added_s / parts) for parts in (1, stages))
    return pipeline(mix, alone, stage, own, ahead, stages=stages)


def rounds(
    *, stages: int, prompt_s: float, decode_steps: int, sequences: Array, isl: float = 200.0, most: float = 1e6
) -> PipelineRounds:
    """Even stages, no host, steps that do not grow with their sequences."""
    tokens = np.array([0.0, most])[:, None] * np.ones_like(sequences)
    return even_stages(
        RequestMix(isl=LengthDistribution(mean_tokens=isl), osl=LengthDistribution(mean_tokens=decode_steps + 1)),
        stages=stages,
        sequences=sequences,
        step_s=np.full_like(sequences, PLAIN_S),
        tokens=tokens,
        added_s=tokens * prompt_s / isl,
    )


@pytest.mark.parametrize("stages", [2, 4, 8])
def test_a_seldom_prompt_delays_everybody_by_all_of_its_time(stages: int) -> None:
    """While it passes the stages one after the other, the others pass them once as they would have."""
    found = rounds(stages=stages, prompt_s=0.05, decode_steps=1000, sequences=np.array([5.0]))
    assert found.delay_s()[0] == pytest.approx(0.05, rel=0.05)


@pytest.mark.parametrize("stages", [2, 4, 8])
def test_many_short_prompts_fill_all_steps_alike(stages: int) -> None:
    """Where every step carries as many, each stage works all the time: an n-th of a prompt is left."""
    found = rounds(stages=stages, prompt_s=PLAIN_S / 1e4, decode_steps=1, sequences=np.array([4e3]))
    assert found.delay_s()[0] == pytest.approx(PLAIN_S / 1e4 / stages, rel=0.15)


def test_prompts_that_outlast_a_round_find_themselves_in_one_step() -> None:
    """Whoever comes while a long step passes is in the next one: stages then gain little, unless the budget is full."""
    sequences = np.array([2000.0])
    given = {"stages": 4, "prompt_s": PLAIN_S, "decode_steps": 200, "sequences": sequences}
    unlimited, limited = rounds(**given), rounds(**given, most=400.0)
    assert unlimited.delay_s()[0] > 0.8 * PLAIN_S
    assert limited.delay_s()[0] < 0.5 * PLAIN_S


def test_pieces_of_a_prompt_follow_each_other() -> None:
    assert side_by_side(np.array([1.0, 5.0]), stages=4).tolist() == [1.0, 0.4]
    assert side_by_side(np.array([7.0]), stages=1).tolist() == [1.0]


def test_a_step_ahead_in_the_pipeline_is_nobody_elses_time() -> None:
    """Steps with prompts count for the time in which they are next to leave the last stage."""
    one = np.ones(1)
    alone, piped = (
        carrying_prompts(
            rates_per_s=one,
            decode_s=0.04 * one,
            beside_s=0.04 * one,
            prefill_s=0.1 * one,
            steps_per_prompt=one,
            size_variance=0 * one,
            others_s=others_s,
        )
        for others_s in (0.0, 0.03)
    )
    assert alone.time_share[0] - piped.time_share[0] == pytest.approx(0.03)
    assert alone.load == piped.load


@pytest.mark.parametrize(
    ("model", "hardware", "tp", "pp", "engine", "isl", "osl"),
    [
        ("llama-3.1-70b", "h100", 2, 4, "vllm", 731, 390),
        ("llama-3.1-70b", "h200", 4, 2, "vllm", 481, 51),
        ("mixtral-8x7b", "h200", 2, 4, "tensorrt-llm", 75, 471),
        ("qwen3-32b", "a100", 2, 8, "sglang", 69, 180),
    ],
)
@pytest.mark.parametrize("load", [0.2, 0.6])
def test_agrees_with_the_event_simulation(
    model: str, hardware: str, tp: int, pp: int, engine: str, isl: int, osl: int, load: float
) -> None:
    """TTFT of stages was counted two to four times as long, TPOT up to a third too short."""
    deployment = deploy(
        model=load_model(model),
        hardware=load_hardware(hardware),
        parallelism=ParallelismSpec(tp_size=tp, pp_size=pp),
        engine=EngineSpec(name=engine, max_num_seqs=256),
    )
    mix = RequestMix(isl=LengthDistribution(mean_tokens=isl, cv=0.5), osl=LengthDistribution(mean_tokens=osl, cv=0.5))
    case = agreement(deployment, mix, load=load, label=f"{model} {engine} {pp} stages at {load}")
    assert case is not None
    assert (np.abs(case.errors) <= 3 * BARS).all(), (case.label, case.errors.round(3))


def test_a_replica_of_stages_has_one_scheduler() -> None:
    deployment = deploy(
        model=load_model("llama-3.1-8b"), hardware=load_hardware("h100"), parallelism=ParallelismSpec(pp_size=4)
    )
    mix = RequestMix(isl=LengthDistribution(mean_tokens=500), osl=LengthDistribution(mean_tokens=100))
    assert lanes(deployment) == 1
    curve = lane_curve(deployment, mix=mix)
    assert slots_of(mix, limits=curve.limits)[0] == deployment.engine.max_num_seqs


def test_uneven_steps_hold_all_up_but_not_those_that_have_a_stage_each() -> None:
    """A round lasts as long as its longest step: steps that grow with their sequences make it longer than even ones."""
    sequences = np.array([4.0, 40.0])
    step_s = np.array([0.01, 0.1])
    found = even_stages(
        RequestMix(isl=LengthDistribution(mean_tokens=10.0), osl=LengthDistribution(mean_tokens=100.0)),
        stages=4,
        sequences=sequences,
        step_s=step_s,
        tokens=np.array([[0.0, 0.0], [1e3, 1e3]]),
        added_s=np.zeros((2, 2)),
    ).plain_s()
    assert found[:, 0] == pytest.approx(0.01)
    assert (found[:, 1] >= 0.1 - 1e-9).all()
    assert found[:, 1].mean() > 0.11


def test_pipelines_side_by_side_go_through_the_rounds_that_each_goes_through_alone() -> None:
    """Each used to be simulated by itself, which was most of a wide search."""
    asked = [
        rounds(stages=stages, prompt_s=prompt_s, decode_steps=steps, sequences=np.linspace(1.0, 300.0, places))
        for stages, prompt_s, steps, places in ((2, 0.02, 50, 3), (4, 0.05, 50, 7), (2, 0.1, 50, 5), (2, 0.1, 9, 2))
    ]
    for alone, (plain_s, delay_s) in zip(asked, rounds_of(asked), strict=True):
        assert (plain_s == alone.plain_s()).all()
        assert (delay_s == alone.delay_s()).all()
