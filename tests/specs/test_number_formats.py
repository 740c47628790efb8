"""Formats with a scale per block stand wherever a dtype does: weights, activations, cache, and options of a plan."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype, NumberFormat, PrecisionSpec
from simulator.specs.question.plan import PlanSpec

MODEL = load_model("llama-3.1-8b")


@pytest.mark.parametrize(
    ("given", "product", "math"),
    [
        ({"weights": "nvfp4"}, "nvfp4", "fp4"),
        ({"weights": "nvfp4", "activations": "nvfp4"}, "nvfp4", "fp4"),
        ({"weights": "nvfp4", "activations": "bf16"}, "nvfp4_w4a16", "bf16"),
        ({"weights": "mxfp4"}, "mxfp4", "bf16"),
        ({"weights": "mxfp4", "activations": "mxfp4"}, "mxfp4_w4a4", "fp4"),
        ({"weights": "mxfp4", "activations": "fp8"}, "w4a8", "fp8"),
        ({"weights": "fp4", "activations": "mxfp4"}, "mxfp4_w4a4", "fp4"),
        ({"activations": "MXFP4"}, "mxfp4_w4a4", "fp4"),
        ({"scheme": "mxfp4", "activations": "mxfp4"}, "mxfp4_w4a4", "fp4"),
        ({"weights": "fp8_block"}, "fp8_block", "fp8"),
        ({"weights": "fp8_block", "activations": "fp8_block"}, "fp8_block", "fp8"),
        ({"weights": "fp8", "activations": "fp8-block"}, "fp8_block", "fp8"),
        ({"weights": "mxfp8"}, "mxfp8", "fp8"),
    ],
)
def test_a_block_format_stands_where_a_dtype_does(given: dict[str, str], product: str, math: str) -> None:
    plan = precision_plan(MODEL, PrecisionSpec.model_validate(given))
    assert (plan.linear.name, plan.linear.math.value) == (product, math)


@pytest.mark.parametrize("weights", ["fp8", "bf16", "int4"])
def test_four_bit_activations_need_four_bit_weights(weights: str) -> None:
    given = PrecisionSpec.model_validate({"weights": weights, "activations": "nvfp4"})
    with pytest.raises(RoofcastError) as refused:
        precision_plan(MODEL, given)
    assert refused.value.field == "precision.activations"


@pytest.mark.parametrize(("word", "dtype", "bits"), [("nvfp4", Dtype.FP4, 4.5), ("fp8_block", Dtype.FP8, 8.0)])
def test_a_cache_in_a_block_format_keeps_its_scales(word: str, dtype: Dtype, bits: float) -> None:
    plan = precision_plan(MODEL, PrecisionSpec.model_validate({"kv_cache": word}))
    assert (plan.kv_dtype, plan.kv_bytes) == (dtype, bits / 8)


def test_a_plan_takes_them_in_any_spelling() -> None:
    spec = PlanSpec.model_validate(
        {"weights": ["fp8_block", "NVFP4", "bfloat16"], "activations": None, "kv_cache": "nvfp4"}
    )
    assert spec.weights == (NumberFormat.FP8_BLOCK, NumberFormat.NVFP4, NumberFormat.BF16)
    assert spec.kv_cache == (Dtype.FP4,)
    assert set(map(str, Dtype)) <= set(map(str, NumberFormat))


def test_both_four_bit_formats_multiply_at_one_rate_and_store_their_scales() -> None:
    plans = [precision_plan(MODEL, PrecisionSpec(scheme=name)).linear for name in ("nvfp4", "mxfp4-w4a4")]
    assert {plan.math for plan in plans} == {Dtype.FP4}
    assert [plan.weight_bits for plan in plans] == [4.5, 4.25]
