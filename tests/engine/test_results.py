"""Parts of a result: phases add up, intervals widen with what is unsure, shares stay possible."""

from __future__ import annotations

from math import exp, log

import pytest

from simulator.engine.runs.answers import answer
from simulator.engine.runs.results import mean_intervals, memory_result, phase_result, uniform_kv_utilization
from simulator.engine.uniform.record import UniformRun
from simulator.engine.uniform.speculation_gain import compare_formats
from simulator.kernels.intervals import DEVIATE
from simulator.phases.deployment import deploy
from simulator.reports.words.fields import note_texts
from simulator.specs.engine.fits import EngineSpread
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.scenario import ScenarioSpec

FIELDS = {"id": 1, "kind": "batch", "model": "llama-3.1-8b", "hardware": "h100", "isl_tokens": 512, "osl_tokens": 64}
RESULT = answer(ScenarioSpec.model_validate({**FIELDS, "batch_size": 8}))
RUN = RESULT.run
assert isinstance(RUN, UniformRun)


def test_families_add_up_to_the_step_and_steps_to_the_phase() -> None:
    for phase in (RUN.prefill, RUN.decode):
        assert phase is not None
        found = phase_result(phase)
        assert sum(found.breakdown_s.values()) == pytest.approx(found.step_s, rel=0.02)
        assert found.step_s * found.steps == pytest.approx(found.total_s)
        assert 0 < found.mfu < 1
        assert 0 < found.mbu < 1


def test_errors_join_in_quadrature() -> None:
    """Without spread of the engine and of guesses the interval of TTFT is that of the prompt passes."""
    exact = _spread(0.0)
    bounds = mean_intervals(RUN, spread=exact, pace=0.0, copies=1)
    assert bounds["ttft_s"] is not None
    assert log(bounds["ttft_s"][1] / RUN.ttft_s) == pytest.approx(DEVIATE * RUN.prefill.log_sigma)
    wider = mean_intervals(RUN, spread=_spread(0.3), pace=0.2, copies=1)
    assert wider["tpot_s"] is not None
    assert RUN.decode is not None
    joined = (RUN.decode.log_sigma**2 + 0.2**2 + 0.3**2) ** 0.5
    assert wider["tpot_s"][1] == pytest.approx(RUN.tpot_s * exp(DEVIATE * joined))


def _spread(sigma: float) -> EngineSpread:
    changed = {"ttft": sigma, "tpot": sigma, "e2e": sigma}
    return RESULT.deployment.engine.spread.model_copy(update=changed)


def test_throughput_of_copies_adds_up_and_its_interval_with_it() -> None:
    spread = RESULT.deployment.engine.spread
    one, three = (mean_intervals(RUN, spread=spread, pace=0.0, copies=copies) for copies in (1, 3))
    assert one["output_tokens_per_s"] is not None
    assert three["output_tokens_per_s"] is not None
    assert three["output_tokens_per_s"][0] == pytest.approx(3 * one["output_tokens_per_s"][0])


def test_memory_holds_its_own_interval() -> None:
    used = uniform_kv_utilization(RESULT.deployment, RUN)
    found = memory_result(RESULT.deployment, RUN.memory, kv_utilization=used)
    ends = found.interval["kv_capacity_tokens"]
    assert ends is not None
    assert ends[0] <= found.kv_capacity_tokens <= ends[1]
    assert used == pytest.approx(8 * (512 + 64) / found.kv_capacity_tokens, rel=0.01)


def test_narrower_weights_decode_faster_and_leave_more_room() -> None:
    plain = {
        name: deploy(
            model=load_model("llama-3.1-8b"),
            hardware=load_hardware("h100"),
            precision=PrecisionSpec(scheme=None if name == "bf16" else name),
        )
        for name in ("bf16", "fp8")
    }
    found = compare_formats(plain, guessing={}, context_tokens=1024, tp_size=1)
    wide, narrow = found.formats
    assert all(fast < slow for slow, fast in zip(wide.step_s, narrow.step_s, strict=True))
    assert wide.sequences_that_fit is not None
    assert narrow.sequences_that_fit is not None
    assert narrow.sequences_that_fit > wide.sequences_that_fit
    assert set(found.fastest) == {"fp8"}


@pytest.mark.parametrize(
    ("hardware", "version", "weights", "noted"),
    [
        ("gb200", "0.15.1", "bf16", True),
        ("b200", "0.15.1", "bf16", False),
        ("gb200", "0.24.0", "bf16", False),
        ("gb200", "0.15.1", "fp8", False),
    ],
)
def test_experts_on_tiles_that_nobody_tuned_are_noted(hardware: str, version: str, weights: str, noted: bool) -> None:
    """vLLM before 0.17 has files of tuned tiles by the name of the device: of 128 experts of width 768 on B200."""
    engine = {"name": "vllm", "version": version}
    asked = {**FIELDS, "model": "qwen3-30b-a3b", "hardware": hardware, "batch_size": 8, "engine": engine}
    found = answer(ScenarioSpec.model_validate({**asked, "precision": {"weights": weights}}))
    assert any("no tuned tiles for 128 experts of width 768" in note for note in note_texts(found.notes)) == noted
