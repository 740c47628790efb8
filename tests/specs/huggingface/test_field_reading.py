"""``simulator.specs.huggingface.fields`` and ``simulator.specs.huggingface.layers``: strict reading, field by field."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import RoofcastError
from simulator.specs.huggingface.fields import MAX_LAYERS, Fields
from simulator.specs.huggingface.layers import distinct, prediction_layers, read_attention, read_trunk
from simulator.specs.huggingface.registry import field_table
from simulator.specs.huggingface.windows import FULL, SLIDING, every_nth_full, windows_of_types
from simulator.specs.model.architecture import LayerSpec, MlpSpec
from tests.for_every import for_every


def fields(**config: object) -> Fields:
    return Fields(config, config_class="TestConfig")


def refusal(call: Callable[[], object]) -> RoofcastError:
    with pytest.raises(RoofcastError) as refused:
        call()
    assert refused.value.code == "invalid_model_config"
    return refused.value


@given(st.integers(1, 10**9))
def test_a_size_is_read_as_it_stands(value: int) -> None:
    assert fields(n=value).size("n") == value
    assert fields(n=float(value)).size("n") == value


@for_every([0, -1, 2.5, "8", True, [8], float("nan")])
def test_what_is_not_a_positive_integer_is_no_size(value: object) -> None:
    assert refusal(lambda: fields(n=value).size("n")).field == "n"


def test_null_counts_as_absent() -> None:
    assert not fields(n=None).has("n")
    assert fields(n=None).optional_size("n") is None
    assert fields(n=None).size("n", default=7) == 7
    assert "TestConfig" in refusal(lambda: fields(n=None).size("n")).hint


def test_what_was_filled_in_is_told() -> None:
    config = fields(a=1)
    config.size("a")
    config.size("b", default=3)
    assert config.filled() == ("b=3",)


def test_a_depth_is_bounded() -> None:
    assert fields(n=MAX_LAYERS).depth("n") == MAX_LAYERS
    assert str(MAX_LAYERS) in refusal(lambda: fields(n=MAX_LAYERS + 1).depth("n")).message


@for_every([0, -0.5, float("inf"), float("nan"), "1", False])
def test_what_is_no_ratio_of_widths_is_refused(value: object) -> None:
    refusal(lambda: fields(x=value).ratio("x", default=1.0))


@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_flags_are_true_or_false(value: object) -> None:
    if value is None:
        assert fields(x=value).flag("x", default=True)
    else:
        refusal(lambda: fields(x=value).flag("x", default=True))


def test_words_come_one_a_layer() -> None:
    allowed = ("a", "b")
    assert fields(x=["a", "b", "a"]).words("x", length=3, allowed=allowed) == ("a", "b", "a")
    assert fields().words("x", length=3, allowed=allowed) is None
    assert "3 entries" in refusal(lambda: fields(x=["a"]).words("x", length=3, allowed=allowed)).message
    assert "'c'" in refusal(lambda: fields(x=["c"]).words("x", length=1, allowed=allowed)).message


def test_a_word_with_a_slip_is_answered_with_the_nearest() -> None:
    assert "gelu" in refusal(lambda: fields(x="gleu").text("x", allowed=("gelu", "relu"))).hint


def test_two_names_of_one_thing() -> None:
    assert fields(a=1).either("a", "b") == "a"
    assert fields(b=1).either("a", "b") == "b"
    assert fields().either("a", "b") == "a"
    assert fields(a=1, b=1).either("a", "b") == "a"
    assert refusal(lambda: fields(a=1, b=2).either("a", "b")).field == "b"


def test_expectations_accept_absence_null_and_the_value() -> None:
    for config in ({}, {"x": None}, {"x": 3}):
        fields(**config).expect("x", value=3, why="it is three")
    assert "it is three" in refusal(lambda: fields(x=4).expect("x", value=3, why="it is three")).message


def test_nested_fields_are_named_by_their_path() -> None:
    outer = fields(inner={"n": -1}, rows=[{"n": 1}, {"n": -1}])
    assert refusal(lambda: outer.section("inner").size("n")).field == "inner.n"
    first, second = outer.sections("rows", length=2)
    assert first.size("n") == 1
    assert refusal(lambda: second.size("n")).field == "rows[1].n"


@pytest.mark.parametrize("value", [None, 3, [], "x"])
def test_a_section_must_be_an_object(value: object) -> None:
    refusal(lambda: fields(inner=value).section("inner"))


def test_what_nobody_read_is_refused_also_inside_a_section() -> None:
    config = fields(a=1, inner={"b": 2, "c": 3})
    config.size("a")
    inner = config.section("inner")
    inner.size("b")
    assert refusal(config.finish).field == "inner.c"
    inner.costless("c")
    config.finish()


def test_the_rest_of_a_tower_may_be_declared_free() -> None:
    config = fields(vision={"a": 1, "b": 2})
    assert config.section("vision").size("a") == 1
    config.costless_rest("vision")
    config.finish()


@pytest.mark.parametrize("name", ["rope_theta", "bos_token_id", "initializer_range", "use_cache", "torch_dtype"])
def test_known_free_fields_need_no_reader(name: str) -> None:
    fields(**{name: 1}).finish(field_table().costless)


@for_every(
    [
        "hidden_size",
        "num_hidden_layers",
        "num_experts",
        "sliding_window",
        "tie_word_embeddings",
        "head_dim",
        "vocab_size",
    ]
)
def test_no_field_with_a_cost_is_declared_free(name: str) -> None:
    assert name not in field_table().costless


def trunk_fields(**changes: object) -> Fields:
    return fields(**{"hidden_size": 64, "num_hidden_layers": 4, "vocab_size": 100, "num_attention_heads": 8, **changes})


def test_the_context_has_two_names() -> None:
    assert read_trunk(trunk_fields()).max_position_embeddings is None
    for name in ("max_position_embeddings", "model_max_length"):
        assert read_trunk(trunk_fields(**{name: 2048})).max_position_embeddings == 2048


def test_heads_without_a_layout_fill_the_width() -> None:
    spec = read_attention(trunk_fields())
    assert (spec.num_attention_heads, spec.num_key_value_heads, spec.head_dim) == (8, 8, 8)


def test_defaults_of_a_family_go_before_the_width() -> None:
    spec = read_attention(trunk_fields(), kv_heads_default=2, head_dim_default=128)
    assert (spec.num_key_value_heads, spec.head_dim) == (2, 128)
    given_width = read_attention(trunk_fields(head_dim=16), head_dim_default=128)
    assert given_width.head_dim == 16


def test_kv_heads_must_divide_heads() -> None:
    assert refusal(lambda: read_attention(trunk_fields(num_key_value_heads=3))).field == ("num_key_value_heads")


@given(depth=st.integers(1, 60), period=st.integers(1, 12))
def test_every_nth_layer_sees_everything(depth: int, period: int) -> None:
    types = every_nth_full(depth, period)
    assert len(types) == depth
    assert types.count(FULL) == depth // period
    assert all(types[index] == FULL for index in range(period - 1, depth, period))


def test_sliding_layers_need_a_window() -> None:
    default = (SLIDING, FULL)
    assert windows_of_types(fields(), window=32, default=default) == (32, None)
    assert refusal(lambda: windows_of_types(fields(), window=None, default=default)).field == "sliding_window"


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12))
def test_distinct_layers_rebuild_the_stack(widths: list[int]) -> None:
    layers = tuple(LayerSpec(mixer=None, feed_forward=(MlpSpec(intermediate_size=width),)) for width in widths)
    known, order = distinct(layers)
    assert tuple(known[index] for index in order) == layers
    assert len(known) == len(set(widths))
    assert order[0] == 0


@pytest.mark.parametrize("name", ["num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers"])
def test_prediction_layers_are_counted_whichever_name_gives_them(name: str) -> None:
    assert prediction_layers(fields()) == 0
    assert prediction_layers(fields(**{name: 2})) == 2
