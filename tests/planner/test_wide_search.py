"""The wide search: counts by hand, agreement with the exact evaluation, and nothing cheaper left behind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import RoofcastError
from simulator.planner.money.market import market_price, plan_rule
from simulator.planner.plan import plan_capacity
from simulator.planner.records import NO_TECHNIQUES, Rejection
from simulator.planner.search import wide_search
from simulator.planner.search.candidates import platforms
from simulator.planner.search.question import Question, resolve, search_space, variants
from simulator.planner.search.screened_space import ScreenedSpace, pareto_front
from simulator.planner.search.screening import _slot_wait_s
from simulator.planner.search.search import try_platforms
from simulator.planner.search.wide_search import screen_space
from simulator.planner.serving.shapes import evaluate
from simulator.planner.studies.pareto import ParetoSet
from simulator.specs.question.plan import plan_spec
from simulator.techniques.quality import UNCHANGED
from tests.engine.queue_laws import erlang_c

GPUS = ("h100", "mi300x", "l40s")


def question(**fields: object) -> Question:
    return resolve(plan_spec({"rps": 200, "model": "llama-3.1-70b", "hardware": GPUS, **fields}))


def screened(asked: Question) -> ScreenedSpace:
    return screen_space(asked, platforms(asked.spec))


@pytest.fixture(scope="module")
def found() -> ScreenedSpace:
    return screened(question(search="wide", any_precision=True))


class TestSpace:
    def test_counts_by_hand(self) -> None:
        asked = question(search="wide", any_precision=True)
        space = search_space(asked.spec, model=asked.model, platforms=platforms(asked.spec))
        assert len(space.parallelisms) == 4 * 3
        # None of the three multiplies four-bit floats.
        assert len(space.variants) == 10 * 2
        assert space.candidates == 3 * 12 * 20 * 16 * 6

    def test_three_bits_put_a_large_model_on_one_device(self) -> None:
        asked = {"rps": 0.02, "model": "opt-175b", "hardware": "a100", "tp": 1, "isl": 128, "osl": 128, "spares": 0}
        spec = plan_spec(
            {**asked, "objectives": ({"metric": "e2e", "percentile": 95, "bound_s": 60},), "any_precision": True}
        )
        assert any(scheme in plan_capacity(spec).best.label for scheme in ("gptq-3bit", "aqlm-2x8"))

    def test_twelve_accelerators_make_a_hundred_thousand(self) -> None:
        twelve = (
            "h100",
            "h200",
            "b200",
            "a100",
            "mi300x",
            "mi325x",
            "l40s",
            "b300-sxm",
            "gb200",
            "tpu-v6e",
            "l4",
            "a10",
        )
        asked = question(search="wide", any_precision=True, hardware=twelve)
        space = search_space(asked.spec, model=asked.model, platforms=platforms(asked.spec))
        assert space.candidates >= 100_000

    def test_what_is_given_narrows_its_axis(self) -> None:
        asked = question(
            search="wide", tp=(4,), pp=(2,), max_num_seqs=(64,), max_num_batched_tokens=2048, weights="fp8"
        )
        space = search_space(asked.spec, model=asked.model, platforms=platforms(asked.spec))
        assert space.candidates == 3

    def test_experts_are_spread_too(self) -> None:
        asked = question(search="wide", model="mixtral-8x7b", tp=(2,), pp=(1,))
        space = search_space(asked.spec, model=asked.model, platforms=platforms(asked.spec))
        assert sorted({item.ep_size for item in space.parallelisms}) == [1, 2, 4, 8]


class TestScreening:
    @pytest.mark.slow
    def test_agrees_with_the_exact_evaluation(self, found: ScreenedSpace) -> None:
        asked = question(search="wide", any_precision=True)
        capacity = found.screened.capacity_per_s.ravel()
        places = np.random.default_rng(1).choice(np.flatnonzero(capacity > 0), 200, replace=False)
        errors: dict[bool, list[float]] = {False: [], True: []}
        for place in places:
            candidate = found.candidate(int(place), asked)
            outcome = evaluate(
                candidate,
                model=asked.model,
                mix=asked.demand.mix,
                objectives=asked.objectives,
                policy=replace(asked.policy, deviate=0.0),
            )
            if not isinstance(outcome, Rejection):
                stages = candidate.parallelism.pp_size > 1
                errors[stages].append(float(np.log(capacity[place] / outcome.replica.capacity_per_s)))
        assert min(map(len, errors.values())) >= 60
        # Stages counted as lanes of their own, whose prompts delay all others, came out at 0.74 and 0.54 of it.
        for found_errors in errors.values():
            assert np.median(np.abs(found_errors)) < 0.1

    def test_a_tighter_objective_never_raises_capacity(self) -> None:
        loose = screened(question(search="wide", ttft_p95="2s", tpot_p95="200ms"))
        tight = screened(question(search="wide", ttft_p95="1s", tpot_p95="60ms"))
        assert (tight.screened.capacity_per_s <= loose.screened.capacity_per_s * (1 + 1e-9)).all()
        assert tight.feasible < loose.feasible

    def test_capacity_respects_the_objectives(self, found: ScreenedSpace) -> None:
        serving = found.screened.capacity_per_s > 0
        assert (found.screened.ttft_p95_s[serving] <= 2.0 * 1.2).all()
        assert (found.screened.tpot_p95_s[serving] <= 0.2 * 1.1).all()
        assert np.isinf(found.screened.ttft_p95_s[~serving]).all()

    @given(load=st.floats(0.7, 0.95), servers=st.integers(2, 64))
    def test_waiting_is_that_of_erlang(self, load: float, servers: int) -> None:
        hold_s, percentile = 10.0, 99.0
        found_s = _slot_wait_s(
            np.array([load]), np.array([servers]), np.array([hold_s]), variability=1.0, percentile=percentile
        )[0]
        waits = float(erlang_c(offered_load=load * servers, servers=servers))
        exact_s = max(hold_s / servers / (1 - load) * np.log(max(waits / 0.01, 1.0)), 0.0)
        assert found_s == pytest.approx(exact_s, rel=0.25, abs=0.15 * hold_s)


class TestSearch:
    def test_finds_what_an_exact_search_of_the_same_space_finds(self) -> None:
        limits = {"hardware": ("h100", "l40s"), "max_num_seqs": (32, 128, 512), "pp": (1,), "serving": "aggregated"}
        limits["max_num_batched_tokens"] = 8192
        exact = plan_capacity(plan_spec({"rps": 200, "model": "llama-3.1-70b", **limits}))
        asked = question(search="wide", **limits)
        best = min(try_platforms(asked, platforms(asked.spec)).trial.sized, key=lambda item: item.rank)
        assert best.cost.per_hour is not None
        assert exact.best.cost.per_hour is not None
        assert best.cost.per_hour <= exact.best.cost.per_hour * 1.01

    def test_more_to_choose_from_never_costs_more(self) -> None:
        usual = plan_capacity(question(hardware="h100", weights="bf16").spec)
        wide = plan_capacity(question(hardware="h100", weights="bf16", search="wide").spec)
        free = plan_capacity(question(hardware="h100", search="wide", any_precision=True).spec)
        costs = [plan.best.cost.per_hour or 0.0 for plan in (usual, wide, free)]
        assert costs[2] < costs[1] <= costs[0]
        assert wide.search is not None
        assert wide.search.candidates == 12 * 16 * 6

    @pytest.mark.parametrize(("hardware", "served"), [("h100", "fp8"), ("a100", "bf16")])
    def test_the_default_is_the_published_checkpoint_that_the_accelerator_multiplies(
        self, hardware: str, served: str
    ) -> None:
        for search in ("usual", "wide"):
            plan = plan_capacity(question(search=search, hardware=hardware).spec)
            assert plan.best.replica.deployment.plan.linear.name == served

    def test_a_floor_on_quality_keeps_what_loses_more_out_of_the_default(self) -> None:
        for floor, served in ((0.0, "bf16"), (0.05, "fp8")):
            plan = plan_capacity(question(hardware="h100", any_technique=True, max_quality_loss=floor).spec)
            assert plan.best.replica.deployment.plan.linear.name == served

    def test_answers_of_one_token_are_refused(self) -> None:
        with pytest.raises(RoofcastError, match="more than one token"):
            screened(question(search="wide", osl=1, osl_cv=0))

    def test_unequal_engines_limits_are_flags(self) -> None:
        asked = question(search="wide", hardware="h100")
        for item in try_platforms(asked, platforms(asked.spec)).trial.sized:
            engine = item.evaluated.replica.deployment.engine
            assert engine.max_num_batched_tokens in (512, 1024, 2048, 4096, 8192, 16384)


class TestFormats:
    """An accelerator's fastest formats are screened first, the others where they may make the best fleet."""

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "fields",
        [
            {"model": "llama-3.1-8b"},
            {},
            {"model": "gpt-oss-20b", "isl": 8000, "osl": 300, "rps": 20},
            {"model": "qwen3-32b", "ttft_p95": "300ms", "tpot_p95": "15ms"},
            {"model": "llama-3.1-405b", "rps": 1},
            {"model": "qwen3-8b", "isl": 500, "osl": 4000, "rps": 0.1},
        ],
    )
    def test_what_is_left_out_costs_more_than_the_best(
        self, fields: dict[str, object], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = question(hardware=(), any_precision=True, **fields)
        some = screened(asked)
        monkeypatch.setattr(wide_search, "_leading", lambda _, offered, model: tuple(offered))
        every = screened(asked)
        assert some.in_all_formats < every.in_all_formats == len(every.space.platforms)
        kept = {(item.platform, item.variant) for item in some.tables}
        costs = wide_search._cheapest_limits(every, asked)
        left_out = [
            cost for item, cost in zip(every.tables, costs, strict=True) if (item.platform, item.variant) not in kept
        ]
        assert left_out
        assert min(left_out) > min(wide_search._cheapest_limits(some, asked)) == min(costs)

    def test_what_is_named_is_compared_in_every_format(self) -> None:
        found = screened(question(hardware=("h100", "l4"), any_precision=True))
        assert found.in_all_formats == len(found.space.platforms) == 2


class TestTechniques:
    """Techniques are tried where set-ups without them may come out best: nothing better is left out."""

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "fields",
        [
            {},
            pytest.param({"model": "llama-3.1-8b", "rps": 5}, marks=pytest.mark.slow),
            pytest.param(
                {"model": "qwen3-32b", "rps": 100, "ttft_p95": "300ms", "tpot_p95": "15ms"}, marks=pytest.mark.slow
            ),
            pytest.param({"model": "gpt-oss-20b", "isl": 8000, "osl": 300, "rps": 20}, marks=pytest.mark.slow),
            pytest.param({"max_quality_loss": 0.01}, marks=pytest.mark.slow),
            # Eight bits beat four here where half of the weights are left out, and without lose in every step.
            {"model": "phi-4", "rps": 10, "tpot_p95": "10ms"},
        ],
    )
    @pytest.mark.parametrize("hardware", [("h100", "mi300x", "l40s", "a100"), ("b200", "mi355x", "rtx-pro-6000")])
    def test_in_stages_as_all_at_once(
        self, fields: dict[str, object], hardware: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = question(**{"hardware": hardware, "any_technique": True, "any_precision": True, **fields})
        bests = []
        for _ in range(2):
            found = try_platforms(asked, platforms(asked.spec)).trial.sized
            bests.append(min(found, key=lambda item: item.rank).cost.per_hour)
            monkeypatch.setattr(wide_search, "_every_one_counts", lambda *_: True)
        assert bests[0] == pytest.approx(bests[1], rel=0.02)

    @pytest.mark.slow
    def test_an_accelerator_that_costs_several_times_as_much_is_left_without(self) -> None:
        asked = question(any_technique=True)
        every = question(hardware=(), any_technique=True, any_precision=True)
        named, found = screened(asked), screened(every)
        assert named.combined == len(named.space.platforms)
        assert found.combined < len(found.space.platforms)
        dear = {item.platform for item in found.tables} - {
            item.platform for item in found.tables if item.variant.techniques != NO_TECHNIQUES
        }
        rule = plan_rule(every.spec)
        priced = [item for item in dear if market_price(every.prices, hardware=item.hardware.name, rule=rule)]
        best = min(try_platforms(every, platforms(every.spec)).trial.sized, key=lambda item: item.rank)
        for platform in priced:
            alone = question(hardware=(platform.hardware.name,), any_technique=True, any_precision=True)
            sized = try_platforms(alone, platforms(alone.spec)).trial.sized
            assert all((item.cost.per_hour or np.inf) > (best.cost.per_hour or 0.0) for item in sized)

    def test_a_format_that_another_beats_everywhere_is_not_combined(self) -> None:
        found = screened(question(hardware="h100", any_technique=True, any_precision=True))
        every, dense, sparse = (
            {item.variant.precision for item in found.tables if chosen(item.variant.techniques)}
            for chosen in (
                lambda techniques: techniques == NO_TECHNIQUES,
                lambda techniques: techniques != NO_TECHNIQUES and techniques.sparsity is None,
                lambda techniques: techniques.sparsity is not None,
            )
        )
        assert dense < every
        assert sparse - dense, "sparse weights are another question"

    @pytest.mark.parametrize(("hardware", "own"), [("b200", "nvfp4"), ("mi355x", "mxfp4-w4a4"), ("h100", None)])
    def test_four_bit_floats_are_those_of_the_chip(self, hardware: str, own: str | None) -> None:
        asked = question(hardware=hardware, any_precision=True)
        (offered,) = variants(asked.spec, model=asked.model, platforms=platforms(asked.spec)).values()
        found = {item.precision.scheme for item in offered} & {"nvfp4", "mxfp4-w4a4"}
        assert found == ({own} if own else set())


class TestPareto:
    def test_front_by_hand(self) -> None:
        points = np.array([[1.0, 5.0], [2.0, 2.0], [3.0, 3.0], [4.0, 1.0], [4.0, 1.0], [np.inf, 0.0]])
        assert pareto_front(points) == [0, 1, 3]

    @given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=40))
    def test_nobody_on_the_front_is_beaten_and_everybody_else_is(self, rows: list[tuple[int, int, int]]) -> None:
        points = np.array(rows, dtype=np.float64)
        front = pareto_front(points)
        for index, point in enumerate(points):
            others = points[[item for item in range(len(points)) if item != index]]
            beaten = ((others <= point).all(axis=1) & (others < point).any(axis=1)).any() if len(others) else False
            equal_on_front = any((points[item] == point).all() for item in front)
            assert equal_on_front is not bool(beaten)

    def test_points_of_a_plan_trade_off(self) -> None:
        plan = plan_capacity(question(pareto=True).spec)
        assert plan.study(ParetoSet) is not None
        points = [point for point in plan.study(ParetoSet).points if point.fleet.cost.per_hour is not None]
        assert points[0].fleet.cost.per_hour == plan.best.cost.per_hour
        costs = [point.fleet.cost.per_hour or 0.0 for point in points]
        assert costs == sorted(costs)
        assert len(points) < plan.study(ParetoSet).considered

    def test_no_point_is_beaten_on_all_four_axes_as_they_are_shown(self) -> None:
        plan = plan_capacity(question(pareto=True, any_precision=True, hardware=("h100", "l40s")).spec)
        assert plan.study(ParetoSet) is not None
        assert len(plan.study(ParetoSet).axes) == 4
        points = [point for point in plan.study(ParetoSet).points if point.fleet.cost.per_hour is not None]
        values = np.array(
            [
                (
                    point.fleet.cost.per_hour,
                    point.fleet.degraded.e2e_p95_s,
                    point.energy_per_output_token_j,
                    1.0 if point.quality.loss is None else point.quality.loss,
                )
                for point in points
            ]
        )
        for index in range(len(values)):
            others = np.delete(values, index, axis=0)
            assert not ((others <= values[index]).all(axis=1) & (others < values[index]).any(axis=1)).any()
        # Every axis has its say: none of the best on one is left out.
        assert values[:, 3].min() == 0.0

    def test_energy_per_token_is_power_over_the_answers(self) -> None:
        plan = plan_capacity(question(pareto=True).spec)
        assert plan.study(ParetoSet) is not None
        point = plan.study(ParetoSet).points[0]
        tokens_per_s = plan.demand.planned_rate_per_s * plan.demand.mix.osl.mean_tokens
        assert point.energy_per_output_token_j * tokens_per_s == pytest.approx(point.fleet.typical_w)

    def test_quality_is_said_where_formats_change(self) -> None:
        plan = plan_capacity(question(pareto=True, any_precision=True, hardware="h100").spec)
        assert plan.study(ParetoSet) is not None
        for point in plan.study(ParetoSet).points:
            assert (point.quality.note == UNCHANGED) == (len(point.fleet.label.split()) == 1)


def test_the_question_stays_with_the_plan() -> None:
    asked = question()
    assert plan_capacity(asked.spec).spec == asked.spec
    assert replace(asked, spec=asked.spec) == asked
