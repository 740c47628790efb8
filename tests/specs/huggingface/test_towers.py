"""``simulator.specs.huggingface.vision``: shapes of picture encoders, and what about them is refused."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.operators.vision import picture_sizes
from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.vision import any_size, fixed_size
from simulator.specs.huggingface.vision.shapes import text_width
from simulator.specs.model.architecture import AttentionSpec

TEXT = {"text_config": {"hidden_size": 64}}


def fields(vision: dict[str, object], **outer: object) -> Fields:
    return Fields({**TEXT, "vision_config": vision, **outer}, config_class="AnyConfig")


PIXTRAL = {"model_type": "pixtral", "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
           "intermediate_size": 48, "patch_size": 14, "image_size": 140}  # fmt: skip
QWEN = {"hidden_size": 32, "num_heads": 4, "depth": 4, "intermediate_size": 48, "out_hidden_size": 64, "patch_size": 14,
        "fullatt_block_indexes": [3], "window_size": 56}  # fmt: skip
INTERN = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48,
          "patch_size": [14, 14], "image_size": [56, 56]}  # fmt: skip


def test_mistral_merges_patches_and_llava_does_not() -> None:
    merged = any_size.mistral3_tower(fields(PIXTRAL, spatial_merge_size=2))
    plain = any_size.llava_tower(fields(PIXTRAL))
    assert (merged.merge, plain.merge) == (2, 1)
    assert picture_sizes(merged, pixels=140 * 140) == (1.0, 100.0, 25.0)
    assert picture_sizes(plain, pixels=140 * 140) == (1.0, 100.0, 100.0)
    assert picture_sizes(plain, pixels=10_000 * 10_000)[2] == 100.0


def test_qwen_2_5_attends_within_squares_but_for_the_listed_layers() -> None:
    tower = any_size.windowed_tower(fields(QWEN))
    windows = [tower.layers[index].mixer for index in tower.layer_order]
    assert [mixer.sliding_window for mixer in windows if isinstance(mixer, AttentionSpec)] == [16, 16, 16, None]


def test_internvl_cuts_a_large_picture_into_tiles_and_a_small_copy() -> None:
    tower = fixed_size.internvl_tower(fields(INTERN, image_seq_length=4))
    assert picture_sizes(tower, pixels=56 * 56) == (1.0, 16.0, 4.0)
    assert picture_sizes(tower, pixels=4 * 56 * 56) == (5.0, 16.0, 4.0)


@pytest.mark.parametrize(
    ("read", "vision", "outer", "field"),
    [
        ("llava_tower", {**PIXTRAL, "model_type": "siglip_vision_model"}, {}, "vision_config.model_type"),
        ("mistral3_tower", {**PIXTRAL, "num_attention_heads": 5}, {}, "vision_config.num_attention_heads"),
        ("internvl_tower", INTERN, {"downsample_ratio": 2.0}, "downsample_ratio"),
        ("internvl_tower", {**INTERN, "image_size": [7, 7]}, {}, "vision_config.image_size"),
        ("windowed_tower", {**QWEN, "window_size": 7}, {}, "vision_config.window_size"),
        ("windowed_tower", {**QWEN, "out_hidden_size": None}, {}, "vision_config.out_hidden_size"),
    ],
)
def test_what_a_tower_does_not_describe_is_refused_by_field(
    read: str, vision: dict[str, object], outer: dict[str, object], field: str
) -> None:
    with pytest.raises(RoofcastError) as refused:
        getattr(fixed_size if hasattr(fixed_size, read) else any_size, read)(fields(vision, **outer))
    assert refused.value.field == field


def test_the_width_of_the_text_part_stands_inside_or_beside() -> None:
    assert text_width(fields(PIXTRAL)) == 64
    assert text_width(Fields({"hidden_size": 32}, config_class="AnyConfig")) == 32
    with pytest.raises(RoofcastError):
        text_width(Fields({"text_config": {"hidden_size": -1}}, config_class="AnyConfig"))


SIGLIP = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48,
          "patch_size": 14, "image_size": 84}  # fmt: skip


def test_pixels_shuffled_after_siglip_divide_the_tokens_of_a_tile() -> None:
    command = fixed_size.cohere_tower(fields(SIGLIP, downsample_factor=2, alignment_intermediate_size=96))
    small = fixed_size.smolvlm_tower(fields(SIGLIP, scale_factor=3))
    assert (command.tokens_per_image, small.tokens_per_image) == (9, 4)
    assert [(item.inputs, item.outputs) for item in command.projections] == [(128, 96), (48, 64)]
    assert [(item.inputs, item.outputs) for item in small.projections] == [(288, 64)]
