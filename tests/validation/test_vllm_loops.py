"""A real vLLM's runs: how its loads are written, what its random weights are, and that predictions are close to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from validation.end_to_end.vllm_visit import CACHE_LOGGED_GIB, planned_cache_gib, vllm_runs, vllm_table
from validation.measure.engines.vllm_loops import WEIGHT_RANGE, Load, draw_weights, main, running

pytestmark = pytest.mark.oracle  # needs torch


def test_loads_are_named_as_they_are_written() -> None:
    closed, served = Load.of("1024/256@c8x32"), Load.of("512/8@r2.5x10")
    assert (closed.clients, closed.rate_per_s, closed.requests, closed.name) == (8, None, 32, "1024-256-c8")
    assert (served.clients, served.rate_per_s, served.requests, served.name) == (None, 2.5, 10, "512-8-r2.5")
    words = served.words(seed=3, range_ratio=0.2)
    assert dict(zip(words[::2], words[1::2], strict=True)) == {
        "--random-input-len": "512",
        "--random-output-len": "8",
        "--request-rate": "2.5",
        "--num-prompts": "10",
        "--seed": "3",
        "--random-range-ratio": "0.2",
    }


MALFORMED = ["1024@c8x32", "1024/256@8x32", "1024/256@c8", "a/b@c8x3", "1024/256@q8x3"]
NOTHING = ["0/256@c8x32", "1024/256@c0x32", "1024/256@r0x32", "1024/256@rnanx32", "1024/256@c8x0"]


@pytest.mark.parametrize("word", [*MALFORMED, *NOTHING])
def test_other_words_are_refused_before_anything_starts(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--models", str(tmp_path), "--out", str(tmp_path / "out"), "--load", word]) == 2
    assert "as 1024/256@c8x32" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_without_models_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--models", str(tmp_path), "--out", str(tmp_path / "out"), "--load", "1024/256@c8x32"]) == 5
    assert "no folder with a config.json" in capsys.readouterr().err


def test_random_weights_send_tokens_to_experts_evenly() -> None:
    """With a bias of its own, or norms of nearly nothing, a router would send every token to the same ones."""
    torch.manual_seed(0)
    model = torch.nn.ModuleDict(
        {"input_norm": torch.nn.LayerNorm(64), "router": torch.nn.Linear(64, 16), "up": torch.nn.Linear(64, 8)}
    )
    model.register_buffer("blocks", torch.zeros(64, dtype=torch.uint8))
    model.register_buffer("blocks_scale", torch.zeros(4, dtype=torch.uint8))
    model.register_buffer("narrow", torch.zeros(256, dtype=torch.float8_e4m3fn))
    draw_weights(model)
    assert (model["input_norm"].weight == 1).all()
    assert (model["router"].bias == 0).all()
    assert 0.9 * WEIGHT_RANGE < model["up"].weight.abs().max() <= WEIGHT_RANGE
    assert len(set(model.blocks.tolist())) > 30
    assert set(model.blocks_scale.tolist()) == {120}
    assert model.narrow.float().abs().max() > 0.5 * WEIGHT_RANGE
    chosen = model["router"](model["input_norm"](torch.randn(4096, 64))).argmax(dim=1)
    shares = torch.bincount(chosen, minlength=16) / 4096
    assert shares.max() < 3 / 16
    assert shares.min() > 0


def test_a_server_that_ends_is_said_with_its_log(tmp_path: Path) -> None:
    """vLLM is not installed here, or the folder holds no model: either way it ends at once."""
    with (
        pytest.raises(TimeoutError, match="ended or did not answer"),
        running(tmp_path / "nothing", port=1, options=[], log=tmp_path / "log"),
    ):
        raise AssertionError("it cannot have started")
    assert (tmp_path / "log").stat().st_size > 0


def test_predictions_are_close_to_a_real_server_with_nothing_fitted() -> None:
    runs = vllm_runs()
    clean = [run for run in runs if run.is_clean]
    assert len(clean) == 7
    errors = np.array([(run.predicted.tpot_s or 0) / (1e-3 * run.written["mean_tpot_ms"]) - 1 for run in clean])
    assert np.abs(errors).mean() < 0.04
    assert np.abs(errors).max() < 0.08
    steps = [run.predicted.decode for run in runs if not run.is_clean]
    gaps = [run.written["median_itl_ms"] for run in runs if not run.is_clean]
    assert len(gaps) == 2
    for step, gap in zip(steps, gaps, strict=True):
        assert step is not None
        assert step.step_s == pytest.approx(1e-3 * gap, rel=0.08)
    waits = np.array([run.predicted.ttft_s / (1e-3 * run.written["mean_ttft_ms"]) - 1 for run in clean])
    assert np.abs(waits).mean() < 0.2
    joules = [
        run.predicted.energy_per_output_token_j * run.written["total_output_tokens"] / run.written["joules"] - 1
        for run in clean
    ]
    assert np.abs(joules).max() < 0.09


@pytest.mark.parametrize("model", CACHE_LOGGED_GIB)
def test_the_cache_is_as_large_as_the_server_said(model: str) -> None:
    assert planned_cache_gib(model) == pytest.approx(CACHE_LOGGED_GIB[model], rel=0.01)


def test_the_table_has_a_line_a_run() -> None:
    lines = vllm_table().splitlines()
    assert len(lines) == 2 + len(vllm_runs())
    assert len({line.count("|") for line in lines}) == 1
