"""One pass with all that is told about it."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.memory import memory_plan
from simulator.phases.one_step import one_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.techniques import SpeculationSpec, TechniquesSpec


def replica(method: str | None = None, *, ranks: int = 1) -> Deployment:
    speculation = None if method is None else SpeculationSpec.model_validate({"method": method})
    return deploy(
        model=load_model("llama-3.1-8b"),
        hardware=load_hardware("h100"),
        techniques=TechniquesSpec(speculation=speculation),
        parallelism=ParallelismSpec(dp_size=ranks),
    )


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_pass_holds_its_step_energy_and_memory(phase: str) -> None:
    found = one_step(replica(), phase=phase, batch_size=4, context_tokens=512)
    assert found.estimate.step_s.shape == (1,)
    watts = found.energy.total_j / float(found.estimate.step_s[0])
    assert load_hardware("h100").idle_w <= watts <= load_hardware("h100").tdp_w * (1 + 1e-9)
    assert found.memory == memory_plan(replica())


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_ranks_share_the_sequences_of_a_pass(phase: str) -> None:
    one, two = (one_step(replica(ranks=n), phase=phase, batch_size=7 * n, context_tokens=512) for n in (1, 2))
    assert two.estimate.step_s == pytest.approx(one.estimate.step_s)


def test_what_is_no_pass_is_refused() -> None:
    with pytest.raises(RoofcastError, match="is not a phase"):
        one_step(replica(), phase="warm-up", batch_size=1, context_tokens=1)
    with pytest.raises(RoofcastError, match="changes nothing in a prompt pass"):
        one_step(replica("ngram"), phase="prefill", batch_size=1, context_tokens=1)
