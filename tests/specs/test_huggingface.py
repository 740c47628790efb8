"""config.json -> ModelSpec: what each family's fields mean, and what is refused instead of guessed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import FileError, ProfileError, RoofcastError
from simulator.operators.transformer import layer_rows
from simulator.operators.vision import vision_parameters
from simulator.reports.words.fields import note_texts
from simulator.specs.huggingface.registry import field_table, read_config
from simulator.specs.model.architecture import (
    AttentionSpec,
    GatedDeltaSpec,
    MambaSpec,
    MlaSpec,
    MlpSpec,
    ModelSpec,
    MoeSpec,
)
from simulator.specs.model.loading import list_models, load_model, read_profile
from simulator.specs.model.precision import Dtype
from simulator.specs.profiles import profile_root
from tests.for_every import for_every

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
    "topk_method": "noaux_tc", "vocab_size": 129280, "torch_dtype": "bfloat16",
}  # fmt: skip


def read(config: dict[str, Any], **changes: Any) -> ModelSpec:
    return read_config({**config, **changes}, name="test")


def without(config: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in names}


def only_mixer(spec: ModelSpec) -> AttentionSpec:
    mixer = spec.layers[0].mixer
    assert isinstance(mixer, AttentionSpec)
    return mixer


class TestMeaning:
    def test_a_llama_is_equal_layers_of_grouped_attention_and_gated_mlp(self) -> None:
        spec = read(LLAMA)
        assert len(spec.layers) == 1
        assert spec.layer_counts == (32,)
        assert only_mixer(spec) == AttentionSpec(num_attention_heads=32, num_key_value_heads=8, head_dim=128)
        assert spec.layers[0].feed_forward == (MlpSpec(intermediate_size=14336),)
        assert (spec.dtype, spec.norm, spec.quantization) == (Dtype.BF16, "rms", None)

    def test_the_field_order_does_not_matter(self) -> None:
        assert read(dict(reversed(LLAMA.items()))) == read(LLAMA)

    def test_fields_without_cost_change_nothing(self) -> None:
        decorated = read(LLAMA, bos_token_id=1, attention_dropout=0.1, rope_theta=5e5, auto_map={"a": "b"})
        assert decorated == read(LLAMA)

    def test_defaults_of_the_config_class_are_filled_and_told(self) -> None:
        spec = read(without(LLAMA, "num_key_value_heads"))
        assert only_mixer(spec).num_key_value_heads == 32
        assert any("LlamaConfig" in note and "num_key_value_heads=32" in note for note in note_texts(spec.notes))

    @pytest.mark.parametrize(("use", "windows"), [(False, {None}), (True, {None, 4096})])
    def test_qwen2_slides_only_where_switched_on(self, use: bool, windows: set[int | None]) -> None:
        spec = read(LLAMA, model_type="qwen2", use_sliding_window=use, sliding_window=4096, max_window_layers=20)
        found = {layer.mixer.sliding_window for layer in spec.layers if isinstance(layer.mixer, AttentionSpec)}
        assert found == windows
        if use:
            assert spec.layer_order.count(0) == 20

    def test_gemma3_sees_everything_on_each_sixth_layer(self) -> None:
        spec = read(without(LLAMA, "tie_word_embeddings"), model_type="gemma3_text", num_hidden_layers=12, head_dim=256,
                    sliding_window=512)  # fmt: skip
        windows = [spec.layers[index].mixer.sliding_window for index in spec.layer_order]
        assert windows == ([512] * 5 + [None]) * 2
        assert spec.tie_word_embeddings

    def test_deepseek_begins_with_dense_layers(self) -> None:
        spec = read(DEEPSEEK)
        assert spec.layer_counts == (3, 58)
        assert isinstance(spec.layers[0].mixer, MlaSpec)
        block = spec.layers[1].feed_forward[0]
        assert isinstance(block, MoeSpec)
        assert (block.num_experts, block.shared_expert_intermediate_size, block.correction_bias) == (256, 2048, True)

    def test_deepseek_v32_adds_an_indexer_to_the_same_layers(self) -> None:
        plain = read(DEEPSEEK)
        spec = read(DEEPSEEK, model_type="deepseek_v32", index_n_heads=64, index_head_dim=128, index_topk=2048)
        for layer, reference in zip(spec.layers, plain.layers, strict=True):
            assert isinstance(layer.mixer, MlaSpec)
            assert layer.mixer.indexer is not None
            assert layer.mixer.model_copy(update={"indexer": None}) == reference.mixer

    def test_shared_indexers_score_nothing_but_still_bound_the_keys(self) -> None:
        types = ["full"] * 3 + ["shared"] * 58
        spec = read(DEEPSEEK, model_type="glm_moe_dsa", index_n_heads=32, index_head_dim=128, index_topk=2048,
                    indexer_types=types)  # fmt: skip
        last = spec.layers[spec.layer_order[-1]].mixer
        assert isinstance(last, MlaSpec)
        assert last.indexer is not None
        assert last.indexer.reuses_previous
        assert last.indexer.index_topk == 2048

    def test_jamba_mixes_one_attention_layer_in_eight(self) -> None:
        spec = load_model("jamba-v0.1")
        kinds = [spec.layers[index].mixer for index in spec.layer_order]
        assert [position for position, mixer in enumerate(kinds) if isinstance(mixer, AttentionSpec)] == [4, 12, 20, 28]
        assert sum(isinstance(mixer, MambaSpec) for mixer in kinds) == 28

    def test_qwen3_next_has_three_linear_layers_per_full_one(self) -> None:
        spec = load_model("qwen3-next-80b-a3b")
        full = [isinstance(spec.layers[index].mixer, AttentionSpec) for index in spec.layer_order]
        assert full == [False, False, False, True] * 12
        assert isinstance(spec.layers[0].mixer, GatedDeltaSpec)

    def test_nemotron_nas_sizes_every_layer_by_itself(self) -> None:
        spec = load_model("nvidia/Llama-3_3-Nemotron-Super-49B-v1")
        assert spec.num_hidden_layers == 80
        assert any(layer.mixer is None for layer in spec.layers)
        assert all(layer.norms == (layer.mixer is not None) + len(layer.feed_forward) for layer in spec.layers)

    def test_gemma4_stores_one_projection_for_keys_and_values_on_full_layers(self) -> None:
        spec = load_model("gemma-4-26b-a4b")
        full = spec.layers[spec.layer_order[-1]].mixer
        assert isinstance(full, AttentionSpec)
        assert full.value_is_key
        assert (full.head_dim, full.num_key_value_heads, full.sliding_window) == (512, 2, None)

    def test_t5_has_two_stacks_and_one_bias_table_each(self) -> None:
        spec = load_model("t5-base")
        assert spec.encoder is not None
        for layers in (spec.layers, spec.encoder.layers):
            tables = [layer.mixer.position_bias_parameters for layer in layers]  # type: ignore[union-attr]
            assert tables == [32 * 12, 0]
        assert all(layer.cross_attention is not None for layer in spec.layers)

    def test_a_vision_tower_is_stored_and_an_unknown_one_told(self) -> None:
        vision = load_model("Qwen/Qwen3-VL-8B-Instruct").vision
        assert vision is not None
        assert vision_parameters(vision, layer_rows) == pytest.approx(0.58e9, rel=0.01)
        assert "vision tower not simulated and not counted" in note_texts(load_model("moonshotai/Kimi-K3").notes)

    @given(depth=st.integers(1, 60), period=st.integers(1, 9))
    def test_every_layer_is_ordered_once(self, depth: int, period: int) -> None:
        spec = read(LLAMA, model_type="gemma3_text", num_hidden_layers=depth, sliding_window_pattern=period,
                    sliding_window=512)  # fmt: skip
        assert spec.num_hidden_layers == depth
        assert sum(spec.layer_counts) == depth
        full = sum(spec.layers[index].mixer.sliding_window is None for index in spec.layer_order)
        assert full == depth // period


class TestRefusals:
    @pytest.mark.parametrize(
        "name",
        ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size", "model_type"],
    )
    def test_a_missing_field_is_named(self, name: str) -> None:
        with pytest.raises(RoofcastError, match="missing") as refusal:
            read(without(LLAMA, name))
        assert refusal.value.field == name

    @pytest.mark.parametrize("value", [0, -1, -4096, 3.5, "4096", True, [4096], float("nan")])
    @pytest.mark.parametrize("name", ["hidden_size", "num_key_value_heads", "vocab_size"])
    def test_a_size_is_a_positive_integer(self, name: str, value: object) -> None:
        with pytest.raises(RoofcastError) as refusal:
            read(LLAMA, **{name: value})
        assert refusal.value.field == name
        assert refusal.value.code == "invalid_model_config"

    @pytest.mark.parametrize("name", ["hyper_connections", "num_attention_head", "kv_lora_rank", "num_local_experts"])
    def test_an_unknown_field_is_refused_by_name_with_value_and_family(self, name: str) -> None:
        with pytest.raises(RoofcastError, match="LlamaConfig") as refusal:
            read(LLAMA, **{name: 17})
        assert refusal.value.field == name
        assert "17" in refusal.value.message
        assert refusal.value.hint

    def test_an_unknown_field_of_a_nested_section_is_refused(self) -> None:
        text = {**without(LLAMA, "torch_dtype"), "model_type": "qwen3_vl_text", "surprise": 3}
        with pytest.raises(RoofcastError) as refusal:
            read_config({"model_type": "qwen3_vl", "text_config": text}, name="test")
        assert refusal.value.field == "text_config.surprise"

    @pytest.mark.parametrize(
        ("given_type", "meant"), [("lama", "llama"), ("qwen3moe", "qwen3_moe"), ("gptneox", "gpt_neox")]
    )
    def test_an_unknown_architecture_gets_the_nearest(self, given_type: str, meant: str) -> None:
        with pytest.raises(RoofcastError) as refusal:
            read(LLAMA, model_type=given_type)
        assert refusal.value.code == "unknown_architecture"
        assert meant in refusal.value.hint

    def test_architectures_that_are_not_modelled_say_why(self) -> None:
        with pytest.raises(RoofcastError, match="not modelled: its"):
            read(LLAMA, model_type="gemma3n")

    def test_every_reader_of_the_table_belongs_to_a_family(self) -> None:
        families = field_table().families.values()
        named = {family.get("read") for family in families} | {f"vision.{family.get('tower')}" for family in families}
        assert set(field_table().readers) <= named

    @for_every(sorted(field_table().families))
    def test_no_family_makes_a_model_out_of_nothing(self, model_type: str) -> None:
        with pytest.raises(RoofcastError):
            read_config({"model_type": model_type}, name="test")

    @for_every(sorted(field_table().families))
    def test_no_family_swallows_an_unknown_field(self, model_type: str) -> None:
        example = next((spec for spec in _profile_configs() if spec["model_type"] == model_type), None)
        if example is None:
            example = {**LLAMA, "model_type": model_type}
        with pytest.raises(RoofcastError):
            read_config({**example, "a_field_of_tomorrow": 2}, name="test")

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"num_attention_heads": 33}, "num_attention_heads"),
            ({"num_key_value_heads": 5}, "num_key_value_heads"),
            ({"torch_dtype": "float5"}, "torch_dtype"),
            ({"mlp_bias": "yes"}, "mlp_bias"),
            ({"add_cross_attention": True}, "add_cross_attention"),
            ({"tie_word_embeddings": 1}, "tie_word_embeddings"),
        ],
    )
    def test_contradictions_of_a_llama(self, changes: dict[str, Any], field: str) -> None:
        with pytest.raises(RoofcastError) as refusal:
            read(LLAMA, **changes)
        assert refusal.value.field == field

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"num_experts_per_tok": 257}, "num_experts_per_tok"),
            ({"moe_layer_freq": 2}, "moe_layer_freq"),
            ({"moe_layer_freq": [0, 1]}, "moe_layer_freq"),
            ({"topk_method": "by_lot"}, "topk_method"),
            ({"num_key_value_heads": 8}, "num_key_value_heads"),
        ],
    )
    def test_contradictions_of_a_deepseek(self, changes: dict[str, Any], field: str) -> None:
        with pytest.raises(RoofcastError) as refusal:
            read(DEEPSEEK, **changes)
        assert refusal.value.field == field

    def test_layer_types_must_fit_the_depth(self) -> None:
        with pytest.raises(RoofcastError, match="32 entries"):
            read(LLAMA, model_type="gemma2", layer_types=["full_attention"] * 31)

    def test_two_names_for_one_size_must_agree(self) -> None:
        gpt2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}
        gpt2["vocab_size"] = 50257
        assert read(gpt2, hidden_size=768) == read(gpt2)
        with pytest.raises(RoofcastError, match="n_embd is 768"):
            read(gpt2, hidden_size=1024)

    @pytest.mark.parametrize(
        "name",
        [
            *("llama-3.1-8b", "dbrx", "t5-3b"),
            *(
                pytest.param(name, marks=pytest.mark.slow)
                for name in ("deepseek-v3.2", "kimi-k2.5", "gemma-4-26b-a4b", "nemotron-3-nano-30b-a3b")
            ),
        ],
    )
    def test_any_damage_to_a_field_is_a_refusal_or_a_model(self, name: str) -> None:
        config = dict(read_profile(profile_root("model_profiles") / f"{name}.yaml").config)
        damage: tuple[object, ...] = (None, -1, 0, "x", [], [1], {}, {1: 2}, 1.5, True, 10**12, float("inf"))
        refused = 0
        for path in _paths(config):
            for value in damage:
                damaged = copy.deepcopy(config)
                section: Any = damaged
                for step in path[:-1]:
                    section = section[step]
                section[path[-1]] = value
                try:
                    assert isinstance(read_config(damaged, name="test"), ModelSpec)
                except RoofcastError as error:
                    assert error.field  # noqa: PT017 - either outcome is right, any other exception is not
                    refused += 1
        assert refused > 5 * len(config)

    def test_a_depth_beyond_reason_is_refused_at_once(self) -> None:
        with pytest.raises(RoofcastError, match="layers") as refusal:
            read(LLAMA, num_hidden_layers=10**12)
        assert refusal.value.field == "num_hidden_layers"


def _paths(config: dict[str, Any]) -> list[tuple[str, ...]]:
    """Every field, those of nested objects included."""
    found: list[tuple[str, ...]] = []
    for name, value in config.items():
        found.append((name,))
        if isinstance(value, dict):
            found += [(name, *rest) for rest in _paths(value)]
    return found


@lru_cache(maxsize=1)
def _profile_configs() -> tuple[dict[str, Any], ...]:
    root = profile_root("model_profiles")
    return tuple(dict(read_profile(root / f"{name}.yaml").config) for name in list_models())


class TestQuantization:
    def quantized(self, **section: Any) -> Any:
        return read(LLAMA, quantization_config=section).quantization

    def test_fp8_per_tensor_and_per_block(self) -> None:
        assert self.quantized(quant_method="fp8", activation_scheme="static").method == "fp8"
        block = self.quantized(quant_method="fp8", weight_block_size=[128, 128])
        assert (block.method, block.group_size, block.weights, block.activations) == ("fp8_block", 128, "fp8", "fp8")

    def test_gptq_and_awq_are_weight_only(self) -> None:
        gptq = self.quantized(quant_method="gptq", bits=4, group_size=128, desc_act=False, sym=True)
        awq = self.quantized(quant_method="awq", bits=4, group_size=64, zero_point=True, version="gemm")
        assert (gptq.weights, gptq.activations, gptq.group_size) == (Dtype.INT4, Dtype.BF16, 128)
        assert (awq.method, awq.weights, awq.group_size) == ("awq", Dtype.INT4, 64)
        assert gptq.unquantized == ("lm_head",)

    def test_bitsandbytes_in_four_and_eight_bits(self) -> None:
        four = self.quantized(quant_method="bitsandbytes", load_in_4bit=True, bnb_4bit_quant_type="nf4")
        eight = self.quantized(quant_method="bitsandbytes", load_in_8bit=True)
        assert (four.method, four.weights, four.group_size) == ("bnb-nf4", Dtype.INT4, 64)
        assert (eight.method, eight.weights, eight.activations) == ("llm.int8", Dtype.INT8, Dtype.INT8)

    def test_compressed_tensors_reads_bits_and_type(self) -> None:
        group = {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "int", "group_size": 32, "strategy": "group"},
            "input_activations": None,
        }
        found = self.quantized(quant_method="compressed-tensors", config_groups={"group_0": group}, ignore=["lm_head"])
        assert (found.weights, found.activations, found.group_size) == (Dtype.INT4, Dtype.BF16, 32)

    def test_nvfp4_with_fp8_keys_and_values(self) -> None:
        found = self.quantized(quant_method="modelopt", quant_algo="NVFP4", kv_cache_scheme="FP8", group_size=16)
        assert (found.method, found.weights, found.activations, found.kv_cache) == ("nvfp4", "fp4", "fp4", "fp8")

    def test_gpt_oss_quantizes_only_its_experts(self) -> None:
        spec = load_model("openai/gpt-oss-120b")
        assert spec.quantization is not None
        assert (spec.quantization.method, spec.quantization.group_size) == ("mxfp4", 32)
        assert spec.quantization.unquantized == ("attention", "lm_head")

    def test_kimi_k25_quantizes_only_its_routed_experts(self) -> None:
        spec = load_model("moonshotai/Kimi-K2.5")
        assert spec.quantization is not None
        assert spec.quantization.unquantized == ("attention", "mlp", "shared_expert", "lm_head")

    def test_excluding_one_norm_or_router_excludes_no_role(self) -> None:
        listed = ["lm_head", "model.layers.16.input_layernorm", "model.layers.16.mlp.gate"]
        assert self.quantized(quant_method="fp8", modules_to_not_convert=listed).unquantized == ("lm_head",)

    @pytest.mark.parametrize(
        ("section", "field"),
        [
            ({"quant_method": "fp7"}, "quantization_config.quant_method"),
            ({}, "quantization_config.quant_method"),
            ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "quantization_config.weight_block_size"),
            ({"quant_method": "fp8", "novelty": 1}, "quantization_config.novelty"),
            ({"quant_method": "gptq", "bits": 3, "group_size": 128}, "quantization_config.bits"),
            ({"quant_method": "gptq", "group_size": 128}, "quantization_config.bits"),
            ({"quant_method": "bitsandbytes"}, "quantization_config.load_in_4bit"),
            ({"quant_method": "compressed-tensors"}, "quantization_config.config_groups"),
        ],
    )
    def test_what_is_not_understood_is_refused(self, section: dict[str, Any], field: str) -> None:
        with pytest.raises(RoofcastError) as refusal:
            self.quantized(**section)
        assert refusal.value.field == field


class TestPaths:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
        return tmp_path

    @pytest.mark.parametrize(
        "spelling", [lambda p: p, str, lambda p: p / "config.json", lambda p: str(p / "config.json")]
    )
    def test_a_file_or_its_folder(self, folder: Path, spelling: Callable[[Path], str | Path]) -> None:
        spec = load_model(spelling(folder))
        assert spec == read(LLAMA).model_copy(update={"name": folder.name})

    def test_a_path_that_does_not_exist(self, tmp_path: Path) -> None:
        with pytest.raises(FileError, match="does not exist"):
            load_model(tmp_path / "nowhere" / "config.json")

    def test_a_folder_without_a_config(self, tmp_path: Path) -> None:
        with pytest.raises(FileError, match=r"holds no config\.json"):
            load_model(tmp_path)

    @pytest.mark.parametrize("content", ["{", "", "[1, 2]", '{"model_type": "llama",}', "null"])
    def test_malformed_json(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "config.json").write_text(content, encoding="utf-8")
        with pytest.raises(ProfileError):
            load_model(tmp_path)

    @pytest.mark.parametrize(
        ("given_name", "meant"),
        [("llama-3.1-70", "llama-3.1-70b"), ("Qwen/Qwen3-8", "qwen/qwen3-8b"), ("mixtrel-8x7b", "mixtral-8x7b")],
    )
    def test_an_unknown_name_gets_the_nearest(self, given_name: str, meant: str) -> None:
        with pytest.raises(ProfileError, match="unknown model") as refusal:
            load_model(given_name)
        assert meant in refusal.value.hint

    def test_a_user_profile_wins_over_the_built_in_one(self, tmp_path: Path) -> None:
        (tmp_path / "models").mkdir()
        lines = ["name: llama-3.1-8b", "aliases: [mine/Special]", "source: a test", "date: '2026-01-01'", "config:"]
        lines += [f"  {name}: {json.dumps(value)}" for name, value in {**LLAMA, "num_hidden_layers": 3}.items()]
        (tmp_path / "models" / "llama-3.1-8b.yaml").write_text("\n".join(lines), encoding="utf-8")
        assert load_model("llama-3.1-8b", profiles=tmp_path).num_hidden_layers == 3
        assert load_model("MINE/special", profiles=tmp_path).num_hidden_layers == 3
        assert load_model("llama-3.1-8b").num_hidden_layers == 32
