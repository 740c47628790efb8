"""Laws of ranks that step together (`simulator.engine.lanes.ranks`), and the closed form that stands on them against
the event simulation."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from simulator.engine.lanes.limits import LaneLimits
from simulator.engine.lanes.load_curve import LoadCurve, lane_curve, lane_steps, lanes, saturation
from simulator.engine.lanes.prompt_queue import prompt_ttft_s
from simulator.engine.lanes.ranks import RankSteps
from simulator.engine.lanes.steady_state import steady_state
from simulator.phases.deployment import deploy
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.workload import WorkloadSpec
from simulator.traffic.lengths import LengthDistribution, RequestMix
from simulator.traffic.workload_requests import requests_of_mix
from tests.engine.lane_grid import agreement
from tests.engine.lanes.test_steady_agreement import BARS
from tests.engine.workload_runs import serve_workload

PLAIN_S, TOKEN_S, ISL = 0.02, 1e-4, 400.0
MIX = RequestMix(isl=LengthDistribution(mean_tokens=ISL), osl=LengthDistribution(mean_tokens=301.0))
LIMITS = LaneLimits(sequences=64, batched_tokens=8192, kv_tokens=float("inf"))


def curve(ranks: int, *, shared: float, mix: RequestMix = MIX, limits: LaneLimits = LIMITS) -> LoadCurve:
    """Of steps that each token makes longer, in work of which a part is ``shared``."""
    steps = lane_steps(mix, limits=replace(limits, ranks=ranks))
    tokens_s = TOKEN_S * steps.at.step.new_tokens
    return steps.in_step(np.stack((PLAIN_S + tokens_s, shared * tokens_s)))


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("shared", [0.0, 0.6])
def test_one_rank_waits_for_nobody(shared: float, apart: bool) -> None:
    limits = replace(LIMITS, prompts_apart=apart)
    steps = lane_steps(MIX, limits=limits)
    alone = steps.curve(PLAIN_S + TOKEN_S * steps.at.step.new_tokens)
    one = curve(1, shared=shared, limits=limits)
    assert one.decode_s == pytest.approx(alone.decode_s)
    assert one.prefill_s[1:] == pytest.approx(alone.prefill_s[1:], rel=0.05)


@pytest.mark.parametrize("ranks", [2, 8])
def test_a_prompt_that_comes_alone_delays_all_ranks(ranks: int) -> None:
    """By its own part each time that one of the ranks has one, and by what is shared as if it were spread over them."""
    seldom = replace(MIX, osl=LengthDistribution(mean_tokens=5000.0))
    own, spread = (curve(ranks, shared=part, mix=seldom).prefill_s[1] for part in (0.0, 1.0))
    assert own == pytest.approx(ranks * ISL * TOKEN_S, rel=0.1)
    assert spread == pytest.approx(ISL * TOKEN_S, rel=0.05)


@pytest.mark.parametrize("ranks", [2, 8])
def test_ranks_of_prompts_wait_for_the_one_that_has_most(ranks: int) -> None:
    """A lone prompt has its own part and its share of what ranks share, full steps what saturates each of them, and
    uneven prompts take longer than even ones."""
    prompts = replace(MIX, osl=LengthDistribution(mean_tokens=1.0))
    for part, tokens in ((0.0, ISL), (1.0, ISL / ranks)):
        group = curve(ranks, shared=part, mix=prompts)
        assert group.together is not None
        numbers, times = group.together
        assert times[0] == pytest.approx(PLAIN_S + TOKEN_S * tokens, rel=0.01)
        assert (np.diff(times.mean(axis=1)) >= 0).all()
        found = prompt_ttft_s(group, rates_per_s=np.array([1e-6]), streams=4.0)
        assert found.max() == pytest.approx(PLAIN_S + TOKEN_S * tokens, rel=0.01)
        full_s = numbers[-1] / ranks / saturation(group).rate_per_s
        assert times[-1].mean() == pytest.approx(full_s, rel=0.05)
    uneven = replace(prompts, isl=LengthDistribution(mean_tokens=ISL, cv=1.0))
    mean_s = [curve(ranks, shared=0.0, mix=mix).together[1].mean(axis=1)[-1] for mix in (prompts, uneven)]  # type: ignore[index]
    assert mean_s[0] < mean_s[1]


def test_ranks_of_a_decode_pool_go_through_no_steps_with_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts that come with their cache delay nobody; a step lasts as long as one of ranks that have prompts lasts
    without them."""
    of_both = curve(4, shared=0.6)
    monkeypatch.setattr(RankSteps, "taken_together", lambda _: pytest.fail("went through steps"))
    decodes = curve(4, shared=0.6, mix=replace(MIX, prefix_hit_fraction=1.0))
    same = min(len(of_both.decode_s), len(decodes.decode_s))
    assert decodes.decode_s[:same] == pytest.approx(of_both.decode_s[:same])


@pytest.mark.slow
@pytest.mark.parametrize(("load", "bar"), [(0.3, 0.1), (0.6, 0.15), (0.8, 0.2)])
def test_prompts_of_ranks_are_as_late_as_in_the_event_simulation(load: float, bar: float) -> None:
    """DeepSeek-V3 over eight H200, prompts alone: 13 % late, 24 and 42 % early where ranks waited for nobody."""
    deployment = deploy(
        model=load_model("deepseek-v3"),
        hardware=load_hardware("h200"),
        parallelism=ParallelismSpec(dp_size=8, ep_size=8),
        engine=EngineSpec(name="tensorrt-llm", max_num_batched_tokens=32768),
    )
    mix = RequestMix(isl=LengthDistribution(mean_tokens=1500.0, cv=0.5), osl=LengthDistribution(mean_tokens=1.0))
    lane = lane_curve(deployment, mix=mix)
    rate = load * saturation(lane).rate_per_s
    simulated = serve_workload(
        deployment,
        workload=WorkloadSpec(timeout_s=None),
        replicas=1,
        requests=requests_of_mix(mix, rate_per_s=8 * rate, count=4000, seed=3),
    )
    found = prompt_ttft_s(lane, rates_per_s=np.array([rate]), streams=8.0)
    assert found.mean() == pytest.approx(simulated.overall.ttft.mean_s, rel=bar)


def test_ranks_with_prompts_in_the_same_step_delay_each_other_less() -> None:
    """Of many in a step the longest counts: short answers bring a prompt on every rank."""
    short = replace(MIX, osl=LengthDistribution(mean_tokens=5.0))
    many = curve(8, shared=0.0, mix=short).prefill_s[-1]
    assert ISL * TOKEN_S <= many < 2 * ISL * TOKEN_S


def test_more_ranks_are_never_faster_at_the_same_rate_of_each() -> None:
    varied = RequestMix(isl=replace(MIX.isl, cv=1.0), osl=replace(MIX.osl, cv=1.0))
    curves = [curve(ranks, shared=0.5, mix=varied) for ranks in (1, 2, 4, 8, 16)]
    for fewer, more in pairwise(curves):
        assert (more.prefill_s >= 0.98 * fewer.prefill_s).all()
        assert (more.decode_s >= (1 - 1e-9) * fewer.decode_s).all()
    tpot_s = [steady_state(one, rates_per_s=2.0).tpot_mean_s[0] for one in curves]
    assert tpot_s == sorted(tpot_s)


def test_without_load_nobody_waits() -> None:
    for ranks in (1, 8):
        found = steady_state(curve(ranks, shared=0.5), rates_per_s=1e-6)
        assert found.tpot_mean_s[0] == pytest.approx(PLAIN_S + TOKEN_S, rel=1e-3)


def test_only_ranks_that_share_experts_wait() -> None:
    def at(ep_size: int) -> LoadCurve:
        deployment = deploy(
            model=load_model("gpt-oss-120b"),
            hardware=load_hardware("h200"),
            parallelism=ParallelismSpec(dp_size=4, ep_size=ep_size),
        )
        assert lanes(deployment) == 4
        return lane_curve(deployment, mix=MIX)

    assert at(4).limits.ranks == 4
    assert at(1).limits.ranks == 1


@pytest.mark.parametrize(
    ("engine", "ranks", "isl", "osl", "cv"), [("vllm", 8, 562, 417, 1.0), ("sglang", 8, 900, 200, 0.5)]
)
@pytest.mark.parametrize("load", [0.2, 0.6])
def test_agrees_with_the_event_simulation(engine: str, ranks: int, isl: int, osl: int, cv: float, load: float) -> None:
    """TPOT was counted up to half too short, TTFT up to twice as long."""
    deployment = deploy(
        model=load_model("gpt-oss-120b"),
        hardware=load_hardware("h200"),
        parallelism=ParallelismSpec(dp_size=ranks, ep_size=ranks),
        engine=EngineSpec(name=engine, max_num_seqs=64),
    )
    mix = RequestMix(isl=LengthDistribution(mean_tokens=isl, cv=cv), osl=LengthDistribution(mean_tokens=osl, cv=cv))
    case = agreement(deployment, mix, load=load, label=f"{engine} {ranks} ranks at {load}")
    assert case is not None
    assert (np.abs(case.errors) <= 3 * BARS).all(), (case.label, case.errors.round(3))
