"""Two-batch overlap: the same work in halves, an exchange that hides, nothing without one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.errors import RoofcastError
from simulator.operators.transformer import stored_bytes
from simulator.operators.work import Array, Family, StepShape, decode_step, mixed_step, prefill_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.step import StepEstimate, StepRow, estimate_step
from simulator.phases.tabulate import compile_steps
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.techniques import TechniquesSpec
from simulator.techniques.two_batch_overlap import EXCHANGE_UNITS, halved
from tests.phases.stepped import steps_seconds

RANKS = 32
DECODES = decode_step(sequences=[2, 16, 64, 256], context=[500, 4000, 2000, 2000])
PROMPTS = prefill_step(sequences=[2, 1, 4], tokens=[1024, 4096, 4096], context=[0, 1000, 0])
SENT = ("experts_dispatch", "experts_combine")


def replica(
    *, overlaps: bool | None, ranks: int = RANKS, model: str = "deepseek-r1", hardware: str = "h100"
) -> Deployment:
    return deploy(
        model=load_model(model),
        hardware=load_hardware(hardware),
        parallelism=ParallelismSpec(dp_size=ranks, ep_size=ranks),
        engine=EngineSpec(name="sglang", max_num_batched_tokens=16384, max_num_seqs=256, max_model_len=8192),
        techniques=TechniquesSpec(two_batch_overlap=overlaps),
    )


WHOLE, HALVES = replica(overlaps=None), replica(overlaps=True)


def sent_s(estimate: StepEstimate) -> Array:
    return total_s([row for row in estimate.rows if row.work.name.startswith(SENT)])


def total_s(rows: list[StepRow]) -> Array:
    return np.sum([row.seconds for row in rows], axis=0)


@pytest.mark.parametrize("step", [DECODES, PROMPTS], ids=["answers", "prompts"])
def test_a_step_takes_what_is_computed_or_what_is_sent_and_hides_no_more_than_that(step: StepShape) -> None:
    overlapped = estimate_step(HALVES, step)
    alone = estimate_step(WHOLE, halved(step, split=np.ones(len(step.new_tokens), dtype=bool)))
    sent, computed = 2 * sent_s(alone), 2 * (alone.stage_s.sum(axis=0) - sent_s(alone))
    assert np.all(overlapped.stage_s.sum(axis=0) <= sent + computed)
    # The LM head, the embedding and three dense layers run once, so that a little less is computed than twice a half.
    assert np.all(overlapped.stage_s.sum(axis=0) >= 0.9 * np.maximum(sent, computed))
    assert np.all(sent_s(overlapped) < sent)


@pytest.mark.parametrize("step", [DECODES, PROMPTS], ids=["answers", "prompts"])
def test_halves_compute_what_the_whole_computes_and_hold_its_weights_once(step: StepShape) -> None:
    whole, halves = ([row.work for row in estimate_step(made, step).rows] for made in (WHOLE, HALVES))
    assert stored_bytes(tuple(halves)) == pytest.approx(stored_bytes(tuple(whole)))
    for family in (Family.GEMM, Family.MOE, Family.DECODE_ATTENTION, Family.PREFILL_ATTENTION):
        done = [sum(row.count * row.executed * row.flops for row in works if row.family is family) + 0 * step.new_tokens
                for works in (whole, halves)]  # fmt: skip
        # Half of a prompt alone expands the latents of the other half, and of what is cached, once more.
        expands = (step.prefill_sequences == 1) & (family is Family.GEMM)
        np.testing.assert_allclose(done[1][~expands], done[0][~expands], rtol=1e-9)
        assert np.all(done[1][expands] > done[0][expands])


def test_large_exchanges_slow_what_they_hide_behind_and_small_ones_do_not() -> None:
    share = EXCHANGE_UNITS / WHOLE.hardware.compute_units
    for step, least in ((PROMPTS, share), (decode_step(sequences=64.0, context=8000.0), 0.0)):
        half = halved(step, split=np.ones(len(step.new_tokens), dtype=bool))
        kept = sent_s(estimate_step(HALVES, step)) / (2 * sent_s(estimate_step(WHOLE, half)))
        assert np.all(kept >= least * (1 - 1e-9))
        assert np.min(kept) == pytest.approx(least, abs=0.1)


@pytest.mark.parametrize("hardware", ["tpu-v6e", "trainium2", "a100"])
def test_few_large_units_keep_no_larger_share_of_a_step(hardware: str) -> None:
    """A TPU has one or two units: twenty of them are not what an exchange takes."""
    half = halved(PROMPTS, split=np.ones(len(PROMPTS.new_tokens), dtype=bool))
    alone = estimate_step(replica(overlaps=None, hardware=hardware), half).stage_s.sum(axis=0)
    assert np.all(estimate_step(replica(overlaps=True, hardware=hardware), PROMPTS).stage_s.sum(axis=0) < 2 * alone)


def test_what_shows_of_an_exchange_is_as_uncertain_as_all_of_it() -> None:
    half = halved(DECODES, split=np.ones(len(DECODES.new_tokens), dtype=bool))
    whole = {row.work.name: row for row in estimate_step(WHOLE, half).rows}
    for row in estimate_step(HALVES, DECODES).rows:
        if row.work.name in SENT:
            error_s = row.timing.log_sigma * row.timing.seconds
            all_s = whole[row.work.name].timing.log_sigma * whole[row.work.name].timing.seconds
            np.testing.assert_allclose(error_s, np.where(row.timing.seconds > 0, all_s, 0.0))
            assert np.any(error_s > 0)


def test_one_token_is_not_split() -> None:
    one = decode_step(sequences=1.0, context=100.0)
    np.testing.assert_allclose(estimate_step(HALVES, one).step_s, estimate_step(WHOLE, one).step_s, rtol=1e-9)


def test_half_of_a_prompt_alone_attends_to_what_came_before() -> None:
    step = mixed_step(prefill_sequences=[1, 3], prefill_tokens=[4096, 100], prefill_context=[1000, 50])
    half = halved(step, split=np.array([True, True]))

    def pairs(of: StepShape) -> Array:
        return of.prefill_sequences * of.prefill_tokens * (2 * of.prefill_context + of.prefill_tokens)

    np.testing.assert_allclose(2 * half.new_tokens, step.new_tokens)
    np.testing.assert_allclose(2 * pairs(half), pairs(step))


@pytest.mark.slow
@pytest.mark.parametrize("step", [DECODES, PROMPTS], ids=["answers", "prompts"])
def test_tables_hold_what_the_step_takes(step: StepShape) -> None:
    made = replace(HALVES, engine=replace(HALVES.engine, cuda_graph_max_sequences=1))
    np.testing.assert_allclose(steps_seconds(compile_steps(made), step), estimate_step(made, step).step_s, rtol=0.02)


@pytest.mark.parametrize(("model", "ranks"), [("deepseek-r1", 1), ("llama-3.1-8b", 1)])
def test_nothing_to_exchange_is_refused(model: str, ranks: int) -> None:
    with pytest.raises(RoofcastError, match="no all-to-all") as refusal:
        estimate_step(replica(overlaps=True, ranks=ranks, model=model), DECODES)
    assert refusal.value.field == "techniques.two_batch_overlap"
