"""The serving engine: its limits (what the user sets) and its overheads (what was fitted)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from simulator.specs.base import Source, Spec

EngineName = Literal["vllm", "sglang", "tensorrt-llm", "tgi", "llama.cpp", "torch", "torch-eager"]


class EngineSpec(Spec):
    """The contract's ``engine`` object. ``None`` takes the default of the engine's profile."""

    name: EngineName = "vllm"
    version: str | None = None
    max_num_batched_tokens: PositiveInt | None = None
    max_num_seqs: PositiveInt | None = None
    max_model_len: PositiveInt | None = None
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    block_size_tokens: PositiveInt | None = None
    prefix_caching: bool | None = None
    cpu_kv_offload: bool | None = None


class EngineOverheads(Spec):
    """Global host-side costs of one engine; one handful for all models.

    step_s : host time per step that the GPU does not hide [s]
    step_per_sequence_s : the same per running sequence [s]
    request_s : from a request's arrival to its entry into the scheduler's queue, plus first-token return [s]
    prompt_token_s : tokenisation and similar per prompt token [s]
    eager_launch_s : host time to issue one kernel in eager execution [s]
    reserve_bytes : memory of the runtime outside the tensors, per device
    collective_reserve_bytes : communication buffers, per device of a replica with several
    sampler_bytes_per_logit : temporaries of sampling per logit (float copies, sort keys and indices)
    """

    step_s: NonNegativeFloat
    step_per_sequence_s: NonNegativeFloat
    request_s: NonNegativeFloat
    prompt_token_s: NonNegativeFloat
    eager_launch_s: NonNegativeFloat
    reserve_bytes: NonNegativeFloat
    collective_reserve_bytes: NonNegativeFloat
    sampler_bytes_per_logit: NonNegativeFloat


class EngineSpread(Spec):
    """Spread of log(measured / predicted) of whole requests beyond that of the kernels, from end-to-end errors."""

    ttft: NonNegativeFloat
    tpot: NonNegativeFloat
    e2e: NonNegativeFloat


class EngineProfile(Spec):
    """An engine's default limits and fitted overheads (YAML under hardware_profiles/engines/).

    ``memory_rule`` says what gpu_memory_utilization is a share of: "of_total" all memory, with weights, activations and
    cache in it (vLLM); "static" weights and cache, activations beside them (SGLang); "of_free" the cache takes that
    share of what weights, activations and runtime leave (TensorRT-LLM).
    ``reserves_full_length``: a request starts only when the cache can hold its prompt and all its output.
    ``eager``: every kernel is launched by the host as it comes, neither fused nor captured in a CUDA graph.
    """

    name: EngineName
    version: str
    kernel_library: Literal["vllm", "sglang", "trtllm", "torch"]
    max_num_batched_tokens: PositiveInt
    max_num_seqs: PositiveInt
    gpu_memory_utilization: float = Field(gt=0, le=1)
    block_size_tokens: PositiveInt
    memory_rule: Literal["of_total", "static", "of_free"]
    reserves_full_length: bool
    prefix_caching: bool
    chunked_prefill: bool
    eager: bool
    cuda_graph_max_sequences: PositiveInt
    overheads: EngineOverheads
    spread: EngineSpread
    sources: dict[str, Source]
