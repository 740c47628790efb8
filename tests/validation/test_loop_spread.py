"""Widths of closed loops: what is left out of a score, and what of it lies inside by accelerator and model."""

from __future__ import annotations

from validation.end_to_end.measured.inferencex import TodayRun
from validation.end_to_end.measured.runs import MeasuredRun
from validation.fit.runs.loop_spread import LEFT_OUT, LoopResidual, held, inside_by_name, residuals

SCENARIO = {
    "id": "a-loop",
    "kind": "closed_loop",
    "model": "llama-3.2-1b",
    "hardware": "h100-sxm-80gb",
    "concurrency": 2,
    "num_requests": 4,
    "isl_tokens": 64,
    "osl_tokens": 16,
}


def _row(hardware: str, model: str, missing: float) -> LoopResidual:
    return LoopResidual(
        hardware=hardware,
        model=model,
        engine="vllm",
        vendor="nvidia",
        model_class="dense",
        architecture="hopper",
        left_out=(hardware,),
        metric="tpot_p50_s",
        error=missing,
        missing=missing,
        kernels=0.0,
    )


def test_a_width_without_an_accelerator_is_that_of_the_others() -> None:
    """Rows of the wide accelerator lie outside the width of the narrow one, and the other way round inside."""
    rows = [_row("h100", "a", 0.01) for _ in range(30)] + [_row("h200", "b", 0.2) for _ in range(30)]
    inside = held(rows, by_class=True)
    assert inside == [True] * 30 + [False] * 30
    assert inside_by_name(rows, inside) == [
        f"{name:24s}   30 values, {share} inside"
        for name, share in (("h100", "100%"), ("h200", "0%"), ("a", "100%"), ("b", "0%"))
    ]


def test_what_is_left_out_is_what_was_asked() -> None:
    """One run, scored without those of its accelerator, of its model, or of both and its format."""
    run = MeasuredRun(source="test", scenario=SCENARIO, measured={"tpot_p50_s": 0.01})
    item = TodayRun(
        run=run, hardware="H100", engine="vllm", model="meta/small", weights="bf16", pools="agg", speculation="none"
    )
    found = {name: residuals([item], without=fields)[0] for name, fields in LEFT_OUT.items()}
    assert {name: row.left_out for name, row in found.items()} == {
        "accelerator, model and format": ("H100", "meta/small", "bf16"),
        "accelerator": ("H100",),
        "model": ("meta/small",),
    }
    assert {(row.hardware, row.model) for row in found.values()} == {("H100", "small")}
