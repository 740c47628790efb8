"""The closed form against the event simulation of the same deployments, over a random grid below saturation."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.engine.lanes.limits import SlotLimit
from simulator.engine.lanes.load_curve import lane_curve, saturation
from simulator.engine.runs.serving import ServedDeployment
from simulator.phases.deployment import deploy
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.traffic.lengths import LengthDistribution, RequestMix
from simulator.traffic.workload_requests import requests_of_mix
from tests.engine.lane_grid import MEANS, PERCENTILES, Agreement, agreement, compare_many

MEAN_BAR, PERCENTILE_BAR = 0.05, 0.10
BARS = np.array([MEAN_BAR] * len(MEANS) + [PERCENTILE_BAR] * len(PERCENTILES))


def misses(cases: list[Agreement], *, within: float) -> dict[str, tuple[float, str]]:
    """The worst case of each number where the bars are missed, nothing where they are held: on average within them for
    every number; a share ``within`` of single numbers; none beyond three bars."""
    errors = np.abs(np.stack([case.errors for case in cases]))
    found = {
        name: (round(float(column.max()), 3), cases[int(column.argmax())].label)
        for name, column in zip((*MEANS, *PERCENTILES), errors.T, strict=True)
    }
    held = (errors.mean(axis=0) <= BARS).all() and (errors <= BARS).mean() >= within and (errors <= 3 * BARS).all()
    return {} if held else found


def test_agrees_over_a_random_grid() -> None:
    assert misses(compare_many(seed=20261121, cases=12), within=0.9) == {}


@pytest.mark.slow
def test_agrees_where_prompts_have_steps_of_their_own() -> None:
    """SGLang decodes nobody in them; counted as if it did, TPOT came out a sixth too short here, by half at worst."""
    assert misses(compare_many(seed=21, cases=8, engine_name="sglang"), within=0.9) == {}


@pytest.mark.slow
def test_agrees_for_bursty_arrivals() -> None:
    """Arrivals that come in company wait for each other; close to saturation TTFT is not known."""
    cases = [case for case in compare_many(seed=77, cases=12, arrival_cv=2.0) if not case.label.endswith("load 0.7")]
    errors = np.stack([case.errors for case in cases])
    assert (np.abs(errors).mean(axis=0) <= 2 * BARS).all(), errors.round(3)


@pytest.mark.parametrize("tokens", [512, 1024])
def test_agrees_for_steps_that_prompts_fill(tokens: int) -> None:
    """Where a prompt takes several steps it waits for those before it, and for those that passed without any."""
    deployment = deploy(
        model=load_model("llama-3.1-8b"),
        hardware=load_hardware("h100"),
        engine=EngineSpec(max_num_batched_tokens=tokens, max_num_seqs=256),
    )
    mix = RequestMix(
        isl=LengthDistribution(mean_tokens=1155, cv=0.96), osl=LengthDistribution(mean_tokens=211, cv=0.77)
    )
    for load in (0.4, 0.6):
        case = agreement(deployment, mix, load=load, label=f"{tokens} tokens at {load}")
        assert case is not None
        assert (np.abs(case.errors) <= BARS).all(), (case.label, case.errors.round(3))


@pytest.mark.parametrize("engine_name", ["vllm", "sglang"])
def test_agrees_near_saturation(engine_name: str) -> None:
    """Prompts wait outside when all slots are taken: counted as those that interrupt answers, TTFT p95 was 4 times as
    long under SGLang, and the batch 6 % too large."""
    deployment = deploy(
        model=load_model("llama-3.1-70b"),
        hardware=load_hardware("h100"),
        parallelism=ParallelismSpec(tp_size=8),
        engine=EngineSpec(name=engine_name, max_num_batched_tokens=2048, max_num_seqs=128),
    )
    mix = RequestMix(isl=LengthDistribution(mean_tokens=198, cv=0.5), osl=LengthDistribution(mean_tokens=34))
    case = agreement(deployment, mix, load=0.85, label=engine_name)
    assert case is not None
    assert (np.abs(case.errors) <= 2 * BARS).all(), case.errors.round(3)


@pytest.mark.slow
@pytest.mark.parametrize("engine_name", ["vllm", "sglang", "tensorrt-llm"])
def test_agrees_over_a_larger_grid(engine_name: str) -> None:
    assert misses(compare_many(seed=4, cases=100, engine_name=engine_name), within=0.95) == {}


@pytest.mark.slow
def test_full_places_serve_what_saturation_says() -> None:
    """A sequence keeps its place while its prompt is computed and until the step after its last is under way: counted
    as if it only decoded there, saturation of short answers came out up to 14 % too high."""
    rng, errors = np.random.default_rng(3), []
    while len(errors) < 12:
        deployment = deploy(
            model=load_model("llama-3.1-8b"),
            hardware=load_hardware(str(rng.choice(("h100", "a100", "b200")))),
            engine=EngineSpec(
                name=str(rng.choice(("vllm", "tensorrt-llm"))), max_num_seqs=int(rng.choice((16, 32, 64)))
            ),
        )
        mix = RequestMix(
            isl=LengthDistribution(mean_tokens=float(rng.uniform(32, 200)), cv=0.5),
            osl=LengthDistribution(mean_tokens=float(rng.uniform(3, 40)), cv=0.7),
        )
        limit = saturation(lane_curve(deployment, mix=mix))
        if limit.limit is not SlotLimit.BATCH_LIMIT:
            continue
        requests = requests_of_mix(mix, rate_per_s=20 * limit.rate_per_s, count=4000, seed=1)
        ends_s = np.sort(ServedDeployment(deployment=deployment).run(requests).run.records.finish_s)
        errors.append(limit.rate_per_s * (ends_s[3200] - ends_s[800]) / 2400 - 1)
    assert np.abs(errors).mean() < 0.025, np.round(errors, 3)
    assert np.abs(errors).max() < 0.08, np.round(errors, 3)
