"""Steps priced for a lane: padding, prompt sizes, and what a prompt of any length costs."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.engine.lanes.limits import LaneLimits
from simulator.engine.lanes.load_curve import lane_curve, load_curve
from simulator.engine.lanes.pricing import SIZE_WEIGHTS, computed_sequences, node_steps
from simulator.operators.work import decode_step, prefill_step
from simulator.phases.deployment import deploy
from simulator.phases.tabulate import compile_steps
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.traffic.lengths import LengthDistribution, RequestMix, uniform_points
from tests.engine.batching_simulation import affine_steps
from tests.phases.stepped import steps_seconds

DECODE_S, SEQUENCE_S, TOKEN_S = 0.012, 1.2e-4, 4e-5


def mix(*, isl: float = 900.0, isl_cv: float = 0.0, osl: float = 200.0) -> RequestMix:
    return RequestMix(
        isl=LengthDistribution(mean_tokens=isl, cv=isl_cv), osl=LengthDistribution(mean_tokens=osl, cv=0.5)
    )


def test_weights_are_a_probability_and_sizes_keep_their_mean() -> None:
    assert SIZE_WEIGHTS.sum() == pytest.approx(1.0)
    nodes = np.array([0.0, 1.0, 4.0, 16.0, 64.0])
    at_nodes = node_steps(mix=mix(isl_cv=0.5), nodes=nodes, batched_tokens=100_000, graph_sequences=0)
    arrivals = nodes / 199
    number = np.where(arrivals > 0, arrivals / -np.expm1(-np.maximum(arrivals, 1e-300)), 1.0)
    np.testing.assert_allclose(SIZE_WEIGHTS @ at_nodes.size_tokens, 900 * number, rtol=0.01)


def test_prompts_apart_share_what_comes_between_two_decode_steps() -> None:
    """The a prompts of each decode step's time come in y - 1 steps of their own, y = e^(a / y), whoever decodes."""
    nodes = np.array([0.0, 1.0, 16.0, 64.0, 398.0])
    apart = node_steps(mix=mix(), nodes=nodes, batched_tokens=100_000, graph_sequences=0, apart=True)
    arrivals = nodes[1:] / 199
    steps = 1 + arrivals / (SIZE_WEIGHTS @ apart.size_tokens[:, 1:] / 900)
    np.testing.assert_allclose(steps * np.log(steps), arrivals, rtol=0.02)
    beside = apart.step.decode_sequences[len(nodes) : -len(nodes)]
    assert not beside.any()


def test_graphs_pad_small_batches_to_their_sizes() -> None:
    assert computed_sequences(np.array([64.0]), largest=0)[0] == pytest.approx(64.0)
    padded = computed_sequences(np.array([12.0, 60.0, 200.0]), largest=512)
    # A batch that fluctuates over several graph sizes is padded by half a step of 8 less one half: 3.5.
    np.testing.assert_allclose(padded - [12.0, 60.0, 200.0], 3.5, atol=1.6)
    # All slots taken are a size of their own, beyond which nothing runs.
    nodes = np.array([0.0, 64.0, 128.0])
    assert node_steps(mix=mix(), nodes=nodes, batched_tokens=2048, graph_sequences=512).computed[-1] == 128


def test_linear_steps_make_a_prompts_cost_linear() -> None:
    curve = load_curve(
        affine_steps(DECODE_S, SEQUENCE_S, TOKEN_S),
        mix=mix(isl_cv=1.0),
        limits=LaneLimits(sequences=128, batched_tokens=2048, kv_tokens=float("inf")),
    )
    lengths = np.array([1.0, 50.0, 900.0, 2500.0, 9000.0])
    for sequences in (0.0, 7.0, 100.0):
        added_s = curve.costs.added_by_s(lengths, sequences=np.array([sequences]))[0]
        np.testing.assert_allclose(added_s, TOKEN_S * lengths, rtol=0.02)
    np.testing.assert_allclose(curve.prefill_s, 900 * TOKEN_S, rtol=0.02)


@pytest.mark.parametrize("hit", [0.0, 0.8])
def test_a_long_prompt_costs_what_its_steps_do(hit: float) -> None:
    """Its context, of its own tokens and of cached ones, grows with its length."""
    deployment = deploy(
        model=load_model("llama-3.1-8b"),
        hardware=load_hardware("h100"),
        engine=EngineSpec(max_num_batched_tokens=8192, max_num_seqs=64),
    )
    asked = RequestMix(
        isl=LengthDistribution(mean_tokens=2000 / (1 - hit), cv=1.0),
        osl=LengthDistribution(mean_tokens=300),
        prefix_hit_fraction=hit,
    )
    curve, tables = lane_curve(deployment, mix=asked), compile_steps(deployment)
    for tokens in (2000.0, 4000.0, 6000.0, 8192.0):
        cached = tokens * hit / (1 - hit)
        alone_s = steps_seconds(tables, prefill_step(sequences=1.0, tokens=np.array([tokens]), context=cached))[0]
        found_s = curve.decode_s[0] + curve.costs.added_by_s(np.array([tokens]), sequences=np.zeros(1))[0, 0]
        assert found_s == pytest.approx(float(alone_s), rel=0.08)


@pytest.mark.parametrize("isl_cv", [0.0, 1.0])
def test_a_prompt_of_many_pieces_counts_their_context_once(isl_cv: float) -> None:
    """Twelve to forty steps, each with the earlier ones as context: within 4 % of what they take one by one."""
    deployment = deploy(
        model=load_model("llama-3.1-8b"),
        hardware=load_hardware("l40s"),
        engine=EngineSpec(max_num_batched_tokens=2048, max_num_seqs=64),
    )
    curve, tables = lane_curve(deployment, mix=mix(isl=24_000.0, isl_cv=isl_cv)), compile_steps(deployment)
    for pieces in (12, 40):
        before = 2048.0 * np.arange(pieces)
        one_by_one_s = steps_seconds(
            tables, prefill_step(sequences=np.ones(pieces), tokens=2048.0, context=before)
        ).sum()
        added_s = curve.costs.added_by_s(np.array([2048.0 * pieces]), sequences=np.zeros(1)).item()
        assert added_s + pieces * curve.decode_s[0] == pytest.approx(one_by_one_s, rel=0.04)


def test_lane_steps_are_those_that_the_event_simulation_takes() -> None:
    engine = EngineSpec(max_num_seqs=128, max_num_batched_tokens=2048)
    deployment = deploy(model=load_model("llama-3.1-8b"), hardware=load_hardware("h100"), engine=engine)
    curve = lane_curve(deployment, mix=mix())
    tables = compile_steps(deployment)
    for sequences in (20, 50, 100):
        near = np.arange(sequences - 8, sequences + 8)
        context = curve.mix.decode_context_tokens
        taken_s = steps_seconds(tables, decode_step(sequences=near, context=np.round(context))).mean()
        assert curve.decode_s[sequences] == pytest.approx(taken_s, rel=0.02)


def test_points_of_the_lattice_are_even_and_unrelated() -> None:
    points = uniform_points(256)
    assert points.shape == (11, 256)
    for row in points:
        np.testing.assert_allclose(np.sort(row), (np.arange(256) + 0.5) / 256)
    assert np.abs(np.corrcoef(points) - np.eye(11)).max() < 0.15
