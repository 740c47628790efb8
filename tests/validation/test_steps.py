"""Time per token by its parts: parts that went in come out, and a loop of one has no prompts of others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simulator.specs.model.architecture import MoeSpec
from simulator.specs.model.fitted import routing_skew
from simulator.specs.model.loading import load_model
from validation.end_to_end.__main__ import main
from validation.end_to_end.measured.inferencex import load_inferencex
from validation.end_to_end.steps import Loop, StepParts, loop_parts, loops, predicted_seconds, step_parts, steps_table
from validation.fit.runs.routing import with_skew

COLUMNS = "hardware,n_gpus,model,engine,weight_dtype,tp,ep,batch_or_concurrency,isl,osl,metric,value,notes"
EXPERTS = "openai/gpt-oss-120b"
MODEL = "meta-llama/Llama-3.3-70B-Instruct"
NOTES = "config_id=1; mode=agg; spec=none; tp4 ep1 dp_attention0"
LENGTHS = ((1024, 1024), (1024, 8192), (8192, 1024))


def table(folder: Path, *, model: str = MODEL) -> Path:
    rows = [
        f"H200 SXM,4,{model},vllm,fp8,4,1,{batch},{isl},{osl},tpot_ms,{10 + batch / 10},{NOTES}"
        for batch in (4, 16, 64)
        for isl, osl in LENGTHS
    ]
    (folder / "today").mkdir()
    (folder / "today" / "inferencex.csv").write_text("\n".join((COLUMNS, *rows)) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Loop:
    found, refused = loops(load_inferencex(table(tmp_path_factory.mktemp("data"))))
    assert not refused
    (only,) = found
    return only


def test_a_router_that_has_a_skew_already_is_priced_as_it_is(tmp_path: Path) -> None:
    """What changes nothing is refused: a search over skews lost its model where one of them was the router's own."""
    (layer, *_) = load_model(EXPERTS).layers
    (own,) = {routing_skew(block) for block in layer.feed_forward if isinstance(block, MoeSpec)}
    runs = load_inferencex(table(tmp_path, model=EXPERTS))
    for skew in (own, own + 0.2):
        found, refused = loops(with_skew(item, skew) for item in runs)
        assert len(found) == 1
        assert not refused


def test_parts_that_went_in_come_out(loop: Loop) -> None:
    parts = StepParts(fixed_s=5e-3, sequence_s=2e-5, context_s=1e-5, prompt_s=3e-5)
    seconds = (
        parts.fixed_s
        + parts.sequence_s * loop.batch
        + parts.context_s * loop.batch * loop.context_tokens / 1000
        + parts.prompt_s * (loop.batch - 1) * loop.isl_tokens / loop.osl_tokens
    )
    found = step_parts(loop, seconds)
    assert (found.fixed_s, found.sequence_s) == pytest.approx((parts.fixed_s, parts.sequence_s))
    assert (found.context_s, found.prompt_s) == pytest.approx((parts.context_s, parts.prompt_s))


def test_time_per_token_grows_with_what_is_in_flight(loop: Loop) -> None:
    few = predicted_seconds(replace(loop, batch=np.maximum(loop.batch / 2, 1.0)))
    assert (predicted_seconds(loop) > few).all()


def test_the_command_prints_a_row_of_each_deployment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = table(tmp_path)
    monkeypatch.setattr("sys.argv", ["end_to_end", "--data", str(folder), "--today", "--steps"])
    assert main() == 0
    printed = capsys.readouterr().out
    found, _ = loops(load_inferencex(folder))
    assert steps_table(loop_parts(found)) in printed
    assert "H200 SXM vllm Llama-3.3-70B-Instruct fp8 TP4 EP1 | 9 |" in printed
