"""The serving engine: its limits (what the user sets) and its overheads (what was fitted).

An engine is a YAML file under hardware_profiles/engines/ with what its documentation says, and one of the same name
under hardware_profiles/calibration/engines/ with what was fitted. No code knows an engine by its name.
"""

from __future__ import annotations

from dataclasses import replace
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
from pydantic_core import PydanticCustomError

from simulator.specs.base import Source, Spec
from simulator.specs.documents import read_yaml
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.limits import (
    LIMIT_FIELDS,
    EngineLimits,
    LimitRule,
    LimitSource,
    nearest_release,
    release_number,
    ruled,
)
from simulator.specs.engine.recipe import KernelLibraryName, KernelRecipe
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.profiles import find_profile, list_profiles, load_spec
from simulator.specs.spellings import plain_word

SchedulerName = Literal[
    "chunked_mixed", "prefill_first", "prefill_first_mixed", "guaranteed_no_evict", "max_utilization", "static"
]
QueueOrderName = Literal["arrival", "longest_prefix"]
MemoryRule = Literal["of_total", "static", "of_free"]
DEFAULT_ENGINE = "vllm"
"""Runs whatever a question leaves open: of every kind, command and page."""


def _spelled(value: Any) -> Any:
    """The name of the profile that ``value`` names in any of its spellings."""
    if not isinstance(value, str):
        return value
    path = find_profile("engines", value)
    if path is None:
        known = ", ".join(repr(name) for name in list_profiles("engines"))
        raise PydanticCustomError("literal_error", "Input should be {expected}", {"expected": known})
    return path.stem.lower()


EngineName = Annotated[str, BeforeValidator(_spelled)]
"""An engine that has a profile, in any usual spelling."""


class EngineSpec(Spec):
    """The contract's ``engine`` object. ``None`` takes the default of the engine's profile.

    ``name`` in any usual spelling; ``stands_in_for`` is the engine without a profile that ``name`` stands in for.
    ``scheduler`` and ``queue_order`` as in ``EngineProfile``. ``cpu_kv_offload`` keeps evicted KV blocks and preempted
    sequences in host memory, ``cpu_kv_offload_bytes`` of it per replica (by default twice the device's KV cache).
    ``kv_allocation`` "max_length" sets room for max_model_len tokens aside for every request, as engines before
    PagedAttention did, in place of blocks as they fill.
    """

    name: EngineName = DEFAULT_ENGINE
    version: str | None = None
    max_num_batched_tokens: PositiveInt | None = None
    max_num_seqs: PositiveInt | None = None
    max_model_len: PositiveInt | None = None
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    block_size_tokens: PositiveInt | None = None
    prefix_caching: bool | None = None
    chunked_prefill: bool | None = None
    cpu_kv_offload: bool | None = None
    cpu_kv_offload_bytes: PositiveFloat | None = None
    scheduler: SchedulerName | None = None
    queue_order: QueueOrderName | None = None
    kv_allocation: Literal["max_length"] | None = None
    stands_in_for: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _words(cls, data: Any) -> Any:
        """Nulls are absent, an engine without a profile is remembered, and a version may be a number."""
        if not isinstance(data, dict):
            return data
        given = {key: value for key, value in data.items() if value is not None}
        name, version = given.get("name"), given.get("version")
        if isinstance(name, str):
            word = plain_word(name)
            path = find_profile("engines", word)
            if path is not None and word in load_engine(path.stem).stands_in_for:
                given["stands_in_for"] = word
        if isinstance(version, int | float) and not isinstance(version, bool):
            given["version"] = str(version)
        return given


def named_engine(name: str | None) -> EngineSpec:
    """The engine of that name; without one the default, which an answer then lists among its assumptions."""
    return EngineSpec() if name is None else EngineSpec(name=name)


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
    vector_elements_per_clock : numbers of the cache that the vector units of a compute unit take in per clock, where
        decode attention has no matrix kernel
    launch_gap_s : device time between a kernel of a step and the next, beyond what kernels cost back to back in a
        benchmark's loop [s]
    tuned_share : share of the rate of tuned kernels that products and experts reach in the engine, with the kernels
        that it finds for shapes which nobody tuned
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
    vector_elements_per_clock: NonNegativeFloat = 0.0
    launch_gap_s: NonNegativeFloat = 0.0
    tuned_share: float = Field(default=1.0, gt=0, le=1)
    host_speed: PositiveFloat = 1.0

    def on_host(self, host_speed: float) -> EngineOverheads:
        """The same software on a host whose threads run at ``host_speed``: its own times are inverse to it."""
        if host_speed == self.host_speed:
            return self
        slower = self.host_speed / host_speed
        times = {name: getattr(self, name) * slower for name in type(self).model_fields if name in HOST_TIMES}
        return self.model_copy(update={**times, "host_speed": host_speed})


HOST_TIMES = tuple(name for name in EngineOverheads.model_fields if name.endswith("_s") and name != "launch_gap_s")
"""Overheads that a faster host shortens."""


class EngineSpread(Spec):
    """Spread of log(measured / predicted) of whole requests beyond that of the kernels, from end-to-end errors.

    ttft_tail : the same of the slowest first tokens (p99), upwards only: a busy host delays requests now and then, and
        never makes one early
    loops : of time per token and throughput of closed loops on others' machines, releases and recipes, in place of
        ``tpot`` and ``e2e``; None where none were measured
    steps : share of the spread of calibrated step times that is left in whole runs, because the overheads were fitted
        on whole runs and take up part of what the kernels' errors have in common
    """

    ttft: NonNegativeFloat
    tpot: NonNegativeFloat
    e2e: NonNegativeFloat
    ttft_tail: NonNegativeFloat = 0.0
    loops: NonNegativeFloat | None = None
    steps: float = Field(default=1.0, gt=0, le=1)


class EngineFit(Spec):
    """What was fitted to measured runs of one release of an engine."""

    overheads: EngineOverheads
    spread: EngineSpread
    sources: dict[str, Source]


class EngineFits(Spec):
    """An engine's fits (YAML under hardware_profiles/calibration/engines/), written by validation/fit.

    cache_logged_on : accelerators on which the memory plan was compared with the engine's own logs
    releases : those of earlier releases, by the version that ended them
    vendors : those on the accelerators of a vendor whose kernels the engine takes from elsewhere
    """

    engine: str
    date: str
    cache_logged_on: tuple[str, ...] = ()
    overheads: EngineOverheads
    spread: EngineSpread
    sources: dict[str, Source]
    releases: dict[str, EngineFit] = Field(default_factory=dict)
    vendors: dict[str, EngineFit] = Field(default_factory=dict)


class EngineRelease(EngineFit):
    """What was different in the versions of an engine before the one that it is filed under."""

    async_scheduling: bool
    side_stream_tokens: NonNegativeInt = 0
    matrix_groups: tuple[PositiveInt, ...] = ()
    recipe: KernelRecipe = KernelRecipe()
    cuda_graph_max_sequences: NonNegativeInt | None = None


def _came_before(version: str | None, release: str) -> bool:
    """Whether ``version`` came before ``release``; one without a number (a branch, a build) counts as a later one."""
    asked = release_number(version or "")
    return bool(asked) and asked < release_number(release)


class EngineProfile(Spec):
    """An engine's default limits (YAML under hardware_profiles/engines/) with its `EngineFits`.

    ``aliases`` are other spellings of its name; ``stands_in_for`` names engines without a profile whose kernels and
    scheduler are nearest to its own. A profile that states its ``overheads`` itself needs no fits.
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
    ``cuda_graph_max_sequences``: of the largest captured step; 0: none is, the host launches (fused) kernels itself.
    ``runs_published_code``: speculation runs as its authors published it, without a serving engine's own drafting.
    ``side_stream_tokens``: up to that many tokens in a step, shared experts run on a stream beside the routed ones (0:
    never).
    ``prompt_gather_steps``: steps that attention-data-parallel ranks let prompts wait until every rank has one, so that
    one rank's prompts do not hold up all others at other times (0: a prompt starts at once).
    ``matrix_groups``: query heads per KV head whose decode attention has a matrix kernel (empty: all have one).
    ``recipe``: kernels that it runs where its library's tables were measured on others.
    ``releases``: what earlier versions had instead, by the version that ended them, oldest first.
    ``rules``: limits that a release takes on some devices in place of the profile's, by release; the profile's
    ``version`` is among them. A release without rules takes those of the nearest one.
    ``vendors``: the fits on accelerators of other vendors, where runs there were measured.
    """

    name: str
    aliases: tuple[str, ...] = ()
    stands_in_for: tuple[str, ...] = ()
    version: str
    kernel_library: KernelLibraryName
    max_num_batched_tokens: PositiveInt
    max_num_seqs: PositiveInt
    gpu_memory_utilization: float = Field(gt=0, le=1)
    block_size_tokens: PositiveInt
    memory_rule: MemoryRule
    reserves_full_length: bool
    scheduler: SchedulerName
    queue_order: QueueOrderName = "arrival"
    async_scheduling: bool
    prefix_caching: bool
    chunked_prefill: bool
    eager: bool
    runs_published_code: bool = False
    cuda_graph_max_sequences: NonNegativeInt
    side_stream_tokens: NonNegativeInt = 0
    matrix_groups: tuple[PositiveInt, ...] = ()
    recipe: KernelRecipe = KernelRecipe()
    prompt_gather_steps: NonNegativeInt = 0
    cache_logged_on: tuple[str, ...] = ()
    overheads: EngineOverheads
    spread: EngineSpread
    sources: dict[str, Source]
    releases: dict[str, EngineRelease] = Field(default_factory=dict)
    rules: dict[str, tuple[LimitRule, ...]] = Field(default_factory=dict)
    vendors: dict[str, EngineFit] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _with_fits(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "overheads" in data or not isinstance(data.get("name"), str):
            return data
        path = find_profile("calibration/engines", data["name"])
        return data if path is None else _joined(data, read_yaml(path))

    def release(self, version: str | None) -> str | None:
        """The version that ended the release which ``version`` belongs to; None for the profile's own."""
        return next((before for before in self.releases if _came_before(version, before)), None)

    def at(self, version: str | None) -> EngineProfile:
        """The profile as it was in ``version`` (None: the profile's own)."""
        before = self.release(version)
        if before is None:
            return self
        release = self.releases[before]
        changed: dict[str, object] = {
            "overheads": release.overheads,
            "async_scheduling": release.async_scheduling,
            "side_stream_tokens": release.side_stream_tokens,
            "matrix_groups": release.matrix_groups,
            "recipe": release.recipe,
            "spread": release.spread,
            "vendors": {},
        }
        if release.cuda_graph_max_sequences is not None:
            changed["cuda_graph_max_sequences"] = release.cuda_graph_max_sequences
        return self.model_copy(update=changed)

    def on_vendor(self, vendor: str) -> EngineProfile:
        """The profile with the fits on accelerators of ``vendor``, where there are any of its own release."""
        fit = self.vendors.get(vendor)
        return self if fit is None else self.model_copy(update={"overheads": fit.overheads, "spread": fit.spread})

    def on_host(self, host_speed: float) -> EngineProfile:
        """The profile on a host of another speed."""
        return self.model_copy(update={"overheads": self.overheads.on_host(host_speed)})

    def limits(self, spec: EngineSpec, *, hardware: AcceleratorSpec, parallelism: ParallelismSpec) -> EngineLimits:
        """Limits of the release that ``spec`` names on a device: those that it gives, the others as the engine does."""
        asked = spec.version or self.version
        release = nearest_release(asked, self.rules or (self.version,))
        known = release == asked or release_number(release) == release_number(asked) != ()
        source = LimitSource(engine=self.name, release=release, asked=None if known else asked)
        own = {name: getattr(self, name) for name in LIMIT_FIELDS}
        found = ruled(
            EngineLimits(**own, sources=(source,) * len(LIMIT_FIELDS)),
            (rule for rule in self.rules.get(release, ()) if rule.holds(hardware, parallelism)),
            given_tokens=spec.max_num_batched_tokens,
            devices=parallelism.tp_size * parallelism.pp_size,
            memory_bytes=hardware.memory_visible_bytes,
        )
        given = {name: getattr(spec, name, None) for name in LIMIT_FIELDS}
        return replace(found, **{name: value for name, value in given.items() if value is not None})

    @model_validator(mode="after")
    def _scheduler_and_memory_agree(self) -> EngineProfile:
        if self.reserves_full_length != (self.scheduler == "guaranteed_no_evict"):
            raise ValueError("reserves_full_length belongs to scheduler guaranteed_no_evict, and to it alone")
        unsourced = [release for release in self.rules if f"rules.{release}" not in self.sources]
        if unsourced:
            raise ValueError(f"rules of {', '.join(unsourced)} have no source: sources.rules.{unsourced[0]}")
        if self.rules and self.version not in self.rules:
            raise ValueError(f"rules lack the profile's own version {self.version}; they have {', '.join(self.rules)}")
        return self


def _joined(facts: dict[str, Any], fits: dict[str, Any]) -> dict[str, Any]:
    """A profile's facts with its fits, release by release."""
    fitted = {name: value for name, value in fits.items() if name not in ("engine", "date")}
    joined = {**fitted, **facts, "sources": {**facts.get("sources", {}), **fits.get("sources", {})}}
    if "releases" in facts:
        earlier = fits.get("releases", {})
        joined["releases"] = {
            before: _joined(release, earlier.get(before, {})) for before, release in facts["releases"].items()
        }
    return joined


def load_engine(name: str, *, profiles: str | None = None) -> EngineProfile:
    """An engine profile by name or path; raises ProfileError with the nearest names when there is none."""
    return load_spec(EngineProfile, name, kind="engines", profiles=profiles)


def engine_limits(
    spec: EngineSpec, *, hardware: AcceleratorSpec, parallelism: ParallelismSpec, profiles: str | None = None
) -> EngineLimits:
    """Limits that the engine of ``spec`` runs with on a device: what is given there, and its own choice of the rest."""
    profile = load_engine(spec.name, profiles=profiles)
    return profile.limits(spec, hardware=hardware, parallelism=parallelism)
