"""``simulator.specs.huggingface.quantized.quantization``: what a quantization_config says about the stored weights."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.transformer import operator_list, stored_bytes
from simulator.operators.work import decode_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.huggingface.quantized.module_roles import covered_roles, layer_modules
from simulator.specs.model.architecture import QuantizationSpec
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype, PrecisionSpec
from tests.specs.huggingface.tensors import Sizes, plain_config, read

SIZE = Sizes(hidden=256, layers=8, heads=8, kv_heads=2, intermediate=512, vocab=1000)


def quantized(section: dict[str, object] | None, **changes: object) -> dict[str, object]:
    config = {**plain_config("llama", SIZE), "tie_word_embeddings": False, **changes}
    return config if section is None else {**config, "quantization_config": section}


def spec_of(section: dict[str, object]) -> QuantizationSpec:
    found = read(quantized(section)).quantization
    assert found is not None
    return found


def weights_bytes(section: dict[str, object] | None) -> float:
    spec = read(quantized(section))
    rows = operator_list(
        spec,
        parallelism=ParallelismSpec(),
        plan=precision_plan(spec, PrecisionSpec()),
        step=decode_step(sequences=1, context=8),
    )
    return stored_bytes(rows)


PRODUCTS = SIZE.layers * (
    2 * SIZE.hidden * SIZE.hidden
    + 2 * SIZE.hidden * SIZE.kv_heads * SIZE.head_dim
    + 3 * SIZE.hidden * SIZE.intermediate
)
"""Weights of the layers' products; embedding, head and norms are never converted."""


@pytest.mark.parametrize(
    ("section", "method", "weights", "activations", "group"),
    [
        ({"quant_method": "fp8"}, "fp8", Dtype.FP8, Dtype.FP8, None),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block", Dtype.FP8, Dtype.FP8, 128),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptq", Dtype.INT4, Dtype.BF16, 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "gptq", Dtype.INT8, Dtype.BF16, None),
        ({"quant_method": "awq", "w_bit": 4, "group_size": 64}, "awq", Dtype.INT4, Dtype.BF16, 64),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "llm.int8", Dtype.INT8, Dtype.INT8, None),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
            "bnb-nf4", Dtype.INT4, Dtype.BF16, 64,
        ),
        ({"quant_method": "mxfp4"}, "mxfp4", Dtype.FP4, Dtype.BF16, 32),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", Dtype.FP4, Dtype.FP4, 16),
        ({"quant_algo": "FP8"}, "fp8", Dtype.FP8, Dtype.FP8, None),
        ({"quant_method": "bitnet", "linear_class": "autobitlinear"}, "bitnet", Dtype.INT1, Dtype.INT8, None),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, "fp8_block", Dtype.FP8, Dtype.FP8, 128),
        ({"quant_algo": "W4A16_AWQ", "group_size": 128}, "awq", Dtype.INT4, Dtype.BF16, 128),
    ],
)  # fmt: skip
def test_methods(
    section: dict[str, object], method: str, weights: Dtype, activations: Dtype, group: int | None
) -> None:
    spec = spec_of(section)
    assert (spec.method, spec.weights, spec.activations, spec.group_size) == (method, weights, activations, group)
    assert "lm_head" in spec.unquantized


def compressed(**group: object) -> dict[str, object]:
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"]}


FLOAT8 = {"num_bits": 8, "type": "float"}
FLOAT4 = {"num_bits": 4, "type": "float"}
BLOCKS8 = {**FLOAT8, "strategy": "block", "block_structure": [128, 128]}
INT8 = {"num_bits": 8, "type": "int"}
INT4 = {"num_bits": 4, "type": "int", "group_size": 128}


@pytest.mark.parametrize(
    ("section", "method", "weights", "activations"),
    [
        (compressed(weights=FLOAT8, input_activations=FLOAT8), "fp8", Dtype.FP8, Dtype.FP8),
        (compressed(weights=INT8, input_activations=INT8), "int8", Dtype.INT8, Dtype.INT8),
        (compressed(weights=INT4), "int4", Dtype.INT4, Dtype.BF16),
        (compressed(weights={**FLOAT4, "group_size": 16}, input_activations=FLOAT4), "nvfp4", Dtype.FP4, Dtype.FP4),
        (compressed(weights={**FLOAT4, "group_size": 32}), "mxfp4", Dtype.FP4, Dtype.BF16),
        (
            compressed(weights=BLOCKS8, input_activations=FLOAT8),
            "fp8_block", Dtype.FP8, Dtype.FP8,
        ),
    ],
)  # fmt: skip
def test_compressed_tensors(section: dict[str, object], method: str, weights: Dtype, activations: Dtype) -> None:
    spec = spec_of(section)
    assert (spec.method, spec.weights, spec.activations) == (method, weights, activations)


def test_a_cache_format_is_read_where_it_is_given() -> None:
    section = {**compressed(weights=FLOAT8, input_activations=FLOAT8), "kv_cache_scheme": FLOAT8}
    assert spec_of(section).kv_cache is Dtype.FP8
    assert spec_of({"quant_algo": "FP8", "kv_cache_scheme": "FP8"}).kv_cache is Dtype.FP8
    assert spec_of(compressed(weights=FLOAT8, input_activations=FLOAT8)).kv_cache is None


def test_8_bit_products_take_half_and_16_bit_ones_two_bytes_a_weight() -> None:
    plain, narrow = weights_bytes(None), weights_bytes({"quant_method": "fp8"})
    assert plain - narrow == pytest.approx(PRODUCTS, rel=0.01)


@pytest.mark.parametrize(("group", "bits"), [(32, 4 + 20 / 32), (64, 4 + 20 / 64), (128, 4 + 20 / 128)])
def test_groups_of_4_bit_weights_bring_their_scales_and_zeros(group: int, bits: float) -> None:
    """A 16-bit scale and a 4-bit zero point for each group."""
    saved = weights_bytes(None) - weights_bytes({"quant_method": "awq", "bits": 4, "group_size": group})
    assert saved == pytest.approx(PRODUCTS * (16 - bits) / 8, rel=0.01)


@pytest.mark.parametrize(
    ("ignored", "kept"),
    [
        (["lm_head"], {"lm_head"}),
        (["model.layers.*.self_attn.o_proj", "lm_head"], {"attention", "lm_head"}),
        (["re:.*self_attn.*"], {"attention"}),
        (["re:.*mlp.*"], {"mlp"}),
        (["self_attn"], {"attention"}),
        ([f"language_model.model.layers.{layer}.mlp.down_proj" for layer in range(5)], {"mlp"}),
        ([f"model.layers.{layer}.self_attn.o_proj" for layer in range(5)], {"attention"}),
        ([f"model.layers.{layer}.self_attn.o_proj" for layer in range(4)], set()),
        (["model.layers.0.self_attn.o_proj"], set()),
    ],
)
def test_a_role_is_kept_where_patterns_cover_most_of_its_layers(ignored: list[str], kept: set[str]) -> None:
    section = {**compressed(weights=FLOAT8, input_activations=FLOAT8), "ignore": ignored}
    assert set(spec_of(section).unquantized) == kept


def listed(**formats: str) -> dict[str, object]:
    layers = {
        f"model.layers.{layer}.{module.replace('__', '.')}": {"quant_algo": algorithm}
        for layer in range(SIZE.layers)
        for module, algorithm in formats.items()
    }
    return {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}


def test_modelopt_lists_a_format_for_each_layer() -> None:
    spec = spec_of(listed(self_attn__o_proj="FP8", mlp__down_proj="W4A16_NVFP4"))
    assert (spec.method, spec.weights, spec.activations, spec.group_size) == ("nvfp4", Dtype.FP4, Dtype.BF16, 16)
    assert [(own.role, own.weights, own.activations) for own in spec.roles] == [("attention", Dtype.FP8, Dtype.FP8)]
    assert "lm_head" in spec.unquantized


def test_mixed_formats_weigh_what_their_roles_weigh() -> None:
    mixed = weights_bytes(listed(self_attn__o_proj="FP8", mlp__down_proj="NVFP4"))
    attention = SIZE.layers * SIZE.hidden * (2 * SIZE.hidden + 2 * SIZE.kv_heads * SIZE.head_dim)
    saved = attention * (16 - 8) / 8 + (PRODUCTS - attention) * (16 - 4.5) / 8
    assert weights_bytes(None) - mixed == pytest.approx(saved, rel=1e-6)


def test_two_groups_of_compressed_tensors_name_their_layers() -> None:
    four = {"num_bits": 4, "type": "float", "group_size": 16}
    section = {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "rest": {"targets": ["Linear"], "weights": four, "input_activations": four},
            "first": {"targets": ["re:.*self_attn.*"], "weights": FLOAT8, "input_activations": FLOAT8},
        },
        "ignore": ["lm_head"],
    }
    spec = spec_of(section)
    assert (spec.method, spec.unquantized) == ("nvfp4", ("lm_head",))
    assert [(own.role, own.method) for own in spec.roles] == [("attention", "fp8")]


def test_experts_beside_a_dense_block_are_not_covered_by_its_name() -> None:
    """Gemma 4 keeps ``mlp*`` and converts the experts beside it."""
    model = load_model("nvidia/Gemma-4-26B-A4B-NVFP4")
    layers = layer_modules(model)
    patterns = [f"model.language_model.layers.{layer}.mlp*" for layer in range(30)]
    assert covered_roles(patterns, layers=layers) == ("mlp",)


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ({"quant_method": "gptqq"}, "quant_method"),
        ({"quant_method": "gptq", "bits": 3}, "bits"),
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "weight_block_size"),
        ({"quant_method": "bitsandbytes"}, "load_in_4bit"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": True}, "load_in_4bit"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "config_groups"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {}, "b": {}}}, "config_groups"),
        (compressed(weights={"num_bits": 2, "type": "int"}), "config_groups.weights"),
        ({"quant_method": "fp8", "modules_to_not_convert": "lm_head"}, "modules_to_not_convert"),
        ({"quant_method": "fp8", "surprise": 1}, "surprise"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "quantized_layers"),
        (listed(self_attn__o_proj="W5A5"), "quantized_layers"),
        (listed(self_attn__o_proj="FP8", self_attn__q_proj="NVFP4"), "quantized_layers"),
        (listed(strange="FP8"), "quantized_layers"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(section: dict[str, object], field: str) -> None:
    with pytest.raises(RoofcastError) as refused:
        read(quantized(section))
    assert refused.value.field == f"quantization_config.{field}"


def test_no_section_no_format() -> None:
    assert read(quantized(None)).quantization is None
