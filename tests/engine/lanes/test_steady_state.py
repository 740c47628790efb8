"""Continuous batching in closed form: laws, limits by hand, and a step-by-step simulation as second opinion."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.lanes.limits import LaneLimits, SlotLimit, decoding_share, kv_slots
from simulator.engine.lanes.load_curve import LoadCurve, load_curve, saturation
from simulator.engine.lanes.occupancy import rows_of_one, slot_occupancy
from simulator.engine.lanes.steady_state import SteadyState, steady_state
from simulator.operators.work import StepShape
from simulator.specs.question.plan_values import LatencyMetric
from simulator.traffic.lengths import Array, LengthDistribution, RequestMix, normal_points, uniform_points
from tests.engine.batching_simulation import affine_steps, simulate
from tests.engine.queue_laws import mg1_wait_mean_s

DECODE_S, SEQUENCE_S, TOKEN_S = 0.012, 1.2e-4, 4e-5


def request_mix(*, isl: float = 1155.0, isl_cv: float = 0.96, osl: float = 211.0, osl_cv: float = 0.77) -> RequestMix:
    return RequestMix(
        isl=LengthDistribution(mean_tokens=isl, cv=isl_cv), osl=LengthDistribution(mean_tokens=osl, cv=osl_cv)
    )


def lane(
    mix: RequestMix | None = None,
    *,
    sequences: int = 256,
    batched_tokens: int = 8192,
    kv_tokens: float = float("inf"),
    decode_s: float = DECODE_S,
) -> LoadCurve:
    return load_curve(
        affine_steps(decode_s, SEQUENCE_S, TOKEN_S),
        mix=mix or request_mix(),
        limits=LaneLimits(sequences=sequences, batched_tokens=batched_tokens, kv_tokens=kv_tokens),
    )


def at_loads(curve: LoadCurve, *loads: float) -> SteadyState:
    return steady_state(curve, rates_per_s=np.array(loads) * saturation(curve).rate_per_s)


class TestLengths:
    def test_points_fill_the_unit_interval_evenly(self) -> None:
        points = uniform_points(256)
        assert ((points > 0) & (points < 1)).all()
        np.testing.assert_allclose(points.mean(axis=1), 0.5, atol=0.04)
        np.testing.assert_allclose(normal_points(256).std(axis=1), 1.0, atol=0.09)

    def test_log_normal_has_its_moments(self) -> None:
        lengths = LengthDistribution(mean_tokens=500.0, cv=0.5)
        drawn = lengths.at(np.random.default_rng(1).standard_normal(400_000))
        assert drawn.mean() == pytest.approx(500, rel=0.01)
        assert (drawn**2).mean() == pytest.approx(lengths.moment(2), rel=0.01)
        assert (drawn**3).mean() == pytest.approx(lengths.moment(3), rel=0.05)

    def test_fixed_lengths_have_context_of_prompt_and_half_the_answer(self) -> None:
        mix = request_mix(isl=1000, isl_cv=0, osl=200, osl_cv=0)
        assert mix.decode_context_tokens == pytest.approx(1100)
        # Age is uniform on (0, 200): variance 200^2 / 12.
        assert mix.decode_context_variance == pytest.approx(200**2 / 12)

    def test_prefix_hits_leave_at_least_one_token(self) -> None:
        mix = RequestMix(
            isl=LengthDistribution(mean_tokens=100.0),
            osl=LengthDistribution(mean_tokens=10.0),
            prefix_hit_fraction=0.999,
        )
        assert mix.new_prompt_tokens == 1


class TestOccupancy:
    def test_noise_widens_a_lane_and_does_not_move_it(self) -> None:
        """Steps that take one time for any batch: n = lambda (O - 1) S on average, whatever comes together."""
        curve = load_curve(
            affine_steps(DECODE_S, 0.0, 0.0),
            mix=request_mix(osl_cv=0),
            limits=LaneLimits(sequences=512, batched_tokens=8192, kv_tokens=float("inf")),
        )
        rows = rows_of_one(curve, rates_per_s=[40.0] * 3)
        found = slot_occupancy(rows, dispersion=np.array([1.0, 3.0, 6.0]))
        np.testing.assert_allclose(found.mean, 40 * 210 * DECODE_S, rtol=0.01)
        np.testing.assert_allclose(found.variance / found.mean, [1, 3, 6], rtol=0.02)


class TestSaturation:
    def test_batch_limit_by_hand(self) -> None:
        # Fixed lengths, 64 slots, of which 99 in 100 steps decode: n = 63.36, S = 12 ms + n * 0.12 ms = 19.60 ms,
        # W = 100 * 0.04 ms = 4 ms. lambda = n / (99 * 19.60 ms + n * 4 ms) = 28.88 / s.
        curve = lane(request_mix(isl=100, isl_cv=0, osl=100, osl_cv=0), sequences=64)
        limit = saturation(curve)
        decoding = 64 * 0.99
        assert limit.rate_per_s == pytest.approx(
            decoding / (99 * (0.012 + decoding * 0.00012) + decoding * 0.004), rel=1e-4
        )
        assert limit.limit is SlotLimit.BATCH_LIMIT

    def test_a_place_is_taken_from_the_prompt_on(self) -> None:
        """Answers of eleven tokens decode in ten of eleven steps; of twelve where the next step was formed before."""
        mix = request_mix(isl=100, isl_cv=0, osl=11, osl_cv=0)
        limits = LaneLimits(sequences=64, batched_tokens=2048, kv_tokens=float("inf"))

        def share(mix: RequestMix, limits: LaneLimits, *, steps_ahead: int = 0) -> float:
            return float(decoding_share(mix, limits=limits, batched_tokens=2048.0, steps_ahead=steps_ahead))

        assert share(mix, limits) == pytest.approx(10 / 11)
        assert share(mix, limits, steps_ahead=1) == pytest.approx(10 / 12)
        assert share(request_mix(isl=4096, isl_cv=0, osl=11, osl_cv=0), limits) == pytest.approx(10 / 12)
        assert share(replace(mix, prefix_hit_fraction=1.0), limits) == 1
        assert share(mix, replace(limits, prompts_apart=True)) == 1

    def test_token_budget_by_hand(self) -> None:
        # Prompts of 4000 tokens, answers of 50, steps of 2048: n = 2048 * 49 / (4000 + 49) sequences decode.
        curve = lane(request_mix(isl=4000, isl_cv=0, osl=50, osl_cv=0), sequences=128, batched_tokens=2048)
        limit = saturation(curve)
        assert limit.limit is SlotLimit.TOKEN_BUDGET
        assert limit.sequences == pytest.approx(2048 * 49 / 4049)
        step_s = DECODE_S + SEQUENCE_S * limit.sequences + TOKEN_S * (2048 - limit.sequences)
        assert limit.rate_per_s == pytest.approx((2048 - limit.sequences) / 4000 / step_s, rel=0.01)

    @pytest.mark.parametrize("mix", [request_mix(), request_mix(isl=1000, osl=1000)])
    def test_a_batch_limit_beyond_what_the_budget_feeds_changes_nothing(self, mix: RequestMix) -> None:
        """A step full of answers takes a token of a prompt; as that costs a launch, prompts seemed to take for ever."""

        def launched(step: StepShape) -> Array:
            return affine_steps(1e-3, SEQUENCE_S, TOKEN_S)(step) + 2e-3 * (step.prefill_sequences > 0)

        tight, loose = (
            load_curve(launched, mix=mix, limits=LaneLimits(sequences=each, batched_tokens=1024, kv_tokens=np.inf))
            for each in (640, 1024)
        )
        rates_per_s = np.array([0.1, 0.5, 0.9]) * saturation(tight).rate_per_s
        for metric in LatencyMetric:
            bound, free = (steady_state(item, rates_per_s=rates_per_s) for item in (tight, loose))
            assert np.isfinite(free.percentile_s(metric, 95)).all()
            np.testing.assert_allclose(free.percentile_s(metric, 95), bound.percentile_s(metric, 95), rtol=0.02)

    def test_memory_bounds_the_slots(self) -> None:
        curve = lane(kv_tokens=50_000.0)
        assert saturation(curve).limit is SlotLimit.KV_MEMORY
        assert curve.slots < 50_000 / curve.mix.decode_context_tokens

    def test_fixed_tokens_fill_memory_exactly(self) -> None:
        mix = RequestMix(isl=LengthDistribution(mean_tokens=1000.0), osl=LengthDistribution(mean_tokens=1.0))
        limits = LaneLimits(sequences=64, batched_tokens=8192, kv_tokens=10_005.0)
        assert kv_slots(mix, limits=limits) == pytest.approx(10.0, rel=0.01)

    def test_room_set_aside_for_whole_answers_holds_fewer_and_needs_no_margin(self) -> None:
        mix = request_mix(isl=1000, isl_cv=0, osl=200, osl_cv=0)
        limits = LaneLimits(sequences=64, batched_tokens=8192, kv_tokens=12_005.0, full_length=True)
        assert kv_slots(mix, limits=limits) == pytest.approx(12_005 / 1200.5)

    def test_cache_too_small_for_one_request_has_no_slot(self) -> None:
        curve = lane(kv_tokens=500.0)
        assert curve.slots == 0
        assert saturation(curve).rate_per_s == 0

    def test_prompts_only_saturate_at_full_steps(self) -> None:
        curve = lane(request_mix(isl=1024, isl_cv=0, osl=1, osl_cv=0))
        assert saturation(curve).rate_per_s == pytest.approx(8 / (DECODE_S + 8192 * TOKEN_S), rel=1e-6)

    def test_faster_steps_saturate_later(self) -> None:
        assert saturation(lane(decode_s=0.006)).rate_per_s > saturation(lane(decode_s=0.012)).rate_per_s


class TestLaws:
    @settings(max_examples=25, deadline=None)
    @given(
        isl=st.floats(10, 8000),
        osl=st.floats(2, 1000),
        isl_cv=st.floats(0, 1.5),
        osl_cv=st.floats(0, 1.5),
        sequences=st.integers(4, 300),
        budget=st.sampled_from([512, 2048, 8192]),
    )
    def test_little_and_order(
        self, isl: float, osl: float, isl_cv: float, osl_cv: float, sequences: int, budget: int
    ) -> None:
        mix = request_mix(isl=isl, isl_cv=isl_cv, osl=osl, osl_cv=osl_cv)
        state = at_loads(lane(mix, sequences=sequences, batched_tokens=budget), 0.05, 0.4, 0.8)
        assert not state.saturated.any()
        # Little's law for the decoding phase: sequences = rate x time spent decoding.
        decoding_s = state.e2e_mean_s - state.ttft_mean_s
        # The number is cut to the batch limit, which fixed-point iterations reach from above.
        np.testing.assert_allclose(state.mean_sequences, state.rates_per_s * decoding_s, rtol=1e-3)
        for metric in LatencyMetric:
            rising = [state.percentile_s(metric, percentile) for percentile in (50, 90, 95, 99)]
            assert (np.diff(rising, axis=0) >= 0).all()
            assert (rising[0] > 0).all()

    def test_latencies_and_occupancy_rise_with_load(self) -> None:
        state = at_loads(lane(kv_tokens=200_000.0), *np.linspace(0.01, 0.97, 25))
        for values in (state.ttft_mean_s, state.tpot_mean_s, state.mean_sequences, state.kv_utilization):
            assert (np.diff(values) > 0).all()
        for metric in LatencyMetric:
            assert (np.diff(state.percentile_s(metric, 95)) > 0).all()

    def test_beyond_saturation_waits_have_no_bound(self) -> None:
        state = at_loads(lane(), 0.999, 1.001, 3.0)
        assert state.saturated.tolist() == [False, True, True]
        assert np.isinf(state.ttft_mean_s[1:]).all()
        assert np.isinf(state.percentile_s(LatencyMetric.TPOT, 50)[1:]).all()

    def test_idle_replica_by_hand(self) -> None:
        # Nobody else: TTFT is the prompt's own step, 12 ms + 100 x 0.04 ms; every further step has one sequence.
        curve = lane(request_mix(isl=100, isl_cv=0, osl=50, osl_cv=0))
        state = steady_state(curve, rates_per_s=1e-6)
        assert state.ttft_mean_s[0] == pytest.approx(0.016, rel=1e-3)
        assert state.tpot_mean_s[0] == pytest.approx(0.01212, rel=1e-3)
        assert state.percentile_s(LatencyMetric.TTFT, 95)[0] == pytest.approx(state.ttft_mean_s[0], rel=1e-3)

    def test_prompts_without_answers_queue_like_mg1(self) -> None:
        # Prompts as long as the budget are served one step each: M/D/1 with a service time of one step.
        curve = lane(request_mix(isl=8192, isl_cv=0, osl=1, osl_cv=0))
        rate = 0.7 * saturation(curve).rate_per_s
        state = steady_state(curve, rates_per_s=rate)
        step_s = DECODE_S + 8192 * TOKEN_S
        wait_s = float(mg1_wait_mean_s(arrival_rate_per_s=rate, service_mean_s=step_s, service_cv=0.0))
        assert state.ttft_mean_s[0] == pytest.approx(step_s + wait_s, rel=0.35)
        assert state.ttft_mean_s[0] >= (step_s + wait_s) * 0.999

    def test_burstier_arrivals_wait_longer(self) -> None:
        smooth, bursty = (
            RequestMix(
                isl=LengthDistribution(mean_tokens=200.0),
                osl=LengthDistribution(mean_tokens=300.0, cv=1.0),
                arrival_cv=arrival_cv,
            )
            for arrival_cv in (1.0, 3.0)
        )
        rate = 0.9 * saturation(lane(smooth, sequences=32)).rate_per_s
        quiet = steady_state(lane(smooth, sequences=32), rates_per_s=rate)
        loud = steady_state(lane(bursty, sequences=32), rates_per_s=rate)
        assert loud.slot_wait_probability[0] > quiet.slot_wait_probability[0]
        assert loud.ttft_mean_s[0] > quiet.ttft_mean_s[0]

    def test_prefix_hits_shorten_ttft_and_raise_saturation(self) -> None:
        plain = request_mix()
        cached = RequestMix(isl=plain.isl, osl=plain.osl, prefix_hit_fraction=0.5)
        assert saturation(lane(cached)).rate_per_s > saturation(lane(plain)).rate_per_s
        rate = 0.5 * saturation(lane(plain)).rate_per_s
        assert (
            steady_state(lane(cached), rates_per_s=rate).ttft_mean_s
            < steady_state(lane(plain), rates_per_s=rate).ttft_mean_s
        )

    def test_host_time_adds_to_ttft_and_nothing_else(self) -> None:
        limits = LaneLimits(sequences=256, batched_tokens=8192, kv_tokens=float("inf"))
        slow = LaneLimits(sequences=256, batched_tokens=8192, kv_tokens=float("inf"), request_s=0.5)
        steps = affine_steps(DECODE_S, SEQUENCE_S, TOKEN_S)
        quick, late = (
            steady_state(load_curve(steps, mix=request_mix(), limits=item), rates_per_s=5.0) for item in (limits, slow)
        )
        np.testing.assert_allclose(late.ttft_mean_s - quick.ttft_mean_s, 0.5)
        np.testing.assert_allclose(late.tpot_mean_s, quick.tpot_mean_s)


# name, mix, batch limit, token budget, load, tolerances (mean, p95) of TTFT and of TPOT: agreement of an approximation
# with a simulation of 8000 requests, whose own noise is a few percent.
CASES = [
    ("chat", request_mix(), 256, 8192, 0.6, (0.2, 0.15), (0.03, 0.05)),
    ("chat, busy", request_mix(), 256, 8192, 0.8, (0.25, 0.15), (0.05, 0.1)),
    ("fixed", request_mix(isl=500, isl_cv=0, osl=100, osl_cv=0), 128, 2048, 0.8, (0.1, 0.15), (0.05, 0.1)),
    ("long prompts", request_mix(isl=4000, isl_cv=0.5, osl=50, osl_cv=0.5), 128, 2048, 0.6, (0.15, 0.15), (0.1, 0.3)),
    ("long answers", request_mix(isl=200, isl_cv=0.5, osl=300, osl_cv=1.0), 32, 2048, 0.6, (0.05, 0.05), (0.02, 0.02)),
    # Full of answers a step has no room for prompts: a state that no lane stays in.
    ("no less than the budget", request_mix(isl=200, osl=300), 512, 512, 0.6, (0.15, 0.15), (0.02, 0.05)),
]


@pytest.mark.parametrize(
    ("mix", "sequences", "budget", "load", "ttft", "tpot"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_agrees_with_a_simulation(
    mix: RequestMix, sequences: int, budget: int, load: float, ttft: tuple[float, float], tpot: tuple[float, float]
) -> None:
    curve = lane(mix, sequences=sequences, batched_tokens=budget)
    rate = load * saturation(curve).rate_per_s
    state = steady_state(curve, rates_per_s=rate)
    run = simulate(DECODE_S, SEQUENCE_S, TOKEN_S, mix=mix, limits=curve.limits, rate_per_s=rate, requests=8000, seed=1)
    assert state.ttft_mean_s[0] == pytest.approx(run.ttft_s.mean(), rel=ttft[0])
    assert state.percentile_s(LatencyMetric.TTFT, 95)[0] == pytest.approx(np.percentile(run.ttft_s, 95), rel=ttft[1])
    assert state.tpot_mean_s[0] == pytest.approx(run.tpot_s.mean(), rel=tpot[0])
    assert state.percentile_s(LatencyMetric.TPOT, 95)[0] == pytest.approx(np.percentile(run.tpot_s, 95), rel=tpot[1])
    assert state.e2e_mean_s[0] == pytest.approx(run.e2e_s.mean(), rel=0.1)


def test_simulation_obeys_littles_law() -> None:
    mix = request_mix()
    limits = LaneLimits(sequences=256, batched_tokens=8192, kv_tokens=float("inf"))
    run = simulate(DECODE_S, SEQUENCE_S, TOKEN_S, mix=mix, limits=limits, rate_per_s=8.0, requests=4000, seed=3)
    assert run.mean_in_system == pytest.approx(run.rate_per_s * run.e2e_s.mean(), rel=0.02)
