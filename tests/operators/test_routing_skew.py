"""Uneven routing: limits, order, and what drawing it gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from simulator import simulate
from simulator.operators.moe import busiest_rank, distinct_experts
from simulator.operators.work import MoeShape, decode_step
from simulator.phases.deployment import deploy
from simulator.phases.step import estimate_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.fitted import load_routing_fit
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.techniques import TechniquesSpec

EXPERTS, CHOSEN = 64, 4


def reached(tokens: float, *, skew: float, local: int = EXPERTS) -> float:
    found = distinct_experts(
        tokens=np.array([tokens]), num_experts=EXPERTS, num_experts_per_tok=CHOSEN, local_experts=local, skew=skew
    )
    return float(found[0])


@given(tokens=st.integers(1, 4000), skew=st.floats(0.05, 3.0), more=st.floats(0.05, 1.0))
def test_more_skew_reaches_fewer_experts_and_one_token_its_own(tokens: int, skew: float, more: float) -> None:
    assert reached(1, skew=skew) == pytest.approx(CHOSEN)
    here, there = reached(tokens, skew=skew), reached(tokens, skew=skew + more)
    assert CHOSEN * (1 - 1e-9) <= there <= here * (1 + 1e-9) <= reached(tokens, skew=0.0) * (1 + 1e-6)
    assert reached(tokens + 1, skew=skew) >= here


def test_no_skew_is_uniform_routing_and_little_comes_near_it() -> None:
    for tokens in (0.0, 0.5, 1.0, 7.0, 300.0):
        assert reached(tokens, skew=1e-3) == pytest.approx(reached(tokens, skew=0.0), rel=1e-4)


def test_drawn_popularity_reaches_as_many() -> None:
    """Gamma-distributed popularity with a coefficient of variation of 1, 40 tokens, choices without repetition."""
    random, counts = np.random.default_rng(3), []
    for _ in range(300):
        weight = random.gamma(1.0, size=EXPERTS)
        chance = weight / weight.sum()
        counts.append(len({e for _ in range(40) for e in random.choice(EXPERTS, CHOSEN, replace=False, p=chance)}))
    assert reached(40, skew=1.0) == pytest.approx(float(np.mean(counts)), rel=0.08)


@given(tokens=st.integers(1, 5000), ranks=st.sampled_from([2, 4, 8, 16]), skew=st.floats(0.0, 3.0))
def test_the_busiest_rank_carries_between_its_share_and_everything(tokens: int, ranks: int, skew: float) -> None:
    local = EXPERTS // ranks
    load = busiest_rank(
        tokens=np.array([float(tokens)]),
        num_experts=EXPERTS,
        num_experts_per_tok=CHOSEN,
        local_experts=local,
        skew=skew,
    )
    pairs, experts = float(load.assignments[0]), float(load.distinct_experts[0])
    assert tokens * CHOSEN / ranks * (1 - 1e-9) <= pairs <= tokens * min(CHOSEN, local)
    assert experts <= min(local, pairs) * (1 + 1e-9)
    assert experts >= min(reached(tokens, skew=skew, local=local), pairs) * (1 - 1e-9)


def test_one_rank_has_no_busiest() -> None:
    tokens = np.array([0.0, 3.0, 100.0])
    load = busiest_rank(tokens=tokens, num_experts=8, num_experts_per_tok=2, local_experts=8, skew=1.0)
    assert load.assignments == pytest.approx(2 * tokens)


def test_drawn_loads_of_the_busiest_rank() -> None:
    """Uniform choices of 256 tokens over 8 ranks: the mean of the largest load, within 3 %."""
    random, largest = np.random.default_rng(5), []
    for _ in range(300):
        order = np.argsort(random.random((256, EXPERTS)), axis=1)[:, :CHOSEN]
        largest.append(np.bincount((order // (EXPERTS // 8)).ravel(), minlength=8).max())
    load = busiest_rank(
        tokens=np.array([256.0]), num_experts=EXPERTS, num_experts_per_tok=CHOSEN, local_experts=EXPERTS / 8
    )
    assert float(load.assignments[0]) == pytest.approx(float(np.mean(largest)), rel=0.03)


def test_even_placement_leaves_the_chance_of_uniform_routing_and_nothing_of_the_skew() -> None:
    tokens = np.array([16.0, 256.0, 8192.0])

    def pairs(*, skew: float, placed_evenly: bool) -> NDArray[np.float64]:
        load = busiest_rank(
            tokens=tokens,
            num_experts=EXPERTS,
            num_experts_per_tok=CHOSEN,
            local_experts=EXPERTS / 16,
            skew=skew,
            placed_evenly=placed_evenly,
        )
        return load.assignments

    even = pairs(skew=0.7, placed_evenly=True)
    np.testing.assert_allclose(even, pairs(skew=0.0, placed_evenly=False))
    assert (even < pairs(skew=0.7, placed_evenly=False)).all()
    assert even[-1] == pytest.approx(tokens[-1] * CHOSEN / 16, rel=0.05)


@pytest.mark.parametrize(
    ("engine", "weights", "ranks", "even"),
    [
        ("tensorrt-llm", "nvfp4", 32, True),
        ("tensorrt-llm", "nvfp4", 8, False),
        ("tensorrt-llm", "fp8", 32, False),
        ("sglang", "nvfp4", 32, False),
    ],
)
def test_recipes_that_balance_experts_say_so_and_spare_the_busiest_rank(
    engine: str, weights: str, ranks: int, even: bool
) -> None:
    replica = deploy(
        model=load_model("deepseek-r1"),
        hardware=load_hardware("gb200"),
        parallelism=ParallelismSpec(dp_size=ranks, ep_size=ranks),
        precision=PrecisionSpec.model_validate({"weights": weights}),
        engine=EngineSpec.model_validate({"name": engine}),
    )
    assert ("engine.expert_placement" in [item.key for item in replica.assumptions]) is even
    step = estimate_step(replica, decode_step(sequences=np.array([256.0]), context=np.array([1500.0])))
    (experts,) = (row.work.shape for row in step.rows if isinstance(row.work.shape, MoeShape))
    assert bool(experts.local_assignments[0] < 1.1 * 256 * 8) == even


@pytest.mark.parametrize("engine", ["vllm", "tensorrt-llm"])
def test_the_skew_that_a_question_leaves_open_is_said_and_priced(engine: str) -> None:
    fit = load_routing_fit()
    scenario = {"id": "x", "kind": "batch", "model": "gpt-oss-120b", "hardware": "h200", "engine": {"name": engine}}
    scenario |= {"batch_size": 32, "isl_tokens": 1024, "osl_tokens": 16}
    open_ = simulate(scenario)
    skew = fit.engines.get(engine, {}).get("gpt_oss", fit.families["GptOssConfig"])
    said = f"techniques.structure.routing_skew = {skew} (fitted: how unevenly experts are chosen, 0 is evenly)"
    assert said in open_["assumptions"]
    named = simulate({**scenario, "techniques": {"structure": {"routing_skew": skew}}})
    assert named["tpot_s"] == pytest.approx(open_["tpot_s"])
    assert not any("routing_skew" in text for text in named["assumptions"])


def test_a_question_may_balance_experts_or_leave_them_in_the_models_order_whatever_the_engine_does() -> None:
    """TensorRT-LLM balances 16 ranks and more: the one changes nothing there, the other is slower."""

    def steps(ranks: int, placement: str | None) -> tuple[float, bool]:
        structure = {} if placement is None else {"structure": {"expert_placement": placement}}
        replica = deploy(
            model=load_model("deepseek-r1"),
            hardware=load_hardware("gb200"),
            parallelism=ParallelismSpec(dp_size=ranks, ep_size=ranks),
            precision=PrecisionSpec.model_validate({"weights": "nvfp4"}),
            engine=EngineSpec.model_validate({"name": "tensorrt-llm"}),
            techniques=TechniquesSpec.model_validate(structure),
        )
        step = estimate_step(replica, decode_step(sequences=np.array([256.0]), context=np.array([1500.0])))
        return float(step.step_s[0]), "engine.expert_placement" in [item.key for item in replica.assumptions]

    (few_s, _), (few_even_s, _) = steps(4, None), steps(4, "even")
    asked = (None, "even", "as_trained")
    (many_s, said), (many_even_s, said_too), (many_trained_s, _) = (steps(16, one) for one in asked)
    assert few_even_s < few_s
    assert (many_even_s, said, said_too) == (many_s, True, False)
    assert many_trained_s > many_s
