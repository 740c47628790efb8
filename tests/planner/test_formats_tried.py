"""In which number formats a question is tried: those asked for, or those of a checkpoint that somebody published."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.planner.search.candidates import check_precision, default_precision, format_assumptions, precisions
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype, PrecisionSpec
from simulator.specs.question.plan import plan_spec

MODEL = "llama-3.1-70b"


@pytest.mark.parametrize(("hardware", "scheme"), [("h100", "fp8"), ("a100", None)])
def test_a_published_checkpoint_is_the_default_where_it_multiplies_faster(hardware: str, scheme: str | None) -> None:
    found = default_precision(load_model(MODEL), hardware=load_hardware(hardware))
    assert found == PrecisionSpec(scheme=scheme)


def test_cache_formats_are_compared_in_the_default_format_too() -> None:
    spec = plan_spec({"model": MODEL, "rate_per_s": 1.0, "kv_cache": ("fp8", "bf16")})
    found = precisions(spec, model=load_model(MODEL), hardware=load_hardware("h100"))
    assert found == tuple(PrecisionSpec(scheme="fp8", kv_cache=dtype) for dtype in (Dtype.FP8, Dtype.BF16))


@pytest.mark.parametrize(("weights", "assumed"), [((), 1), (("bf16",), 0)])
def test_only_what_was_left_open_is_assumed(weights: tuple[str, ...], assumed: int) -> None:
    spec = plan_spec({"model": MODEL, "rate_per_s": 1.0, "weights": weights})
    assert len(format_assumptions(spec, load_model(MODEL), hardware=load_hardware("h100"))) == assumed


def test_formats_that_no_accelerator_could_take_are_refused_at_once() -> None:
    spec = plan_spec({"model": MODEL, "rate_per_s": 1.0, "scheme": "fp8", "weights": ("bf16",)})
    with pytest.raises(RoofcastError):
        check_precision(spec, model=load_model(MODEL))
