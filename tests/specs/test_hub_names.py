"""Quantized checkpoints by their Hub name: base model, format, and what the name does not say."""

from __future__ import annotations

import pytest

from simulator.errors import ProfileError
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.transformer import operator_list, stored_bytes
from simulator.operators.work import prefill_step
from simulator.reports.words.fields import note_text
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.model.checkpoints import named_checkpoint
from simulator.specs.model.loading import list_models, load_model
from simulator.specs.model.precision import GGUF_MIXES, Dtype, PrecisionSpec
from tests.for_every import for_every


@pytest.mark.parametrize(
    ("name", "base", "method", "weights", "activations", "group"),
    [
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "llama-3.1-8b", "fp8", Dtype.FP8, Dtype.FP8, None),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "llama-3.1-8b", "fp8", Dtype.FP8, Dtype.FP8, None),
        ("Qwen/Qwen3-4B-Instruct-2507-FP8", "qwen3-4b", "fp8_block", Dtype.FP8, Dtype.FP8, 128),
        ("RedHatAI/Qwen3-32B-NVFP4", "qwen3-32b", "nvfp4", Dtype.FP4, Dtype.FP4, 16),
        ("RedHatAI/Llama-3.1-8B-Instruct-NVFP4A16", "llama-3.1-8b", "nvfp4", Dtype.FP4, Dtype.BF16, 16),
        ("nvidia/DeepSeek-R1-0528-FP4", "deepseek-v3", "nvfp4", Dtype.FP4, Dtype.FP4, 16),
        ("amd/DeepSeek-R1-MXFP4", "deepseek-v3", "mxfp4", Dtype.FP4, Dtype.FP4, 32),
        ("RedHatAI/Qwen2.5-7B-Instruct-quantized.w8a8", "qwen2.5-7b", "int8", Dtype.INT8, Dtype.INT8, None),
        ("RedHatAI/Qwen2.5-7B-Instruct-quantized.w4a16", "qwen2.5-7b", "int4", Dtype.INT4, Dtype.BF16, 128),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", "qwen2.5-72b", "awq", Dtype.INT4, Dtype.BF16, 128),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "qwen2.5-7b", "gptq", Dtype.INT4, Dtype.BF16, 128),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "qwen2.5-7b", "gptq", Dtype.INT8, Dtype.BF16, 128),
        ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "llama-3.1-70b", "awq", Dtype.INT4, Dtype.BF16, 128),
        ("ISTA-DASLab/gemma-3-27b-it-GPTQ-4b-128g", "gemma-3-27b", "gptq", Dtype.INT4, Dtype.BF16, 128),
        ("Intel/Qwen3-30B-A3B-Instruct-2507-int4-AutoRound", "qwen3-30b-a3b", "gptq", Dtype.INT4, Dtype.BF16, 128),
        ("unsloth/Qwen3-32B-GGUF", "qwen3-32b", "q4-k-m", Dtype.INT4, Dtype.BF16, None),
        ("unsloth/Qwen3-32B-GGUF:Q8_0", "qwen3-32b", "q8-0", Dtype.INT8, Dtype.BF16, None),
        ("google/gemma-3-27b-it-qat-q4_0-gguf", "gemma-3-27b", "q4-0", Dtype.INT4, Dtype.BF16, None),
    ],
)
def test_a_name_is_its_base_model_in_its_format(
    name: str, base: str, method: str, weights: Dtype, activations: Dtype, group: int | None
) -> None:
    model, plain = load_model(name), load_model(base)
    given = model.quantization
    assert given is not None
    assert (given.method, given.weights, given.activations, given.group_size) == (method, weights, activations, group)
    assert model.layers == plain.layers
    assert model.assumption is not None
    assert plain.name in note_text(model.assumption)
    assert model.assumption in model.notes


@for_every(GGUF_MIXES)
def test_a_gguf_repository_weighs_what_the_scheme_of_its_mix_weighs(mix: str) -> None:
    """Its LM head is part of the mix."""
    held = [
        stored_bytes(
            operator_list(
                model,
                parallelism=ParallelismSpec(),
                plan=precision_plan(model, asked),
                step=prefill_step(sequences=1, tokens=1),
            )
        )
        for model, asked in (
            (load_model(f"unsloth/Qwen3-8B-GGUF:{mix}"), PrecisionSpec()),
            (load_model("qwen3-8b"), PrecisionSpec(scheme=mix)),
        )
    ]
    assert held[0] == held[1] < 8.2e9 * 2


def test_a_checkpoint_with_a_profile_is_read_from_it() -> None:
    assert load_model("nvidia/Llama-3.1-70B-Instruct-FP8").assumption is None


def test_caches_are_those_of_the_publisher() -> None:
    caches = {
        name: load_model(f"{name}").quantization
        for name in ("nvidia/Llama-3.1-8B-Instruct-FP8", "RedHatAI/Llama-3.1-8B-Instruct-FP8")
    }
    assert [given.kv_cache if given else None for given in caches.values()] == [Dtype.FP8, None]
    given = load_model("amd/Llama-3.1-8B-Instruct-FP8-KV").quantization
    assert given is not None
    assert given.kv_cache is Dtype.FP8


@pytest.mark.parametrize("name", ["nobody/unheard-of-7b-FP8", "FP8", "-AWQ", "meta-llama/-GPTQ", "llama-3.1-8b-fp9"])
def test_a_format_without_a_known_base_is_refused(name: str) -> None:
    with pytest.raises(ProfileError) as refused:
        load_model(name)
    assert refused.value.field == "model"


def test_no_profile_s_own_name_is_taken_apart() -> None:
    """A name that a profile has goes before what its ending would mean."""
    for name in list_models():
        if named_checkpoint(name) is not None:
            assert load_model(name).assumption is None
