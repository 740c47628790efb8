"""A loop reads its times from tables that hold the steps of its requests alone: none is missing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from simulator.engine.uniform import loops
from simulator.engine.uniform.clock import Chunks, StepClock
from simulator.engine.uniform.loop_requests import LoopDemand, LoopLengths
from simulator.engine.uniform.loops import closed_loop, loop_work, offline
from simulator.engine.uniform.record import UniformRun
from simulator.engine.uniform.scheduler import LoopPolicy
from simulator.engine.uniform.simulation import Engine, simulate_loop
from simulator.phases.compiled import StepBounds, StepTables, sequence_nodes, uniform_tables
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.tabulate import compile_steps
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.techniques import SpeculationSpec, TechniquesSpec

LENGTHS = (
    LoopLengths(isl_tokens=1024, osl_tokens=40),
    LoopLengths(isl_tokens=1024, osl_tokens=40, range_ratio=0.8),
    LoopLengths(isl_tokens=5000, osl_tokens=30),
    LoopLengths(isl_tokens=9000, osl_tokens=12, range_ratio=0.001),
    LoopLengths(isl_tokens=7, osl_tokens=300),
    LoopLengths(isl_tokens=400, osl_tokens=200, range_ratio=0.9),
    LoopLengths(isl_tokens=3, osl_tokens=1),
    LoopLengths(isl_tokens=700, osl_tokens=60, isl_cv=1.0, osl_cv=1.0, context_tokens=12_000),
    LoopLengths(isl_tokens=2000, osl_tokens=20, answers=3),
)
ENGINES = (
    EngineSpec(),
    EngineSpec(max_num_batched_tokens=512, max_num_seqs=20),
    EngineSpec(max_num_seqs=2, max_num_batched_tokens=2048),
    EngineSpec(max_num_seqs=1),
    EngineSpec(max_num_batched_tokens=96, max_num_seqs=60),
    EngineSpec(name="sglang"),
    EngineSpec(name="tensorrt-llm", max_num_batched_tokens=4096),
)


def made(engine: EngineSpec, *, speculation: SpeculationSpec | None = None) -> Deployment:
    return deploy(
        model=load_model("llama-3.1-8b"),
        hardware=load_hardware("h100-sxm-80gb"),
        parallelism=ParallelismSpec(),
        engine=engine.model_copy(update={"max_model_len": 16_384}),
        techniques=TechniquesSpec(speculation=speculation),
    )


def whole_tables(deployment: Deployment, *, decode_tokens: int = 1, bounds: StepBounds | None = None) -> StepTables:
    return compile_steps(deployment, decode_tokens=decode_tokens)


def times_s(run: UniformRun) -> list[float]:
    spread = run.spread
    assert spread is not None
    tails = [one.p99_s for one in (spread.ttft, spread.tpot, spread.e2e) if one is not None]
    return [run.ttft_s, run.tpot_s, run.e2e_s, 1 / run.requests_per_s, *tails]


@pytest.mark.parametrize("engine", ENGINES, ids=range(len(ENGINES)))
def test_a_loop_takes_what_it_takes_on_whole_tables(engine: EngineSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = made(engine)

    def answers() -> list[list[float]]:
        loops_s = [closed_loop(deployment, concurrency=30, lengths=lengths, num_requests=50) for lengths in LENGTHS]
        return [times_s(run) for run in (*loops_s, offline(deployment, lengths=LENGTHS[1], num_requests=60))]

    bounded = answers()
    monkeypatch.setattr(loops, "compile_steps", whole_tables)
    # Times of runs of decodes are differences of sums that begin with the first context of a table.
    np.testing.assert_allclose(np.concatenate(bounded), np.concatenate(answers()), rtol=1e-11)


def test_so_does_one_that_verifies_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = made(EngineSpec(), speculation=SpeculationSpec(method="eagle", k=3, acceptance=0.7))
    bounded = times_s(closed_loop(deployment, concurrency=9, lengths=LENGTHS[1]))
    monkeypatch.setattr(loops, "compile_steps", whole_tables)
    again = times_s(closed_loop(deployment, concurrency=9, lengths=LENGTHS[1]))
    np.testing.assert_allclose(bounded, again, rtol=1e-11)


class RecordingClock(StepClock):
    """A clock of equal steps that keeps what they hold."""

    def __init__(self) -> None:
        super().__init__(uniform_tables(step_s=1.0, max_tokens=4096, max_sequences=512))
        self.seen: set[Chunks] = set()

    def _prefill_s(self, chunks: Chunks) -> float:
        self.seen.add(chunks)
        return 0.0


def read_nodes(chunks: Chunks, axes: tuple[np.ndarray, ...]) -> Iterator[tuple[int, ...]]:
    """Corners of the cell in which a step lies, those without weight left out."""
    mean = chunks.tokens / chunks.sequences
    point = (chunks.sequences, mean, max((chunks.work2 / chunks.tokens - mean) / 2, 0.0))
    places = [np.interp(value, nodes, np.arange(len(nodes))) for value, nodes in zip(point, axes, strict=True)]
    return product(*({int(np.floor(place)), int(np.ceil(place))} for place in places))


@pytest.mark.parametrize("seed", range(60))
def test_whatever_steps_a_schedule_makes_their_nodes_are_read(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shortest = int(rng.integers(1, 200))
    isl = rng.integers(shortest, shortest + int(rng.choice([1, 20, 300])), size=60)
    demand = LoopDemand(isl_tokens=isl, osl_tokens=rng.integers(1, 30, size=60), at_once=int(rng.integers(1, 40)))
    policy = LoopPolicy(
        resident=int(rng.integers(1, 24)),
        step_tokens=int(rng.integers(32, 700)),
        chunked=bool(rng.random() < 0.8),
        decodes_beside=bool(rng.random() < 0.7),
    )
    clock, work = RecordingClock(), loop_work(demand)
    simulate_loop(demand, engines=[Engine(clock, policy=policy, work=work)])
    bounds = StepBounds(
        sequences=policy.resident,
        contexts=work.contexts,
        prompts=work.prompts,
        budget=(policy.step_tokens - policy.resident * policy.decodes_beside, policy.step_tokens),
    )
    # Nodes this close leave no room for what is not read.
    axes = (sequence_nodes(32), np.append(np.arange(1.0, 500, 3), 800), np.append(np.arange(0.0, 500, 3), 800))
    nodes = bounds.prefill_nodes(*axes)
    assert clock.seen
    assert all(nodes[node] for chunks in clock.seen for node in read_nodes(chunks, axes))
    assert nodes.mean() < 0.5
