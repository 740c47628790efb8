"""The serving engine: its limits (what the user sets) and its overheads (what was fitted).

Engine profiles by name.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from simulator.specs.base import Source, Spec
from simulator.specs.profiles import load_spec
from simulator.specs.spellings import STAND_INS, engine_word, plain_word

SchedulerName = Literal[
    "chunked_mixed", "prefill_first", "prefill_first_mixed", "guaranteed_no_evict", "max_utilization", "static"
]
QueueOrderName = Literal["arrival", "longest_prefix"]
EngineName = Literal[
    "vllm",
    "sglang",
    "tensorrt-llm",
    "tgi",
    "llama.cpp",
    "deepspeed-mii",
    "fastertransformer",
    "torch",
    "torch-eager",
]


def _spelled(value: Any) -> Any:
    return engine_word(value) if isinstance(value, str) else value


SpelledEngineName = Annotated[EngineName, BeforeValidator(_spelled)]
"""An engine in any usual spelling."""


class EngineSpec(Spec):
    """The contract's ``engine`` object. ``None`` takes the default of the engine's profile.

    ``name`` in any usual spelling; ``stands_in_for`` is the engine without a profile that ``name`` stands in for.
    ``scheduler`` and ``queue_order`` as in ``EngineProfile``. ``cpu_kv_offload`` keeps evicted KV blocks and preempted
    sequences in host memory, ``cpu_kv_offload_bytes`` of it per replica (by default twice the device's KV cache).
    ``kv_allocation`` "max_length" sets room for max_model_len tokens aside for every request, as engines before
    PagedAttention did, in place of blocks as they fill.
    """

    name: EngineName = "vllm"
    version: str | None = None
    max_num_batched_tokens: PositiveInt | None = None
    max_num_seqs: PositiveInt | None = None
    max_model_len: PositiveInt | None = None
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    block_size_tokens: PositiveInt | None = None
    prefix_caching: bool | None = None
    cpu_kv_offload: bool | None = None
    cpu_kv_offload_bytes: PositiveFloat | None = None
    scheduler: SchedulerName | None = None
    queue_order: QueueOrderName | None = None
    kv_allocation: Literal["max_length"] | None = None
    stands_in_for: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _words(cls, data: Any) -> Any:
        """Nulls are absent, the name is spelled as the profiles spell it, and a version may be a number."""
        if not isinstance(data, dict):
            return data
        given = {key: value for key, value in data.items() if value is not None}
        name, version = given.get("name"), given.get("version")
        if isinstance(name, str):
            given["name"] = engine_word(name)
            if plain_word(name) in STAND_INS:
                given["stands_in_for"] = plain_word(name)
        if isinstance(version, int | float) and not isinstance(version, bool):
            given["version"] = str(version)
        return given


class EngineOverheads(Spec):
    """Global host-side costs of one engine; one handful for all models.

    step_s : host time per step that the GPU does not hide [s]
    step_per_sequence_s : the same per running sequence [s]
    request_s : from a request's arrival to its entry into the scheduler's queue, plus first-token return [s]
    prompt_token_s : tokenisation and similar per prompt token [s]
    eager_launch_s : host time to issue one kernel in eager execution [s]
    collective_lag_s : mean lag of a host that issues a collective; its devices wait for the slowest of them [s]
    reserve_bytes : memory of the runtime outside the tensors, per device
    collective_reserve_bytes : communication buffers, per device of a replica with several
    sampler_bytes_per_logit : temporaries of sampling per logit (float copies, sort keys and indices)
    speculation_chain_s, speculation_tree_s : host time of a round of speculation around its forward passes: compare and
        cut a chain of guesses; build a tree with its mask, walk it, compact the cache [s]
    host_speed : speed of one thread of the hosts on which these times were taken; that of an H100 server is 1
    """

    step_s: NonNegativeFloat
    step_per_sequence_s: NonNegativeFloat
    request_s: NonNegativeFloat
    prompt_token_s: NonNegativeFloat
    eager_launch_s: NonNegativeFloat
    collective_lag_s: NonNegativeFloat = 0.0
    reserve_bytes: NonNegativeFloat
    collective_reserve_bytes: NonNegativeFloat
    sampler_bytes_per_logit: NonNegativeFloat
    speculation_chain_s: NonNegativeFloat = 0.0
    speculation_tree_s: NonNegativeFloat = 0.0
    host_speed: PositiveFloat = 1.0

    def on_host(self, host_speed: float) -> EngineOverheads:
        """The same software on a host whose threads run at ``host_speed``: its times are inverse to it."""
        if host_speed == self.host_speed:
            return self
        slower = self.host_speed / host_speed
        times = {name: getattr(self, name) * slower for name in type(self).model_fields if name.endswith("_s")}
        return self.model_copy(update={**times, "host_speed": host_speed})


class EngineSpread(Spec):
    """Spread of log(measured / predicted) of whole requests beyond that of the kernels, from end-to-end errors.

    ttft_tail : the same of the slowest first tokens (p99), upwards only: a busy host delays requests now and then, and
        never makes one early
    steps : share of the spread of calibrated step times that is left in whole runs, because the overheads were fitted
        on whole runs and take up part of what the kernels' errors have in common
    """

    ttft: NonNegativeFloat
    tpot: NonNegativeFloat
    e2e: NonNegativeFloat
    ttft_tail: NonNegativeFloat = 0.0
    steps: float = Field(default=1.0, gt=0, le=1)


class VectorAttention(Spec):
    """Decode attention of an engine that has a matrix kernel for some head layouts only.

    matrix_groups : query heads per KV head that have one
    elements_per_clock : numbers of the cache that a compute unit takes in per clock where there is none
    """

    matrix_groups: tuple[PositiveInt, ...]
    elements_per_clock: PositiveFloat


class EngineRelease(Spec):
    """What was different in the versions of an engine before ``before``."""

    before: str
    overheads: EngineOverheads
    async_scheduling: bool
    side_stream_tokens: NonNegativeInt = 0
    vector_attention: VectorAttention | None = None
    spread: EngineSpread
    sources: dict[str, Source]

    def covers(self, version: str | None) -> bool:
        """Whether ``version`` came before; one without a number (a branch, a build) is taken for a later one."""
        asked = _release_number(version or "")
        return bool(asked) and asked < _release_number(self.before)


def _release_number(version: str) -> tuple[int, ...]:
    found = re.match(r"v?(\d+(?:\.\d+)*)", version.strip())
    return tuple(int(part) for part in found[1].split(".")) if found else ()


class EngineProfile(Spec):
    """An engine's default limits and fitted overheads (YAML under hardware_profiles/engines/).

    ``memory_rule`` says what gpu_memory_utilization is a share of: "of_total" all memory, with weights, activations and
    cache in it (vLLM); "static" weights and cache, activations beside them (SGLang); "of_free" the cache takes that
    share of what weights, activations and runtime leave (TensorRT-LLM).
    ``scheduler`` says what a step is made of and when another sequence is admitted: "chunked_mixed" decodes first and
    prompts in chunks beside them, admitted when their prompt fits, the last admitted thrown out when the cache is full
    (vLLM); "max_utilization" the same under TensorRT-LLM's name; "guaranteed_no_evict" mixed too, but a request starts
    only when its whole answer fits (TensorRT-LLM, TGI); "prefill_first" steps of prompts alone before steps of decodes
    alone, admitted when a share of the running answers would fit too (SGLang); "prefill_first_mixed" the same with
    decodes beside the prompts (SGLang --enable-mixed-chunk); "static" a batch is collected, runs to the end of its
    longest member, and then the next starts. ``queue_order`` "longest_prefix" admits first who finds most of its prompt
    in the prefix cache (SGLang --schedule-policy lpm). ``async_scheduling``: a step is put together while the one
    before runs.
    ``reserves_full_length``: a request starts only when the cache can hold its prompt and all its output.
    ``eager``: every kernel is launched by the host as it comes, neither fused nor captured in a CUDA graph.
    ``runs_published_code``: speculation runs as its authors published it, without a serving engine's own drafting.
    ``side_stream_tokens``: up to that many tokens in a step, shared experts run on a stream beside the routed ones (0:
    never).
    ``vector_attention``: head layouts whose decode attention has no matrix kernel (absent: all have one).
    ``releases``: what earlier versions had instead, oldest first.
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
    scheduler: SchedulerName
    queue_order: QueueOrderName = "arrival"
    async_scheduling: bool
    prefix_caching: bool
    chunked_prefill: bool
    eager: bool
    runs_published_code: bool = False
    cuda_graph_max_sequences: PositiveInt
    side_stream_tokens: NonNegativeInt = 0
    vector_attention: VectorAttention | None = None
    overheads: EngineOverheads
    spread: EngineSpread
    sources: dict[str, Source]
    releases: tuple[EngineRelease, ...] = ()

    def release(self, version: str | None) -> EngineRelease | None:
        """The earlier release that ``version`` belongs to; None for the profile's own."""
        return next((release for release in self.releases if release.covers(version)), None)

    def at(self, version: str | None) -> EngineProfile:
        """The profile as it was in ``version`` (None: the profile's own)."""
        release = self.release(version)
        if release is None:
            return self
        changed = {
            "overheads": release.overheads,
            "async_scheduling": release.async_scheduling,
            "side_stream_tokens": release.side_stream_tokens,
            "vector_attention": release.vector_attention,
            "spread": release.spread,
        }
        return self.model_copy(update=changed)

    def on_host(self, host_speed: float) -> EngineProfile:
        """The profile on a host of another speed."""
        return self.model_copy(update={"overheads": self.overheads.on_host(host_speed)})

    @model_validator(mode="after")
    def _scheduler_and_memory_agree(self) -> EngineProfile:
        if self.reserves_full_length != (self.scheduler == "guaranteed_no_evict"):
            raise ValueError("reserves_full_length belongs to scheduler guaranteed_no_evict, and to it alone")
        return self


def load_engine(name: str, *, profiles: str | None = None) -> EngineProfile:
    """An engine profile by name or path; raises ProfileError with the nearest names when there is none."""
    return load_spec(EngineProfile, name, kind="engines", profiles=profiles)
