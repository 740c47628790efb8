"""The list of published quantized checkpoints: what its names say, and which one a plan finds."""

from __future__ import annotations

import pytest

from simulator.reports.words.fields import note_text
from simulator.specs.base import Note
from simulator.specs.model.checkpoints import (
    named_checkpoint,
    published_checkpoint,
    published_checkpoints,
    published_fp8_cache,
)
from simulator.specs.model.loading import list_models, load_model
from simulator.specs.model.precision import Dtype

LLAMA = "meta-llama/Llama-3.1-70B-Instruct"
ALL = ("modelopt", "compressed-tensors", "fp8_block", "mxfp4", "awq", "gptq", "quark")


def test_every_entry_is_named_after_its_format_and_loads_as_it() -> None:
    found = published_checkpoints()
    assert len({item.id for item in found}) == len(found)
    for item in found:
        model = load_model(item.id)
        assert model.quantization is not None, item.id
        # Of some only the experts are in the format of the name.
        formats = {model.quantization.weights, *(role.weights for role in model.quantization.roles)}
        assert item.format.weights in formats, item.id


def test_every_quantized_profile_with_a_known_base_is_in_the_list() -> None:
    listed = {item.id.lower() for item in published_checkpoints()}
    known = {name.lower() for name in list_models()}
    missing = []
    for name in list_models():
        checkpoint = load_model(name).checkpoint or name
        taken_apart = named_checkpoint(checkpoint)
        if taken_apart is not None and taken_apart.bases[-1] in known and checkpoint.lower() not in listed:
            missing.append(checkpoint)
    # Two of one model and format: the list has the one that is not per tensor.
    assert missing == ["Qwen/Qwen3-32B-FP8-Static-PerTensor"]


@pytest.mark.parametrize(
    ("weights", "scheme", "kinds", "found"),
    [
        (Dtype.FP8, None, ALL, "nvidia/Llama-3.1-70B-Instruct-FP8"),
        (Dtype.FP8, None, ("quark",), "amd/Llama-3.1-70B-Instruct-FP8-KV"),
        (Dtype.FP8, None, ("gguf",), None),
        (Dtype.INT4, "awq", ALL, "hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4"),
        (Dtype.INT4, "gptq-g128", ALL, "hugging-quants/Meta-Llama-3.1-70B-Instruct-GPTQ-INT4"),
        (Dtype.FP4, None, ALL, None),
        (Dtype.BF16, None, ALL, None),
    ],
)
def test_the_first_of_the_planned_format_that_the_engine_loads_is_found(
    weights: Dtype, scheme: str | None, kinds: tuple[str, ...], found: str | None
) -> None:
    inputs = Dtype.FP8 if weights is Dtype.FP8 else Dtype.BF16
    item = published_checkpoint(LLAMA, weights=weights, activations=inputs, scheme=scheme, kinds=kinds)  # type: ignore[arg-type]
    assert (item.id if item else None) == found


def test_other_models_of_the_same_shape_have_their_own_checkpoints() -> None:
    formats = {"weights": Dtype.FP8, "activations": Dtype.FP8, "scheme": None, "kinds": ALL}
    found = published_checkpoint("meta-llama/Llama-3.3-70B-Instruct", **formats)  # type: ignore[arg-type]
    assert found is not None
    assert found.id == "nvidia/Llama-3.3-70B-Instruct-FP8"
    assert published_checkpoint("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", **formats) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "method", "cached"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "fp8", True),  # NVIDIA's comes first
        ("meta-llama/Llama-3.3-70B-Instruct", "nvfp4", True),
        ("deepseek-ai/DeepSeek-R1-0528", "nvfp4", True),
        ("Qwen/Qwen3-32B", "nvfp4", True),  # nobody listed: whoever publishes NVFP4
        ("Qwen/Qwen3-32B", "fp8", False),  # blocks of its maker, which say no cache
        ("Qwen/Qwen2.5-72B-Instruct", "fp8", False),  # Red Hat's
        ("openai/gpt-oss-120b", "fp8", False),
    ],
)
def test_weights_bring_the_cache_of_the_checkpoint_that_they_stand_for(model: str, method: str, cached: bool) -> None:
    assert (published_fp8_cache(model, method=method) is not None) is cached


def test_what_says_the_cache_is_named_and_called_assumed_where_it_was_not_read() -> None:
    read = published_fp8_cache("deepseek-ai/DeepSeek-V3.1", method="nvfp4")
    recalled = published_fp8_cache("deepseek-ai/DeepSeek-R1-0528", method="nvfp4")
    unlisted = published_fp8_cache("Qwen/Qwen3-32B", method="nvfp4")
    assert read == Note("cache_read", {"checkpoint": "nvidia/DeepSeek-V3.1-NVFP4"})
    assert recalled is not None
    assert note_text(recalled).startswith("assumed of nvidia/DeepSeek-R1-0528-FP4")
    assert unlisted is not None
    assert note_text(unlisted).startswith("assumed")


def test_every_profile_of_a_publisher_that_caches_in_fp8_does() -> None:
    # What the rule assumes of checkpoints that nobody read holds for all that were.
    owned = [item for item in published_checkpoints() if item.source == "profile" and item.id.startswith("nvidia/")]
    read = [load_model(item.id).quantization for item in owned if item.format.method in ("fp8", "nvfp4")]
    assert len(read) > 20
    assert all(found is not None and found.kv_cache is Dtype.FP8 for found in read)


@pytest.mark.parametrize(
    ("copy", "original"),
    [
        ("unsloth/gpt-oss-120b", "openai/gpt-oss-120b"),
        ("RedHatAI/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.3-70B-Instruct"),
        ("unsloth/Kimi-K2-Instruct", "moonshotai/Kimi-K2-Instruct"),
        ("meta-llama/Meta-Llama-3.3-70B-Instruct", "meta-llama/Llama-3.3-70B-Instruct"),
    ],
)
def test_a_copy_under_another_publisher_is_the_model_itself(copy: str, original: str) -> None:
    found, own = load_model(copy), load_model(original)
    assert (found.profile, found.quantization) == (own.profile, own.quantization)


@pytest.mark.parametrize(
    ("name", "profile", "method"),
    [
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8", "nemotron-3-nano-30b-a3b", "fp8"),
        ("lmsys/gpt-oss-120b-bf16", "gpt-oss-120b", None),
        ("unsloth/DeepSeek-R1-0528-BF16", "deepseek-v3", None),
    ],
)
def test_names_that_say_16_bits(name: str, profile: str, method: str | None) -> None:
    """Of the base model, or of weights that somebody has widened."""
    model = load_model(name)
    assert model.profile == profile
    assert (model.quantization.method if model.quantization else None) == method
