"""The clock of closed loops prices steps as the compiled tables do, and a run of steps as the sum of its steps."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.engine.uniform.clock import Chunks, StepClock
from simulator.operators.work import decode_step
from simulator.phases.compiled import StepTables
from simulator.phases.deployment import deploy
from simulator.phases.tabulate import compile_steps
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from tests.phases.stepped import step_seconds, steps_seconds


@pytest.fixture(scope="module")
def tables() -> StepTables:
    engine = EngineSpec(max_num_batched_tokens=2048, max_num_seqs=128, max_model_len=16384)
    return compile_steps(deploy(model=load_model("llama-3.1-8b"), hardware=load_hardware("h100"), engine=engine))


@pytest.mark.parametrize(("sequences", "tokens", "work2"), [(1, 500, 500.0**2), (3, 1900, 3e6), (1, 1024, 9e6)])
@pytest.mark.parametrize(("decoding", "context"), [(0, 0.0), (1, 300.0), (77, 2345.6)])
def test_a_mixed_step_costs_what_the_tables_say(
    tables: StepTables, sequences: int, tokens: int, work2: float, decoding: int, context: float
) -> None:
    tables = tables._replace(step_s=1e-3, sequence_s=1e-5, prompt_s=4e-3)
    asked = step_seconds(tables, sequences, tokens, work2, sequences, decoding, decoding * (context + 1))
    found = StepClock(tables).mixed_step_s(
        Chunks(sequences, tokens, work2, sequences), sequences=decoding, context=context
    )
    assert found == pytest.approx(float(asked), rel=1e-9)


def test_whoever_decodes_waits_for_what_a_prompt_takes(tables: StepTables) -> None:
    plain, slow = StepClock(tables), StepClock(tables._replace(prompt_s=4e-3))
    prompts = Chunks(3, 900, 3 * 300.0**2, 3)
    waits_s = [clock.mixed_step_s(prompts, sequences=8, context=500.0) for clock in (plain, slow)]
    assert waits_s[1] - waits_s[0] == pytest.approx(3 * 4e-3)
    runs_s = [clock.decode_run_s(8, context=500.0, growth=1.0, steps=50) for clock in (plain, slow)]
    assert runs_s[0] == runs_s[1]


@pytest.mark.parametrize("sequences", [1, 33, 128])
@pytest.mark.parametrize(("context", "steps"), [(10.0, 1), (800.0, 1), (130.5, 900), (1500.0, 6000)])
def test_a_run_of_decodes_is_the_sum_of_its_steps(
    tables: StepTables, sequences: int, context: float, steps: int
) -> None:
    every = steps_seconds(tables, decode_step(sequences=float(sequences), context=context + np.arange(1.0, steps + 1)))
    found = StepClock(tables).decode_run_s(sequences, context=context, growth=1.0, steps=steps)
    assert found == pytest.approx(float(every.sum()), rel=1e-4)


def test_steps_within_a_span_begin_before_its_end(tables: StepTables) -> None:
    clock = StepClock(tables)
    for wanted in (1, 5, 700):
        span_s = clock.decode_run_s(16, context=400.0, growth=1.0, steps=wanted)
        assert clock.steps_within(16, context=400.0, growth=1.0, span_s=0.999 * span_s) == pytest.approx(wanted, abs=2)
