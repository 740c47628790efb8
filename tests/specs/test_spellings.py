"""The contract's words in other spellings: each stands for a profile, dtype or scheme that exists, and for one only."""

from __future__ import annotations

import pytest

from simulator.errors import ProfileError, RoofcastError, plain_word
from simulator.operators.formats.schemes import scheme_named
from simulator.specs.base import validate
from simulator.specs.engine.engine import EngineSpec, load_engine
from simulator.specs.hardware.accelerator import link_word, load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import DTYPES, METHODS, SCHEMES, Dtype, PrecisionSpec, scheme_word
from simulator.specs.profiles import list_profiles
from simulator.specs.question.scenario import ScenarioSpec
from tests.for_every import for_every

SERVED = {"id": 1, "kind": "serve", "model": "m", "hardware": "h"}


ENGINES = {name: load_engine(name) for name in list_profiles("engines")}
SPELLINGS = {word: name for name, engine in ENGINES.items() for word in (*engine.aliases, *engine.stands_in_for)}


@for_every(SPELLINGS.items())
def test_every_engine_word_is_an_engine_in_any_case(spelling: tuple[str, str]) -> None:
    word, name = spelling
    for text in (word, word.upper(), word.replace("-", "_"), f" {word.title()} "):
        assert load_engine(validate(EngineSpec, {"name": text}, where="").name).name == name
    assert word not in ENGINES, "a profile's own name needs no other"


def test_a_word_names_one_engine() -> None:
    assert len(SPELLINGS) == sum(len(engine.aliases) + len(engine.stands_in_for) for engine in ENGINES.values())


@pytest.mark.parametrize(("given", "name"), [("TensorRT-LLM", "tensorrt-llm"), ("trtllm", "tensorrt-llm"),
    ("TRT-LLM", "tensorrt-llm"), ("vLLM", "vllm"), ("SGLang", "sglang"), ("hf", "torch-eager"),
    ("Transformers", "torch-eager"), ("llama_cpp", "llama.cpp"), ("TGI", "tgi")])  # fmt: skip
def test_usual_spellings(given: str, name: str) -> None:
    assert load_engine(given).name == name
    assert plain_word(given) not in load_engine(given).stands_in_for


def test_an_engine_without_a_profile_is_said_to_be_stood_in_for() -> None:
    assert "lmdeploy" in load_engine("LMDeploy").stands_in_for
    with pytest.raises(ProfileError, match="unknown engine 'vlm'") as refusal:
        load_engine("vlm")
    assert refusal.value.hint == "did you mean vllm?"


def test_null_is_absent_and_a_version_may_be_a_number() -> None:
    spec = validate(EngineSpec, {"name": None, "version": 0.9, "max_num_seqs": None}, where="")
    assert spec.version == "0.9"
    assert spec.model_fields_set == {"version"}


@pytest.mark.parametrize(("word", "dtype"), DTYPES.items())
def test_every_dtype_word_is_a_dtype(word: str, dtype: str) -> None:
    spec = validate(PrecisionSpec, {"weights": word.upper(), "kv_cache": "auto"}, where="")
    assert spec.weights is Dtype(dtype)
    assert spec.kv_cache is None


@for_every([*SCHEMES, *METHODS, "GPTQ", "LLM.int8()", "Q4_K_M", "SmoothQuant-O3"])
def test_every_scheme_word_is_a_scheme(word: str) -> None:
    assert scheme_named(word, plain=Dtype.BF16) == scheme_named(scheme_word(word), plain=Dtype.BF16)


def test_a_method_as_the_weights_dtype_is_the_scheme() -> None:
    assert validate(PrecisionSpec, {"weights": "NVFP4"}, where="") == PrecisionSpec(scheme="NVFP4")
    three_bits = validate(PrecisionSpec, {"weights": "int3", "scheme": "gptq-3bit"}, where="")
    assert three_bits == PrecisionSpec(scheme="gptq-3bit")
    assert validate(PrecisionSpec, {"weights": "q8_0"}, where="") == PrecisionSpec(scheme="q8_0")


@pytest.mark.parametrize(("given", "link"), [("NVLink4", "nvlink"), ("NVLink 4.0", "nvlink"), ("nvswitch", "nvlink"),
    ("PCIe-5.0 x16", "pcie"), ("pcie4-x16", "pcie"), ("PCIe Gen4", "pcie"), ("Infinity Fabric", "xgmi"), ("ici", "ici"),
    ("neuronlink-v3", "neuronlink")])  # fmt: skip
def test_a_link_without_its_generation(given: str, link: str) -> None:
    assert link_word(given) == link


@pytest.mark.parametrize(("given", "name"), [("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"), ("Tesla T4", "t4"),
    ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"), ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
    ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
    ("Tesla V100-SXM2-32GB", "v100-sxm-32gb"), ("AMD Instinct MI300X", "mi300x"),
    ("NVIDIA GeForce RTX 4090", "rtx-4090"), ("Intel Gaudi 3", "gaudi3")])  # fmt: skip
def test_an_accelerator_as_its_driver_calls_it(given: str, name: str) -> None:
    assert load_hardware(given).name == name


@pytest.mark.parametrize(("given", "same"), [("Qwen/Qwen2.5-Coder-32B-Instruct", "qwen2.5-32b"),
    ("Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b"), ("NousResearch/Llama-2-7b-hf", "llama-2-7b"),
    ("llama2-70b", "llama-2-70b")])  # fmt: skip
def test_checkpoints_of_the_same_shapes_are_known(given: str, same: str) -> None:
    found, profile = load_model(given), load_model(same)
    assert (found.layers, found.layer_order, found.profile) == (profile.layers, profile.layer_order, same)


def test_lengths_beside_a_workload_are_its_lengths() -> None:
    stages = [{"rate_per_s": 1, "duration_s": 1}]
    outside = {**SERVED, "isl_tokens": 512, "osl_tokens": 16, "workload": {"stages": stages, "arrival": None}}
    inside = {**SERVED, "workload": {"stages": stages, "isl_tokens": 512, "osl_tokens": 16}}
    assert validate(ScenarioSpec, outside, where="") == validate(ScenarioSpec, inside, where="")
    agreeing = {**outside, "workload": {"stages": stages, "system_prompt_tokens": 12, "question_tokens": 500}}
    assert validate(ScenarioSpec, agreeing, where="").isl_tokens is None
    with pytest.raises(RoofcastError, match="contradicts the workload") as refusal:
        validate(ScenarioSpec, {**inside, "osl_tokens": 17}, where="")
    assert (refusal.value.field, refusal.value.code) == ("osl_tokens", "contradiction")


@pytest.mark.parametrize(("other", "field"), [("quantization", "precision"), ("tensor_parallel_size", "tp_size"),
    ("GPU", "hardware"), ("kv-cache-dtype", "precision.kv_cache"), ("max_num_seqs", "engine.max_num_seqs"),
    ("input_len", "isl_tokens")])  # fmt: skip
def test_words_of_engines_and_clients_lead_to_the_field(other: str, field: str) -> None:
    with pytest.raises(RoofcastError) as refused:
        validate(ScenarioSpec, SERVED | {other: 1}, where="")
    assert refused.value.hint == f"did you mean {field}?"
