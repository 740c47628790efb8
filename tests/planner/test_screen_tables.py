"""``simulator.planner.search.screen_tables``: tables of a wide search are the steps of each set-up."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from simulator.engine.lanes.pricing import node_steps
from simulator.phases.deployment import deploy
from simulator.phases.draft_cost import per_token_step
from simulator.phases.memory import memory_plan
from simulator.phases.step import estimate_step
from simulator.planner.records import Platform, Variant
from simulator.planner.search.candidates import engine_on, platforms
from simulator.planner.search.question import Question, resolve, search_space
from simulator.planner.search.screen_tables import ScreenTable, TableMaker, screened_steps
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.model.precision import Dtype, PrecisionSpec
from simulator.specs.question.plan import plan_spec
from simulator.specs.question.techniques import SpeculationSpec, TechniquesSpec

LIMITS: dict[str, object] = {"search": "wide", "max_num_seqs": (8, 64), "max_num_batched_tokens": 2048}
PLAIN = Variant(precision=PrecisionSpec(), techniques=TechniquesSpec())
FP8 = Variant(precision=PrecisionSpec(weights=Dtype.FP8), techniques=TechniquesSpec())
GUESSING = Variant(precision=PrecisionSpec(), techniques=TechniquesSpec(speculation=SpeculationSpec(method="eagle3")))


@cache
def question(model: str = "llama-3.1-8b", **fields: object) -> Question:
    return resolve(plan_spec({"rps": 20, "model": model, "hardware": ("h100", "l4"), **LIMITS, **fields}))


@cache
def maker(model: str = "llama-3.1-8b") -> TableMaker:
    asked = question(model)
    compared = platforms(asked.spec)
    return TableMaker(
        {item: engine_on(asked.spec, item) for item in compared},
        model=asked.model,
        mix=asked.demand.mix,
        space=search_space(asked.spec, model=asked.model, platforms=compared),
        profiles=None,
    )


def platform(name: str = "h100") -> Platform:
    return next(item for item in platforms(question().spec) if item.hardware.name.startswith(name))


def table(
    variant: Variant = PLAIN, *, tp: int = 1, pp: int = 1, hardware: str = "h100", model: str = "llama-3.1-8b"
) -> ScreenTable | None:
    spread = ParallelismSpec(tp_size=tp, pp_size=pp)
    return next(iter(maker(model).tables({platform(hardware): [(spread, variant)]})), None)


def some(found: ScreenTable | None) -> ScreenTable:
    assert found is not None
    return found


class TestSteps:
    def test_nodes_are_octaves_up_to_the_largest_batch_and_fill_the_budget(self) -> None:
        asked = question()
        steps = screened_steps(
            asked.demand.mix, space=search_space(asked.spec, model=asked.model, platforms=platforms(asked.spec))
        )
        assert steps.nodes.tolist() == [0, 1, 2, 4, 8, 16, 32, 64]
        assert steps.room[0].tolist() == [2048 - node for node in steps.nodes]
        assert (steps.shared <= steps.room).all()
        full = steps.step.new_tokens[-len(steps.nodes) :]
        np.testing.assert_allclose(full, 2048.0)

    def test_a_lone_prompt_is_computed_once_for_all_steps_of_its_answer(self) -> None:
        mix = question().demand.mix
        steps = maker().steps
        # In the limit of few sequences a step that has prompts has one.
        assert steps.shared[0, 0] == pytest.approx(min(mix.new_prompt_tokens, 2048.0))
        assert (np.diff(steps.shared[0]) >= -1e-9).all()

    @pytest.mark.parametrize("apart", [False, True])
    def test_the_steps_are_those_of_a_lane(self, *, apart: bool) -> None:
        """As ``load_curve`` builds them, for prompts of one length and batches that no graph pads."""
        mix = question(isl=512, osl=128, isl_cv=0.0).demand.mix
        asked = question()
        space = search_space(asked.spec, model=asked.model, platforms=platforms(asked.spec))
        screened = screened_steps(mix, space=space, apart=apart)
        lane = node_steps(mix=mix, nodes=screened.nodes, batched_tokens=2048, graph_sequences=0, apart=apart)
        np.testing.assert_allclose(screened.room[0], lane.room_tokens)
        with_prompts = slice(len(screened.nodes), 3 * len(screened.nodes))
        np.testing.assert_allclose(
            screened.step.decode_sequences[with_prompts], np.tile(screened.nodes * (not apart), 2)
        )


class TestTables:
    @pytest.mark.parametrize(("variant", "tp"), [(PLAIN, 1), (FP8, 1), (PLAIN, 4)])
    def test_every_time_is_that_of_its_step_alone(self, variant: Variant, tp: int) -> None:
        found = some(table(variant, tp=tp))
        deployment = deploy(
            model=question().model,
            hardware=platform().hardware,
            parallelism=ParallelismSpec(tp_size=tp),
            precision=variant.precision,
            engine=engine_on(question().spec, platform()),
        )
        alone_s = estimate_step(deployment, maker().steps.step).step_s
        together_s = np.concatenate([found.decode_s, found.shared_s.ravel(), found.full_s.ravel()])
        np.testing.assert_allclose(together_s, alone_s, rtol=1e-9)

    def test_with_speculation_it_is_the_pace_of_a_token(self) -> None:
        found = some(table(GUESSING))
        deployment = deploy(
            model=question().model,
            hardware=platform().hardware,
            techniques=GUESSING.techniques,
            engine=engine_on(question().spec, platform()),
        )
        alone_s = per_token_step(deployment, maker().steps.step, seconds=lambda found: found.step_s)
        np.testing.assert_allclose(found.decode_s, alone_s[: len(found.decode_s)], rtol=1e-6)
        assert found.decode_s[1] < some(table()).decode_s[1]

    def test_prompts_only_ever_lengthen_a_step_and_more_tokens_more_so(self) -> None:
        found = some(table())
        assert (found.decode_s[None] < found.shared_s).all()
        assert (found.shared_s <= found.full_s + 1e-12).all()
        # One row and two rows of a matrix product take the same weights: within rounding of the kernels' tables.
        assert (found.decode_s[2:] > 0.99 * found.decode_s[1:-1]).all()

    def test_the_cache_is_what_the_memory_plan_leaves(self) -> None:
        found = some(table(tp=2))
        for row, running in enumerate((8, 64)):
            deployment = deploy(
                model=question().model,
                hardware=platform().hardware,
                parallelism=ParallelismSpec(tp_size=2),
                engine=EngineSpec(max_num_seqs=running, max_num_batched_tokens=2048),
            )
            assert found.kv_tokens[row, 0] == pytest.approx(memory_plan(deployment).kv_capacity_tokens, rel=2e-3)

    def test_stages_wait_for_each_others_prompts(self) -> None:
        one, two = some(table(pp=1)), some(table(pp=2))
        # A lane of a pipeline: its step is no shorter than that of the whole on one device, but for the host's time.
        assert two.decode_s[-1] > 0.9 * one.decode_s[-1]
        # Half of the weights on each of the two leave more than twice the cache.
        assert 2 * two.kv_tokens[0, 0] > 2 * one.kv_tokens[0, 0]

    def test_what_serves_nothing_has_no_table(self) -> None:
        assert table(tp=16) is None, "beyond the links"
        assert table(hardware="l4", model="llama-3.1-70b") is None, "does not fit"
        fp4 = Variant(precision=PrecisionSpec(weights=Dtype.FP4, activations=Dtype.FP4), techniques=TechniquesSpec())
        assert table(fp4) is None, "Hopper multiplies no four-bit floats"

    def test_a_set_up_that_is_refused_takes_none_of_the_others_with_it(self) -> None:
        fp4 = Variant(precision=PrecisionSpec(weights=Dtype.FP4, activations=Dtype.FP4), techniques=TechniquesSpec())
        spread = ParallelismSpec()
        found = maker().tables({platform(): [(spread, fp4), (spread, PLAIN), (spread, FP8)]})
        assert [item.variant for item in found] == [PLAIN, FP8]

    def test_together_and_one_by_one_are_the_same(self) -> None:
        pairs = [(ParallelismSpec(tp_size=1, pp_size=pp), variant) for pp in (1, 2) for variant in (PLAIN, FP8)]
        fresh = maker.__wrapped__()
        together = {(item.parallelism, item.variant): item for item in fresh.tables({platform("l4"): pairs})}
        for spread, variant in pairs:
            alone = table(variant, pp=spread.pp_size, hardware="l4")
            if alone is None:
                assert (spread, variant) not in together
            else:
                np.testing.assert_array_equal(together[spread, variant].full_s, alone.full_s)
                np.testing.assert_array_equal(together[spread, variant].delaying, alone.delaying)
