"""The encoder of pictures: what it stores, when it runs, and what that costs a prompt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simulator
from simulator.api.questions import PlanFields
from simulator.errors import RoofcastError
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.model_counts import parameter_counts
from simulator.operators.transformer import layer_rows, operator_list
from simulator.operators.vision import picture_sizes, vision_parameters, with_pictures
from simulator.operators.work import StepShape, Work, decode_step, prefill_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.model.architecture import ModelSpec, VisionSpec
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec
from tests.for_every import for_every

MODELS = (
    "qwen2.5-vl-7b",
    "qwen3-vl-8b",
    "gemma-3-27b",
    "internvl3-8b",
    "mistral-small-3.1-24b",
    "glm-4.5v",
    "kimi-k2.5",
)
PIXELS = 1024 * 1024


def tower(model: ModelSpec) -> VisionSpec:
    assert model.vision is not None
    return model.vision


def rows_of(model: ModelSpec, step: StepShape, *, tp_size: int = 1) -> tuple[Work, ...]:
    plan = precision_plan(model, PrecisionSpec())
    return operator_list(model, parallelism=ParallelismSpec(tp_size=tp_size), plan=plan, step=step)


def vision_flops(model: ModelSpec, step: StepShape) -> float:
    rows = [row for row in rows_of(model, step) if row.name.startswith("vision_")]
    return float(sum(np.sum(row.count * row.flops) for row in rows))


def showing(name: str, *, images: float = 1.0, pixels: int = PIXELS, prompt: float = 20_000.0) -> ModelSpec:
    return with_pictures(load_model(name), images_per_request=images, image_pixels=pixels, prompt_tokens=prompt)


@for_every(MODELS)
def test_pictures_change_work_and_not_weights(name: str) -> None:
    plain, seeing = load_model(name), showing(name)
    assert parameter_counts(plain) == parameter_counts(seeing)
    step = prefill_step(sequences=1, tokens=4000)
    assert vision_flops(plain, step) == 0.0
    assert vision_flops(seeing, step) > 0.0


@for_every(MODELS)
def test_the_chunks_of_a_prompt_encode_its_pictures_once(name: str) -> None:
    """A model of N encoder weights spends about 2 N FLOPs on each patch, whatever the chunks."""
    model = showing(name, prompt=20_000.0)
    whole = vision_flops(model, prefill_step(sequences=1, tokens=20_000))
    chunks = sum(vision_flops(model, prefill_step(sequences=1, tokens=size)) for size in (5_000, 12_000, 3_000))
    assert chunks == pytest.approx(whole)
    pieces, patches, _ = picture_sizes(tower(model), pixels=PIXELS)
    layers = vision_parameters(tower(model), layer_rows) - tower(model).extra_parameters
    assert 0.5 < whole / (2 * layers * pieces * patches) < 2.5


def test_decoding_sees_no_pictures() -> None:
    assert vision_flops(showing("qwen2.5-vl-7b"), decode_step(sequences=8, context=2000)) == 0.0


def test_work_grows_with_pictures_and_their_size() -> None:
    step = prefill_step(sequences=1, tokens=20_000)
    one = vision_flops(showing("qwen2.5-vl-7b"), step)
    assert vision_flops(showing("qwen2.5-vl-7b", images=3), step) == pytest.approx(3 * one)
    assert vision_flops(showing("qwen2.5-vl-7b", pixels=PIXELS // 4), step) < one / 3


def test_a_product_of_patches_runs_for_each_of_those_that_become_a_token() -> None:
    seeing = showing("qwen2.5-vl-7b")
    seen = tower(seeing)
    by_patch = tuple(product.model_copy(update={"per_patch": True}) for product in seen.projections)
    patchwise = seeing.model_copy(update={"vision": seen.model_copy(update={"projections": by_patch})})
    step = prefill_step(sequences=1, tokens=20_000)
    tokens, patches = (
        sum(float(np.sum(row.flops)) for row in rows_of(model, step) if row.name == "vision_projection")
        for model in (seeing, patchwise)
    )
    assert patches == pytest.approx(tokens * seen.merge**2)


def test_windows_save_attention() -> None:
    seeing = showing("qwen2.5-vl-7b")
    step = prefill_step(sequences=1, tokens=20_000)
    attention = [row for row in rows_of(seeing, step) if row.name == "vision_prefill_attention"]
    windowed, full = sorted(attention, key=lambda row: float(np.sum(row.flops)))
    assert (windowed.count, full.count) == (28, 4)
    assert float(np.sum(windowed.flops)) < float(np.sum(full.flops)) / 50


@pytest.mark.parametrize(
    ("name", "pixels", "tokens"),
    [
        ("gemma-3-27b", PIXELS, 256), ("gemma-3-27b", 9 * PIXELS, 256), ("internvl3-8b", 448 * 448, 256),
        ("qwen2.5-vl-7b", 1008 * 1008, 1296), ("mistral-small-3.1-24b", 4000 * 4000, 3025),
        ("llama-4-scout", 336 * 336, 144), ("pixtral-12b", 512 * 512, 1024), ("gemma-4-31b", PIXELS, 280),
    ],
)  # fmt: skip
def test_tokens_of_a_picture_are_those_of_the_model(name: str, pixels: int, tokens: int) -> None:
    """As the model cards and processors say: 28 x 28 pixels a token in Qwen2.5-VL, 256 a picture in Gemma 3."""
    pieces, _, each = picture_sizes(tower(load_model(name)), pixels=pixels)
    assert pieces * each == tokens


def test_a_tower_whose_heads_do_not_split_is_copied() -> None:
    seeing, step = showing("internvl3-38b"), prefill_step(sequences=1, tokens=4000)  # 25 heads
    split, whole = (
        next(row for row in rows_of(seeing, step, tp_size=size) if row.name == "vision_down_proj") for size in (4, 1)
    )
    assert float(np.sum(split.flops)) == float(np.sum(whole.flops))


def answer(**given: object) -> dict[str, Any]:
    fields = {
        "kind": "batch", "model": "qwen2.5-vl-7b", "hardware": "h100", "batch_size": 4, "isl_tokens": 1500,
        "osl_tokens": 16,
    }  # fmt: skip
    found: dict[str, Any] = simulator.simulate({**fields, **given}).to_dict()
    return found


def test_pictures_take_time_before_the_first_token_and_no_memory() -> None:
    plain, seeing = answer(), answer(images_per_request=1)
    assert seeing["ttft_s"] > 1.1 * plain["ttft_s"]
    assert seeing["tpot_s"] == pytest.approx(plain["tpot_s"])
    assert seeing["memory"]["weights_bytes"] == plain["memory"]["weights_bytes"]
    assert any("1,337 of its tokens" in note for note in seeing["notes"])


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"model": "llama-3.1-8b", "images_per_request": 1}, "images_per_request"),
        ({"model": "kimi-k3", "hardware": "b200", "images_per_request": 1}, "images_per_request"),
        ({"images_per_request": 2}, "images_per_request"),
        ({"image_pixels": 1000}, "image_pixels"),
    ],
)
def test_pictures_that_cannot_be_are_refused_by_field(given: dict[str, object], field: str) -> None:
    with pytest.raises(RoofcastError) as refused:
        answer(**given)
    assert refused.value.field == field


def test_a_plan_needs_more_for_pictures() -> None:
    asked = PlanFields(rate_per_s=200, model="qwen2.5-vl-7b", hardware="h100", isl_tokens=1500, osl_tokens=100)
    plain = simulator.plan(**asked).plan.best
    seeing = simulator.plan(**asked, images_per_request=1).plan.best
    assert plain is not None
    assert seeing is not None
    assert seeing.replicas > plain.replicas
