"""Standard, tiled and split attention."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.errors import RoofcastError
from simulator.operators.work import decode_step, prefill_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.memory import activation_bytes
from simulator.phases.step import estimate_step
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.techniques import TechniquesSpec
from tests.techniques.scenarios import run, with_technique


def replica(
    attention: str | None, *, model: str = "llama-2-7b", hardware: str = "a100", engine: str = "vllm"
) -> Deployment:
    return deploy(
        model=load_model(model),
        hardware=load_hardware(hardware),
        engine=EngineSpec(name=engine),  # type: ignore[arg-type]
        techniques=TechniquesSpec(attention=attention),  # type: ignore[arg-type]
    )


def scores_bytes(made: Deployment, tokens: float) -> float:
    rows = estimate_step(made, prefill_step(sequences=[1.0], tokens=tokens)).rows
    return sum(float(row.work.count * row.work.bytes[0]) for row in rows if "prefill_attention" in row.work.name)


def test_standard_attention_moves_the_scores_of_every_head() -> None:
    made = replica("standard")
    rows = {row.work.name: row.work for row in estimate_step(made, prefill_step(sequences=[2.0], tokens=1024.0)).rows}
    scores = 2 * 32 * 1024 * 1024
    vectors = 2 * 32 * 1024 * 128 * 2
    assert "prefill_attention" not in rows
    assert rows["prefill_attention_scores"].flops[0] == 2 * scores * 128
    assert rows["prefill_attention_scores"].bytes[0] == 2 * scores + 2 * vectors
    assert rows["prefill_attention_softmax"].bytes[0] == 2 * 2 * scores
    assert rows["prefill_attention_values"].bytes[0] == 2 * scores + 2 * vectors


def test_traffic_is_quadratic_when_materialised_and_linear_when_tiled() -> None:
    assert scores_bytes(replica("standard"), 8192) / scores_bytes(replica("standard"), 4096) == pytest.approx(
        4, rel=0.05
    )
    assert scores_bytes(replica(None), 8192) / scores_bytes(replica(None), 4096) == pytest.approx(2, rel=0.01)


def test_eager_modules_pass_over_the_scores_five_times_as_often() -> None:
    def softmax(engine: str) -> float:
        made = replica("standard", engine=engine)
        rows = estimate_step(made, prefill_step(sequences=[1.0], tokens=512.0)).rows
        return next(float(row.work.bytes[0]) for row in rows if row.work.name.endswith("softmax"))

    assert softmax("torch-eager") == 5 * softmax("vllm")


def test_standard_attention_is_slower_the_longer_the_prompt_and_needs_room_for_scores() -> None:
    def slowdown(tokens: int) -> float:
        changes = {"batch_size": 1, "isl_tokens": tokens}
        return with_technique("attention", "standard", **changes).run.ttft_s / run(**changes).run.ttft_s

    assert 1.0 < slowdown(1024) < slowdown(8192)
    limits = np.array([1024, 8192])
    scores = [activation_bytes(replica(kind), tokens=limits, sequences=1) for kind in ("standard", None)]
    assert (scores[0] - scores[1]).tolist() == (2 * 32 * limits**2 * 2).tolist()


def test_grouped_queries_read_their_keys_once_each_without_a_tiled_kernel() -> None:
    step = decode_step(sequences=[1.0], context=4096)

    def kv(attention: str | None) -> float:
        rows = estimate_step(replica(attention, model="llama-3.1-8b"), step).rows
        return sum(float(row.work.kv_bytes[0]) for row in rows if "decode_attention" in row.work.name)

    assert kv("standard") == pytest.approx(4 * kv(None))


def test_splitting_keys_helps_few_long_sequences_and_never_hurts() -> None:
    def gain(sequences: float, context: float, model: str) -> float:
        step = decode_step(sequences=[sequences], context=context)
        plain, split = (
            estimate_step(replica(kind, model=model), step).step_s[0] for kind in ("flash", "flash_decoding")
        )
        return float(plain / split)

    assert gain(1, 32768, "llama-2-7b") > 1.4  # one sequence of 32 heads leaves most of 108 units idle
    assert gain(64, 1024, "llama-2-7b") == pytest.approx(1.0, abs=0.02)
    assert gain(1, 32768, "llama-3.1-8b") >= 1.0  # grouped heads are split by the kernel itself
    assert gain(1, 128, "llama-2-7b") >= 1.0


def test_flash_is_what_engines_run() -> None:
    assert with_technique("attention", "flash").run.e2e_s == run().run.e2e_s


@pytest.mark.parametrize("kind", ["standard", "flash_decoding"])
def test_models_without_attention_refuse(kind: str) -> None:
    with pytest.raises(RoofcastError, match=r"techniques\.attention: .*mamba"):
        with_technique("attention", kind, model="mamba-2.8b")
