"""``simulator.engine.lanes.pricing``: costs of whole prompts from those of steps, by hand and in their limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.lanes.pricing import PromptCosts, PromptCostsAt, node_steps, padded, prompt_costs, stack_costs
from simulator.operators.work import StepShape
from simulator.traffic.lengths import Array, LengthDistribution, RequestMix

STEP_S, TOKEN_S, PAIR_S = 5e-3, 2e-5, 1e-9
NODES = np.array([0.0, 1.0, 8.0, 64.0])
BUDGET = 1024


def costs(growth_s: float = 0.0) -> PromptCosts:
    """Of two nodes: 10 ms for 100 tokens, 40 ms for a full step of 400; twice that beside ten sequences."""
    tokens = np.array([[0.0, 0.0], [100.0, 100.0], [400.0, 400.0]])
    added_s = np.array([[0.0, 0.0], [0.010, 0.020], [0.040, 0.080]])
    return PromptCosts(
        nodes=np.array([0.0, 10.0]),
        tokens=tokens,
        added_s=added_s,
        together_s=added_s / 2,
        growth_s=np.full(2, growth_s),
    )


def priced(pair_s: float, *, hit: float = 0.0, isl_cv: float = 0.5) -> PromptCosts:
    """Of steps that cost so much per query-key pair of prompts, on top of a linear part."""

    def seconds(step: StepShape) -> Array:
        prompt = step.prefill_sequences * step.prefill_tokens
        pairs = prompt * (step.prefill_context + step.prefill_tokens / 2)
        found: Array = STEP_S + TOKEN_S * (prompt + step.decode_sequences) + pair_s * pairs
        return found

    mix = RequestMix(
        isl=LengthDistribution(mean_tokens=600.0, cv=isl_cv),
        osl=LengthDistribution(mean_tokens=100.0, cv=0.0),
        prefix_hit_fraction=hit,
    )
    steps = node_steps(mix=mix, nodes=NODES, batched_tokens=BUDGET, graph_sequences=0)
    return prompt_costs(steps.priced(seconds(steps.step)))


class TestByHand:
    @pytest.mark.parametrize(
        ("tokens", "expected_s"),
        [(0, 0.0), (50, 0.005), (100, 0.010), (250, 0.025), (400, 0.040), (450, 0.045), (1000, 0.080 + 0.020)],
    )
    def test_between_points_it_is_linear_and_whole_steps_add_up(self, tokens: float, expected_s: float) -> None:
        found_s = costs().added_by_s(np.array([float(tokens)]), sequences=np.array([0.0]))
        assert found_s[0, 0] == pytest.approx(expected_s)

    def test_between_nodes_it_is_linear_and_constant_beyond_the_last(self) -> None:
        sequences = np.array([0.0, 5.0, 10.0])
        found_s = costs().added_by_s(np.array([100.0]), sequences=sequences)[:, 0]
        assert found_s.tolist() == pytest.approx([0.010, 0.015, 0.020])

    def test_pieces_of_a_long_prompt_have_the_earlier_ones_as_context(self) -> None:
        growth_s = 1e-6
        found_s = costs(growth_s).added_by_s(np.array([400.0, 1200.0]), sequences=np.array([0.0]))[0]
        # Three full steps with 0, 400 and 800 tokens of context: 3 x 40 ms and 1 us x 400 + 800, a prompt that fits
        # one step has none.
        assert found_s.tolist() == pytest.approx([0.040, 0.120 + growth_s * (400 + 800)])

    def test_a_width_of_nothing_is_a_jump(self) -> None:
        at = PromptCostsAt(
            tokens=np.array([[0.0], [100.0], [100.0], [200.0]]),
            added_s=np.array([[0.0], [0.01], [0.03], [0.04]]),
            growth_s=np.zeros(1),
        )
        found_s = at.added_by_s(np.array([[100.0, 101.0, 200.0]]))[0]
        assert found_s.tolist() == pytest.approx([0.01, 0.0301, 0.04])

    def test_scaling_scales_every_time_and_no_length(self) -> None:
        lengths, beside = np.array([50.0, 900.0]), np.array([3.0])
        one, three = costs(1e-6), costs(1e-6).scaled(3.0)
        one_s, three_s = (item.added_by_s(lengths, sequences=beside) for item in (one, three))
        np.testing.assert_allclose(three_s, 3 * one_s)
        assert three.of_several().added_by_s(lengths, sequences=beside)[0, 0] == pytest.approx(1.5 * one_s[0, 0])


class TestSeveralLanes:
    def test_padding_repeats_the_last_number_or_holds_what_is_asked(self) -> None:
        arrays = [np.array([1.0, 2.0]), np.array([3.0, 4.0, 5.0])]
        assert padded(arrays).tolist() == [[1.0, 2.0, 2.0], [3.0, 4.0, 5.0]]
        assert padded(arrays, fill=9.0).tolist() == [[1.0, 2.0, 9.0], [3.0, 4.0, 5.0]]

    def test_lanes_side_by_side_cost_what_they_cost_alone(self) -> None:
        short, long = costs(), priced(PAIR_S)
        lengths = np.array([30.0, 350.0, 2500.0])
        sequences = np.array([0.0, 7.0, 40.0, 0.5])
        of = np.array([0, 0, 1, 1])
        # Costs of a lane have the same number of points each: the short one repeats its last.
        points = len(long.tokens)
        wide = PromptCosts(
            nodes=short.nodes,
            tokens=np.concatenate([short.tokens, np.repeat(short.tokens[-1:], points - 3, axis=0)]),
            added_s=np.concatenate([short.added_s, np.repeat(short.added_s[-1:], points - 3, axis=0)]),
            together_s=np.concatenate([short.together_s, np.repeat(short.together_s[-1:], points - 3, axis=0)]),
            growth_s=short.growth_s,
        )
        together_s = stack_costs((wide, long)).at(of, sequences).added_by_s(lengths)
        for row, lane in enumerate(of):
            alone_s = (short, long)[lane].added_by_s(lengths, sequences=sequences[row : row + 1])[0]
            np.testing.assert_allclose(together_s[row], alone_s)


class TestOfPricedSteps:
    def test_without_context_a_prompt_costs_its_tokens(self) -> None:
        lengths = np.array([1.0, 77.0, 600.0, 3000.0])
        found_s = priced(0.0).added_by_s(lengths, sequences=np.array([0.0]))[0]
        np.testing.assert_allclose(found_s, TOKEN_S * lengths, rtol=0.005)

    @pytest.mark.parametrize("tokens", [200.0, 600.0, 1000.0])
    def test_within_a_step_it_grows_with_the_square(self, tokens: float) -> None:
        found_s = priced(PAIR_S).added_by_s(np.array([tokens]), sequences=np.array([0.0]))[0, 0]
        assert found_s == pytest.approx(TOKEN_S * tokens + PAIR_S * tokens**2 / 2, rel=0.01)

    @pytest.mark.parametrize("tokens", [2048.0, 4096.0, 8192.0])
    def test_over_whole_steps_it_grows_with_the_square_of_the_whole(self, tokens: float) -> None:
        found_s = priced(PAIR_S).added_by_s(np.array([tokens]), sequences=np.array([0.0]))[0, 0]
        assert found_s == pytest.approx(TOKEN_S * tokens + PAIR_S * tokens**2 / 2, rel=0.02)

    def test_several_prompts_cost_no_more_than_one_of_as_many_tokens(self) -> None:
        one = priced(PAIR_S)
        # Up to what straight lines between the points leave of a square.
        assert (one.together_s <= 1.003 * one.added_s).all()
        assert one.together_s[-1, 3] < one.added_s[-1, 3]

    @given(hit=st.sampled_from([0.0, 0.5]), cv=st.sampled_from([0.0, 1.0]), beside=st.floats(0, 64))
    def test_a_longer_prompt_never_costs_less(self, hit: float, cv: float, beside: float) -> None:
        lengths = np.linspace(0.0, 5000.0, 101)
        found_s = priced(PAIR_S, hit=hit, isl_cv=cv).added_by_s(lengths, sequences=np.array([beside]))[0]
        assert found_s[0] == pytest.approx(0.0, abs=1e-12)
        assert (np.diff(found_s) >= -1e-9).all()
